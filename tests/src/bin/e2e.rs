//! The runner of the end-to-end cases.
//!
//! ```text
//!   e2e [--set ci|full] [--list] [--peer | --url URL] [--repeat-for SECONDS] [NAME ...]
//! ```
//! Without names the cases of the set run: `ci` is what `make test` does, `full` is all of them, at full size. `--peer` puts Debian's tgt in Holdfast's place, `--url` a server that
//! runs already. Folders of failed cases are kept. The cases of `ci` run three at a time, one of them with a virtual machine.

use std::collections::VecDeque;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tests::Outcome;
use tests::cases::{CASES, Case, Context};
use tests::notes;
use tests::process::Deadline;

/// How many cases of `ci` run at a time: most of them wait for programs, faults and time limits, not for a processor.
const LANES: usize = 3;

fn main() -> ExitCode {
    let mut names: Vec<String> = Vec::new();
    let (mut full, mut peer, mut url, mut repeat) = (false, false, None, None);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--list" => {
                for case in CASES {
                    println!("{:14} {}", case.name, case.about);
                }
                return ExitCode::SUCCESS;
            }
            "--set" => full = words.next().as_deref() == Some("full"),
            "--peer" => peer = true,
            "--url" => url = words.next(),
            "--repeat-for" => repeat = words.next().and_then(|s| s.parse().ok()).map(Duration::from_secs),
            name if CASES.iter().any(|c| c.name == name) => names.push(name.into()),
            other => {
                eprintln!("e2e: there is no case `{other}`; --list names them");
                return ExitCode::from(2);
            }
        }
    }
    let chosen: Vec<&Case> = CASES
        .iter()
        .filter(|c| if names.is_empty() { full || c.ci } else { names.iter().any(|n| n == c.name) })
        .collect();
    let end = repeat.map(Deadline::after);
    let beside = names.is_empty() && !full && !peer && url.is_none();
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    let root = std::env::temp_dir().join(format!("holdfast-e2e-{}", std::process::id()));
    for round in 0.. {
        let run = |case: &Case| {
            let folder = root.join(format!("{}-{round}", case.name));
            one(case, &Context { folder, full, peer, url: url.clone() }, beside)
        };
        for outcome in
            if beside { in_lanes(&chosen, &run) } else { chosen.iter().map(|case| run(case)).collect() }
        {
            match outcome {
                Ok(()) => passed += 1,
                Err(Outcome::Skip(_)) => skipped += 1,
                Err(Outcome::Fail(_)) => failed += 1,
            }
        }
        if failed > 0 || end.is_none_or(|e| e.left().is_zero()) {
            break;
        }
    }
    if failed == 0 {
        let _ = std::fs::remove_dir_all(&root);
    }
    println!("e2e: {passed} passed, {failed} failed, {skipped} skipped");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs the cases with a virtual machine one after another, the others beside them, and when there is no virtual machine left,
/// in place of them.
fn in_lanes(cases: &[&Case], run: &(dyn Fn(&Case) -> tests::Result + Sync)) -> Vec<tests::Result> {
    let split =
        |guest: bool| Mutex::new(cases.iter().filter(|case| case.guest == guest).collect::<VecDeque<_>>());
    let (guests, others) = (split(true), split(false));
    let next = |list: &Mutex<VecDeque<_>>| list.lock().ok()?.pop_front();
    let lane = |first: bool| {
        let mut outcomes = Vec::new();
        while let Some(case) = first.then(|| next(&guests)).flatten().or_else(|| next(&others)) {
            outcomes.push(run(case));
        }
        outcomes
    };
    std::thread::scope(|scope| {
        let beside: Vec<_> = (1..LANES).map(|_| scope.spawn(|| lane(false))).collect();
        let mut outcomes = lane(true);
        for lane in beside {
            let lost = || vec![Err(Outcome::Fail("the runner of the cases panicked".into()))];
            outcomes.extend(lane.join().unwrap_or_else(|_| lost()));
        }
        outcomes
    })
}

fn one(case: &Case, context: &Context, beside: bool) -> tests::Result {
    #[expect(clippy::disallowed_methods, reason = "says how long the case took; nothing depends on it")]
    let start = Instant::now();
    let kept = &context.folder;
    if beside {
        notes::keep();
    }
    let result = std::fs::create_dir_all(kept).map_err(Outcome::from).and_then(|()| (case.run)(context));
    let seconds = start.elapsed().as_secs();
    let mut told = notes::take();
    match &result {
        Ok(()) => {
            told.push(format!("ok   {} ({seconds} s)", case.name));
            let _ = std::fs::remove_dir_all(kept);
        }
        Err(Outcome::Skip(why)) => told.push(format!("skip {}: {why}", case.name)),
        Err(Outcome::Fail(why)) => {
            told.push(format!("FAIL {} ({seconds} s): {why}", case.name));
            told.push(format!("     its files are in {}", kept.display()));
        }
    }
    println!("{}", told.join("\n"));
    result
}
