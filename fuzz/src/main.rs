//! One libFuzzer binary for all parsers; FUZZ_TARGET says which of tests/src/fuzz_targets.rs it drives.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tests::fuzz_targets::{Target, find};

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    find(&name).unwrap_or_else(|| panic!("FUZZ_TARGET={name} is not in tests/src/fuzz_targets.rs"))
});

fuzz_target!(|bytes: &[u8]| (*TARGET)(bytes));
