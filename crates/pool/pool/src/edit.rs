//! What a write does to its range, and to one column of a stripe.

use aligned_buffer::SharedBuf;
use pool_format::{BLOCK, Checksum};

use crate::page::Page;

/// What a write does to its range.
#[derive(Clone)]
pub(crate) enum Edit {
    Data(SharedBuf),
    Zero { unmap: bool },
}

impl Edit {
    /// What it does to a part of its range.
    pub(crate) fn part(&self, at: u64, len: u64) -> Self {
        match self {
            Self::Data(data) => Self::Data(data.slice(at as usize..(at + len) as usize)),
            Self::Zero { unmap } => Self::Zero { unmap: *unmap },
        }
    }

    /// The bytes that it writes, unless they are zeros.
    pub(crate) fn data(&self) -> Option<&SharedBuf> {
        match self {
            Self::Data(data) => Some(data),
            Self::Zero { .. } => None,
        }
    }

    /// Whether it and `next` can be one request where they follow each other.
    pub(crate) fn goes_with(&self, next: &Self) -> bool {
        match (self, next) {
            (Self::Data(_), Self::Data(_)) => true,
            (Self::Zero { unmap }, Self::Zero { unmap: next }) => unmap == next,
            _ => false,
        }
    }

    /// The checksums of `blocks` blocks of it.
    pub(crate) fn sums(&self, checksum: Checksum, blocks: u64) -> Vec<u32> {
        match self {
            Self::Data(data) => checksum.of_each(data),
            Self::Zero { .. } => vec![checksum.of_zeros(); blocks as usize],
        }
    }

    pub(crate) fn tell(&self, page: &Page, offset: u64, len: u64) {
        match self {
            Self::Data(data) => page.learn_all(offset, data),
            Self::Zero { .. } => page.learn_zeros(offset, len),
        }
    }
}

/// What a write does to one column.
#[derive(Clone)]
pub(crate) struct ColumnWrite {
    pub(crate) column: usize,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) edit: Edit,
    pub(crate) sums: Vec<u32>,
}

impl ColumnWrite {
    pub(crate) fn new(checksum: Checksum, column: usize, offset: u64, len: u64, edit: Edit) -> Self {
        let sums = edit.sums(checksum, len / BLOCK);
        Self { column, offset, len, edit, sums }
    }
}
