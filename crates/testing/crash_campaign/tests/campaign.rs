//! The campaign in short, and the proof that it finds what is broken.

use crash_campaign::{Case, Layout, Subject, run};

#[test]
fn power_cuts_break_no_promise_of_a_pool() {
    for layout in Layout::ALL {
        for seed in 0..60 {
            let case = Case::new(Subject::Pool, layout, seed);
            if let Some(broken) = run(&case).broken {
                panic!("{broken}\nrun again: cargo run --release -p crash_campaign -- {case} --trace");
            }
        }
    }
}
