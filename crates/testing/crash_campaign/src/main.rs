//! The campaign from the command line: many seeds on all processors, progress, a table, a file with the result.

mod progress;
mod report;

use std::collections::BTreeMap;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, ValueEnum};
use crash_campaign::{Case, Layout, Sabotage, Subject, run};
use parking_lot::Mutex;
use progress::Progress;
use report::{About, Broken, Proof, Total};
use shard_runtime::{Clock as _, SystemClock};

/// Seeds of the proof that a sabotage is noticed.
const PROOF_SEEDS: u64 = 40;

/// Cuts the power of simulated disks under pools, volumes and write logs, and checks every promise after each cut.
#[derive(Parser)]
struct Arguments {
    /// Seeds for each subject and layout.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Only this subject.
    #[arg(long, value_enum)]
    subject: Option<Subject>,
    /// Only this layout.
    #[arg(long, value_enum)]
    layout: Option<Layout>,
    /// Break something on purpose, to see that it is noticed.
    #[arg(long, value_enum, default_value = "none")]
    sabotage: Sabotage,
    /// Threads; as many as there are processors if not given.
    #[arg(long)]
    jobs: Option<usize>,
    /// Say what happens, on one thread, with what the pool and the volume log.
    #[arg(long)]
    trace: bool,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    /// Write the result to this file, with proof that each kind of sabotage is noticed.
    #[arg(long, value_name = "FILE")]
    report: Option<std::path::PathBuf>,
    /// What is tested, for the report.
    #[arg(long, default_value = "unknown")]
    commit: String,
    /// The day, for the report.
    #[arg(long, default_value = "unknown")]
    date: String,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.subject.is_some_and(|subject| !arguments.sabotage.applies_to(subject)) {
        let what = "this sabotage has no part in what the subject does";
        Arguments::command().error(ErrorKind::ArgumentConflict, what).exit();
    }
    let processors = std::thread::available_parallelism().map_or(1, Into::into);
    let jobs = if arguments.trace { 1 } else { arguments.jobs.unwrap_or(processors).max(1) };
    if arguments.trace {
        // The time of the machine says nothing here: that of the simulation stands in the campaign's lines.
        tracing_subscriber::fmt().without_time().with_ansi(false).with_writer(std::io::stderr).init();
    }
    let clock = SystemClock::new();
    let start = clock.now();
    let cases = cases(&arguments);
    let totals = run_all(&cases, jobs);
    let kept = totals.values().all(|total| total.broken.is_empty());
    let proofs = if arguments.report.is_some() { prove(jobs) } else { Vec::new() };
    if arguments.json {
        println!("{}", report::json(&totals, &proofs));
    } else {
        print!("{}", report::table(&totals));
    }
    if let Some(path) = &arguments.report {
        let Arguments { seeds, from, .. } = arguments;
        let about = About {
            command: &format!(
                "cargo run --release --package crash_campaign -- --seeds {seeds} --from {from}"
            ),
            commit: &arguments.commit,
            date: &arguments.date,
            minutes: clock.now().since(start).as_secs().div_ceil(60),
            before: &std::fs::read_to_string(path).unwrap_or_default(),
        };
        let text = report::document(&totals, &proofs, &about);
        if let Err(error) = std::fs::write(path, text) {
            eprintln!("{}: {error}", path.display());
            return ExitCode::FAILURE;
        }
    }
    let unnoticed = proofs.iter().any(|proof| proof.caught == 0);
    if kept && !unnoticed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Subjects and layouts in turn, so that an interrupted run has seen all of them.
fn cases(arguments: &Arguments) -> Vec<Case> {
    let mut cases = Vec::new();
    for seed in arguments.from..arguments.from.saturating_add(arguments.seeds) {
        let wanted = |subject: &Subject| arguments.subject.is_none_or(|only| only == *subject);
        let concerned = |subject: &Subject| arguments.sabotage.applies_to(*subject);
        for subject in Subject::ALL.into_iter().filter(wanted).filter(concerned) {
            let layouts = subject.layouts().iter();
            for layout in layouts.filter(|layout| arguments.layout.is_none_or(|only| only == **layout)) {
                let case = Case::new(subject, *layout, seed);
                cases.push(Case { sabotage: arguments.sabotage, trace: arguments.trace, ..case });
            }
        }
    }
    cases
}

/// Runs the cases on so many threads.
fn run_all(cases: &[Case], jobs: usize) -> BTreeMap<(Subject, Layout), Total> {
    let totals = Mutex::new(BTreeMap::<(Subject, Layout), Total>::new());
    let next = AtomicUsize::new(0);
    let progress = Arc::new(Progress::new(cases.len()));
    let work = || {
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            let outcome = run(case);
            progress.done(case, &outcome);
            let mut totals = totals.lock();
            let total = totals.entry((case.subject, case.layout)).or_default();
            total.seeds += 1;
            total.stats += outcome.stats;
            if let Some(what) = outcome.broken {
                total.broken.push(Broken { case: *case, what });
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(work);
        }
    });
    progress.end();
    totals.into_inner()
}

/// Shows for each kind of sabotage how many seeds notice it.
fn prove(jobs: usize) -> Vec<Proof> {
    let kinds = Sabotage::value_variants().iter().copied().filter(|kind| *kind != Sabotage::None);
    let mut cases = Vec::new();
    for sabotage in kinds {
        for subject in Subject::ALL.into_iter().filter(|subject| sabotage.applies_to(*subject)) {
            for layout in sabotage.proven_on(subject) {
                let (layout, what) = (*layout, String::new());
                cases.push(Proof { sabotage, subject, layout, caught: 0, of: PROOF_SEEDS, what });
            }
        }
    }
    let next = AtomicUsize::new(0);
    let proofs = Mutex::new(Vec::new());
    let work = || {
        while let Some(proof) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            let proof = prove_one(proof);
            proofs.lock().push(proof);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(work);
        }
    });
    let mut proofs = proofs.into_inner();
    proofs.sort_by_key(|proof| (proof.sabotage.to_string(), proof.subject, proof.layout));
    proofs
}

fn prove_one(proof: &Proof) -> Proof {
    let mut proof = proof.clone();
    for seed in 0..proof.of {
        let case = Case::new(proof.subject, proof.layout, seed);
        if let Some(what) = caught_alone(&Case { sabotage: proof.sabotage, ..case }) {
            if proof.caught == 0 {
                proof.what = what;
            }
            proof.caught += 1;
        }
    }
    proof
}

/// Runs a case in a process of its own: a database that was damaged on purpose can panic while it is dropped for a
/// panic, which ends the process.
fn caught_alone(case: &Case) -> Option<String> {
    let program = std::env::current_exe().ok()?;
    let arguments = case.to_string();
    let ended = Command::new(program).args(arguments.split_whitespace()).output().ok()?;
    if ended.status.success() {
        return None;
    }
    let told = String::from_utf8_lossy(&ended.stderr);
    let what = told.lines().find_map(|line| line.strip_prefix("broken: "));
    Some(what.unwrap_or("the process ends in the middle").to_owned())
}
