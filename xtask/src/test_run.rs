//! The one test run: lint, every test of the workspace, end-to-end cases, and a closing line with the sum.
//!
//! Each lint is counted as one test. A stage that ends badly without naming a failed test (a crash, a build that fails)
//! counts as one failure, so that the closing line can never be green by silence. With `CI` set a skipped test is a
//! failure of the run: on the machine that decides, nothing is left out.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

/// How much of it to run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Lint, workspace tests, end-to-end cases.
    Everything,
    /// Only `cargo test` of the workspace.
    Workspace,
}

/// Results of one stage or of all.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Counts {
    passed: u64,
    failed: u64,
    skipped: u64,
}

impl Counts {
    fn add(&mut self, other: Counts) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// What a stage prints, and how its lines are counted.
type Count = fn(&str) -> Option<Counts>;

/// `make lint`.
pub(crate) fn lint(root: &Path) -> ExitCode {
    let mut total = Counts::default();
    lint_stages(root, &mut total);
    close(total)
}

/// `make test`.
pub(crate) fn test(root: &Path, scope: Scope) -> ExitCode {
    let mut total = Counts::default();
    if scope == Scope::Everything {
        lint_stages(root, &mut total);
    }
    let test = cargo(&["test", "--workspace", "--no-fail-fast", "--locked"]);
    total.add(stage(root, "tests of the workspace", test, cargo_test_line));
    if scope == Scope::Everything {
        total.add(e2e_stages(root, &["--set", "ci"]));
    }
    close(total)
}

/// `make e2e`: `arguments` go to the runner (tests/src/bin/e2e.rs).
pub(crate) fn e2e(root: &Path, arguments: &[&str]) -> ExitCode {
    close(e2e_stages(root, arguments))
}

fn lint_stages(root: &Path, total: &mut Counts) {
    total.add(single(root, "rustfmt", cargo(&["fmt", "--all", "--check"])));
    let clippy =
        cargo(&["clippy", "--workspace", "--all-targets", "--locked", "--quiet", "--", "-D", "warnings"]);
    total.add(single(root, "clippy", clippy));
    total.add(single(root, "tidy", cargo(&["run", "--quiet", "--package", "xtask", "--", "tidy"])));
    // Fetches the advisory database, so it is for the machines that have the tool; `make deny` insists on it.
    let has_deny =
        Command::new("cargo-deny").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if has_deny.is_ok_and(|s| s.success()) {
        total.add(single(root, "cargo deny", cargo(&["deny", "check"])));
    }
}

fn e2e_stages(root: &Path, arguments: &[&str]) -> Counts {
    let mut total = Counts::default();
    let release = std::env::var("PROFILE").is_ok_and(|p| p == "release");
    let profile: &[&str] = if release { &["--release"] } else { &[] };
    let build = cargo(&[&["build", "--locked", "--package", "holdfast"], profile].concat());
    let built = single(root, "build the node", build);
    total.add(built);
    if built.failed == 0 {
        let folder = target_dir(root, std::env::var_os("CARGO_TARGET_DIR"));
        let binary = folder.join(if release { "release/holdfast" } else { "debug/holdfast" });
        let mut run = cargo(&["run", "--quiet", "--locked", "--package", "tests", "--bin", "e2e", "--"]);
        run.args(arguments).env("HOLDFAST_BIN", binary);
        total.add(stage(root, "end to end", run, e2e_line));
    }
    total
}

/// Where cargo puts what it builds: what `CARGO_TARGET_DIR` says, seen from where cargo is started here.
fn target_dir(root: &Path, set: Option<OsString>) -> PathBuf {
    let set = set.filter(|folder| !folder.is_empty());
    root.join(set.map_or_else(|| PathBuf::from("target"), PathBuf::from))
}

fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()));
    command.args(arguments);
    command
}

/// A stage that is one test: it passes when the program ends well.
fn single(root: &Path, name: &str, command: Command) -> Counts {
    let counts = stage(root, name, command, |_| None);
    if counts.failed == 0 { Counts { passed: 1, ..Counts::default() } } else { counts }
}

/// Runs one program, passes its output on, and adds up what `count` finds in it.
fn stage(root: &Path, name: &str, mut command: Command, count: Count) -> Counts {
    println!("==> {name}");
    #[expect(clippy::disallowed_methods, reason = "says how long each stage took; nothing depends on it")]
    let start = Instant::now();
    let mut counts = Counts::default();
    let child = command.current_dir(root).stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let ended_well = match child {
        Ok(mut child) => {
            if let Some(output) = child.stdout.take() {
                // Lossy, because a test may print anything.
                for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                    let line = String::from_utf8_lossy(&line);
                    println!("{line}");
                    if let Some(found) = count(&line) {
                        counts.add(found);
                    }
                }
            }
            child.wait().is_ok_and(|status| status.success())
        }
        Err(error) => {
            eprintln!("{name}: cannot start: {error}");
            false
        }
    };
    if !ended_well && counts.failed == 0 {
        counts.failed = 1;
    }
    let verdict = if counts.failed == 0 { "ok" } else { "FAILED" };
    println!("==> {name}: {verdict} after {} s", start.elapsed().as_secs());
    counts
}

/// `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; ...`
fn cargo_test_line(line: &str) -> Option<Counts> {
    let rest = line.strip_prefix("test result: ")?;
    let number = |word: &str| -> u64 {
        let part = rest.split([';', '.']).find(|p| p.trim().ends_with(word));
        part.and_then(|p| p.split_whitespace().next()).and_then(|n| n.parse().ok()).unwrap_or(0)
    };
    Some(Counts { passed: number(" passed"), failed: number(" failed"), skipped: number(" ignored") })
}

/// `e2e: 3 passed, 0 failed, 1 skipped`
fn e2e_line(line: &str) -> Option<Counts> {
    let rest = line.strip_prefix("e2e: ")?;
    let mut numbers = rest.split(',').map(|p| p.split_whitespace().next().and_then(|n| n.parse().ok()));
    Some(Counts { passed: numbers.next()??, failed: numbers.next()??, skipped: numbers.next()?? })
}

fn close(total: Counts) -> ExitCode {
    let ci = std::env::var_os("CI").is_some_and(|v| !v.is_empty());
    if ci && total.skipped > 0 {
        println!("{} skipped, and in CI nothing may be: see above for what was missing", total.skipped);
    }
    println!("{} passed, {} failed, {} skipped", total.passed, total.failed, total.skipped);
    if total.failed == 0 && total.passed > 0 && !(ci && total.skipped > 0) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_are_read() {
        let line = "test result: FAILED. 12 passed; 3 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.02s";
        assert_eq!(cargo_test_line(line), Some(Counts { passed: 12, failed: 3, skipped: 1 }));
        assert_eq!(cargo_test_line("test result: nonsense"), Some(Counts::default()));
        assert_eq!(cargo_test_line("test a ... ok"), None);
        assert_eq!(
            e2e_line("e2e: 3 passed, 0 failed, 1 skipped"),
            Some(Counts { passed: 3, failed: 0, skipped: 1 })
        );
        assert_eq!(e2e_line("e2e: all good"), None);
    }

    #[test]
    fn the_binary_is_where_cargo_puts_it() {
        let root = Path::new("/tree");
        assert_eq!(target_dir(root, None), Path::new("/tree/target"));
        assert_eq!(target_dir(root, Some("".into())), Path::new("/tree/target"));
        assert_eq!(target_dir(root, Some("built".into())), Path::new("/tree/built"));
        assert_eq!(target_dir(root, Some("/elsewhere".into())), Path::new("/elsewhere"));
    }

    #[test]
    fn a_stage_that_dies_silently_is_a_failure() {
        let counts = stage(Path::new("/"), "dies", Command::new("false"), cargo_test_line);
        assert_eq!(counts, Counts { passed: 0, failed: 1, skipped: 0 });
        let missing = stage(Path::new("/"), "missing", Command::new("/does/not/exist"), cargo_test_line);
        assert_eq!(missing.failed, 1);
    }
}
