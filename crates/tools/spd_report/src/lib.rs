//! What a load generator has measured, and how it is shown: pure, an [`Outcome`] in and text out.
//!
//! ```text
//!   spd_engine ──► Outcome ──┬──► text     DiskSpd's report, layouts 2.2 and 2.0, to the column
//!                            ├──► xml      DiskSpd's <Results>
//!                            ├──► sqlio    SQLIO's report, to the line
//!                            ├──► json     ours
//!   many of them ───────────────┴──► sweep, html   a campaign: table, CSV, JSON, a page or a picture with charts
//! ```
//!
//! **Words.** An *interval* is a piece of the measured time for which operations are counted (`-D`). A *percentile* is the
//! lowest latency that at least so many of the operations did not exceed. Rates divide by the time that was really
//! measured; MiB are 2^20 bytes, milliseconds have three digits.
//!
//! **Invariants.**
//! * Scripts find what they look for by column and by line: nothing of ours stands inside DiskSpd's or SQLIO's tables. What
//!   they do not know (errors, an open loop, verification) comes after them.
//! * A [`Histogram`] is off by at most one part in 512 of a value (percentiles are taken in the middle of a bucket, so by half of that), and not at all in count, sum, least and greatest.
//! * Numbers that do not exist (no reads, no time) are `N/A` or left out, never NaN.

mod chart;
mod histogram;
pub mod html;
pub mod json;
mod outcome;
pub mod sqlio;
pub mod sweep;
pub mod text;
pub mod xml;

#[cfg(test)]
mod tests;

pub use histogram::{HISTOGRAM_BUCKETS, Histogram, HistogramParts};
pub use outcome::{
    AgentOutcome, CpuPlace, CpuTime, EffectiveRange, Interval, OpenLoop, Operations, Outcome, SpanOutcome,
    System, TargetOutcome, ThreadOutcome, VerifyOutcome, WaitStatistics, iops_deviation,
};
