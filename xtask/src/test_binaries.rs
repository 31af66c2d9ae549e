//! The tests of the workspace: built by cargo in one go, then run from here, several binaries at a time.
//!
//! Cargo would run them one after another, and a processor waits whenever one of them is down to a single test. Run from
//! here the binaries can also say how long each test took, without cargo noticing an environment in which it would build
//! everything again.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use crate::stage::{Counts, Errors, Printed, Report, Timed, Told, follow};

/// How many binaries run at a time; each runs as many tests at a time as there are processors. Most tests wait for disks
/// and for each other.
const LANES: usize = 2;

/// The binaries that take longest begin first, so that no processor waits for one of them at the end.
const LONGEST: [&str; 3] = ["volume", "pool", "crash_campaign/campaign"];

/// A test binary.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Binary {
    /// Package and target.
    name: String,
    path: PathBuf,
    /// The package's folder, where tests expect to be.
    folder: PathBuf,
}

impl Binary {
    /// What cargo says of a target that it has built (`--message-format json`), if that is a test binary.
    pub(crate) fn told(line: &str) -> Option<Self> {
        let message: Value = serde_json::from_str(line).ok()?;
        if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
            return None;
        }
        let path = PathBuf::from(message["executable"].as_str()?);
        let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_path_buf();
        let package = folder.file_name()?.to_string_lossy();
        let target = message["target"]["name"].as_str()?;
        let name = if package == target { target.to_owned() } else { format!("{package}/{target}") };
        Some(Self { name, path, folder })
    }
}

/// Runs them all.
pub(crate) fn run(report: &Report, mut binaries: Vec<Binary>) {
    binaries.sort_by_key(|binary| !LONGEST.contains(&binary.name.as_str()));
    report.timed("tests of the workspace", Printed::AsTheyCome, |_| {
        let queue = Mutex::new(VecDeque::from(binaries));
        let total = Mutex::new(Counts::default());
        std::thread::scope(|scope| {
            for _ in 0..LANES {
                scope.spawn(|| {
                    while let Some(binary) = lock(&queue).pop_front() {
                        let counts = one(report, &binary);
                        lock(&total).add(counts);
                    }
                });
            }
        });
        let total = *lock(&total);
        // No binary, no test: a build that made nothing is no success.
        if total == Counts::default() { Counts::FAILED } else { total }
    });
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs one binary and prints what it said when it has ended: lines of two do not mix.
fn one(report: &Report, binary: &Binary) -> Counts {
    let mut command = Command::new(&binary.path);
    // The time of each test is an unstable option of the test harness; only the binary sees that it is allowed.
    command.args(["-Zunstable-options", "--report-time"]).env("RUSTC_BOOTSTRAP", "1");
    command.env("CARGO_MANIFEST_DIR", &binary.folder);
    let mut lines = vec![format!("--- {}", binary.name)];
    let mut counts = None;
    let ended_well = follow(&binary.folder, command, Errors::WithTheOutput, &mut |line| {
        let told = test_line(&binary.name, line);
        if let Some(found) = told.counts {
            counts.get_or_insert(Counts::default()).add(found);
        }
        if let Some(timed) = told.timed {
            report.test(timed);
        }
        // A test that hangs is named at once.
        if line.contains(" has been running for over ") {
            println!("{}: {line}", binary.name);
        }
        lines.push(line.to_owned());
    });
    let mut counts = counts.unwrap_or_default();
    if !matches!(ended_well, Ok(true)) && counts.failed == 0 {
        lines.push(format!("{}: ended without a result: {ended_well:?}", binary.name));
        counts.failed = 1;
    }
    println!("{}", lines.join("\n"));
    counts
}

/// `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; ...` and `test a::b ... ok <0.012s>`.
fn test_line(binary: &str, line: &str) -> Told {
    let mut told = Told::default();
    if let Some(rest) = line.strip_prefix("test result: ") {
        let number = |word: &str| -> u64 {
            let part = rest.split([';', '.']).find(|p| p.trim().ends_with(word));
            part.and_then(|p| p.split_whitespace().next()).and_then(|n| n.parse().ok()).unwrap_or(0)
        };
        told.counts = Some(Counts {
            passed: number(" passed"),
            failed: number(" failed"),
            skipped: number(" ignored"),
        });
    } else if let Some((name, end)) = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... ")) {
        let seconds = end.rsplit_once('<').and_then(|(_, time)| time.strip_suffix("s>")?.parse().ok());
        told.timed = seconds.map(|seconds| Timed { name: format!("{binary} {name}"), seconds });
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_are_read() {
        let counts = |line: &str| test_line("b", line).counts;
        let line = "test result: FAILED. 12 passed; 3 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.02s";
        assert_eq!(counts(line), Some(Counts { passed: 12, failed: 3, skipped: 1 }));
        assert_eq!(counts("test result: nonsense"), Some(Counts::default()));
        assert_eq!(counts("test a ... ok"), None);
    }

    #[test]
    fn times_of_tests_are_read() {
        let timed = |line: &str| test_line("b", line).timed;
        let expected = Timed { name: "b x::y".into(), seconds: 1.25 };
        assert_eq!(timed("test x::y ... ok <1.250s>"), Some(expected.clone()));
        assert_eq!(timed("test x::y ... FAILED <1.250s>"), Some(expected));
        assert_eq!(timed("test x::y ... ignored"), None);
        assert_eq!(timed("test result: ok. 1 passed"), None);
    }

    #[test]
    fn test_binaries_are_found_among_what_cargo_builds() {
        let line = |test: bool, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/tree/crates/smb/rpc/Cargo.toml","target":{{"name":"clients"}},"profile":{{"test":{test}}},"executable":{executable}}}"#
            )
        };
        let found = Binary::told(&line(true, r#""/t/ci/deps/clients-1""#));
        let expected = Binary {
            name: "rpc/clients".into(),
            path: "/t/ci/deps/clients-1".into(),
            folder: "/tree/crates/smb/rpc".into(),
        };
        assert_eq!(found, Some(expected));
        assert_eq!(Binary::told(&line(false, r#""/t/ci/holdfast""#)), None);
        assert_eq!(Binary::told(&line(true, "null")), None);
        assert_eq!(Binary::told("   Compiling rpc"), None);
    }

    #[test]
    fn a_binary_that_is_no_test_is_a_failure() {
        let binary = |path: &str| Binary { name: "b".into(), path: path.into(), folder: "/".into() };
        let report = Report::default();
        assert_eq!(one(&report, &binary("/bin/false")), Counts::FAILED);
        assert_eq!(one(&report, &binary("/does/not/exist")), Counts::FAILED);
    }
}
