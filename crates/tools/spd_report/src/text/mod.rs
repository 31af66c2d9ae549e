//! DiskSpd's text report: order, words and columns of version 2.2, or of 2.0 for scripts and eyes of its time.

mod after;
mod profile;
mod tables;

pub(crate) use after::write as after_tables;

use std::fmt::Write as _;

use spd_profile::Profile;

use crate::outcome::{Outcome, System};

/// The tool whose layout the report has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// DiskSpd 2.2.
    #[default]
    V22,
    /// DiskSpd 2.0.12, the one of the reports of 2014.
    V20,
}

/// What a program prints that ends before it has measured anything.
pub(crate) const INTERRUPTED: &str =
    "The test was interrupted before the measurements began. No results are displayed.";

/// The profile alone (`-Rptext`).
#[must_use]
pub fn profile_only(profile: &Profile, layout: Layout) -> String {
    let mut out = String::new();
    profile::write(&mut out, profile, layout);
    out
}

/// The report of a run.
#[must_use]
pub fn report(profile: &Profile, outcome: &Outcome, layout: Layout) -> String {
    let mut out = String::new();
    profile::write(&mut out, profile, layout);
    if layout == Layout::V22 {
        system(&mut out, &outcome.system);
    }
    for (index, (span, measured)) in profile.spans.iter().zip(&outcome.spans).enumerate() {
        let _ = write!(out, "\nResults for timespan {}:\n{}\n", index + 1, "*".repeat(79));
        if measured.seconds < 1e-7 {
            let _ = writeln!(out, "{INTERRUPTED}");
        } else {
            tables::write(&mut out, profile, span, measured, &outcome.system, layout);
        }
        after::write(&mut out, span, measured);
    }
    if outcome.spans.len() > 1 {
        tables::totals(&mut out, outcome, layout);
    }
    out
}

fn system(out: &mut String, system: &System) {
    let _ = write!(
        out,
        "System information:\n\n\tcomputer name: {}\n\tstart time: {}\n\n\tcpu count:\t\t{}\n\tcore count:\t\t{}\n\
         \tgroup count:\t\t1\n\tnode count:\t\t{}\n\tsocket count:\t\t{}\n\theterogeneous cores:\tn\n\n\
         \tactive power scheme:\t{}\n",
        system.computer,
        system.start_text(),
        system.cpus.len(),
        system.distinct(|cpu| cpu.core),
        system.distinct(|cpu| cpu.node),
        system.distinct(|cpu| cpu.socket),
        system.power_scheme
    );
}

/// A size as the layout shows it.
fn size(bytes: u64, layout: Layout) -> String {
    match layout {
        Layout::V22 => spd_profile::display_size(bytes),
        Layout::V20 => bytes.to_string(),
    }
}
