//! Verification of files of this machine finds what loses, tears, misplaces or returns stale content.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

mod support;

use spd_engine::{LocalBackend, prepare};
use support::{VERIFIED, Yes, every_lie_is_found, span};

#[test]
fn every_lie_of_a_file_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f").display().to_string();
    let mut span = span(&path);
    span.targets[0].create = Some(1 << 20);
    let paths = [path];
    every_lie_is_found(&span, || {
        prepare(&span.targets, &paths, VERIFIED, &Yes).unwrap();
        LocalBackend::open(&span.targets, &paths, true).unwrap()
    });
}
