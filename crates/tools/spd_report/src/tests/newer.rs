//! Layout 2.2, letter by letter, and the XML that belongs to it.

use spd_profile::{Profile, Target, TimeSpan};

use crate::text::{Layout, report};
use crate::{
    AgentOutcome, CpuPlace, CpuTime, EffectiveRange, Interval, OpenLoop, Operations, Outcome, SpanOutcome,
    System, TargetOutcome, ThreadOutcome, WaitStatistics, xml,
};

fn example() -> (Profile, Outcome) {
    let target = Target {
        block: 4096,
        random_percent: 100,
        alignment: Some(4096),
        write_percent: 30,
        threads: 2,
        requests: 32,
        ..Target::new("/data/file.dat")
    };
    let span = TimeSpan {
        duration: 2,
        latency: true,
        iops_intervals: true,
        targets: vec![target],
        ..TimeSpan::default()
    };
    let profile = Profile {
        command_line: "diskspd -b4K /data/file.dat".into(),
        verbose_stats: true,
        spans: vec![span],
        ..Profile::default()
    };
    let operations = |count: u64, ms: f64| {
        let mut operations = Operations { bytes: count * 4096, count, ..Operations::default() };
        let mut interval = Interval::default();
        for _ in 0..count / 2 {
            let nanos = (ms * 1e6) as u64;
            operations.latency.record(nanos);
            operations.latency.record(nanos);
            interval.record(nanos);
        }
        operations.intervals = vec![interval, interval];
        operations
    };
    let thread = |reads: u64, writes: u64| ThreadOutcome {
        targets: vec![TargetOutcome {
            path: "/data/file.dat".into(),
            size: 10 << 30,
            read: operations(reads, 0.5),
            write: if writes == 0 { Operations::default() } else { operations(writes, 2.0) },
            distribution: vec![
                EffectiveRange { io_percent: 90, start: 0, length: 1 << 30 },
                EffectiveRange { io_percent: 10, start: 2 << 30, length: 8 << 30 },
            ],
        }],
        waits: WaitStatistics {
            waits: 7,
            lookasides: 3,
            found: [1, 2, 0, 0, 0, 0, 0, 0],
            ..WaitStatistics::default()
        },
    };
    let cpu = |user, kernel| CpuTime { user, kernel, idle: 100.0 - user - kernel };
    let span = SpanOutcome {
        seconds: 2.0,
        cpus: vec![cpu(1.25, 10.5), cpu(0.0, 0.0)],
        threads: vec![thread(2048, 512), thread(1024, 0)],
        open_loop: Some(OpenLoop { rate: 2000.0, intended: 4000, late: 5, never_begun: 1 }),
        ..SpanOutcome::default()
    };
    let system = System {
        computer: "host".into(),
        version: "1".into(),
        version_date: "2026/1/1".into(),
        start: 1_769_860_800,
        cpus: (0..2).map(|id| CpuPlace { id, core: id, ..CpuPlace::default() }).collect(),
        power_scheme: "performance".into(),
    };
    (profile, Outcome { system, spans: vec![span] })
}

const EXPECTED: &str = include_str!("layout_2_2.txt");

#[test]
fn every_column_of_the_text() {
    let (profile, outcome) = example();
    let printed = report(&profile, &outcome, Layout::V22);
    for (number, (mine, golden)) in printed.lines().zip(EXPECTED.lines()).enumerate() {
        assert_eq!(mine, golden, "line {}", number + 1);
    }
    assert_eq!(printed, EXPECTED);
}

/// The scripts' way: the first lines that begin with `total:` and `avg.`, cut at `|`.
#[test]
fn scripts_find_total_and_avg() {
    let (profile, outcome) = example();
    for layout in [Layout::V22, Layout::V20] {
        let printed = report(&profile, &outcome, layout);
        let cells = |start: &str| {
            let line = printed.lines().find(|line| line.starts_with(start)).unwrap();
            line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>()
        };
        let (total, avg) = (cells("total:"), cells("avg."));
        assert_eq!(&total[2..5], ["7.00", "1792.00", "0.714"], "{layout:?}");
        assert_eq!(avg[1], "5.88%");
    }
}

/// Several machines have rows of their own, after all of DiskSpd's tables, and in JSON and XML.
#[test]
fn agents_have_rows() {
    let (profile, mut outcome) = example();
    let (read, write) = outcome.spans[0].sum();
    let agent = AgentOutcome {
        name: "10.0.0.11".into(),
        computer: "vm1".into(),
        start_ms: Some((0.25, 0.125)),
        seconds: 2.0,
        read,
        write,
        ended_early: None,
    };
    let gone = AgentOutcome {
        name: "b".into(),
        ended_early: Some("vanished & gone".into()),
        ..AgentOutcome::default()
    };
    outcome.spans[0].agents = vec![agent, gone];
    let text = report(&profile, &outcome, Layout::V22);
    let (tables, rest) = text.split_once("\nAgents\n").unwrap();
    assert!(EXPECTED.starts_with(tables), "DiskSpd's tables are as they were");
    let lines: Vec<Vec<&str>> = rest.lines().map(|line| line.split('|').map(str::trim).collect()).collect();
    assert_eq!(lines[2][..4], ["10.0.0.11", "0.250 +-0.125", "14680064", "3584"]);
    assert_eq!((lines[2][4], lines[2][8]), ("7.00", "vm1"));
    assert_eq!(lines[3][..4], ["b", "never", "0", "0"]);
    assert_eq!(lines[4], ["agent b: vanished & gone"]);
    let value = crate::json::report(&profile, &outcome);
    let rows = &value["spans"][0]["agents"];
    assert_eq!((&rows[0]["total"]["count"], &rows[1]["start_ms"]), (&3584.into(), &serde_json::Value::Null));
    let xml = xml::report(&profile, &outcome);
    assert!(xml.contains("<StartMilliseconds Error=\"0.125\">0.250</StartMilliseconds>"));
    assert!(xml.contains("<EndedEarly>vanished &amp; gone</EndedEarly>"));
}

#[test]
fn a_run_that_measured_nothing() {
    let (profile, mut outcome) = example();
    outcome.spans[0] = SpanOutcome { ended_early: Some("interrupted".into()), ..SpanOutcome::default() };
    let text = report(&profile, &outcome, Layout::V22);
    assert!(
        text.contains("The test was interrupted before the measurements began. No results are displayed.")
    );
    assert!(!text.contains("NaN") && !xml::report(&profile, &outcome).contains("NaN"));
    assert!(xml::report(&profile, &outcome).contains("<Error>The test was interrupted"));
}

#[test]
fn xml_has_the_names_scripts_ask_for() {
    let (profile, outcome) = example();
    let text = xml::report(&profile, &outcome);
    assert_eq!(text.lines().next(), Some("<Results>"));
    assert!(text.ends_with("</Results>"));
    for line in [
        "    <ComputerName>host</ComputerName>",
        "    <RunTime>2026/01/31 12:00:00 UTC</RunTime>",
        "    <TestTimeSeconds>2.00</TestTimeSeconds>",
        "    <ThreadCount>2</ThreadCount>",
        "    <ProcCount>2</ProcCount>",
        "        <UsagePercent>11.75</UsagePercent>",
        "      <AverageReadMilliseconds>0.500</AverageReadMilliseconds>",
        "      <AverageTotalMilliseconds>0.714</AverageTotalMilliseconds>",
        "      <IopsStdDev>0.000</IopsStdDev>",
        "        <Percentile>99.9999999</Percentile>",
        "        <IOCount>2560</IOCount>",
        "        <ReadBytes>8388608</ReadBytes>",
        "            <Range IO=\"0\">1073741824</Range>",
        "        <LookasideCompletion>1 2 0 0 0 0 0 0</LookasideCompletion>",
    ] {
        assert!(text.lines().any(|mine| mine == line), "{line} is not in\n{text}");
    }
    // Every element that is opened is closed, in order.
    let mut open = Vec::new();
    for tag in text.split('<').skip(1).map(|part| part.split('>').next().unwrap()) {
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name));
        } else if !tag.ends_with('/') {
            open.push(tag.split(' ').next().unwrap());
        }
    }
    assert!(open.is_empty());
}

#[test]
fn the_profile_inside_a_result_runs_again() {
    let (profile, outcome) = example();
    let text = xml::report(&profile, &outcome);
    let start = text.find("  <Profile>").unwrap();
    let end = text.find("</Profile>").unwrap() + "</Profile>".len();
    let again = spd_profile::xml::read(&text[start..end]).unwrap();
    assert_eq!(again.spans, profile.spans);
}
