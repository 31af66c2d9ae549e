//! The campaign in short (`make campaign` runs thousands of seeds), the proof that it notices what is broken, and its command line.

use std::process::{Command, Output};

use crash_campaign::{Case, Layout, Sabotage, Subject, run};

fn holds(subject: Subject, layout: Layout, seeds: u64) {
    let broken = (0..seeds).find_map(|seed| {
        let case = Case::new(subject, layout, seed);
        run(&case).broken.map(|broken| format!("{broken}\nrun again: {} --trace", case.again()))
    });
    assert_eq!(broken, None, "a promise is broken");
}

#[test]
fn a_simple_space_keeps_its_promises() {
    holds(Subject::Pool, Layout::Simple, 20);
}

#[test]
fn a_two_way_mirror_keeps_its_promises() {
    holds(Subject::Pool, Layout::Mirror2, 20);
}

#[test]
fn a_three_way_mirror_keeps_its_promises() {
    holds(Subject::Pool, Layout::Mirror3, 15);
}

#[test]
fn single_parity_keeps_its_promises() {
    holds(Subject::Pool, Layout::Parity1, 25);
}

#[test]
fn dual_parity_keeps_its_promises() {
    holds(Subject::Pool, Layout::Parity2, 20);
}

/// Seeds that once broke a promise, by what was wrong.
#[test]
fn what_once_broke_stays_mended() {
    let once = [
        // A row's disks came and went while it was committed: it could never be written.
        (Subject::Pool, Layout::Mirror2, 20_567),
        // A row was made while a disk was away that was back before anyone used the row: it lacked a copy.
        (Subject::Pool, Layout::Mirror2, 600_175),
        // Two wrote a page of checksums at once, and the older one was the last.
        (Subject::Pool, Layout::Parity1, 600_140),
        // A column of a parity row had two copies, while it was emptied, that were not made equal after a crash.
        (Subject::Pool, Layout::Parity1, 620_052),
        // What a copy had caught up with was told too late: every copy was stale after a crash.
        (Subject::Pool, Layout::Simple, 630_247),
        // A flush of a space that was being deleted did not tell of a loss.
        (Subject::Pool, Layout::Mirror2, 630_349),
        // The last slab of a disk that was emptied found no room, and no other moved to make some.
        (Subject::Pool, Layout::Parity1, 910_025),
        // Checksums of all columns of a row were on their way to the disks at once, and a power cut tore two.
        (Subject::Pool, Layout::Parity1, 990_361),
        // Zeros that had no space made a file grow.
        (Subject::Volume, Layout::Mirror2, 1_000_054),
    ];
    for (subject, layout, seed) in once {
        assert_eq!(run(&Case::new(subject, layout, seed)).broken, None, "{subject} of {layout}, seed {seed}");
    }
}

/// Repair that asked for attention in each pass went on without an end, and time with it: this seed never came to one.
#[test]
fn a_disk_that_misplaces_what_it_is_given_leaves_time_for_others() {
    let case = Case::new(Subject::Pool, Layout::Mirror2, 39);
    assert!(run(&Case { sabotage: Sabotage::DiskMisplaces, ..case }).broken.is_some(), "it is noticed");
}

#[test]
fn a_volume_on_one_copy_keeps_its_promises() {
    holds(Subject::Volume, Layout::Simple, 12);
}

#[test]
fn a_volume_on_a_two_way_mirror_keeps_its_promises() {
    holds(Subject::Volume, Layout::Mirror2, 12);
}

#[test]
fn a_volume_on_a_three_way_mirror_keeps_its_promises() {
    holds(Subject::Volume, Layout::Mirror3, 8);
}

#[test]
fn a_volume_on_parity_keeps_its_promises() {
    holds(Subject::Volume, Layout::Parity1, 10);
    holds(Subject::Volume, Layout::Parity2, 8);
}

#[test]
fn a_write_log_keeps_its_promises() {
    holds(Subject::Log, Layout::Simple, 20);
}

/// What is broken on purpose is noticed within so many seeds.
fn noticed(subject: Subject, layout: Layout, seeds: u64, kinds: &[Sabotage]) {
    for sabotage in kinds {
        let found = (0..seeds).any(|seed| {
            let case = Case::new(subject, layout, seed);
            run(&Case { sabotage: *sabotage, ..case }).broken.is_some()
        });
        assert!(found, "{sabotage} of a {subject} of {layout} goes unnoticed for {seeds} seeds");
    }
}

#[test]
fn a_broken_pool_is_noticed() {
    let kinds = [Sabotage::PoolSkipsFlush, Sabotage::PoolSkipsStaleMark, Sabotage::PoolSkipsDirtyMark];
    noticed(Subject::Pool, Layout::Mirror2, 20, &kinds);
    noticed(Subject::Pool, Layout::Mirror2, 20, &[Sabotage::PoolSkipsVerify]);
}

/// Each of the rarer kinds of bad luck needs something of the pool, and it is noticed when that is missing.
#[test]
fn a_pool_that_does_not_stand_rarer_bad_luck_is_noticed() {
    let kinds = [
        Sabotage::PoolTrustsStaleMember,
        Sabotage::PoolIgnoresNoSpace,
        Sabotage::PoolAcknowledgesWithoutCopy,
        Sabotage::PoolOverfillsDisks,
    ];
    noticed(Subject::Pool, Layout::Mirror2, 40, &kinds);
    noticed(Subject::Pool, Layout::Mirror3, 40, &[Sabotage::PoolSkipsGenerations]);
}

#[test]
fn broken_parity_is_noticed() {
    let kinds = [Sabotage::PoolSkipsFlush, Sabotage::PoolSkipsJournal, Sabotage::PoolSkipsVerify];
    noticed(Subject::Pool, Layout::Parity1, 40, &kinds);
    noticed(Subject::Pool, Layout::Parity2, 40, &[Sabotage::PoolSkipsJournal]);
}

#[test]
fn disks_that_lie_are_noticed() {
    let kinds = [Sabotage::DiskSkipsFlush, Sabotage::DiskSkipsForce, Sabotage::DiskMisplaces];
    noticed(Subject::Pool, Layout::Mirror2, 20, &kinds);
    noticed(Subject::Volume, Layout::Mirror2, 40, &[Sabotage::DiskSkipsFlush, Sabotage::DiskMisplaces]);
    noticed(Subject::Log, Layout::Simple, 40, &kinds);
}

#[test]
fn a_broken_volume_is_noticed() {
    let kinds = [
        Sabotage::VolumeLosesFlush,
        Sabotage::VolumeLosesForce,
        Sabotage::VolumeSkipsZeroing,
        Sabotage::VolumeCommitsFirst,
    ];
    noticed(Subject::Volume, Layout::Mirror2, 60, &kinds);
}

#[test]
fn a_broken_metadata_log_is_noticed() {
    let kinds = [
        Sabotage::VolumeLosesLogForce,
        Sabotage::VolumeCutsLogEarly,
        Sabotage::VolumeReplaysBackwards,
        Sabotage::VolumeAnswersEarly,
        Sabotage::VolumeLogsOutOfOrder,
    ];
    noticed(Subject::Volume, Layout::Mirror2, 60, &kinds);
}

/// The same seed does the same, so that a failure can be looked into.
#[test]
fn a_seed_repeats() {
    for subject in Subject::ALL {
        for layout in subject.layouts() {
            let case = Case::new(subject, *layout, 7);
            let first = run(&case);
            assert!(first.stats.events > 0, "{case}");
            assert_eq!(run(&case), first, "{case}");
        }
    }
}

fn campaign(arguments: &[&str]) -> std::io::Result<Output> {
    Command::new(env!("CARGO_BIN_EXE_crash_campaign")).args(arguments).output()
}

#[test]
fn the_command_tells_how_it_went() {
    let one = ["--seeds", "1", "--subject", "volume", "--layout", "simple"];
    let good = campaign(&[&one[..], &["--json"]].concat()).expect("the campaign runs");
    assert_eq!(good.status.code(), Some(0));
    let told: serde_json::Value = serde_json::from_slice(&good.stdout).expect("JSON");
    assert_eq!(told["results"][0]["subject"], "volume");
    assert_eq!(told["results"][0]["broken"].as_array().map(Vec::len), Some(0));

    let broken = campaign(&[
        "--seeds",
        "4",
        "--subject",
        "pool",
        "--layout",
        "mirror2",
        "--sabotage",
        "disk-misplaces",
    ])
    .expect("the campaign runs");
    assert_eq!(broken.status.code(), Some(1));
    let text = String::from_utf8_lossy(&broken.stderr);
    assert!(text.contains("-- --subject pool --layout mirror2 --from "), "no line to run it again: {text}");

    for wrong in [&["--layout", "mirror9"][..], &["--subject", "pool", "--sabotage", "volume-loses-flush"]] {
        assert_eq!(campaign(wrong).expect("the campaign runs").status.code(), Some(2), "{wrong:?}");
    }
}
