//! One stage of a run: a program whose output is passed on and counted, and what is told of all stages at the end.
//!
//! A stage that ends badly without naming a failed test (a crash, a build that fails) counts as one failure, so that the
//! closing line can never be green by silence.

use std::io::{BufRead as _, BufReader, PipeReader};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How many of the slowest tests and cases are named.
const SLOWEST: usize = 10;
/// What a stage behind others leaves to them: everything that they want.
const NICE: [&str; 2] = ["-n", "19"];

/// Results of one stage or of all.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl Counts {
    pub(crate) const PASSED: Self = Self { passed: 1, failed: 0, skipped: 0 };
    pub(crate) const FAILED: Self = Self { passed: 0, failed: 1, skipped: 0 };

    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// How long a test, a case or a stage took.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Timed {
    pub(crate) name: String,
    pub(crate) seconds: f64,
}

/// What one line of a stage's output tells.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Told {
    pub(crate) counts: Option<Counts>,
    pub(crate) timed: Option<Timed>,
    /// The line is for the runner, and not printed.
    pub(crate) silent: bool,
}

/// When the lines of a stage are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Printed {
    /// As they come, at the usual priority.
    AsTheyCome,
    /// Together at its end, errors among them, so that they do not mix with those of another that runs at the same time;
    /// and at the lowest priority, so that the other goes first.
    AtTheEnd,
}

/// Where the errors of a program go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Errors {
    /// To this program's.
    Beside,
    /// Into its output.
    WithTheOutput,
}

/// Results of a whole run. Stages that run at the same time share it.
#[derive(Debug, Default)]
pub(crate) struct Report {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    total: Counts,
    stages: Vec<Timed>,
    tests: Vec<Timed>,
}

impl Report {
    /// A stage that is one test: it passes when the program ends well.
    pub(crate) fn single(&self, root: &Path, name: &str, command: Command, printed: Printed) -> bool {
        let counts = self.stage(root, name, command, printed, &mut |_| Told::default());
        if counts.failed == 0 {
            self.add(Counts::PASSED);
        }
        counts.failed == 0
    }

    /// Runs one program, passes its output on, and adds up what `read` finds in it.
    pub(crate) fn stage(
        &self,
        root: &Path,
        name: &str,
        command: Command,
        printed: Printed,
        read: &mut dyn FnMut(&str) -> Told,
    ) -> Counts {
        self.timed(name, printed, |held| {
            let mut counts = Counts::default();
            let (command, errors) = match printed {
                Printed::AsTheyCome => (command, Errors::Beside),
                Printed::AtTheEnd => (nice(&command), Errors::WithTheOutput),
            };
            let ended_well = follow(root, command, errors, &mut |line| {
                let told = read(line);
                if let Some(found) = told.counts {
                    counts.add(found);
                }
                if let Some(timed) = told.timed {
                    self.test(timed);
                }
                match printed {
                    _ if told.silent => {}
                    Printed::AsTheyCome => println!("{line}"),
                    Printed::AtTheEnd => held.push(line.to_owned()),
                }
            });
            if let Err(error) = &ended_well {
                held.push(format!("{name}: {error}"));
            }
            if !ended_well.unwrap_or(false) && counts.failed == 0 {
                counts.failed = 1;
            }
            counts
        })
    }

    /// Prints how a stage begins and ends, and keeps its results. What `work` holds back is printed at its end.
    pub(crate) fn timed(
        &self,
        name: &str,
        printed: Printed,
        work: impl FnOnce(&mut Vec<String>) -> Counts,
    ) -> Counts {
        if printed == Printed::AsTheyCome {
            println!("==> {name}");
        }
        let since = now();
        let mut held = Vec::new();
        let counts = work(&mut held);
        let taken = since.elapsed();
        if printed == Printed::AtTheEnd {
            held.insert(0, format!("==> {name}, meanwhile"));
        }
        let verdict = if counts.failed == 0 { "ok" } else { "FAILED" };
        held.push(format!("==> {name}: {verdict} after {} s", taken.as_secs()));
        println!("{}", held.join("\n"));
        self.add(counts);
        self.change(|inner| inner.stages.push(timed(name, taken)));
        counts
    }

    /// Notes how long a test or a case took.
    pub(crate) fn test(&self, timed: Timed) {
        self.change(|inner| inner.tests.push(timed));
    }

    fn add(&self, counts: Counts) {
        self.change(|inner| inner.total.add(counts));
    }

    fn change(&self, change: impl FnOnce(&mut Inner)) {
        change(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Prints what took long and the sum; the result of the run. With `CI` set a skipped test is a failure of the run: on
    /// the machine that decides, nothing is left out.
    pub(crate) fn close(self) -> ExitCode {
        let Inner { total, stages, tests } = self.inner.into_inner().unwrap_or_else(PoisonError::into_inner);
        for line in slowest(tests) {
            println!("{line}");
        }
        for stage in stages {
            println!("{:7.0} s  {}", stage.seconds, stage.name);
        }
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
}

/// A name and how long it took.
pub(crate) fn timed(name: &str, taken: Duration) -> Timed {
    Timed { name: name.to_owned(), seconds: taken.as_secs_f64() }
}

#[expect(clippy::disallowed_methods, reason = "says how long something took; nothing depends on it")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The slowest tests and cases, a line each, under a heading; nothing when there were none.
fn slowest(mut tests: Vec<Timed>) -> Vec<String> {
    if tests.is_empty() {
        return Vec::new();
    }
    tests.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    let of = tests.len();
    tests.truncate(SLOWEST);
    let mut lines =
        vec![format!("==> the slowest {} of {of} tests and cases; then every stage", tests.len())];
    lines.extend(tests.iter().map(|test| format!("{:9.1} s  {}", test.seconds, test.name)));
    lines
}

/// Runs a program to its end and gives each line of its output to `line`; whether it ended well.
pub(crate) fn follow(
    root: &Path,
    command: Command,
    errors: Errors,
    line: &mut dyn FnMut(&str),
) -> Result<bool, String> {
    let (mut child, output) = start(root, command, errors).map_err(|e| format!("cannot start: {e}"))?;
    // Lossy, because a test may print anything.
    for bytes in BufReader::new(output).split(b'\n').map_while(Result::ok) {
        line(&String::from_utf8_lossy(&bytes));
    }
    child.wait().map(|status| status.success()).map_err(|e| e.to_string())
}

/// Starts a program with its output in a pipe.
fn start(root: &Path, mut command: Command, errors: Errors) -> std::io::Result<(Child, PipeReader)> {
    let (output, end) = std::io::pipe()?;
    if errors == Errors::WithTheOutput {
        command.stderr(end.try_clone()?);
    }
    let child = command.current_dir(root).stdin(Stdio::null()).stdout(end).spawn()?;
    // `command` holds ends of the pipe; without them it closes when the child ends.
    drop(command);
    Ok((child, output))
}

/// The same command, at the lowest priority.
fn nice(command: &Command) -> Command {
    let mut nice = Command::new("nice");
    nice.args(NICE).arg(command.get_program()).args(command.get_args());
    for (key, value) in command.get_envs() {
        match value {
            Some(value) => nice.env(key, value),
            None => nice.env_remove(key),
        };
    }
    nice
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(program: &[&str], printed: Printed) -> (Counts, Vec<String>) {
        let mut command = Command::new(program[0]);
        command.args(&program[1..]);
        let mut lines = Vec::new();
        let counts = Report::default().stage(Path::new("/"), "a stage", command, printed, &mut |line| {
            lines.push(line.to_owned());
            Told { silent: true, ..Told::default() }
        });
        (counts, lines)
    }

    #[test]
    fn a_stage_that_dies_silently_is_a_failure() {
        for printed in [Printed::AsTheyCome, Printed::AtTheEnd] {
            assert_eq!(run(&["false"], printed).0, Counts::FAILED);
            assert_eq!(run(&["/does/not/exist"], printed).0.failed, 1);
            assert_eq!(run(&["true"], printed).0, Counts::default());
        }
    }

    #[test]
    fn what_is_printed_later_has_the_errors_too() {
        let (_, lines) = run(&["sh", "-c", "echo out; echo bad >&2"], Printed::AtTheEnd);
        assert_eq!(lines, ["out", "bad"]);
    }

    #[test]
    fn the_slowest_come_first() {
        let tests =
            (0..30).map(|n| Timed { name: format!("t{n}"), seconds: f64::from(n * 7 % 30) }).collect();
        let lines = slowest(tests);
        assert_eq!(lines.len(), SLOWEST + 1);
        assert!(lines[0].contains("10 of 30"), "{}", lines[0]);
        assert_eq!(lines[1].trim(), "29.0 s  t17");
        assert_eq!(slowest(Vec::new()), Vec::<String>::new());
    }
}
