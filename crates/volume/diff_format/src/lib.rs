//! The stream of what differs between two snapshots. Pure: bytes in, bytes out; the parser takes hostile bytes.
//!
//! ```text
//!   preamble │ Begin │ Remove … │ Directory … │ File, Stream, Data, Hole … │ File … │ End
//!             └ each record: type, length, number, payload, CRC-32C over all of them ┘
//! ```
//! Whoever has what the first snapshot held, and does what the records say in their order, has what the second held.
//! `docs/formats/diff.md` has the layout.
//!
//! Invariants of a stream that [`Parser`] lets pass: records are whole, in the order in which they were written, none is
//! left out or twice; the first is [`Record::Begin`]; paths lead downwards; ranges lie within the size that the
//! [`Record::Stream`] before them said, and do not overlap; nothing follows [`Record::End`], which counts what was there.

mod error;
pub mod fuzz;
mod parser;
mod record;

pub use error::DiffError;
pub use parser::{Parser, Writer};
pub use record::{Meta, Record};

/// Most bytes of data in a record.
pub const DATA_MAX: usize = 1 << 20;
