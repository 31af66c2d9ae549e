//! The one test run: lint, every test of the workspace, end-to-end cases, and a closing line with the sum.
//!
//! Each lint is counted as one test. What a fresh clone spends most of its time on is compiling, and the cases mostly wait
//! (for a guest, for a time limit, for a disk): so the node is built first, with what the tests need of it, and while the
//! cases run on it the tests are compiled and the lints run, at the lowest priority. The tests follow when all of that is
//! done, for they take all processors. All of it is built with the profile `ci`, and nothing of it twice.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use crate::stage::{Counts, Printed, Report, Timed, Told};
use crate::test_binaries::{self, Binary};

/// Tests, lints and the node of the tests are built with it (Cargo.toml).
const PROFILE: [&str; 2] = ["--profile", "ci"];
/// Cargo unites the features that packages ask of each other, those for tests only when a test is among what it builds.
/// With this one the node that the cases run on has the features that it has in the tests, and is not built again for them.
const SAME_FEATURES: [&str; 2] = ["--test", "inspect"];

/// How much of it to run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Lint, workspace tests, end-to-end cases.
    Everything,
    /// Only the tests of the workspace.
    Workspace,
}

/// `make lint`.
pub(crate) fn lint(root: &Path) -> ExitCode {
    let report = Report::default();
    quick_lints(root, &report);
    slow_lints(root, &report, Printed::AsTheyCome);
    report.close()
}

/// `make test` and `make unit`.
pub(crate) fn test(root: &Path, scope: Scope) -> ExitCode {
    let report = Report::default();
    let binaries = if scope == Scope::Everything {
        quick_lints(root, &report);
        let node = build_node(root, &report, false);
        std::thread::scope(|threads| {
            let behind = threads.spawn(|| {
                let binaries = build_tests(root, &report, Printed::AtTheEnd);
                slow_lints(root, &report, Printed::AtTheEnd);
                binaries
            });
            if let Some(node) = node {
                end_to_end(root, &report, &node, &["--set", "ci"]);
            }
            behind.join().unwrap_or_default()
        })
    } else {
        build_tests(root, &report, Printed::AsTheyCome)
    };
    test_binaries::run(&report, binaries);
    report.close()
}

/// `make e2e`: `arguments` go to the runner (tests/src/bin/e2e.rs).
pub(crate) fn e2e(root: &Path, arguments: &[&str]) -> ExitCode {
    let report = Report::default();
    let release = std::env::var("PROFILE").is_ok_and(|p| p == "release");
    if let Some(node) = build_node(root, &report, release) {
        end_to_end(root, &report, &node, arguments);
    }
    report.close()
}

/// The lints that need nothing built.
fn quick_lints(root: &Path, report: &Report) {
    report.single(root, "rustfmt", cargo(&["fmt", "--all", "--check"]), Printed::AsTheyCome);
    let mut tidy = std::env::current_exe().map_or_else(|_| cargo(&["xtask"]), Command::new);
    tidy.arg("tidy");
    report.single(root, "tidy", tidy, Printed::AsTheyCome);
}

fn slow_lints(root: &Path, report: &Report, printed: Printed) {
    let everything = ["clippy", "--workspace", "--all-targets", "--locked", "--quiet"];
    let clippy = cargo(&[&everything[..], &PROFILE, &["--", "-D", "warnings"]].concat());
    report.single(root, "clippy", clippy, printed);
    // The tests ask for features that a release does not have: what users build must do without them.
    let users = cargo(&[&["check", "--locked", "--quiet", "--package", "holdfast"][..], &PROFILE].concat());
    report.single(root, "the node as users build it", users, printed);
    // Fetches the advisory database, so it is for the machines that have the tool; `make deny` insists on it.
    let has_deny =
        Command::new("cargo-deny").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if has_deny.is_ok_and(|s| s.success()) {
        report.single(root, "cargo deny", cargo(&["deny", "check"]), printed);
    }
}

/// The programs that the cases need.
struct Node {
    holdfast: PathBuf,
    runner: PathBuf,
}

/// Builds the node and the runner of the cases, the node optimised and just as users have it if `release`.
fn build_node(root: &Path, report: &Report, release: bool) -> Option<Node> {
    let folder = target_dir(root, std::env::var_os("CARGO_TARGET_DIR"));
    let node = Node {
        holdfast: folder.join(if release { "release/holdfast" } else { "ci/holdfast" }),
        runner: folder.join("ci/e2e"),
    };
    let build = |name: &str, what: &[&str]| {
        let command = cargo(&[&["build", "--locked"], what].concat());
        report.single(root, name, command, Printed::AsTheyCome)
    };
    let built = if release {
        build("build the node", &["--release", "--package", "holdfast"])
            && build("build the cases", &[&["--package", "tests", "--bin", "e2e"][..], &PROFILE].concat())
    } else {
        let both = ["--workspace", "--bin", "holdfast", "--bin", "e2e"];
        build("build the node and the cases", &[&both[..], &SAME_FEATURES, &PROFILE].concat())
    };
    built.then_some(node)
}

fn end_to_end(root: &Path, report: &Report, node: &Node, arguments: &[&str]) {
    let mut run = Command::new(&node.runner);
    run.args(arguments).env("HOLDFAST_BIN", &node.holdfast);
    report.stage(root, "end to end", run, Printed::AsTheyCome, &mut e2e_line);
}

/// Compiles every test of the workspace and tells which binaries there are; none if that fails. There are no tests in
/// documentation (tidy sees to it), and benchmarks and examples are compiled by clippy.
fn build_tests(root: &Path, report: &Report, printed: Printed) -> Vec<Binary> {
    let what = ["test", "--workspace", "--lib", "--bins", "--tests", "--no-run", "--locked"];
    let told = ["--message-format", "json-render-diagnostics"];
    let mut binaries = Vec::new();
    let build = cargo(&[&what[..], &PROFILE, &told].concat());
    let counts = report.stage(root, "compile the tests", build, printed, &mut |line| {
        binaries.extend(Binary::told(line));
        Told { silent: line.starts_with('{'), ..Told::default() }
    });
    if counts.failed == 0 { binaries } else { Vec::new() }
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

/// `e2e: 3 passed, 0 failed, 1 skipped`, and `ok   restart (4 s)` or `FAIL restart (4 s): why`.
fn e2e_line(line: &str) -> Told {
    let counts = || {
        let rest = line.strip_prefix("e2e: ")?;
        let mut numbers = rest.split(',').map(|p| p.split_whitespace().next().and_then(|n| n.parse().ok()));
        Some(Counts { passed: numbers.next()??, failed: numbers.next()??, skipped: numbers.next()?? })
    };
    let timed = || {
        let rest = line.strip_prefix("ok   ").or_else(|| line.strip_prefix("FAIL "))?;
        let (name, rest) = rest.split_once(" (")?;
        let seconds = rest.split_once(" s)")?.0.parse().ok()?;
        Some(Timed { name: format!("case {name}"), seconds })
    };
    Told { counts: counts(), timed: timed(), silent: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_cases_are_read() {
        let counts = |line: &str| e2e_line(line).counts;
        assert_eq!(
            counts("e2e: 3 passed, 0 failed, 1 skipped"),
            Some(Counts { passed: 3, failed: 0, skipped: 1 })
        );
        assert_eq!(counts("e2e: all good"), None);
        let timed = |line: &str| e2e_line(line).timed;
        let expected = |seconds| Some(Timed { name: "case guest-kill".into(), seconds });
        assert_eq!(timed("ok   guest-kill (42 s)"), expected(42.0));
        assert_eq!(timed("FAIL guest-kill (7 s): it (the node) ended"), expected(7.0));
        assert_eq!(timed("skip guest-kill: no guest"), None);
    }

    #[test]
    fn the_binary_is_where_cargo_puts_it() {
        let root = Path::new("/tree");
        assert_eq!(target_dir(root, None), Path::new("/tree/target"));
        assert_eq!(target_dir(root, Some("".into())), Path::new("/tree/target"));
        assert_eq!(target_dir(root, Some("built".into())), Path::new("/tree/built"));
        assert_eq!(target_dir(root, Some("/elsewhere".into())), Path::new("/elsewhere"));
    }
}
