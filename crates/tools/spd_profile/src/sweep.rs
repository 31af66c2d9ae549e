//! A campaign: one command line run again and again, with other depths, threads, blocks and mixes.
//!
//! `spd sweep [--depths 1,2,4] [--threads ...] [--blocks ...] [--writes ...] [--runs n] [--preset name] [DiskSpd options]
//! target ...`. Each point is the command line with `-t -o -b -w` put behind its options, so that the last word counts.

use crate::command_line::{Invocation, Surroundings, parse as parse_line, whole_number};
use crate::error::{ProfileError, refuse};

/// Most points times runs of a campaign.
const MAX_RUNS: usize = 10_000;
/// Depths that are tried when none are given.
const DEPTHS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];

/// Named mixes, in options that come before those of the command line. The mixes of VDI are those that five
/// desktops on one host were measured to make while they boot, log in and work.
pub const PRESETS: &[(&str, &str, &str)] = &[
    ("oltp", "-b8K -r -w30 -Sh -L", "database files: 8K random, 70 % reads"),
    ("dss", "-b512K -si -w0 -Sh -L", "table scans: 512K sequential reads"),
    ("vdi-boot", "-b8K -rs80 -r4K -w14 -Sh -L", "desktops booting: 8K, mostly random, 86 % reads"),
    ("vdi-login", "-b8K -rs80 -r4K -w52 -Sh -L", "users logging in: 8K, mostly random, 48 % reads"),
    ("vdi-steady", "-b8K -rs80 -r4K -w73 -Sh -L", "desktops at work: 8K, mostly random, 27 % reads"),
    ("copy", "-b1M -o8 -t1 -s -w100 -Sh -L", "a file copy's writes: eight of 1 MiB at once, sequential"),
];

/// One point of a campaign.
#[derive(Debug)]
pub struct Point {
    /// Threads per target.
    pub threads: u32,
    /// Requests outstanding per thread and target.
    pub depth: u32,
    /// Bytes of a block.
    pub block: u32,
    /// Percent of writes.
    pub write_percent: u32,
    /// What is run.
    pub invocation: Invocation,
}

/// A campaign.
#[derive(Debug)]
pub struct Sweep {
    /// The points: by block, mix and threads, with rising depth.
    pub points: Vec<Point>,
    /// How often each is run.
    pub runs: u32,
    /// Files that results are written to besides standard output.
    pub csv: Option<String>,
    /// As above.
    pub html: Option<String>,
    /// As above.
    pub svg: Option<String>,
    /// The command line.
    pub command_line: String,
}

/// Parses what follows `spd sweep`.
///
/// # Errors
/// The first word that makes no sense, or the first point that is refused.
pub fn parse(
    program: &str,
    words: &[String],
    surroundings: &dyn Surroundings,
) -> Result<Sweep, ProfileError> {
    let (mut depths, mut threads, mut blocks, mut writes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut runs, mut csv, mut html, mut svg) = (1, None, None, None);
    let mut rest: Vec<String> = Vec::new();
    let mut iter = words.iter();
    while let Some(word) = iter.next() {
        let (name, inline) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word.as_str(), None),
        };
        if ![
            "--depths",
            "--threads",
            "--blocks",
            "--writes",
            "--runs",
            "--preset",
            "--csv",
            "--html",
            "--svg",
        ]
        .contains(&name)
        {
            rest.push(word.clone());
            continue;
        }
        let Some(value) = inline.or_else(|| iter.next().map(String::as_str)) else {
            return refuse(format!("{name} needs a value: {name}=..."));
        };
        match name {
            "--depths" => depths = numbers(name, value)?,
            "--threads" => threads = numbers(name, value)?,
            "--writes" => writes = numbers(name, value)?,
            "--blocks" => blocks = value.split(',').map(|size| format!("-b{size}")).collect(),
            "--runs" => {
                runs = whole_number(value).filter(|runs| (1..=1000).contains(runs)).ok_or_else(|| {
                    ProfileError(format!("--runs is a number between 1 and 1000, not '{value}'"))
                })?;
            }
            "--preset" => {
                let Some((_, options, _)) = PRESETS.iter().find(|(name, ..)| *name == value) else {
                    let names: Vec<&str> = PRESETS.iter().map(|(name, ..)| *name).collect();
                    return refuse(format!("--preset is one of {}, not '{value}'", names.join(", ")));
                };
                let options: Vec<String> = options.split(' ').map(str::to_owned).collect();
                rest.splice(0..0, options);
            }
            "--csv" => csv = Some(value.to_owned()),
            "--svg" => svg = Some(value.to_owned()),
            _ => html = Some(value.to_owned()),
        }
    }
    let option = |letter: char, values: &[u32]| -> Vec<String> {
        if values.is_empty() {
            vec![String::new()]
        } else {
            values.iter().map(|n| format!("-{letter}{n}")).collect()
        }
    };
    if depths.is_empty() {
        depths = DEPTHS.to_vec();
    }
    depths.sort_unstable();
    depths.dedup();
    let (depths, threads, writes) = (option('o', &depths), option('t', &threads), option('w', &writes));
    if blocks.is_empty() {
        blocks = vec![String::new()];
    }
    let count = depths.len() * threads.len() * writes.len() * blocks.len();
    if count.saturating_mul(runs as usize) > MAX_RUNS {
        return refuse(format!("{count} points with {runs} runs each are more than {MAX_RUNS} runs"));
    }
    let mut points = Vec::new();
    for block in &blocks {
        for write in &writes {
            for thread in &threads {
                for depth in &depths {
                    points.push(point(program, &rest, [block, write, thread, depth], surroundings)?);
                }
            }
        }
    }
    let command_line =
        std::iter::once(program).chain(words.iter().map(String::as_str)).collect::<Vec<_>>().join(" ");
    Ok(Sweep { points, runs, csv, html, svg, command_line })
}

/// The point that the command line with these options behind the others makes.
fn point(
    program: &str,
    words: &[String],
    varied: [&String; 4],
    surroundings: &dyn Surroundings,
) -> Result<Point, ProfileError> {
    // Options of ours may have their value as a word of its own: targets are what stands at the end.
    let targets = words.iter().rev().take_while(|word| !word.starts_with('-')).count();
    let (options, targets) = words.split_at(words.len() - targets);
    let varied = varied.into_iter().filter(|word| !word.is_empty()).cloned();
    let line: Vec<String> = options.iter().cloned().chain(varied).chain(targets.iter().cloned()).collect();
    let invocation = parse_line(program, &line, surroundings)?;
    let [span] = invocation.profile.spans.as_slice() else {
        return refuse("a sweep varies one time span; the XML profile has several");
    };
    if span.threads > 0 {
        return refuse("a sweep varies threads per target: use -t instead of -F");
    }
    let Some(target) = span.targets.first() else { return refuse("need to provide at least one filename") };
    Ok(Point {
        threads: target.threads,
        depth: target.requests,
        block: target.block,
        write_percent: target.write_percent,
        invocation,
    })
}

fn numbers(name: &str, value: &str) -> Result<Vec<u32>, ProfileError> {
    let list: Option<Vec<u32>> = value.split(',').map(whole_number).collect();
    match list {
        Some(list) if !list.is_empty() && list.len() <= 1000 => Ok(list),
        _ => refuse(format!("{name} is a list of numbers such as 1,2,4, not '{value}'")),
    }
}
