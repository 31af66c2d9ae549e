//! `holdfast health`: everything about a node in one report, and in one file that others can read without the node.
//!
//! ```text
//!   collect   asks the node, the machine and the data directory            ─┐
//!   samples   what each volume did, second by second                        ├─► bundle: named files in memory, or a .zip
//!   machine   kernel, processors, memory, network, the service's log       ─┘      │
//!   report    sections, findings and counts, made of a bundle and nothing else ◄───┘
//!   text, html  the same report for a terminal and for a browser
//! ```
//!
//! A report is always made of a bundle, so that `--from` tells what was told on the day. Nothing is changed anywhere.

mod bundle;
mod collect;
mod findings;
mod html;
mod log;
mod machine;
mod report;
mod samples;
mod section;
mod sections;
mod text;

use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::context::{Context, print_json};
use crate::error::{CliError, CliResult};
use crate::part_file::PartFile;
use bundle::Bundle;
use report::{Expected, Report};

/// Most samples: an hour.
const MOST_SAMPLES: u64 = 3600;

/// What is the state of everything, and how busy is it? Takes a minute of samples; changes nothing; works when the node is down.
///
/// Exit code: 0 when there is a report, whatever it says; 1 when there is none. Programs look at `verdict` and `findings` of `--json`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    findings: Option<findings::Command>,
    /// How many one-second samples of performance are taken; 0 for none.
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(..=MOST_SAMPLES))]
    samples: u64,
    /// Also write everything that was looked at into one archive, without secrets, for others to read.
    #[arg(long, value_name = "FILE.zip", conflicts_with = "from")]
    bundle: Option<PathBuf>,
    /// Report from such archives instead of a node; of several, one after the other.
    #[arg(long, value_name = "FILE.zip", num_args = 1..)]
    from: Vec<PathBuf>,
    /// Also write the report as a page with charts.
    #[arg(long, value_name = "FILE.html")]
    html: Option<PathBuf>,
    #[command(flatten)]
    expect: Expect,
}

/// How many of each there should be; another number is a finding.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
struct Expect {
    /// How many nodes there should be.
    #[arg(long, value_name = "N")]
    expect_nodes: Option<u64>,
    /// How many disks of pools.
    #[arg(long, value_name = "N")]
    expect_disks: Option<u64>,
    /// How many pools.
    #[arg(long, value_name = "N")]
    expect_pools: Option<u64>,
    /// How many volumes.
    #[arg(long, value_name = "N")]
    expect_volumes: Option<u64>,
    /// How many shares.
    #[arg(long, value_name = "N")]
    expect_shares: Option<u64>,
    /// How many LUNs.
    #[arg(long, value_name = "N")]
    expect_luns: Option<u64>,
}

impl Expect {
    fn all(self) -> Vec<Expected> {
        let each = [
            ("nodes", self.expect_nodes),
            ("disks", self.expect_disks),
            ("pools", self.expect_pools),
            ("volumes", self.expect_volumes),
            ("shares", self.expect_shares),
            ("luns", self.expect_luns),
        ];
        each.into_iter().filter_map(|(what, count)| Some(Expected { what, count: count? })).collect()
    }
}

pub(crate) async fn run(args: Args, context: &Context) -> CliResult {
    if let Some(command) = args.findings {
        return findings::run(command, context).await;
    }
    let expected = args.expect.all();
    let mut reports = Vec::new();
    if args.from.is_empty() {
        let bundle = collect::everything(context, args.samples).await;
        if let Some(file) = &args.bundle {
            let archive = bundle.to_zip().map_err(|error| wrong(file, error))?;
            write(file, &archive)?;
        }
        reports.push(Report::of(&bundle, "the node", &expected));
    }
    for file in &args.from {
        let bundle = Bundle::from_zip(file).map_err(|error| wrong(file, error))?;
        reports.push(Report::of(&bundle, &file.display().to_string(), &expected));
    }
    if let Some(file) = &args.html {
        write(file, html::page(&reports).as_bytes())?;
    }
    if context.json {
        return match reports.as_slice() {
            [report] if args.from.is_empty() => print_json(report),
            several => print_json(&serde_json::json!({ "items": several })),
        };
    }
    for (number, report) in reports.iter().enumerate() {
        if number > 0 {
            outln!("\n{}\n", "=".repeat(100));
        }
        text::print(report);
    }
    for file in [&args.bundle, &args.html].into_iter().flatten() {
        eprintln!("holdfast: {} is written.", file.display());
    }
    Ok(())
}

fn wrong(file: &Path, error: impl std::fmt::Display) -> CliError {
    CliError::here(format!("{}: {error}", file.display()))
}

/// Writes a file that is there whole or not at all.
fn write(to: &Path, content: &[u8]) -> CliResult {
    let done = || {
        let part = PartFile::beside(to, true)?;
        let mut file = std::fs::OpenOptions::new().write(true).open(part.path())?;
        file.write_all(content)?;
        file.sync_all()?;
        part.keep()
    };
    done().map_err(|error| wrong(to, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_expected_is_named() {
        let expect = Expect { expect_disks: Some(4), expect_luns: Some(0), ..Expect::default() };
        let names: Vec<_> = expect.all().into_iter().map(|each| (each.what, each.count)).collect();
        assert_eq!(names, [("disks", 4), ("luns", 0)]);
    }

    #[test]
    fn a_file_is_written_whole() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("r.html");
        write(&file, b"one").unwrap();
        write(&file, b"two").unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"two");
        assert!(write(&folder.path().join("no/where"), b"x").is_err());
    }
}
