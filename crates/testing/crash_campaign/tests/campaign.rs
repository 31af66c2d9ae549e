//! The campaign in short, and the proof that it finds what is broken.

use crash_campaign::{Case, Layout, Sabotage, Subject, run};

#[test]
fn power_cuts_break_no_promise_of_a_pool() {
    for layout in Layout::ALL {
        for seed in 0..70 {
            let case = Case::new(Subject::Pool, layout, seed);
            if let Some(broken) = run(&case).broken {
                panic!("{broken}\nrun again: cargo run --release -p crash_campaign -- {case} --trace");
            }
        }
    }
}

#[test]
fn what_is_broken_on_purpose_is_caught() {
    let broken = [
        Sabotage::PoolSkipsFlush,
        Sabotage::PoolSkipsStaleMark,
        Sabotage::DiskSkipsFlush,
        Sabotage::DiskSkipsForce,
    ];
    for sabotage in broken {
        let found = (0..12).any(|seed| {
            let case = Case { sabotage, ..Case::new(Subject::Pool, Layout::Mirror2, seed) };
            run(&case).broken.is_some()
        });
        assert!(found, "{sabotage:?} breaks no promise in 12 seeds");
    }
}
