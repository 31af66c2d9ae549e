//! The options that make a time span, one by one.

use super::{affinity, bare_span, cache, whole_number};
use crate::distribution;
use crate::error::{ProfileError, refuse};
use crate::model::{IoPriority, Profile, Target, Throughput, TimeSpan, WriteContent};
use crate::size::{parse_size, size_prefix};

/// State over the words of one command line.
struct Options<'a> {
    span: TimeSpan,
    /// What all targets have in common; the command line knows no other.
    common: Target,
    cache: cache::Cache,
    block: u32,
    base_seen: bool,
    max_seen: bool,
    profile: &'a mut Profile,
}

/// The time span that `options` describe, with targets at `paths`.
pub(super) fn time_span(
    options: &[String],
    paths: &[&str],
    block: u32,
    profile: &mut Profile,
) -> Result<TimeSpan, ProfileError> {
    let mut state = Options {
        span: bare_span(&[], block),
        common: Target { block, ..Target::new("") },
        cache: cache::Cache::default(),
        block,
        base_seen: false,
        max_seen: false,
        profile,
    };
    for word in options {
        let mut chars = word.chars();
        chars.next();
        let Some(letter) = chars.next() else { return refuse("invalid option: '-'") };
        let argument = chars.as_str();
        match state.take(letter, argument) {
            Ok(()) => {}
            Err(Wrong::Because(why)) => return Err(why),
            Err(Wrong::Form) => return refuse(format!("incorrectly provided option: '{word}'")),
            Err(Wrong::Unknown) => return refuse(format!("invalid option: '{word}'")),
        }
    }
    let Options { mut span, mut common, cache, .. } = state;
    if paths.is_empty() {
        return refuse("need to provide at least one filename");
    }
    cache.apply(&mut common);
    span.targets = paths.iter().map(|path| Target { path: (*path).to_owned(), ..common.clone() }).collect();
    Ok(span)
}

/// Why a word is refused.
enum Wrong {
    /// The option is refused for this reason.
    Because(ProfileError),
    /// It does not have the form of its option.
    Form,
    /// There is no such option.
    Unknown,
}

impl From<ProfileError> for Wrong {
    fn from(why: ProfileError) -> Self {
        Self::Because(why)
    }
}

fn because<T>(why: impl Into<String>) -> Result<T, Wrong> {
    Err(Wrong::Because(ProfileError(why.into())))
}

/// A number above zero.
fn positive(argument: &str) -> Result<u32, Wrong> {
    whole_number(argument).filter(|number| *number > 0).ok_or(Wrong::Form)
}

/// An option that takes nothing.
fn bare(argument: &str) -> Result<(), Wrong> {
    if argument.is_empty() { Ok(()) } else { Err(Wrong::Form) }
}

impl Options<'_> {
    fn take(&mut self, letter: char, argument: &str) -> Result<(), Wrong> {
        let common = &mut self.common;
        match letter {
            // Taken before: they may stand beside -X, or the others need them.
            ':' | 'b' | 'C' | 'd' | 'W' | 'R' | 'v' | 'z' => {}
            'a' => affinity::take(argument, &mut self.span.affinity)?,
            'B' => self.base(argument)?,
            'c' => match parse_size(argument, self.block) {
                Ok(size) => common.create = Some(size),
                Err(_) if argument.is_empty() => return Err(Wrong::Form),
                Err(why) => return because(format!("invalid target size passed to -c: {why}")),
            },
            'D' => {
                self.span.iops_intervals = true;
                if !argument.is_empty() {
                    self.span.interval_ms = positive(argument)?;
                }
            }
            'e' => {
                const KNOWN: [&str; 12] = [
                    "p",
                    "q",
                    "s",
                    "c",
                    "PROCESS",
                    "THREAD",
                    "IMAGE_LOAD",
                    "DISK_IO",
                    "MEMORY_PAGE_FAULTS",
                    "MEMORY_HARD_FAULTS",
                    "NETWORK",
                    "REGISTRY",
                ];
                if !KNOWN.contains(&argument) {
                    return Err(Wrong::Form);
                }
                self.profile.etw = true;
            }
            'f' => self.max_or_hints(argument)?,
            'F' => self.span.threads = positive(argument)?,
            'g' => {
                let iops = argument.strip_suffix('i');
                let number = positive(iops.unwrap_or(argument))?;
                common.throughput = Some(match iops {
                    Some(_) => Throughput::Iops(number),
                    None => Throughput::BytesPerMillisecond(number),
                });
            }
            'h' => {
                bare(argument)?;
                self.cache.compatible()?;
            }
            'i' => common.burst = Some(positive(argument)?),
            'j' => common.think_ms = Some(positive(argument)?),
            'I' => {
                common.priority = match positive(argument)? {
                    1 => IoPriority::VeryLow,
                    2 => IoPriority::Low,
                    3 => IoPriority::Normal,
                    _ => return Err(Wrong::Form),
                };
            }
            'l' => {
                bare(argument)?;
                common.large_pages = true;
            }
            'L' => {
                bare(argument)?;
                self.span.latency = true;
            }
            'n' => {
                bare(argument)?;
                self.span.no_affinity = true;
            }
            'N' => {
                common.flush = Some(match argument.to_ascii_lowercase().as_str() {
                    "v" => "ViewOfFile",
                    "n" => "NonVolatileMemory",
                    "i" => "NonVolatileMemoryNoDrain",
                    _ => return Err(Wrong::Form),
                });
            }
            'o' => common.requests = positive(argument)?,
            'O' => self.span.requests = positive(argument)?,
            'p' => {
                bare(argument)?;
                common.parallel = true;
            }
            'P' => self.profile.progress = if argument.is_empty() { 65_536 } else { positive(argument)? },
            'r' => self.random(argument)?,
            's' => self.sequential(argument)?,
            'S' => self.cache.take(argument)?,
            't' => common.threads = positive(argument)?,
            'T' => match parse_size(argument, self.block) {
                Ok(stride) if stride > 0 => common.thread_stride = stride,
                _ => return because("invalid offset passed to -T"),
            },
            'w' => match whole_number(argument) {
                Some(percent @ 0..=100) => common.write_percent = percent,
                // -w alone is -w0 by DiskSpd's help.
                None if argument.is_empty() => common.write_percent = 0,
                _ => return because("write ratio passed to -w must be between 0 and 100 (percent)"),
            },
            'x' => {
                bare(argument)?;
                self.span.completion_routines = true;
            }
            'y' => {
                return because(
                    "-y names a Windows event object, which Linux does not have: start runs together with `spd agent` or a shell, stop one with SIGINT",
                );
            }
            'Z' => self.content(argument)?,
            _ => return Err(Wrong::Unknown),
        }
        Ok(())
    }

    fn base(&mut self, argument: &str) -> Result<(), Wrong> {
        if argument.is_empty() {
            return Err(Wrong::Form);
        }
        if self.base_seen {
            return because("base target offset (-Bbase[:length]) can only be specified once");
        }
        let Ok((base, rest)) = size_prefix(argument, self.block) else {
            return because("invalid base target offset passed to -B");
        };
        self.common.base = base;
        self.base_seen = true;
        if rest.is_empty() {
            return Ok(());
        }
        let Some(length) = rest.strip_prefix(':') else {
            return because("unexpected characters after -Bbase; use ':' to separate -Bbase:length");
        };
        if length.is_empty() {
            return because("-Bbase:length - no length provided");
        }
        let end = parse_size(length, self.block).ok().and_then(|length| base.checked_add(length));
        match end {
            Some(end) => self.max(end),
            None => because("invalid target length passed to -B"),
        }
    }

    fn max(&mut self, end: u64) -> Result<(), Wrong> {
        if self.max_seen {
            return because("maximum target offset (-Bbase:length or -fsize) can only be specified once");
        }
        self.max_seen = true;
        self.common.max = end;
        Ok(())
    }

    fn max_or_hints(&mut self, argument: &str) -> Result<(), Wrong> {
        if argument.starts_with(|c: char| c.is_ascii_digit()) {
            return match parse_size(argument, self.block) {
                Ok(size) => self.max(size),
                Err(_) => because("invalid max target size passed to -f"),
            };
        }
        if argument.is_empty() {
            return Err(Wrong::Form);
        }
        for letter in argument.chars() {
            match letter {
                'r' => self.common.hints.random = true,
                's' => self.common.hints.sequential = true,
                't' => self.common.hints.temporary = true,
                _ => return Err(Wrong::Form),
            }
        }
        Ok(())
    }

    fn random(&mut self, argument: &str) -> Result<(), Wrong> {
        let common = &mut self.common;
        if let Some(percent) = argument.strip_prefix('s') {
            let percent = match whole_number(percent) {
                Some(percent @ 1..=100) => percent,
                None if percent.is_empty() => return because("no random percentage passed to -rs"),
                _ => return because("random percentage passed to -rs should be between 1 and 100"),
            };
            if common.random_percent == 0 && common.alignment.is_some() {
                return because("use -r to specify IO alignment when using mixed random/sequential IO (-rs)");
            }
            if common.random_percent != 0 && common.random_percent != 100 {
                return because("mixed random/sequential IO (-rs) specified multiple times");
            }
            common.random_percent = percent;
        } else if let Some(ranges) = argument.strip_prefix('d') {
            common.distribution = Some(distribution::parse(ranges, self.block)?);
        } else {
            let alignment = match argument {
                "" => u64::from(self.block),
                _ => match parse_size(argument, self.block) {
                    Ok(size) if size > 0 => size,
                    _ => return because("invalid alignment passed to -r"),
                },
            };
            if common.random_percent == 100 && common.alignment.is_some() {
                return because("random IO (-r) specified multiple times");
            }
            if common.alignment.is_some() {
                return because("sequential IO (-s) conflicts with random IO (-r/-rs)");
            }
            if common.random_percent == 0 {
                common.random_percent = 100;
            }
            common.alignment = Some(alignment);
        }
        Ok(())
    }

    fn sequential(&mut self, argument: &str) -> Result<(), Wrong> {
        if self.common.random_percent > 0 {
            return because("sequential IO (-s) conflicts with random IO (-r/-rs)");
        }
        let (interlocked, size) = match argument.strip_prefix('i') {
            Some(size) => (true, size),
            None => (false, argument),
        };
        self.common.interlocked |= interlocked;
        self.common.alignment = Some(match size {
            "" => u64::from(self.block),
            _ => parse_size(size, self.block)
                .map_err(|why| ProfileError(format!("invalid stride size passed to -s: {why}")))?,
        });
        Ok(())
    }

    fn content(&mut self, argument: &str) -> Result<(), Wrong> {
        match argument {
            "" => self.common.content = WriteContent::Zero,
            "r" => self.span.random_writes = true,
            _ => {
                let (size, file) = match argument.split_once(',') {
                    Some((size, file)) => (size, Some(file.to_owned())),
                    None => (argument, None),
                };
                match parse_size(size, self.block) {
                    Ok(size) if size > 0 => self.common.content = WriteContent::Source { size, file },
                    _ => return because("invalid size passed to -Z"),
                }
            }
        }
        Ok(())
    }
}
