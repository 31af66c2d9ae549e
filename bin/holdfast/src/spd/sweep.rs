//! `holdfast spd sweep`: one command line with other depths, threads, blocks and mixes.

use spd_engine::Control as _;
use spd_profile::sweep::{PRESETS, Point, Sweep, parse};
use spd_report::System;
use spd_report::sweep::{self as report, Measured, RunFigures};

use super::console::Console;
use super::targets::{Place, hide, hide_secrets, is_remote};
use super::{Machine, Session, USAGE, complain, places, said_yes};

const HELP: &str = "\
Runs one command line again and again, finds the knee, and says which run to quote.

Usage: holdfast spd sweep [--depths 1,2,4] [--threads 1,2] [--blocks 4K,64K] [--writes 0,30] [--runs 3]
                          [--preset NAME] [--csv FILE] [--html FILE] [--svg FILE] [options of spd]
                          target ...

  --depths    requests outstanding per thread (-o) [1,2,4,8,16,32,64]
  --threads   threads per target (-t); --blocks block sizes (-b); --writes percents of writes (-w)
  --runs      how often each point is run [1]; from four on outliers are found and left out of the mean
  --csv       one line per run; --html a page with charts that needs no network; --svg IOPS and latency by depth as a
              picture; --json on standard output
  --preset    options that come before the others:
";

pub(super) fn run(program: &str, words: &[String], json: bool, yes: bool) -> u8 {
    if words.is_empty() || words.iter().any(|word| word == "-?" || word == "--help") {
        out!("{HELP}");
        for (name, options, what) in PRESETS {
            outln!("    {name:<11} {what} ({options})");
        }
        return if words.is_empty() { USAGE } else { 0 };
    }
    let mut plan = match parse(program, words, &Machine) {
        Ok(plan) => plan,
        Err(why) => return complain(&why, USAGE),
    };
    let mut all = Vec::new();
    for (index, point) in plan.points.iter_mut().enumerate() {
        let invocation = &mut point.invocation;
        invocation.run.yes |= yes || said_yes();
        invocation.run.json |= json;
        for span in &mut invocation.profile.spans {
            span.latency = true;
            if !span.iops_intervals {
                // Enough for a line over time, whatever the duration.
                span.iops_intervals = true;
                span.interval_ms = span.duration.saturating_mul(1000).div_ceil(50).max(100);
            }
            // Files are made once: all points measure the same one.
            if index > 0 {
                span.targets.iter_mut().for_each(|target| target.create = None);
            }
        }
        if invocation.profile.spans.iter().any(|span| span.replay.is_some()) {
            eprintln!(
                "ERROR: a trace has sizes and a mix of its own: replay it with `holdfast spd`, not with a sweep"
            );
            return USAGE;
        }
        if let Err(why) = spd_profile::check_linux(&invocation.profile, is_remote) {
            return complain(&why, USAGE);
        }
        match places(&invocation.profile, &invocation.run) {
            Ok(places) => all.push(places),
            Err(why) => return complain(&why, USAGE),
        }
        for target in invocation.profile.spans.iter().flat_map(|span| &span.targets) {
            hide(&target.path, &mut plan.command_line);
        }
        hide_secrets(&mut invocation.profile);
    }
    finish(&plan, &measure(&plan, all), json)
}

/// What was measured, the machine, and why it ended early if it did.
type Results = (Vec<Measured>, System, Option<String>);

fn measure(plan: &Sweep, mut places: Vec<Vec<Vec<Place>>>) -> Results {
    let quiet = plan.points.first().is_some_and(|point| point.invocation.run.quiet);
    let console = Console::new(quiet, 0);
    let (mut points, mut system, total) = (Vec::new(), System::default(), plan.points.len());
    for (number, (point, places)) in plan.points.iter().zip(&mut places).enumerate() {
        let mut measured = empty(point);
        for run in 0..plan.runs {
            console.note(&format!(
                "point {} of {total} (-o{} -t{} -b{} -w{}), run {} of {}",
                number + 1,
                point.depth,
                point.threads,
                point.block,
                point.write_percent,
                run + 1,
                plan.runs
            ));
            let session = Session::new(&console, &point.invocation.run);
            let mut profile = point.invocation.profile.clone();
            if run > 0 {
                let spans = profile.spans.iter_mut().flat_map(|span| &mut span.targets);
                spans.for_each(|target| target.create = None);
            }
            let (outcome, failed) = session.run(&profile, places);
            system = outcome.system;
            for (span, spec) in outcome.spans.iter().zip(&profile.spans) {
                // A run that was cut short is no measurement of its point.
                if span.seconds > 0.0 && span.ended_early.is_none() {
                    measured.runs.push(RunFigures::of(span, spec.interval_ms));
                }
            }
            let ended = outcome.spans.iter().find_map(|span| span.ended_early.clone());
            if let Some(why) = failed.map(|why| why.0).or(ended) {
                if !measured.runs.is_empty() {
                    points.push(measured);
                }
                return (points, system, Some(why));
            }
            if console.stop() {
                return (points, system, Some("interrupted".into()));
            }
        }
        points.push(measured);
    }
    (points, system, None)
}

fn empty(point: &Point) -> Measured {
    Measured {
        threads: point.threads,
        depth: point.depth,
        block: point.block,
        write_percent: point.write_percent,
        runs: Vec::new(),
    }
}

fn finish(plan: &Sweep, (points, system, ended): &Results, json: bool) -> u8 {
    if json || plan.points.first().is_some_and(|point| point.invocation.run.json) {
        outln!("{:#}", report::json(&plan.command_line, points));
    } else {
        out!("{}", report::text(points));
    }
    let mut code = 0;
    for (path, text) in [
        (&plan.csv, report::csv(points)),
        (&plan.html, spd_report::html::page(&plan.command_line, system, points)),
        (&plan.svg, spd_report::html::picture(points)),
    ] {
        if let Some(path) = path
            && let Err(error) = std::fs::write(path, text)
        {
            eprintln!("ERROR: cannot write '{path}': {error}");
            code = 1;
        }
    }
    match ended.as_deref() {
        // The user's own wish is no failure, as it is none of a single run.
        Some("interrupted") => eprintln!(
            "WARNING: the sweep was interrupted: {} of {} points were measured",
            points.len(),
            plan.points.len()
        ),
        Some(why) => {
            eprintln!("ERROR: the sweep ended early: {why}");
            code = 1;
        }
        None => {}
    }
    let errors = points.iter().flat_map(|point| &point.runs).any(|run| run.errors > 0);
    code.max(u8::from(errors))
}
