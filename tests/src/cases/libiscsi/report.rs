//! The page of results (docs/results/libiscsi.md) and the table behind it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use super::{LARGE_BLOCKS, PASSES, SLOW_WRITE, SMALL_BLOCKS, Skips, Verdict, reason_to_skip};
use crate::Result;
use crate::guest::home;
use crate::process::{command, run};

/// Passed, failed, skipped.
type Counts = [usize; 3];

fn count(counts: &mut Counts, result: &str) {
    let at = match result {
        "pass" => 0,
        "skip" => 2,
        _ => 1,
    };
    counts[at] += 1;
}

/// The first line that a program says, or a dash.
fn said(program: &str, arguments: &[&str]) -> String {
    let mut command = command(program);
    command.current_dir(home()).args(arguments);
    let output = run(Duration::from_secs(10), &command).ok().and_then(|done| done.ok(program).ok());
    output.and_then(|text| text.lines().next().map(str::to_string)).unwrap_or_else(|| "-".into())
}

/// Writes libiscsi.csv and libiscsi.md into `folder`.
pub(super) fn write(folder: &Path, verdicts: &[Verdict], expected: &Skips, full: bool) -> Result {
    let mut csv = String::from("blocks,suite,test,result,reason\n");
    for v in verdicts {
        let reason = v.reason.replace('"', "'");
        let _ = writeln!(csv, "{},{},{},{},\"{reason}\"", v.column, v.suite, v.test, v.result);
    }
    std::fs::write(folder.join("libiscsi.csv"), csv)?;
    std::fs::write(folder.join("libiscsi.md"), page(verdicts, expected, full))?;
    Ok(())
}

fn page(verdicts: &[Verdict], expected: &Skips, full: bool) -> String {
    let mut suites: BTreeMap<&str, BTreeMap<&str, Counts>> = BTreeMap::new();
    let mut total: BTreeMap<&str, Counts> = BTreeMap::new();
    for v in verdicts {
        count(suites.entry(&v.suite).or_default().entry(v.column).or_default(), &v.result);
        count(total.entry(v.column).or_default(), &v.result);
    }
    let passed: BTreeSet<String> =
        verdicts.iter().filter(|v| v.result == "pass").map(Verdict::name).collect();
    let all: BTreeSet<String> = verdicts.iter().map(Verdict::name).collect();
    let columns = [SMALL_BLOCKS, LARGE_BLOCKS];
    let mut out = String::from("# libiscsi's test suite\n\n");
    let _ = writeln!(
        out,
        "{} of {} tests passed on at least one of two LUNs, {} of all verdicts were failures or crashes. Commit {}, \
         {}, {} run.\n",
        passed.len(),
        all.len(),
        total.values().map(|counts| counts[1]).sum::<usize>(),
        said("git", &["rev-parse", "--short=12", "HEAD"]),
        said("dpkg-query", &["-W", "-f", "Debian's ${Package} ${Version}", "libiscsi-bin"]),
        if full { "full" } else { "ci" },
    );
    out.push_str(
        "Made by `E2E_RESULTS=$PWD/docs/results make e2e E2E=libiscsi`, which runs `iscsi-test-cu --dataloss \
         --allow-sanitize` on LUNs of\na demo node and writes this page and `libiscsi.csv`, every test by name. `make test` \
         runs the same without the second\ncolumn, of which it runs GetLBAStatus only. A verdict is CUnit's own; lines with \
         `[FAILED]` that passing tests log on\ntheir way are not counted.\n\n",
    );
    out.push_str("| suite |");
    columns.iter().for_each(|column| {
        let _ = write!(out, " {column}: passed | failed | skipped |");
    });
    out.push_str("\n|---|--:|--:|--:|--:|--:|--:|\n");
    let row = |out: &mut String, name: &str, counts: &BTreeMap<&str, Counts>| {
        let _ = write!(out, "| {name} |");
        for column in columns {
            match counts.get(column) {
                Some([passed, failed, skipped]) => {
                    let _ = write!(out, " {passed} | {failed} | {skipped} |");
                }
                None => out.push_str(" | | |"),
            }
        }
        out.push('\n');
    };
    suites.iter().for_each(|(suite, counts)| row(&mut out, suite, counts));
    row(&mut out, "**all**", &total);
    out.push_str("\n## Skipped, and why\n\n");
    let mut skips: BTreeMap<(&str, &str), BTreeMap<&str, usize>> = BTreeMap::new();
    for v in verdicts.iter().filter(|v| v.result == "skip") {
        let line = reason_to_skip(expected, v).unwrap_or((&v.suite, "not explained"));
        *skips.entry(line).or_default().entry(v.column).or_default() += 1;
    }
    for ((name, why), on) in skips {
        let tests: Vec<String> = on.iter().map(|(column, tests)| format!("{tests} on {column}")).collect();
        let _ = writeln!(out, "* {name} ({}): {why}", tests.join(", "));
    }
    out.push_str("\n## Not run on one of the LUNs, and why\n\n");
    for pass in &PASSES {
        for (name, why) in pass.without {
            let _ = writeln!(out, "* {name}, {}: {why}", pass.column);
        }
    }
    let _ = writeln!(
        out,
        "\nThe pass with slow disks delays each write to a disk by {SLOW_WRITE} ms (`holdfast disk fault DISK delay`)."
    );
    out
}
