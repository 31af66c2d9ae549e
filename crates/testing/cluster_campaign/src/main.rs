//! The campaign from the command line: many seeds on all processors, a table, a file with the result.

mod progress;
mod report;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use clap::{Parser, ValueEnum as _};
use cluster_campaign::{Case, Sabotage, run};
use parking_lot::Mutex;
use progress::Progress;
use report::{Proof, Total};

/// Seeds of the proof that a sabotage is noticed, at most.
const PROOF_SEEDS: u64 = 5000;

/// Runs nodes that own pools through pauses, partitions, crashes and stalls in simulated time, and checks every promise.
#[derive(Parser)]
struct Arguments {
    /// How many seeds.
    #[arg(long, default_value_t = 300)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Break something on purpose, to see that it is noticed.
    #[arg(long, value_enum, default_value = "none")]
    sabotage: Sabotage,
    /// Threads; as many as there are processors if not given.
    #[arg(long)]
    jobs: Option<usize>,
    /// Say what happens, on one thread.
    #[arg(long)]
    trace: bool,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    /// Write the result to this file, with how many seeds it takes to notice each kind of sabotage.
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
    let Arguments { seeds, from, sabotage, trace, .. } = arguments;
    let processors = std::thread::available_parallelism().map_or(1, Into::into);
    let jobs = if trace { 1 } else { arguments.jobs.unwrap_or(processors).max(1) };
    let progress = Progress::new(usize::try_from(seeds).unwrap_or(usize::MAX));
    let total = Mutex::new(Total { seeds, ..Total::default() });
    each(from, seeds, jobs, |seed| {
        let case = Case { seed, sabotage, trace };
        let outcome = run(&case);
        progress.done();
        let mut total = total.lock();
        total.stats += outcome.stats;
        if let Some(what) = outcome.broken {
            eprintln!("broken: {what}\n  again: {} --trace", case.again());
            total.broken.push((case, what));
        }
        true
    });
    let total = total.into_inner();
    let seconds = progress.seconds();
    let proofs = if arguments.report.is_some() { prove(jobs) } else { Vec::new() };
    if arguments.json {
        println!("{}", report::json(&total, &proofs));
    } else {
        print!("{}", report::table(&total));
    }
    if let Some(path) = &arguments.report {
        let head = format!(
            "{}, commit {} ({} build, {seconds:.0} seconds):\n\n    cargo run --release --package cluster_campaign -- --seeds {seeds} --from {from}",
            arguments.date,
            arguments.commit,
            if cfg!(debug_assertions) { "unoptimised" } else { "optimised" },
        );
        let before = std::fs::read_to_string(path).unwrap_or_default();
        if let Err(error) = std::fs::write(path, report::document(&total, &proofs, &head, &before)) {
            eprintln!("{}: {error}", path.display());
            return ExitCode::FAILURE;
        }
    }
    let unnoticed = proofs.iter().any(|proof| proof.caught.is_none());
    if total.broken.is_empty() && !unnoticed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs seeds on so many threads until one says that it is enough.
fn each(from: u64, seeds: u64, jobs: usize, work: impl Fn(u64) -> bool + Sync) {
    let (next, enough) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while !enough.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds {
                        break;
                    }
                    if !work(from.saturating_add(seed)) {
                        enough.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
    });
}

/// For each kind of sabotage: the first seed that notices it.
fn prove(jobs: usize) -> Vec<Proof> {
    let kinds = Sabotage::value_variants().iter().copied().filter(|kind| *kind != Sabotage::None);
    let prove = |sabotage: Sabotage| {
        let caught = Mutex::new(None::<(u64, String)>);
        each(0, PROOF_SEEDS, jobs, |seed| {
            let outcome = run(&Case { sabotage, ..Case::new(seed) });
            let Some(what) = outcome.broken else { return true };
            let mut caught = caught.lock();
            if caught.as_ref().is_none_or(|(earlier, _)| seed + 1 < *earlier) {
                *caught = Some((seed + 1, what));
            }
            false
        });
        Proof { sabotage, caught: caught.into_inner(), of: PROOF_SEEDS }
    };
    kinds.map(prove).collect()
}
