//! Tests of the book.

use super::*;
use crate::{FindingCode, issue};

fn missing(disk: &str, severity: Severity) -> Issue {
    issue(FindingCode::DiskMissing, severity, format!("disk {disk}"), "it is missing", "Bring it back.")
}

fn who() -> Acknowledgement {
    Acknowledgement { by: "admin".into(), time: 5, note: "known".into() }
}

fn kinds(news: &[News]) -> Vec<&'static str> {
    let kind = |news: &News| match news {
        News::Seen(_) => "seen",
        News::Worse(_) => "worse",
        News::Cleared(_) => "cleared",
    };
    news.iter().map(kind).collect()
}

fn all(book: &Book) -> Vec<Finding> {
    book.list(&FindingQuery { state: Some("all".into()), ..FindingQuery::default() }).expect("a list")
}

#[test]
fn it_comes_once_and_goes_once() {
    let mut book = Book::default();
    let a = [missing("a", Severity::Error)];
    assert_eq!(kinds(&book.look(100, &a)), ["seen"]);
    assert_eq!(kinds(&book.look(110, &a)), [""; 0]);
    assert_eq!(kinds(&book.look(120, &[])), [""; 0]);
    assert_eq!(all(&book)[0].state, FindingState::Clearing);
    assert_eq!(kinds(&book.look(120 + CLEAR_AFTER, &[])), ["cleared"]);
    let gone = &all(&book)[0];
    assert_eq!(
        (gone.state, gone.cleared, gone.first_seen, gone.last_seen),
        (FindingState::Cleared, Some(120), 100, 110)
    );
    assert!(book.list(&FindingQuery::default()).expect("a list").is_empty());
    assert_eq!(kinds(&book.look(1000, &[])), [""; 0]);
}

#[test]
fn what_flaps_is_one_finding() {
    let mut book = Book::default();
    let a = [missing("a", Severity::Error)];
    let mut news = Vec::new();
    for round in 0..20 {
        news.extend(book.look(1000 + round * 60, if round % 2 == 0 { &a } else { &[] }));
    }
    assert_eq!(kinds(&news), ["seen"], "one event, not twenty");
    let found = &all(&book)[0];
    assert_eq!((found.times, found.first_seen), (10, 1000));
}

#[test]
fn each_time_has_its_own_beginning() {
    let mut book = Book::default();
    let a = [missing("a", Severity::Error)];
    let since = |book: &Book| {
        let mut lines = a.clone();
        book.annotate(&mut lines);
        lines[0].since
    };
    assert_eq!(since(&book), None);
    book.look(1000, &a);
    book.look(1030, &a);
    assert_eq!(since(&book), Some(1000));
    book.look(1040, &[]);
    assert_eq!(since(&book), None, "it was gone at the last look");
    book.look(1050, &a);
    book.look(1060, &a);
    assert_eq!(since(&book), Some(1050), "not since the first of several short times");
    // Also after the node was started again, which remembers the first time as well.
    let again = crate::read(&crate::write(&book).expect("bytes")).expect("a book");
    assert_eq!((since(&again), all(&again)[0].first_seen), (Some(1050), 1000));
    // A clock that is set back leaves nothing since the future.
    book.look(500, &a);
    assert_eq!(since(&book), Some(500));
}

#[test]
fn what_comes_again_later_begins_anew_and_is_counted() {
    let mut book = Book::default();
    let a = [missing("a", Severity::Error)];
    book.look(0, &a);
    book.look(10, &[]);
    book.look(10 + CLEAR_AFTER, &[]);
    assert_eq!(kinds(&book.look(5000, &a)), ["seen"]);
    let found = &all(&book)[0];
    assert_eq!((found.times, found.first_seen, found.acknowledged.clone()), (2, 5000, None));
}

#[test]
fn an_acknowledgement_ends_when_it_gets_worse_or_clears() {
    let mut book = Book::default();
    let id = finding_id("disk-missing", "disk a");
    assert_eq!(book.acknowledge(&id, who()), None, "there is none");
    book.look(0, &[missing("a", Severity::Warning)]);
    assert!(book.acknowledge(&id, who()).expect("there").acknowledged.is_some());
    // It is there in the lines, too.
    let mut lines = [missing("a", Severity::Warning)];
    book.annotate(&mut lines);
    assert_eq!((lines[0].since, lines[0].acknowledged.clone()), (Some(0), Some(who())));
    // The line that is worse than what is known is not covered, before the next look as after it.
    let mut worse = [missing("a", Severity::Error)];
    book.annotate(&mut worse);
    assert_eq!(worse[0].acknowledged, None);
    book.look(10, &[missing("a", Severity::Info)]);
    assert!(all(&book)[0].acknowledged.is_some(), "less bad is known of still");
    assert_eq!(kinds(&book.look(20, &worse)), ["worse"]);
    assert_eq!(all(&book)[0].acknowledged, None);
    book.look(30, &[missing("a", Severity::Warning)]);
    assert_eq!(kinds(&book.look(40, &worse)), [""; 0], "worse is told once");
    book.acknowledge(&id, who());
    assert!(book.unacknowledge(&id).expect("there").acknowledged.is_none());
    book.acknowledge(&id, who());
    book.look(50, &[]);
    assert!(all(&book)[0].acknowledged.is_some(), "it may come back");
    book.look(50 + CLEAR_AFTER, &[]);
    assert_eq!(book.acknowledge(&id, who()), None, "it has gone");
    book.look(9999, &worse);
    assert_eq!(all(&book)[0].acknowledged, None);
}

#[test]
fn clocks_that_are_set_neither_clear_nor_keep_it_for_ever() {
    let mut book = Book::default();
    let a = [missing("a", Severity::Error)];
    book.look(1_000_000, &a);
    book.look(1_000_010, &[]);
    // It was set back by days: it begins to go now.
    assert_eq!(kinds(&book.look(1000, &[])), [""; 0]);
    assert_eq!(kinds(&book.look(1000 + CLEAR_AFTER, &[])), ["cleared"]);
    book.look(2_000_000, &a);
    book.look(100, &a);
    assert_eq!(all(&book)[0].first_seen, 100, "nothing is since the future");
}

#[test]
fn it_is_bounded() {
    let mut book = Book::default();
    for round in 0..4_u64 {
        let many: Vec<Issue> = (0..3000).map(|n| missing(&format!("{round}-{n}"), Severity::Error)).collect();
        book.look(round * 10_000, &many);
        book.look(round * 10_000 + 10, &[]);
        assert!(book.rows.len() <= 2 * MOST_FINDINGS + MOST_CLEARED, "{}", book.rows.len());
        book.look(round * 10_000 + 1000, &[]);
        assert!(book.rows.len() <= MOST_CLEARED, "{}", book.rows.len());
    }
    let long = issue(FindingCode::DiskMissing, Severity::Error, "s".repeat(5000), "ä".repeat(5000), "t");
    book.look(100_000, &[long]);
    let found = &book.list(&FindingQuery::default()).expect("a list")[0];
    assert!(found.subject.len() <= MOST_TEXT && found.detail.len() <= MOST_TEXT);
    book.look(100_000 + 2 * KEPT_SECONDS, &[]);
    book.look(100_000 + 4 * KEPT_SECONDS, &[]);
    assert!(book.rows.len() <= 1, "what is long gone is forgotten");
}

#[test]
fn the_worst_that_nobody_knows_of_comes_first() {
    let mut book = Book::default();
    let disks = [("a", Severity::Warning), ("b", Severity::Error), ("c", Severity::Critical)];
    book.look(0, &disks.map(|(disk, severity)| missing(disk, severity)));
    book.acknowledge(&finding_id("disk-missing", "disk c"), who());
    let subjects = |query: FindingQuery| -> Vec<String> {
        book.list(&query).expect("a list").into_iter().map(|finding| finding.subject).collect()
    };
    let query = FindingQuery::default;
    assert_eq!(subjects(query()), ["disk b", "disk a", "disk c"]);
    assert_eq!(subjects(FindingQuery { severity: Some(Severity::Error), ..query() }), ["disk b", "disk c"]);
    assert_eq!(subjects(FindingQuery { acknowledged: Some(true), ..query() }), ["disk c"]);
    assert_eq!(subjects(FindingQuery { code: Some("pool-space".into()), ..query() }), [""; 0]);
    assert_eq!(subjects(FindingQuery { limit: Some(1), ..query() }), ["disk b"]);
    assert!(book.list(&FindingQuery { state: Some("x".into()), ..query() }).is_err());
}

#[test]
fn it_is_written_when_it_changes_and_not_at_each_look() {
    let mut book = Book::default();
    let a = [missing("a", Severity::Error)];
    book.look(0, &a);
    assert!(book.take_changed());
    for now in 1..100 {
        book.look(now, &a);
    }
    assert!(!book.take_changed());
    book.look(120, &[]);
    assert!(book.take_changed());
    book.acknowledge(&finding_id("disk-missing", "disk a"), who());
    assert!(book.take_changed());
}
