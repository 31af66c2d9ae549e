//! DiskSpd's command line: `[options] target1 [target2 ...]`, each option one word (`-b8K`, never `-b 8K`).
//!
//! Numbers may have spaces before them, as in the word `-o 8` that a script builds. What DiskSpd quietly cuts off
//! (`-t8x`) is refused here. Our own options have two dashes.

mod affinity;
mod cache;
mod extensions;
mod options;
mod usage;

pub use extensions::Run;
pub use usage::USAGE;

use crate::error::{ProfileError, refuse};
use crate::model::{Profile, ResultFormat, Target, TimeSpan};
use crate::size::{number_prefix, parse_size};
use crate::{limits, xml};

/// What a command line asks for.
#[derive(Debug)]
pub struct Invocation {
    /// What is to be run, or only printed; valid if it came without an error.
    pub profile: Profile,
    /// Print the profile and run nothing (`-Rp`).
    pub profile_only: bool,
    /// Print how the program is used (`-?`, `--help`).
    pub usage: bool,
    /// Our own options.
    pub run: Run,
    /// Warnings, in DiskSpd's words.
    pub warnings: Vec<String>,
}

/// What may stand beside `-X` and overrides the profile of the file.
#[derive(Clone, Debug, Default)]
struct Overrides {
    format: Option<ResultFormat>,
    profile_only: bool,
    verbose: bool,
    verbose_stats: bool,
    experiments: Option<u32>,
    seed: Option<u32>,
    warm_up: Option<u32>,
    duration: Option<u32>,
    cool_down: Option<u32>,
}

/// Where a command line's outside comes from.
pub trait Surroundings {
    /// The content of the file that `-X` names, at most `limit` bytes.
    ///
    /// # Errors
    /// Why it cannot be read, in words.
    fn read(&self, path: &str, limit: usize) -> Result<String, String>;
    /// The seed of a plain `-z`: milliseconds of the machine's run time.
    fn ticks(&self) -> u32;
}

/// Parses and validates a command line without the program's name, which `program` is.
///
/// # Errors
/// The first word that makes no sense, or the first rule the whole breaks; in DiskSpd's words without `ERROR: `.
pub fn parse(
    program: &str,
    words: &[String],
    surroundings: &dyn Surroundings,
) -> Result<Invocation, ProfileError> {
    let mut command_line = program.to_owned();
    for word in words {
        command_line.push(' ');
        command_line.push_str(word);
    }
    let usage = words.iter().any(|word| word == "-?" || word == "--help");
    // Who asks how it is used is told that, whatever else stands there.
    let (run, words) = if usage { (Run::default(), Vec::new()) } else { extensions::take(words)? };
    let mut invocation =
        Invocation { profile: Profile::default(), profile_only: false, usage, run, warnings: Vec::new() };
    if usage {
        return Ok(invocation);
    }
    let (options, paths) = split(&words)?;
    let mut overrides = Overrides::default();
    let mut block = 64 << 10;
    let mut block_given = false;
    let mut xml_path = None;
    let mut foreign = None;
    for word in options {
        let argument = word.get(2..).unwrap_or("");
        match word.as_bytes().get(1) {
            Some(b'X') if xml_path.is_some() => return refuse("multiple XML profiles specified (-X)"),
            Some(b'X') => xml_path = Some(argument),
            Some(b'b') => {
                block = match parse_size(argument, block) {
                    Ok(size @ 1..=0xffff_fffe) => size as u32,
                    _ => return refuse("invalid block size passed to -b"),
                };
                block_given = true;
                foreign = foreign.or(Some(word));
            }
            Some(_) if overrides.take(word, argument, surroundings)? => {}
            _ => foreign = foreign.or(Some(word)),
        }
    }
    if let Some(path) = xml_path {
        if let Some(word) = foreign {
            return refuse(format!(
                "invalid XML profile specification; parameter {word} not compatible with -X"
            ));
        }
        let text = surroundings
            .read(path, limits::XML_BYTES)
            .map_err(|why| ProfileError(format!("cannot read the XML profile '{path}' (-X): {why}")))?;
        invocation.profile = xml::read(&text)?;
        substitute(&mut invocation.profile, &paths)?;
    } else {
        let span = options::time_span(options, &paths, block, &mut invocation.profile)?;
        invocation.profile.spans.push(span);
    }
    overrides.apply(&mut invocation.profile);
    let given = extensions::Given {
        block: block_given,
        requests: options.iter().any(|word| word.starts_with("-o")),
        alignment: options.iter().any(|word| says_alignment(word)),
        duration: overrides.duration.is_some(),
        warm_up: overrides.warm_up.is_some(),
    };
    invocation.run.apply(&mut invocation.profile, given)?;
    invocation.profile.command_line = command_line;
    invocation.profile_only = overrides.profile_only;
    invocation.warnings = crate::validate(&invocation.profile, !overrides.profile_only)?.warnings;
    Ok(invocation)
}

/// Whether a word is `-r` or `-s` with a size: without one they take the block's.
fn says_alignment(word: &str) -> bool {
    let size =
        word.strip_prefix("-r").or_else(|| word.strip_prefix("-si")).or_else(|| word.strip_prefix("-s"));
    size.is_some_and(|size| size.starts_with(|c: char| c.is_ascii_digit()))
}

/// Options and targets, which follow them.
fn split(words: &[String]) -> Result<(&[String], Vec<&str>), ProfileError> {
    let first = words.iter().position(|word| !word.starts_with('-')).unwrap_or(words.len());
    let (options, paths) = words.split_at(first);
    if let Some(late) = paths.iter().find(|word| word.starts_with('-')) {
        return refuse(format!("parameters ({late}) must come before targets on the command line"));
    }
    Ok((options, paths.iter().map(String::as_str).collect()))
}

/// Puts the paths of the command line in the place of `*1`, `*2`, ...
fn substitute(profile: &mut Profile, paths: &[&str]) -> Result<(), ProfileError> {
    let mut used = vec![false; paths.len()];
    for target in profile.spans.iter_mut().flat_map(|span| &mut span.targets) {
        let Some(number) = target.path.strip_prefix('*') else { continue };
        let index = number.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
        let Some(index) = index else {
            return refuse(format!("template target '{}' is not *1, *2, ...", target.path));
        };
        if let (Some(path), Some(used)) = (paths.get(index), used.get_mut(index)) {
            target.path = (*path).to_owned();
            *used = true;
        }
    }
    match used.iter().position(|used| !used) {
        Some(index) => refuse(format!(
            "the XML profile has no template target *{} for '{}'",
            index + 1,
            paths.get(index).copied().unwrap_or_default()
        )),
        None => Ok(()),
    }
}

impl Overrides {
    /// Takes a word that is allowed beside `-X`; `false` when it is another.
    fn take(
        &mut self,
        word: &str,
        argument: &str,
        surroundings: &dyn Surroundings,
    ) -> Result<bool, ProfileError> {
        let seconds = |name: &str| match whole_number(argument) {
            Some(seconds) => Ok(Some(seconds)),
            None => refuse(format!("invalid {name}: '{argument}'")),
        };
        match word.as_bytes().get(1) {
            Some(b':') => {
                self.experiments = match whole_number(argument) {
                    Some(flags @ 0..=1) => Some(flags),
                    _ => return refuse(format!("unknown experiment flags (-:): '{argument}'; 1 is known")),
                };
            }
            Some(b'C') => self.cool_down = seconds("cooldown time (-C)")?,
            Some(b'd') => self.duration = seconds("measured duration time (-d)")?,
            Some(b'W') => self.warm_up = seconds("warmup time (-W)")?,
            Some(b'R') => {
                let format = argument.strip_prefix('p');
                self.profile_only |= format.is_some();
                match format.unwrap_or(argument) {
                    "xml" => self.format = Some(ResultFormat::Xml),
                    "text" => self.format = Some(ResultFormat::Text),
                    "" if format.is_some() => {}
                    "" => return refuse("unspecified results format -R: use [p]<text|xml>"),
                    _ => return refuse(format!("invalid results format (-R): '{argument}'")),
                }
            }
            Some(b'v') => match argument {
                "" => self.verbose = true,
                "s" => self.verbose_stats = true,
                _ => return refuse(format!("invalid verbose mode (-v): '{argument}'")),
            },
            Some(b'z') if argument.is_empty() => self.seed = Some(surroundings.ticks()),
            Some(b'z') => match whole_number(argument) {
                Some(seed) => self.seed = Some(seed),
                None => {
                    return refuse(format!(
                        "invalid random seed value '{argument}' specified - must be a valid 32 bit integer"
                    ));
                }
            },
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn apply(&self, profile: &mut Profile) {
        profile.format = self.format.unwrap_or(profile.format);
        profile.verbose |= self.verbose;
        profile.verbose_stats |= self.verbose_stats;
        profile.experiments = self.experiments.unwrap_or(profile.experiments);
        for span in &mut profile.spans {
            span.seed = self.seed.unwrap_or(span.seed);
            span.warm_up = self.warm_up.unwrap_or(span.warm_up);
            span.duration = self.duration.unwrap_or(span.duration);
            span.cool_down = self.cool_down.unwrap_or(span.cool_down);
        }
    }
}

/// A number that is all of `text`, over spaces around it.
pub(crate) fn whole_number(text: &str) -> Option<u32> {
    match number_prefix(text) {
        Ok((number, rest)) if rest.trim_end().is_empty() => number.try_into().ok(),
        _ => None,
    }
}

/// A time span with these targets and nothing else set.
fn bare_span(paths: &[&str], block: u32) -> TimeSpan {
    let targets = paths.iter().map(|path| Target { block, ..Target::new(*path) }).collect();
    TimeSpan { targets, ..TimeSpan::default() }
}
