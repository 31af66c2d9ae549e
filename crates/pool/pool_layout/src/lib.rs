//! Where data goes: pure arithmetic and choices, no I/O.
//!
//! ```text
//!  space address   0 ─────────────── row 0 ───────────────┬──── row 1 ────  …     row = columns × slab size
//!                  │ interleave │ interleave │ interleave │ …
//!                  ▼            ▼            ▼
//!  columns         column 0     column 1     column 0 …          each column of a row: one slab per copy
//! ```
//! * [`Striping`] maps a range of a space to [`Piece`]s of columns.
//! * [`choose_disks`] picks the disks of a new row or copy, [`choose_parity`] those of a row with parity.
//! * [`plan_moves`] says which slabs to move so that disks are equally full.
//! * [`plan_exchanges`] says which slab to move to make room for a copy that finds none.
//! * [`reserve`] says how much room new data must leave for repair.
//! * [`parity`] calculates parity, and what was lost from what is left.

mod balance;
mod choose;
mod exchange;
pub mod parity;
pub mod reserve;
mod striping;

pub use balance::{Move, RowSlabs, plan_moves, unevenness};
pub use choose::{Candidate, choose_copy, choose_disks, choose_parity, rows_that_fit};
pub use exchange::{Exchange, plan_exchanges};
pub use striping::{Piece, Pieces, Striping};
