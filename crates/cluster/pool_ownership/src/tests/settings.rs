//! The inequalities: what ships holds them, what overlaps is refused.

use std::time::Duration;

use proptest::prelude::*;

use crate::{Settings, Timings};

fn milliseconds(number: u64) -> Duration {
    Duration::from_millis(number)
}

#[test]
fn what_ships_is_safe() {
    Timings::new(Settings::default()).expect("safe");
}

/// What was planned first: with clocks that are 5 % wrong the permit ends 15 ms after the claim.
#[test]
fn times_that_overlap_are_refused_with_their_figures() {
    let planned = Settings { permit: milliseconds(3000), margin: Duration::ZERO, ..Settings::default() };
    let text = Timings::new(planned).expect_err("they overlap").to_string();
    assert!(text.contains("3.157894737s") && text.contains("3.142857142s"), "{text}");
    let same = Settings { promise_used: milliseconds(2500), ..Settings::default() };
    assert!(Timings::new(same).expect_err("they overlap").to_string().contains("promise"));
    let long = Settings { promise_kept: milliseconds(3400), ..Settings::default() };
    assert!(Timings::new(long).expect_err("a restart forgets it").to_string().contains("next life"));
    let short = Settings { permit: milliseconds(1500), ..Settings::default() };
    assert!(Timings::new(short).expect_err("too short").to_string().contains("two lost beats"));
    for wrong in [
        Settings { rate_error_ppm: 500_000, ..Settings::default() },
        Settings { rate_error_ppm: u32::MAX, ..Settings::default() },
        Settings { beat_every: Duration::ZERO, ..Settings::default() },
        Settings { permit: Duration::MAX, ..Settings::default() },
    ] {
        assert!(Timings::new(wrong).is_err());
    }
}

proptest! {
    /// Whatever is let pass: a permit on a slow clock ends before a claim on a fast one.
    #[test]
    fn what_is_let_pass_does_not_overlap(permit in 1_u64..10_000, claim in 1_u64..10_000, rate in 0_u32..200_000) {
        let settings = Settings { permit: milliseconds(permit), claim_after: milliseconds(claim), rate_error_ppm: rate, ..Settings::default() };
        if Timings::new(settings).is_ok() {
            let rate = f64::from(rate) / 1e6;
            prop_assert!(permit as f64 / (1.0 - rate) < claim as f64 / (1.0 + rate));
        }
    }
}
