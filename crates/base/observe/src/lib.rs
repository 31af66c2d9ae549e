//! Counters, latency histograms, logging set-up and the inspect tree.
//!
//! Everything here is cheap enough for the hot path (relaxed atomics, fixed memory) and says what it measures
//! in its unit. [`FastMap`] is here because it is what the workspace uses in place of the standard maps, whose
//! random iteration order would make a simulated run differ from the next.

mod counter;
mod fast;
mod histogram;
mod inspect;
mod io_kind;
mod log;
mod stats;
mod tally;

pub use counter::Counter;
pub use fast::{FastHasher, FastMap, FastSet};
pub use histogram::{Histogram, HistogramSnapshot};
pub use inspect::Inspect;
pub use io_kind::IoKind;
pub use log::init_logging;
pub use stats::{IoStats, IoStatsSnapshot};
pub use tally::{InFlight, IoTally, IoTotals, KindTotals};
