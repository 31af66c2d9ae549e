//! Selectors over made machines: what they choose, what they refuse, and properties of any of them.

use std::cmp::Ordering;

use proptest::prelude::*;

use super::choose::fits;
use super::*;
use crate::{Code, Disk, DiskState, MediaType, Problem};

const TB: u64 = 1_000_000_000_000;

fn disk(id: &str) -> Disk {
    Disk {
        id: id.into(),
        path: Some(format!("/dev/{id}")),
        state: DiskState::Free,
        reason: None,
        size_bytes: 4 * TB,
        media: MediaType::Hdd,
        model: None,
        serial: None,
        node: None,
        vendor: None,
        bus: None,
        enclosure: None,
        slot: None,
        pool: None,
        guid: None,
        io: None,
        faults: Vec::new(),
    }
}

/// Two shelves of 12: two flash disks in the first slots, then ten with platters; one of shelf b is in use.
fn shelves() -> Vec<Disk> {
    let mut disks = Vec::new();
    for shelf in ["shelf-a", "shelf-b"] {
        for slot in 1..=12 {
            let flash = slot <= 2;
            let mut disk = disk(&format!("{shelf}.{slot}"));
            disk.enclosure = Some(shelf.into());
            disk.slot = Some(slot.to_string());
            disk.serial = Some(format!("SN{slot}{}", &shelf[6..]));
            disk.media = if flash { MediaType::Ssd } else { MediaType::Hdd };
            disk.size_bytes = if flash { 480_103_981_056 } else { 4_000_787_030_016 };
            disk.model = Some(if flash { "MZ7KM480" } else { "ST4000NM0035" }.into());
            disk.bus = Some("sas".into());
            disks.push(disk);
        }
    }
    disks[20].state = DiskState::InUse;
    disks[20].reason = Some("mounted".into());
    disks.reverse();
    disks
}

fn pick(selectors: &[&str], disks: &[Disk]) -> Result<Vec<String>, Problem> {
    let selectors: Vec<Selector> =
        selectors.iter().map(|text| text.parse().unwrap_or_else(|why| panic!("{why}"))).collect();
    Ok(choose(&selectors, disks, &[])?.into_iter().map(|disk| disk.id).collect())
}

fn refused(selectors: &[&str], disks: &[Disk]) -> String {
    let problem = pick(selectors, disks).expect_err("refused");
    assert_eq!(problem.code, Code::NotEnoughDisks);
    assert!(problem.todo.is_some());
    problem.detail
}

#[test]
fn by_property() {
    let disks = shelves();
    assert_eq!(pick(&["all"], &disks).expect("chosen").len(), 23, "all but the one in use");
    assert_eq!(pick(&["media=hdd"], &disks).expect("chosen").len(), 19);
    let flash = ["shelf-a.1", "shelf-a.2", "shelf-b.1", "shelf-b.2"];
    for same in
        ["media=ssd", "MEDIA = SSD", "media!=hdd", "size<1T", "model=mz7*", "slot=1|2", "slot=?,size<1TB"]
    {
        assert_eq!(pick(&[same], &disks).expect(same), flash, "{same}");
    }
    assert_eq!(pick(&["enclosure=*-b,media=ssd,slot!=1"], &disks).expect("chosen"), ["shelf-b.2"]);
    assert_eq!(pick(&["state=in-use"], &disks).expect("chosen"), ["shelf-b.9"]);
    assert_eq!(pick(&["state=*"], &disks).expect("chosen").len(), 24);
    assert_eq!(pick(&["disk=/dev/shelf-a.3"], &disks).expect("chosen"), ["shelf-a.3"]);
    assert!(refused(&["bus=nvme"], &disks).contains("No free disk matches `bus=nvme`"));
    let mut stick = disk("n");
    (stick.bus, stick.media) = (Some("nvme".into()), MediaType::Ssd);
    for text in ["media=nvme", "media=ssd", "media=hdd|nvme"] {
        assert_eq!(pick(&[text], std::slice::from_ref(&stick)).expect(text), ["n"]);
    }
    // Who does not say is neither this nor that.
    assert!(pick(&["vendor=*"], &disks).is_err());
    assert!(pick(&["vendor!=x"], &disks).is_ok());
}

#[test]
fn sizes_are_those_that_disks_are_sold_with() {
    let mut disks: Vec<Disk> = ["tera", "four", "bytes"].map(disk).to_vec();
    disks[0].size_bytes = 1_000_204_886_016;
    disks[1].size_bytes = 4_000_787_030_016;
    disks[2].size_bytes = TB;
    let sized = |text: &str| pick(&[text], &disks).unwrap_or_default();
    assert_eq!(sized("size=4TB"), ["four"]);
    assert_eq!(sized("size=1TB"), ["bytes", "tera"]);
    assert_eq!(sized("size=1000000000000"), ["bytes"], "exact without a unit");
    assert_eq!(sized("size!=1TB"), ["four"]);
    assert_eq!(sized("size>1TB"), ["four"], "what is sold as 1 TB is not more");
    assert_eq!(sized("size>=1TB"), ["bytes", "four", "tera"]);
    assert_eq!(sized("size<1TB").len(), 0);
    assert_eq!(sized("size<=1TB"), ["bytes", "tera"]);
    assert_eq!(sized("size>1TB,size<5TB"), ["four"]);
    assert_eq!(sized("size>1T"), ["four"], "a TiB is more than a TB");
}

#[test]
fn counts_go_by_enclosure_and_slot() {
    let disks = shelves();
    assert_eq!(
        pick(&["media=hdd,count=9"], &disks).expect("chosen").last().map(String::as_str),
        Some("shelf-a.11"),
        "slot 10 comes after slot 9"
    );
    assert!(refused(&["media=ssd,count=5"], &disks).contains("wants 5 free disks, and there are 4"));
    // The second takes from what the first has left.
    let both = pick(&["media=ssd,count=2", "all"], &disks).expect("chosen");
    assert_eq!(
        (both.len(), &both[..3]),
        (23, ["shelf-a.1", "shelf-a.2", "shelf-a.3"].map(String::from).as_slice())
    );
}

#[test]
fn so_many_of_each_enclosure() {
    let mut disks = shelves();
    let mixed = ["media=hdd,per-enclosure=3", "media=ssd,per-enclosure=1"];
    assert_eq!(
        pick(&mixed, &disks).expect("chosen"),
        [
            "shelf-a.3",
            "shelf-a.4",
            "shelf-a.5",
            "shelf-b.3",
            "shelf-b.4",
            "shelf-b.5",
            "shelf-a.1",
            "shelf-b.1"
        ]
    );
    let short = refused(&["media=hdd,per-enclosure=10"], &disks);
    assert!(short.contains("wants 10 free disks of each enclosure: enclosure shelf-b has 9."), "{short}");
    assert_eq!(
        pick(&["media=hdd,per-enclosure=10,enclosure=shelf-a"], &disks).expect("chosen").len(),
        10,
        "an enclosure that is left out is not short"
    );
    // An enclosure with nothing to choose is short too.
    let mut lone = disk("c");
    (lone.enclosure, lone.state) = (Some("shelf-c".into()), DiskState::Online);
    disks.push(lone);
    assert!(refused(&mixed, &disks).contains("enclosure shelf-c has 0"));
    assert!(refused(&["per-enclosure=1"], &[disk("x")]).contains("no enclosure that it could mean is known"));
}

#[test]
fn what_is_listed_by_name_must_be_there() {
    let mut disks = shelves();
    assert_eq!(pick(&["serial=SN4b|sn3a"], &disks).expect("chosen"), ["shelf-a.3", "shelf-b.4"]);
    let why = refused(&["serial=SN4b|SN77"], &disks);
    assert!(why.contains("serial number SN77") && why.contains("none on this machine"), "{why}");
    let why = refused(&["serial=SN9b"], &disks);
    assert!(why.contains("disk shelf-b.9 is in-use (mounted)"), "{why}");
    let why = refused(&["all", "serial=SN4b"], &disks);
    assert!(why.contains("shelf-b.4 has been chosen already"), "{why}");
    let why = refused(&["serial=SN4b,media=ssd"], &disks);
    assert!(why.contains("does not meet the rest"), "{why}");
    assert_eq!(pick(&["serial=SN4*"], &disks).expect("chosen").len(), 2, "a pattern names nobody");
    disks[0].serial = Some("A,B|C \"x\"".into());
    assert_eq!(pick(&["serial=\"a,b|c ?x?\""], &disks).expect("chosen"), ["shelf-b.12"]);
}

#[test]
fn what_a_person_named_is_not_chosen_again() {
    let disks = shelves();
    let selectors = ["media=ssd,count=2".parse().expect("sound")];
    let chosen = choose(&selectors, &disks, &["shelf-a.1".into()]).expect("chosen");
    assert_eq!(chosen.iter().map(|disk| disk.id.as_str()).collect::<Vec<_>>(), ["shelf-a.2", "shelf-b.1"]);
}

#[test]
fn nonsense_is_refused_with_reasons() {
    for (text, why) in [
        ("", "empty clause"),
        ("media=hdd,", "empty clause"),
        ("media", "compares nothing"),
        ("media=", "nothing follows media="),
        ("media=tape", "not a media type"),
        ("media>ssd", "= and != only"),
        ("color=red", "no property \"color\""),
        ("size=big", "not a size"),
        ("size=1T|2T", "not a size"),
        ("count=0", "number from 1"),
        ("count>3", "number from 1"),
        ("count=-1", "number from 1"),
        ("count=4294967296", "number from 1"),
        ("count=1,per-enclosure=2", "said twice"),
        ("model=\"a", "not closed"),
        ("model=a||b", "empty pattern"),
        ("model=a\"b\"c", "around a whole pattern"),
    ] {
        let said = text.parse::<Selector>().expect_err(text);
        assert!(said.contains(why), "{text}: {said}");
    }
    assert!("x".repeat(MAX_SELECTOR_BYTES + 1).parse::<Selector>().is_err());
    assert!(Selector::for_pool("state=online").expect_err("refused").contains("free disks only"));
    assert!(Selector::for_pool("media=ssd").is_ok());
}

#[test]
fn the_same_text_travels_in_requests() {
    let selector: Selector =
        " media=hdd , model=\"a,b\"|c*,size>=1T,per-enclosure=2 ".parse().expect("sound");
    let json = serde_json::to_string(&selector).expect("serialises");
    assert_eq!(json, r#""media=hdd,model=\"a,b\"|c*,size>=1T,per-enclosure=2""#);
    assert_eq!(serde_json::from_str::<Selector>(&json).expect("reads"), selector);
    let why = serde_json::from_str::<Selector>("\"media=tape\"").expect_err("refused").to_string();
    assert!(why.contains("not a media type"), "{why}");
    assert_eq!("ALL".parse::<Selector>().expect("sound").to_string(), "all");
}

/// Patterns the slow way.
fn fits_plainly(pattern: &[char], text: &[char]) -> bool {
    match (pattern.split_first(), text.split_first()) {
        (None, None) => true,
        (Some(('*', rest)), None) => fits_plainly(rest, text),
        (Some(('*', rest)), Some((_, tail))) => fits_plainly(rest, text) || fits_plainly(pattern, tail),
        (Some(('?', rest)), Some((_, tail))) => fits_plainly(rest, tail),
        (Some((p, rest)), Some((t, tail))) => p == t && fits_plainly(rest, tail),
        _ => false,
    }
}

fn any_clause() -> impl Strategy<Value = String> {
    let pattern = prop_oneof!["[a-z0-9*?]{1,6}", "\"[a-z0-9*?,| ]{1,6}\""];
    let patterns = proptest::collection::vec(pattern, 1..4).prop_map(|patterns| patterns.join("|"));
    let name = prop_oneof![
        Just("model"),
        Just("serial"),
        Just("vendor"),
        Just("bus"),
        Just("enclosure"),
        Just("slot"),
        Just("disk"),
        Just("state")
    ];
    prop_oneof![
        Just("all".to_owned()),
        (name, prop_oneof![Just("="), Just("!=")], patterns).prop_map(|(n, c, p)| format!("{n}{c}{p}")),
        ("media(=|!=)(hdd|ssd|nvme|unspecified)").prop_map(|text| text),
        ("size(=|!=|>|>=|<|<=)[1-9][0-9]{0,3}(|k|G|TB|TiB)").prop_map(|text| text),
    ]
}

fn any_disk() -> impl Strategy<Value = Disk> {
    let maybe = |pattern: &'static str| proptest::option::of(pattern);
    let state =
        prop_oneof![4 => Just(DiskState::Free), 1 => Just(DiskState::Online), 1 => Just(DiskState::InUse)];
    let media = prop_oneof![Just(MediaType::Ssd), Just(MediaType::Hdd), Just(MediaType::Unspecified)];
    (state, media, maybe("[ab]"), maybe("[0-9]{1,2}"), 0..6 * TB).prop_map(
        |(state, media, enclosure, slot, size)| Disk {
            state,
            media,
            enclosure,
            slot,
            size_bytes: size,
            ..disk("")
        },
    )
}

fn any_machine() -> impl Strategy<Value = Vec<Disk>> {
    proptest::collection::vec(any_disk(), 0..24).prop_map(|mut disks| {
        disks.iter_mut().enumerate().for_each(|(i, disk)| disk.id = format!("d{i}"));
        disks
    })
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,40}") {
        if let Ok(selector) = text.parse::<Selector>() {
            prop_assert_eq!(selector.to_string().parse::<Selector>(), Ok(selector));
        }
    }

    #[test]
    fn writing_and_reading_give_the_same(
        clauses in proptest::collection::vec(any_clause(), 1..5),
        take in "(|,count=[1-9][0-9]{0,3}|,per-enclosure=[1-9])",
    ) {
        // A pattern of blanks only is refused; everything else that is made here is sound.
        if let Ok(selector) = format!("{}{take}", clauses.join(",")).parse::<Selector>() {
            prop_assert_eq!(selector.to_string().parse::<Selector>(), Ok(selector));
        } else {
            prop_assert!(clauses.iter().any(|clause| clause.contains('"')));
        }
    }

    #[test]
    fn patterns_fit_as_the_plain_rule_says(pattern in "[ab*?]{0,8}", text in "[ab]{0,8}") {
        let chars = |text: &str| text.chars().collect::<Vec<_>>();
        prop_assert_eq!(fits(&pattern, &text), fits_plainly(&chars(&pattern), &chars(&text)));
    }

    #[test]
    fn natural_order_is_an_order(a in "[a1-20]{0,6}", b in "[a1-20]{0,6}", c in "[a1-20]{0,6}") {
        prop_assert_eq!(natural_order(&a, &b), natural_order(&b, &a).reverse());
        prop_assert_eq!(natural_order(&a, &b) == Ordering::Equal, a == b);
        if natural_order(&a, &b).is_le() && natural_order(&b, &c).is_le() {
            prop_assert!(natural_order(&a, &c).is_le());
        }
    }

    /// Whatever is chosen is free, fits, is there once and as often as was wanted, in whatever order the machine lists
    /// its disks; and a refusal is right: there are fewer.
    #[test]
    fn choices_keep_their_promises(
        machine in any_machine(),
        clause in any_clause(),
        wanted in 1..4_usize,
        turned in 0..24_usize,
    ) {
        prop_assume!(!clause.starts_with("state") && clause.parse::<Selector>().is_ok());
        let every = pick(&[&clause], &machine).unwrap_or_default();
        for id in &every {
            prop_assert!(machine.iter().any(|disk| disk.id == *id && disk.state == DiskState::Free));
        }
        let named = clause.starts_with("serial=") || clause.starts_with("disk=");
        let some = pick(&[&format!("{clause},count={wanted}")], &machine);
        match &some {
            Ok(some) => prop_assert_eq!(some.as_slice(), &every[..wanted]),
            Err(_) => prop_assert!(named || every.len() < wanted),
        }
        let each = format!("{clause},per-enclosure={wanted}");
        let chosen = pick(&[&each], &machine);
        let inside = |name: &str, ids: &[String]| {
            let is = |disk: &&Disk| disk.enclosure.as_deref() == Some(name) && ids.contains(&disk.id);
            machine.iter().filter(is).count()
        };
        let known = |name: &&str| {
            let there = machine.iter().filter(|disk| disk.enclosure.as_deref() == Some(name));
            there.into_iter().any(|disk| !clause.starts_with("enclosure") || {
                let anyone = Disk { state: DiskState::Free, ..disk.clone() };
                pick(&[&clause], &[anyone]).is_ok()
            })
        };
        let names: Vec<&str> = ["a", "b"].into_iter().filter(known).collect();
        match &chosen {
            Ok(ids) => {
                prop_assert_eq!(ids.len(), wanted * names.len());
                prop_assert!(names.iter().all(|name| inside(name, ids) == wanted));
            }
            Err(_) => prop_assert!(
                named || names.is_empty() || names.iter().any(|name| inside(name, &every) < wanted)
            ),
        }
        let mut other = machine.clone();
        let at = turned % other.len().max(1);
        other.rotate_left(at);
        prop_assert_eq!(pick(&[&each], &other).ok(), chosen.ok());
        // A second selector never gets what the first one has.
        if let Ok(both) = pick(&[&clause, "all"], &machine) {
            let mut ids = both.clone();
            ids.sort();
            ids.dedup();
            prop_assert_eq!(ids.len(), both.len());
        }
    }
}
