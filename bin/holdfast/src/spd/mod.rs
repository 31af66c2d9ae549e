//! `holdfast spd` and `holdfast sqlio`: the load generator, also when the program is called `diskspd` or `sqlio`.
//!
//! Standard output carries the report and nothing else; progress, questions and warnings go to standard error.

mod agent;
mod console;
mod local_volume;
mod sqlio;
mod sweep;
mod targets;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use shard_runtime::{Clock, Entropy as _, SystemClock, SystemEntropy};
use spd_engine::{Backend, EngineError, Preparation};
use spd_profile::windows_path::Drives;
use spd_profile::{Profile, ProfileError, ResultFormat, Run, Surroundings, TimeSpan};
use spd_report::text::{self, Layout};
use spd_report::{Outcome, SpanOutcome, json, xml};

use console::Console;
use targets::Place;

/// What DiskSpd returns for a command line that makes no sense.
const DISKSPD_USAGE: u8 = 3;
/// The version as reports name it.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (Holdfast)");
/// When that version was released, as DiskSpd writes it: without leading zeros. It belongs to the version, not to a build.
const VERSION_DATE: &str = "2026/11/22";
/// What holdfast returns for it.
const USAGE: u8 = 2;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Options and targets; -? explains them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS AND TARGETS")]
    words: Vec<String>,
}

/// `holdfast spd`.
pub(crate) fn run(args: Args, json: bool, yes: bool) -> ExitCode {
    match args.words.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        Some(("sweep", words)) => {
            return ExitCode::from(sweep::run("holdfast spd sweep", words, json, yes));
        }
        Some(("agent", words)) => return ExitCode::from(agent::run(words, yes)),
        _ => {}
    }
    ExitCode::from(diskspd("holdfast spd", &args.words, USAGE, json, yes))
}

/// `holdfast sqlio`.
pub(crate) fn run_sqlio(args: Args, json: bool, yes: bool) -> ExitCode {
    ExitCode::from(sqlio::run("holdfast sqlio", &args.words, json, yes))
}

/// Runs as the tool that the program is called after, if it is one.
pub(crate) fn by_name() -> Option<ExitCode> {
    let mut words = std::env::args_os();
    let program = words.next()?;
    let name = Path::new(&program).file_stem()?.to_str()?.to_ascii_lowercase();
    if !matches!(name.as_str(), "diskspd" | "sqlio" | "sqlio2") {
        return None;
    }
    let words: Result<Vec<String>, OsString> = words.map(OsString::into_string).collect();
    let code = match words {
        Ok(words) if name == "diskspd" => {
            diskspd(&program.to_string_lossy(), &words, DISKSPD_USAGE, false, false)
        }
        Ok(words) => sqlio::run(&program.to_string_lossy(), &words, false, false),
        Err(word) => {
            eprintln!("ERROR: '{}' is not UTF-8", word.display());
            USAGE
        }
    };
    Some(ExitCode::from(code))
}

/// What a command line reads from the machine.
pub(crate) struct Machine;

impl Surroundings for Machine {
    fn read(&self, path: &str, limit: usize) -> Result<String, String> {
        use std::io::Read as _;
        let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
        let mut text = String::new();
        file.take(limit as u64 + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
        if text.len() > limit { Err(format!("it is longer than {limit} bytes")) } else { Ok(text) }
    }

    fn ticks(&self) -> u32 {
        let text = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
        let seconds = text.split(' ').next().and_then(|seconds| seconds.parse::<f64>().ok());
        (seconds.unwrap_or(0.0) * 1000.0) as u64 as u32
    }
}

fn diskspd(program: &str, words: &[String], usage_code: u8, json: bool, yes: bool) -> u8 {
    if words.is_empty() {
        usage(program);
        return usage_code;
    }
    let mut invocation = match spd_profile::parse(program, words, &Machine) {
        Ok(invocation) => invocation,
        Err(why) => return complain(&why, usage_code),
    };
    if invocation.usage {
        usage(program);
        return 0;
    }
    for warning in &invocation.warnings {
        eprintln!("WARNING: {warning}");
    }
    invocation.run.json |= json;
    invocation.run.yes |= yes || said_yes();
    if let Err(why) = spd_profile::check_linux(&invocation.profile, targets::is_remote) {
        return complain(&why, usage_code);
    }
    let layout = if invocation.run.old_layout { Layout::V20 } else { Layout::V22 };
    if invocation.profile_only {
        targets::hide_secrets(&mut invocation.profile);
        match invocation.profile.format {
            ResultFormat::Text => out!("{}", text::profile_only(&invocation.profile, layout)),
            ResultFormat::Xml => out!("{}", spd_profile::xml::write(&invocation.profile, 0)),
        }
        return 0;
    }
    let places = match places(&invocation.profile, &invocation.run) {
        Ok(places) => places,
        Err(why) => return complain(&why, usage_code),
    };
    targets::hide_secrets(&mut invocation.profile);
    // On agents' machines, traces are theirs to read.
    if invocation.run.agents.is_empty()
        && let Err(why) = invocation.profile.spans.iter_mut().try_for_each(read_trace)
    {
        eprintln!("ERROR: {why}");
        return 1;
    }
    let console = Console::new(invocation.run.quiet, invocation.profile.progress);
    let session = Session::new(&console, &invocation.run);
    let (outcome, failed) = session.run(&invocation.profile, &places);
    if failed.is_none() || !outcome.spans.is_empty() {
        if invocation.run.json {
            outln!("{:#}", json::report(&invocation.profile, &outcome));
        } else if invocation.profile.format == ResultFormat::Xml {
            out!("{}", xml::report(&invocation.profile, &outcome));
        } else {
            out!("{}", text::report(&invocation.profile, &outcome, layout));
        }
    }
    if let Some(why) = failed {
        eprintln!("ERROR: {why}\nError generating I/O requests");
        return 1;
    }
    exit_code(&outcome.spans)
}

/// Gives a span the sizes and the duration of its trace, if it has one.
fn read_trace(span: &mut TimeSpan) -> Result<(), EngineError> {
    if let Some(trace) = spd_engine::prepare_replay(span)?
        && trace.skipped > 0
    {
        eprintln!(
            "WARNING: {} operations of the trace are left out: flushes, discards, or on something else than --replay-name",
            trace.skipped
        );
    }
    Ok(())
}

fn usage(program: &str) {
    outln!("\nUsage: {program} [options] target1 [ target2 [ target3 ...] ]");
    outln!("version {} (options and report of DiskSpd 2.2)\n", env!("CARGO_PKG_VERSION"));
    out!("{}", spd_profile::USAGE);
}

fn complain(why: &ProfileError, code: u8) -> u8 {
    eprintln!("ERROR: {why}");
    code
}

/// Whether the environment agrees to every loss, for command lines that cannot be changed.
fn said_yes() -> bool {
    std::env::var("HOLDFAST_SPD_YES").is_ok_and(|value| matches!(value.as_str(), "1" | "yes" | "true"))
}

/// Where the targets of each time span are; what a path names is the agents' matter when there are any.
fn places(profile: &Profile, run: &Run) -> Result<Vec<Vec<Place>>, ProfileError> {
    if !run.agents.is_empty() {
        return Ok(Vec::new());
    }
    let mut all = Drives::default();
    if let Ok(text) = std::env::var("HOLDFAST_SPD_DRIVES") {
        all.add_all(&text)?;
    }
    all.merge(&run.drives);
    let place = |span: &TimeSpan| {
        span.targets.iter().map(|target| targets::place(&target.path, &all)).collect::<Result<Vec<_>, _>>()
    };
    profile.spans.iter().map(place).collect()
}

/// 1 when anything went wrong on the way; an interruption by the user is none.
fn exit_code(spans: &[SpanOutcome]) -> u8 {
    let wrong = spans.iter().any(|span| {
        let (read, write) = span.sum();
        read.errors + write.errors > 0
            || span.ended_early.as_deref().is_some_and(|why| why != "interrupted")
            || span.verify.as_ref().is_some_and(|verify| verify.wrong() > 0)
    });
    u8::from(wrong)
}

/// Lets go of a backend after a run. What was measured is told also when that fails.
fn closed(
    backend: &dyn Backend,
    measured: Result<SpanOutcome, EngineError>,
) -> Result<SpanOutcome, EngineError> {
    let closed = backend.close();
    let mut measured = measured?;
    if let Err(why) = closed {
        let before = measured.ended_early.take().map(|before| format!("{before}; ")).unwrap_or_default();
        measured.ended_early = Some(format!("{before}closing afterwards: {why}"));
    }
    Ok(measured)
}

/// What the spans of a run have in common.
pub(crate) struct Session<'a> {
    console: &'a Console,
    run: &'a Run,
    clock: Arc<dyn Clock>,
}

impl<'a> Session<'a> {
    pub(crate) fn new(console: &'a Console, run: &'a Run) -> Self {
        Self { console, run, clock: Arc::new(SystemClock::new()) }
    }

    /// Runs all spans; returns what was measured, and why it ended if not all of it was.
    pub(crate) fn run(&self, profile: &Profile, places: &[Vec<Place>]) -> (Outcome, Option<EngineError>) {
        if !self.run.agents.is_empty() {
            let both = agent::coordinate(self.console, self.run, &self.clock, profile);
            self.console.finish();
            return both;
        }
        let system = spd_engine::system(self.clock.as_ref(), VERSION, VERSION_DATE);
        let mut outcome = Outcome { system, spans: Vec::new() };
        let mut failed = None;
        for (span, places) in profile.spans.iter().zip(places) {
            match self.span(span, places, &outcome) {
                Ok(measured) => {
                    let ended = measured.ended_early.is_some();
                    outcome.spans.push(measured);
                    if ended {
                        break;
                    }
                }
                Err(why) => {
                    failed = Some(why);
                    break;
                }
            }
        }
        self.console.finish();
        (outcome, failed)
    }

    fn span(&self, span: &TimeSpan, places: &[Place], outcome: &Outcome) -> Result<SpanOutcome, EngineError> {
        let how = Preparation { sparse: self.run.sparse, verify: self.run.verify };
        let confirm = console::Asking { console: self.console, yes: self.run.yes };
        let backend = targets::open(span, places, how, self.run, &confirm)?;
        let verify = self.run.verify.then(|| SystemEntropy.next_u64());
        let measured =
            spd_engine::run_span(span, backend.as_ref(), &outcome.system, &self.clock, self.console, verify);
        closed(backend.as_ref(), measured)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_is_that_of_the_version() {
        assert_eq!(
            (env!("CARGO_PKG_VERSION"), VERSION_DATE),
            ("0.1.0", "2026/11/22"),
            "change both, and this"
        );
    }
}
