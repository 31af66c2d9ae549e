//! What the log says: its warnings and errors, those that say the same thing together, the most frequent first.
//!
//! ```text
//!   2026-11-27T18:51:30+0000 host holdfast[7]:  WARN disk slow disk=sdb ms=812     one kind: WARN disk slow
//!   2026-11-27T18:59:02+0000 host holdfast[7]:  WARN disk slow disk=sdc ms=97      2 times, first and last, and the newest as it is
//! ```
//! The log is read of the bundle, so a report of an archive tells the same as one that is made where the node is. The node throttles lines that
//! clients can cause at will: of those there were as many at least.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::bundle::Bundle;
use super::section::Section;
use crate::units::many;

/// Kinds that are shown.
const SHOWN: usize = 20;
/// Kinds that are told apart: a log that somebody made up has any number.
const KINDS: usize = 4096;
/// Characters of a line that count, and that are shown.
const LINE: usize = 240;

/// Lines that say the same.
struct Kind<'a> {
    count: u64,
    level: &'static str,
    first: &'a str,
    last: &'a str,
    newest: &'a str,
}

/// A line of trouble: when, how bad, and what it says.
fn parts(line: &str) -> Option<(&str, &'static str, &str)> {
    // The first word of these is the level; what comes after it may be anything.
    let levels = ["ERROR", "WARN", "INFO", "DEBUG", "TRACE"];
    let found = levels.into_iter().filter_map(|level| {
        let (before, text) = line.split_once(&format!(" {level} "))?;
        Some((before, level, text))
    });
    let (before, level, text) = found.min_by_key(|(before, ..)| before.len())?;
    if !matches!(level, "ERROR" | "WARN") {
        return None;
    }
    let time = before.split(' ').next().unwrap_or_default();
    // The journal's time is the first word, or the node's own; whatever else is there is no time.
    let is_time = time.len() >= 19 && time.starts_with(|c: char| c.is_ascii_digit()) && time.contains('T');
    Some((if is_time { time } else { "-" }, level, text.trim()))
}

/// What is the same in lines of one kind: no numbers, and no values of fields.
fn kind(text: &str) -> String {
    let mut same = String::new();
    for word in text.split_whitespace() {
        if same.len() >= LINE {
            break;
        }
        let field = word.split_once('=').map(|(name, _)| name).filter(|name| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.'))
        });
        // A name, a path, an address or a number has a digit or a separator.
        let varies = |c: char| c.is_ascii_digit() || matches!(c, '/' | '\\' | '"');
        match field {
            Some(name) => same.push_str(name),
            None if word.contains(varies) => same.push('#'),
            None => same.push_str(word),
        }
        same.push(' ');
    }
    same
}

fn shown(text: &str) -> String {
    match text.char_indices().nth(LINE) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// The section.
pub(super) fn section(bundle: &Bundle) -> Section {
    let columns = vec!["TIMES", "LEVEL", "FIRST", "LAST", "THE NEWEST"];
    let (name, title) = ("log", "What the log says");
    let Some(log) = bundle.text("log.txt") else {
        let why = bundle.manifest.missing.get("log.txt").map_or("it was not read", String::as_str);
        let summary = format!("the log is not known: {why}");
        return Section { name, title, summary, columns, ..Section::default() };
    };
    let mut kinds: BTreeMap<(&'static str, String), Kind<'_>> = BTreeMap::new();
    let (mut lines, mut more) = (0_u64, 0_u64);
    for (time, level, text) in log.lines().filter_map(parts) {
        lines += 1;
        let key = (level, kind(text));
        if kinds.len() >= KINDS && !kinds.contains_key(&key) {
            more += 1;
            continue;
        }
        let new = Kind { count: 0, level, first: time, last: time, newest: text };
        let known = kinds.entry(key).or_insert(new);
        known.count += 1;
        (known.last, known.newest) = (time, text);
    }
    let mut kinds: Vec<Kind<'_>> = kinds.into_values().collect();
    kinds.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| b.last.cmp(a.last)));
    let row = |kind: &Kind<'_>| -> Vec<Value> {
        vec![
            json!(kind.count),
            json!(kind.level),
            json!(kind.first),
            json!(kind.last),
            json!(shown(kind.newest)),
        ]
    };
    let hidden = kinds.len().saturating_sub(SHOWN) as u64;
    let mut summary = match lines {
        0 => "no warnings and no errors".to_owned(),
        _ => format!(
            "{} of warnings and errors of {}, the most frequent first",
            many(lines, "line"),
            many(kinds.len() as u64, "kind")
        ),
    };
    if hidden > 0 {
        summary = format!("{summary}; {} not shown", many(hidden, "kind"));
    }
    if more > 0 {
        summary = format!("{summary}; {} of further kinds not counted", many(more, "line"));
    }
    Section {
        name,
        title,
        summary,
        columns,
        rows: kinds.iter().take(SHOWN).map(row).collect(),
        ..Section::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(log: &str) -> Section {
        let mut bundle = Bundle::new("1", 0);
        bundle.put("log.txt", log.as_bytes().to_vec());
        section(&bundle)
    }

    #[test]
    fn lines_that_say_the_same_are_one_kind_the_most_frequent_first() {
        let log = "\
2026-11-27T18:00:00+0000 host holdfast[7]: ERROR volume v2 has stopped: no answer
2026-11-27T18:00:01+0000 host holdfast[7]:  INFO a client said: WARN me of an ERROR please
2026-11-27T18:00:02+0000 host holdfast[7]:  WARN disk slow disk=/dev/sdb ms=812
2026-11-27T18:00:03+0000 host holdfast[7]:  WARN disk slow disk=/dev/sdc ms=9
2026-11-27T18:00:04+0000 host holdfast[7]:  WARN disk slow disk=/dev/sdb ms=44
2026-11-27T18:00:05+0000 host holdfast[7]: ERROR volume v13 has stopped: no answer
2026-11-27T18:00:06+0000 host holdfast[7]:  WARN disk gone disk=/dev/sdb
";
        let section = of(log);
        assert_eq!(section.summary, "6 lines of warnings and errors of 3 kinds, the most frequent first");
        assert_eq!(
            section.rows,
            [
                vec![
                    json!(3),
                    json!("WARN"),
                    json!("2026-11-27T18:00:02+0000"),
                    json!("2026-11-27T18:00:04+0000"),
                    json!("disk slow disk=/dev/sdb ms=44")
                ],
                vec![
                    json!(2),
                    json!("ERROR"),
                    json!("2026-11-27T18:00:00+0000"),
                    json!("2026-11-27T18:00:05+0000"),
                    json!("volume v13 has stopped: no answer")
                ],
                vec![
                    json!(1),
                    json!("WARN"),
                    json!("2026-11-27T18:00:06+0000"),
                    json!("2026-11-27T18:00:06+0000"),
                    json!("disk gone disk=/dev/sdb")
                ],
            ]
        );
    }

    #[test]
    fn a_log_that_somebody_made_up_is_bounded() {
        let letters =
            |n: usize| (0..4).map(|at| char::from(b'a' + (n >> (4 * at) & 15) as u8)).collect::<String>();
        let log: String =
            (0..10_000).map(|n| format!("x ERROR {} {}\n", letters(n), "ü".repeat(1000))).collect();
        let section = of(&log);
        assert_eq!(section.rows.len(), SHOWN);
        assert!(
            section.summary.ends_with("4076 kinds not shown; 5904 lines of further kinds not counted"),
            "{}",
            section.summary
        );
        assert_eq!(section.rows[0][2], json!("-"), "what is no time is not told as one");
        assert!(
            section
                .rows
                .iter()
                .all(|row| row[4].as_str().is_some_and(|text| text.chars().count() <= LINE + 1))
        );
    }

    #[test]
    fn a_log_that_is_not_there_is_not_one_without_trouble() {
        assert_eq!(of("a INFO b\n").summary, "no warnings and no errors");
        let mut bundle = Bundle::new("1", 0);
        bundle.lacks("log.txt", "no journal");
        assert_eq!(section(&bundle).summary, "the log is not known: no journal");
    }
}
