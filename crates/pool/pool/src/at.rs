//! One column of an open pool, with all that work on it needs.

use std::sync::Arc;

use crate::core::{Core, Space};
use crate::row::{Column, Group, Place, Row};

/// A column: where it is, and what it belongs to.
#[derive(Clone, Copy)]
pub(crate) struct At<'a> {
    pub(crate) core: &'a Arc<Core>,
    pub(crate) space: &'a Space,
    pub(crate) row: &'a Arc<Row>,
    pub(crate) place: Place,
}

impl<'a> At<'a> {
    pub(crate) fn new(core: &'a Arc<Core>, space: &'a Space, row: &'a Arc<Row>, place: Place) -> Self {
        Self { core, space, row, place }
    }

    pub(crate) fn column(&self) -> &'a Column {
        self.row.column(self.place.column)
    }

    pub(crate) fn group(&self) -> &'a Group {
        self.row.group(self.place.column)
    }

    /// Another column of the same row.
    pub(crate) fn other(&self, column: usize) -> Self {
        Self { place: Place { column: column as u8, ..self.place }, ..*self }
    }

    /// The column whose dirty marks are those of this one's group.
    pub(crate) fn lead(&self) -> Place {
        Place { column: self.row.lead(self.place.column), ..self.place }
    }

    /// See [`Space::tear`].
    pub(crate) fn tear(&self, mask: u64) {
        self.space.tear(self.group(), mask);
    }

    /// The regions that a part of the column touches.
    pub(crate) fn regions(&self, offset: u64, len: u64) -> u64 {
        self.space.striping.regions(offset, len)
    }

    /// The regions of the row that a stripe lies in.
    pub(crate) fn regions_of(&self, stripe: u64) -> u64 {
        let interleave = self.space.striping.interleave();
        self.regions(stripe * interleave, interleave)
    }
}

impl std::fmt::Display for At<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "space {} row {} column {}", self.space.name(), self.place.row, self.place.column)
    }
}
