//! Streams of differences, made of two trees of a store and applied to a copy of one. On the store's shard.
//!
//! What differs is told by the store from its maps, without reading; only data that differs is read. A stream is applied
//! to a clone, which gets its name when all of it is there.

mod apply;
mod tell;
#[cfg(test)]
mod tests;

use control_api::{Code, Problem};
use file_store::StoreError;

pub(crate) use apply::{Applying, remove_tree};
pub(crate) use tell::{Sink, Telling};

use crate::files::problem;

/// Deepest tree.
const DEPTH_MAX: usize = 256;

fn failed(path: &str) -> impl Fn(StoreError) -> Problem + '_ {
    move |error| {
        let mut problem = problem(&error);
        problem.detail = format!("/{path}: {}", problem.detail);
        problem
    }
}

fn deep() -> Problem {
    Problem::new(Code::Unsupported, format!("the tree is deeper than {DEPTH_MAX} directories."))
}
