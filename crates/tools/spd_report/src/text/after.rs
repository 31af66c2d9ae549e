//! What DiskSpd does not know, after all of its tables: an early end, errors, the open loop, verification.

use std::fmt::Write as _;

use spd_profile::TimeSpan;

use crate::outcome::SpanOutcome;

pub(crate) fn write(out: &mut String, span: &TimeSpan, measured: &SpanOutcome) {
    if let Some(why) = &measured.ended_early {
        let asked = span.duration;
        let _ = write!(out, "\nEnded early: {why}; {:.2}s of {asked}s were measured.\n", measured.seconds);
    }
    let (read, written) = measured.sum();
    if read.errors + written.errors > 0 {
        let _ = write!(out, "\nErrors\n");
        for (name, operations) in [("read", &read), ("write", &written)] {
            if operations.errors == 0 {
                continue;
            }
            let _ = write!(out, "{name:>6} | {:12}", operations.errors);
            if let Some((at, what)) = &operations.first_error {
                let _ = write!(out, " | first at {at:.3}s: {what}");
            }
            out.push('\n');
        }
    }
    if let Some(open) = &measured.open_loop {
        let done = (read.count + written.count) as f64 / measured.seconds.max(1e-9);
        let _ = write!(
            out,
            "\nOpen loop\nasked for {} I/O per s, measured {done:.2}; {} of {} began late because all requests were \
             outstanding; {} never began\n",
            open.rate, open.late, open.intended, open.never_begun
        );
    }
    if let Some(verify) = &measured.verify {
        let _ = write!(
            out,
            "\nVerification\n{} blocks checked: {} stale, {} lost, {} misplaced, {} torn; longest stall {:.3} ms\n",
            verify.checked, verify.stale, verify.lost, verify.misplaced, verify.torn, verify.longest_stall_ms
        );
        for finding in &verify.findings {
            let _ = writeln!(out, "  {finding}");
        }
    }
}
