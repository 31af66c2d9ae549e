//! The campaign in short, and the proof that it notices what is broken.

use crash_campaign::{Case, Layout, Sabotage, Subject, run};

fn holds(subject: Subject, layout: Layout, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let case = Case::new(subject, layout, seed);
        if let Some(broken) = run(&case).broken {
            panic!("{broken}\nagain: cargo run --release -p crash_campaign -- {case} --trace");
        }
    }
}

#[test]
fn a_simple_space_keeps_its_promises() {
    holds(Subject::Pool, Layout::Simple, 0..40);
}

#[test]
fn a_two_way_mirror_keeps_its_promises() {
    holds(Subject::Pool, Layout::Mirror2, 0..50);
}

#[test]
fn a_three_way_mirror_keeps_its_promises() {
    holds(Subject::Pool, Layout::Mirror3, 0..40);
}

#[test]
fn a_volume_on_one_copy_keeps_its_promises() {
    holds(Subject::Volume, Layout::Simple, 0..40);
}

#[test]
fn a_volume_on_a_two_way_mirror_keeps_its_promises() {
    holds(Subject::Volume, Layout::Mirror2, 0..30);
}

#[test]
fn a_volume_on_a_three_way_mirror_keeps_its_promises() {
    holds(Subject::Volume, Layout::Mirror3, 0..20);
}

/// Whether a sabotage is noticed within so many seeds.
fn noticed(sabotage: Sabotage, subject: Subject, seeds: u64) {
    let found = (0..seeds).any(|seed| {
        let case = Case::new(subject, Layout::Mirror2, seed);
        run(&Case { sabotage, ..case }).broken.is_some()
    });
    assert!(found, "{sabotage} of a {subject} goes unnoticed for {seeds} seeds");
}

#[test]
fn a_pool_that_skips_flushes_is_noticed() {
    noticed(Sabotage::PoolSkipsFlush, Subject::Pool, 40);
    noticed(Sabotage::PoolSkipsFlush, Subject::Volume, 40);
}

#[test]
fn a_pool_that_forgets_marks_is_noticed() {
    noticed(Sabotage::PoolSkipsStaleMark, Subject::Pool, 40);
    noticed(Sabotage::PoolSkipsDirtyMark, Subject::Pool, 40);
}

#[test]
fn disks_that_lie_are_noticed() {
    noticed(Sabotage::DiskSkipsFlush, Subject::Pool, 40);
    noticed(Sabotage::DiskSkipsForce, Subject::Pool, 40);
    noticed(Sabotage::DiskMisplaces, Subject::Pool, 40);
}

#[test]
fn a_volume_that_loses_flushes_is_noticed() {
    noticed(Sabotage::VolumeLosesFlush, Subject::Volume, 40);
}

/// The same seed does the same, so that a failure can be looked into.
#[test]
fn a_seed_of_a_pool_repeats() {
    for layout in Layout::ALL {
        let case = Case::new(Subject::Pool, layout, 7);
        assert_eq!(run(&case), run(&case));
    }
}
