//! The reports of 2014: an outcome is read from them, printed, and must be the same text again.
//!
//! All of it is compared letter by letter, with two exceptions: means and deviations of latencies, which the report does not
//! determine (their columns and widths are compared), and percentiles, which may differ by a bucket's width.

use spd_profile::{Profile, parse};

use super::deal;
use crate::text::{Layout, report};
use crate::{CpuPlace, CpuTime, Operations, Outcome, SpanOutcome, System, TargetOutcome, ThreadOutcome};

const RANDOM: &str = include_str!("diskspd_2014_random.txt");
const SEQUENTIAL: &str = include_str!("diskspd_2014_sequential.txt");

struct Nothing;

impl spd_profile::Surroundings for Nothing {
    fn read(&self, _: &str, _: usize) -> Result<String, String> {
        Err("no files".into())
    }
    fn ticks(&self) -> u32 {
        0
    }
}

fn profile_of(text: &str) -> Profile {
    let line = text.lines().find_map(|line| line.strip_prefix("Command Line: ")).unwrap();
    let mut words = line.split(' ').map(str::to_owned);
    let program = words.next().unwrap();
    parse(&program, &words.collect::<Vec<_>>(), &Nothing).unwrap().profile
}

fn cells(line: &str) -> Vec<&str> {
    line.split('|').map(str::trim).collect()
}

fn percents(cells: &[&str]) -> CpuTime {
    let number = |text: &str| text.trim_end_matches('%').parse::<f64>().unwrap();
    CpuTime { user: number(cells[2]), kernel: number(cells[3]), idle: number(cells[4]) }
}

fn outcome_of(text: &str, size: u64) -> Outcome {
    let after = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim();
    let points: Vec<(f64, f64)> = text
        .lines()
        .skip_while(|line| !line.starts_with("  %-ile"))
        .skip(2)
        .map(|line| cells(line))
        .map(|cells| {
            let portion = match cells[0] {
                "min" => 1e-9,
                "max" => 1.0,
                name if name.ends_with("th") => name.trim_end_matches("th").parse::<f64>().unwrap() / 100.0,
                name => 1.0 - 0.1f64.powi(name[..1].parse().unwrap()),
            };
            (portion, cells[1].parse().unwrap())
        })
        .collect();
    let rows = text
        .lines()
        .skip_while(|line| *line != "Read IO")
        .skip(3)
        .take_while(|line| !line.starts_with('-'))
        .map(cells)
        .collect::<Vec<_>>();
    let counts: u64 = rows.iter().map(|cells| cells[2].parse::<u64>().unwrap()).sum();
    let mut dealt = deal(counts, &points, rows.len()).into_iter();
    let threads = rows.iter().map(|cells| {
        let count = cells[2].parse().unwrap();
        let read = Operations {
            bytes: cells[1].parse().unwrap(),
            count,
            latency: dealt.next().unwrap(),
            ..Operations::default()
        };
        let path = cells[7].rsplit_once(" (").unwrap().0.to_owned();
        ThreadOutcome {
            targets: vec![TargetOutcome { path, size, read, ..TargetOutcome::default() }],
            ..ThreadOutcome::default()
        }
    });
    // The time that was measured, with more digits than are printed: from the sum of all.
    let total = cells(text.lines().find(|line| line.starts_with("total:")).unwrap());
    let seconds = total[1].parse::<f64>().unwrap() / total[3].parse::<f64>().unwrap();
    let cpus: Vec<CpuTime> = text
        .lines()
        .skip_while(|line| !line.starts_with("CPU |"))
        .skip(2)
        .take_while(|line| !line.starts_with('-'))
        .map(|line| percents(&cells(line)))
        .collect();
    assert_eq!(cpus.len().to_string(), after("proc count:"));
    let places = (0..cpus.len() as u32).map(|id| CpuPlace { id, core: id, ..CpuPlace::default() });
    Outcome {
        system: System { cpus: places.collect(), ..System::default() },
        spans: vec![SpanOutcome { seconds, cpus, threads: threads.collect(), ..SpanOutcome::default() }],
    }
}

/// Tabs as the reports have them: to every eighth column.
fn expanded(line: &str) -> String {
    let mut out = String::new();
    for c in line.chars() {
        match c {
            '\t' => out.extend(std::iter::repeat_n(' ', 8 - out.chars().count() % 8)),
            c => out.push(c),
        }
    }
    out
}

fn masked(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_digit() { '9' } else { c }).collect()
}

/// What one printed digit of rounding may change.
fn close(a: &str, b: &str, part: f64, absolute: f64) -> bool {
    match (a.trim().trim_end_matches('%').parse::<f64>(), b.trim().trim_end_matches('%').parse::<f64>()) {
        (Ok(a), Ok(b)) => (a - b).abs() <= b.abs() * part + absolute,
        _ => a == b,
    }
}

fn compare(golden: &str, size: u64) {
    let profile = profile_of(golden);
    let printed = report(&profile, &outcome_of(golden, size), Layout::V20);
    let (mut in_percentiles, mut lines) = (false, 0);
    for (mine, theirs) in printed.lines().zip(golden.lines()) {
        lines += 1;
        let mine = expanded(mine);
        in_percentiles |= theirs.starts_with("  %-ile");
        let is_row = theirs.starts_with("total:") || theirs.contains("000GB)");
        let is_cpu = theirs.contains("%|");
        // The line of totals has no cell for the thread.
        let shift = usize::from(theirs.starts_with("total:"));
        let (a, b): (Vec<&str>, Vec<&str>) = (mine.split('|').collect(), theirs.split('|').collect());
        assert_eq!(a.len(), b.len(), "columns of\n{mine}\n{theirs}");
        for (column, (a, b)) in a.iter().zip(&b).enumerate().map(|(at, cells)| (at + shift, cells)) {
            let equal = if in_percentiles {
                masked(a) == masked(b) && close(a, b, 1.0 / 512.0, 0.001)
            } else if is_row && (column == 5 || column == 6) {
                a.len() == b.len() && a.contains("N/A") == b.contains("N/A")
            } else if is_row && (column == 3 || column == 4) || is_cpu && column > 0 {
                // The measured time has two digits in the report; so rates come out within a hundredth.
                a.len() == b.len() && close(a, b, 2e-4, 0.0101)
            } else {
                a == b
            };
            assert!(equal, "column {column} of line {lines}:\n{mine}\n{theirs}");
        }
    }
    assert_eq!(lines, golden.lines().count());
    assert_eq!(printed.lines().count(), lines);
}

#[test]
fn eight_threads_random() {
    compare(RANDOM, 1000 << 30);
}

#[test]
fn one_thread_sequential() {
    compare(SEQUENTIAL, 1000 << 30);
}

#[test]
fn the_comparison_can_fail() {
    for (from, to) in [
        ("LatStdDev |  file", "LatStdDev | file"),
        ("burst size", "burst  size"),
        ("3175 |", "3176 |"),
        ("   25th |", "  25th |"),
        ("stride size: 524288", "stride size: 512KiB"),
    ] {
        assert!(SEQUENTIAL.contains(from), "{from}");
        let golden = SEQUENTIAL.replacen(from, to, 1);
        let profile = profile_of(SEQUENTIAL);
        let same = report(&profile, &outcome_of(SEQUENTIAL, 1000 << 30), Layout::V20);
        let equal = same.lines().map(expanded).eq(golden.lines().map(str::to_owned));
        assert!(!equal, "{from}");
        if from != "3175 |" {
            assert!(std::panic::catch_unwind(|| compare(&golden, 1000 << 30)).is_err(), "{from}");
        }
    }
}
