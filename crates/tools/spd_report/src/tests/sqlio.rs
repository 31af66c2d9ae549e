//! SQLIO's reports of 2013: read, printed again, and the same text.

use spd_profile::sqlio::parse;

use crate::sqlio::{beginning, results};
use crate::{Histogram, Operations, SpanOutcome, TargetOutcome, ThreadOutcome};

const REPORTS: &str = include_str!("sqlio_2013.txt");

fn after<'a>(text: &'a str, name: &str) -> &'a str {
    text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{name}")).trim()
}

/// The command line that a report's first lines describe.
fn command(text: &str) -> Vec<String> {
    let words: Vec<&str> = text.lines().nth(2).unwrap().split(' ').collect();
    let using: Vec<&str> = text.lines().nth(3).unwrap().split_whitespace().collect();
    let outstanding = text.lines().nth(4).unwrap().split(' ').rev().nth(1).unwrap();
    vec![
        format!("-t{}", words[0]),
        "-kR".into(),
        format!("-s{}", words[4]),
        format!("-b{}", using[1].trim_end_matches("KB")),
        format!("-f{}", using[2]),
        format!("-o{outstanding}"),
        "-LS".into(),
        "-BN".into(),
        (*words.last().unwrap()).into(),
    ]
}

#[test]
fn every_report_comes_out_again() {
    let reports: Vec<String> =
        REPORTS.split("sqlio v1.5.SG\n").skip(1).map(|r| format!("sqlio v1.5.SG\n{r}")).collect();
    assert_eq!(reports.len(), 10);
    for golden in &reports {
        let golden = golden.trim_end();
        let run = parse(&command(golden), &|_, _| Err("none".into())).unwrap();
        let percents: Vec<u64> =
            after(golden, "%:").split_whitespace().map(|percent| percent.parse().unwrap()).collect();
        // Ten thousand latencies spread as the histogram says, over whole and half milliseconds.
        let mut latency = Histogram::new();
        let number = |name: &str| after(golden, name).parse::<u64>().unwrap();
        let (min, max) = (number("Min_Latency(ms):"), number("Max_Latency(ms):"));
        for (ms, percent) in percents.iter().enumerate() {
            for _ in 0..percent * 100 {
                let ms = if ms == 24 { max } else { ms as u64 };
                latency.record((ms * 1_000_000 + 500_000).clamp(min * 1_000_000, max * 1_000_000 + 999_999));
            }
        }
        latency.record(min * 1_000_000 + 10_000);
        latency.record(max * 1_000_000 + 900_000);
        let iops: f64 = after(golden, "IOs/sec:").parse().unwrap();
        let seconds = 1000.0;
        let count = (iops * seconds).round() as u64;
        let block = u64::from(run.block_kb) * 1024;
        let read = Operations { bytes: count * block, count, latency, ..Operations::default() };
        let target = TargetOutcome { read, ..TargetOutcome::default() };
        let thread = ThreadOutcome { targets: vec![target], ..ThreadOutcome::default() };
        let measured = SpanOutcome { seconds, threads: vec![thread], ..SpanOutcome::default() };
        let printed = beginning(&run, &[40960 << 20]) + &results(&run, &measured);
        assert_eq!(printed.lines().count(), golden.lines().count());
        for (mine, theirs) in printed.lines().zip(golden.lines()) {
            if theirs.starts_with("using system counter") {
                let word = |line: &str| line.split(' ').nth(6).map(str::to_owned);
                assert!(word(mine).is_some_and(|counts| counts.parse::<u64>().is_ok()), "{mine}");
                assert_eq!(
                    mine.replace(&word(mine).unwrap(), ""),
                    theirs.replace(&word(theirs).unwrap(), "")
                );
            } else if theirs.starts_with("Avg_") {
                // The mean within its millisecond is not in the report.
                assert_eq!(mine.split(':').count(), theirs.split(':').count());
            } else if theirs.starts_with("MBs/sec") {
                // SQLIO cut where we round.
                assert_eq!(mine.len(), theirs.len());
                let value = |line: &str| line.split(':').nth(1).unwrap().trim().parse::<f64>().unwrap();
                assert!((value(mine) - value(theirs)).abs() < 0.0101, "{mine} {theirs}");
            } else {
                assert_eq!(mine.replace('\t', "        "), theirs);
            }
        }
        // The scripts' view: lines 10, 11 and 14 from 0, the part behind the colon.
        let lines: Vec<&str> = printed.split('\n').collect();
        let field = |index: usize| lines[index].split(':').nth(1).unwrap().trim().to_owned();
        assert_eq!(field(10), after(golden, "IOs/sec:"));
        assert!(field(11).parse::<f64>().is_ok() && lines[14].starts_with("Avg_Latency(ms): "));
        assert!(field(14).parse::<u64>().is_ok());
    }
}

#[test]
fn without_latencies_their_lines_are_missing() {
    let words = ["-kW", "-s1", "-b8", "a", "b"].map(str::to_owned);
    let run = parse(&words, &|_, _| Err("none".into())).unwrap();
    let text = beginning(&run, &[1 << 20, 2 << 20]) + &results(&run, &SpanOutcome::default());
    assert_eq!(
        text,
        "sqlio v1.5.SG\n2 threads writing for 1 secs to files a and b\n\tusing 8KB IOs over 512KB stripes\n\
         \tbuffering set to not use file nor disk caches (as is SQL Server)\n\
         using current size: 1 MB for file: a\nusing current size: 2 MB for file: b\ninitialization done\n\
         CUMULATIVE DATA:\nthroughput metrics:\nIOs/sec:     0.00\nMBs/sec:     0.00\n"
    );
}
