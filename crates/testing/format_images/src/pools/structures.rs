//! Each structure of a pool by itself: what is read, written anew, is the same bytes. It finds what a reader forgives: a field
//! more at an end, another order of bits.

use std::collections::BTreeMap;

use pool_format::{Checkpoint, JournalAnchor, JournalRecord, LogBatch, SumsPage, Superblock};

use crate::check::{BLOCK, same_bytes};
use crate::{Fallible, Image, ensure};

/// Superblocks, checkpoints, batches of the log, pages of checksums, anchors and records of journals, read and written anew;
/// how many.
///
/// # Errors
/// Where other bytes come out, or a kind is missing.
pub fn rewrite(image: &Image) -> Fallible<usize> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, bytes) in &image.disks {
        for at in (0..bytes.len()).step_by(BLOCK as usize) {
            let rest = &bytes[at..];
            let Some((kind, written)) = structure(rest) else { continue };
            let len = written.len().min(rest.len());
            same_bytes(&format!("the {kind} of {name} at byte {at}"), &written, &rest[..len])?;
            *counts.entry(kind).or_default() += 1;
        }
    }
    ensure(counts.len() == 6, || format!("not every structure is in the image: {counts:?}"))?;
    Ok(counts.values().sum())
}

/// What begins here, and how this release writes it. What has its magic number but cannot be read comes out as nothing.
fn structure(bytes: &[u8]) -> Option<(&'static str, Vec<u8>)> {
    let block = &bytes[..BLOCK as usize];
    if block.starts_with(b"\x89HOLDFAST") {
        return Some((
            "superblock",
            Superblock::decode(block).map(|found| found.encode()).unwrap_or_default(),
        ));
    }
    if block.starts_with(b"\x89HFchk") {
        return Some((
            "checkpoint",
            Checkpoint::decode(bytes).map(|found| found.encode()).unwrap_or_default(),
        ));
    }
    if block.starts_with(b"\x89HFlog") {
        return Some(("batch", LogBatch::decode(bytes).map(|(found, _)| found.encode()).unwrap_or_default()));
    }
    match &block[4..8] {
        b"HFcs" => Some(("page", SumsPage::decode(block).map(|found| found.encode()).unwrap_or_default())),
        b"HFja" => {
            Some(("anchor", JournalAnchor::decode(block).map(|found| found.encode()).unwrap_or_default()))
        }
        b"HFjr" => {
            Some(("record", JournalRecord::decode(bytes).map(|found| found.encode()).unwrap_or_default()))
        }
        _ => None,
    }
}
