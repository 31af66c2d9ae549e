//! SQLIO's personality.

use spd_profile::sqlio::{self, USAGE as OPTIONS};
use spd_profile::{Profile, Run, Surroundings as _, TimeSpan};
use spd_report::{json, sqlio as report};

use super::console::Console;
use super::targets::{Place, hide_secrets};
use super::{Machine, Session, USAGE, complain, exit_code, places, said_yes};

pub(super) fn run(program: &str, words: &[String], json: bool, yes: bool) -> u8 {
    if words.iter().any(|word| word == "-?" || word == "--help") {
        out!("Usage: {program} [options] [<filename>...]\n{OPTIONS}");
        return 0;
    }
    let read = |path: &str, limit: usize| Machine.read(path, limit);
    let mut parsed = match sqlio::parse(words, &read) {
        Ok(parsed) => parsed,
        Err(why) => return complain(&why, USAGE),
    };
    let mut settings = Run::default();
    settings.yes = parsed.yes || yes || said_yes();
    settings.quiet = parsed.quiet;
    settings.drives = parsed.drives.clone();
    let places = match places(&parsed.profile, &settings) {
        Ok(places) => places,
        Err(why) => return complain(&why, USAGE),
    };
    if let Err(why) = spd_profile::check_linux(&parsed.profile, super::targets::is_remote) {
        return complain(&why, USAGE);
    }
    let json = json || parsed.json;
    let console = Console::new(settings.quiet, 0);
    let session = Session::new(&console, &settings);
    parsed.profile.command_line =
        std::iter::once(program).chain(words.iter().map(String::as_str)).collect::<Vec<_>>().join(" ");
    hide_secrets(&mut parsed.profile);
    let mut profile = parsed.profile.clone();
    keep_existing(&mut profile, &places);
    let (outcome, failed) = session.run(&profile, &places);
    if let Some(why) = failed {
        eprintln!("ERROR: {why}");
        return 1;
    }
    let Some(measured) = outcome.spans.first() else { return 1 };
    if json {
        outln!("{:#}", json::report(&profile, &outcome));
    } else {
        let sizes = sizes(profile.spans.first(), measured);
        out!("{}{}", report::beginning(&parsed, &sizes), report::results(&parsed, measured));
    }
    exit_code(&outcome.spans)
}

/// A file of a parameter file is made only if it is not there with that size already, as SQLIO does.
fn keep_existing(profile: &mut Profile, places: &[Vec<Place>]) {
    for (target, place) in
        profile.spans.iter_mut().flat_map(|span| &mut span.targets).zip(places.iter().flatten())
    {
        if let (Some(size), Place::Local(path)) = (target.create, place)
            && std::fs::metadata(path).is_ok_and(|meta| meta.len() >= size)
        {
            target.create = None;
            target.max = size;
        }
    }
}

/// Sizes of the targets in their order.
fn sizes(span: Option<&TimeSpan>, measured: &spd_report::SpanOutcome) -> Vec<u64> {
    let all = || measured.threads.iter().flat_map(|thread| &thread.targets);
    let size = |path: &str| all().find(|target| target.path == path).map_or(0, |target| target.size);
    span.map_or_else(Vec::new, |span| span.targets.iter().map(|target| size(&target.path)).collect())
}
