//! What counters were: means over a span, with a chart of how they went.

use std::collections::{BTreeMap, BTreeSet};

use clap::ValueEnum as _;
use control_api::{CounterKind, History, HistoryStep, ObjectCounters, name_matches};
use control_client::segment;

use super::rates::{OTHERS, Rates, TOTAL, grown, mean, totals};
use super::when::When;
use super::{Args, Kind, Sample, as_json, csv, view};
use crate::context::Context;
use crate::error::{CliError, CliResult};
use crate::table::{Table, word};
use crate::units::{bytes, seconds, time};

/// Characters of a chart.
const WIDTH: usize = 32;
/// Parts of a character's height.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A span of the past.
pub(super) struct Span {
    pub(super) from: When,
    pub(super) to: When,
    pub(super) step: Option<u64>,
}

fn kind_word(kind: Kind) -> Vec<String> {
    let kinds: &[CounterKind] = match kind {
        Kind::Session => &[CounterKind::SmbSession, CounterKind::IscsiSession],
        Kind::Share => &[CounterKind::Share],
        Kind::Lun => &[CounterKind::Lun],
        Kind::Volume => &[CounterKind::Volume],
        Kind::Space => &[CounterKind::Space],
        Kind::Disk => &[CounterKind::Disk],
        Kind::Processor => &[CounterKind::Processor],
        Kind::Pool => &[CounterKind::Pool],
        Kind::Policy => &[CounterKind::QosPolicy],
        Kind::Flow => &[CounterKind::QosFlow],
    };
    kinds.iter().map(word).collect()
}

fn question(args: &Args, span: &Span, now: u64) -> Result<String, CliError> {
    let (from, to) = (span.from.unix(now), span.to.unix(now));
    if to <= from {
        return Err(CliError::Usage(format!(
            "the span ends at {} UTC, which is not after its beginning at {} UTC",
            time(to),
            time(from)
        )));
    }
    let mut query = format!("/history?from_unix_ms={}&to_unix_ms={}", from * 1000, to * 1000);
    let step = span.step.unwrap_or_else(|| (to - from).div_ceil(USUAL_STEPS).max(1));
    // Steps of less than a minute are kept for an hour only.
    if span.step.is_some() || step >= 60 {
        query += &format!("&step_seconds={step}");
    }
    let kinds: Vec<String> = match args.kind.as_slice() {
        // Sessions, policies and flows are many, more than an answer has room for, and seldom what is looked for afterwards.
        [] => Kind::value_variants()
            .iter()
            .filter(|kind| !matches!(kind, Kind::Session | Kind::Policy | Kind::Flow))
            .flat_map(|kind| kind_word(*kind))
            .collect(),
        kinds => kinds.iter().flat_map(|kind| kind_word(*kind)).collect(),
    };
    query += &format!("&kind={}", kinds.join(","));
    // What is not asked for takes no room in the answer. For sums all of a kind has to be there.
    if let Some(pattern) = args.object.as_ref().filter(|pattern| !name_matches(pattern, TOTAL)) {
        query += &format!("&name={}", segment(pattern));
    }
    Ok(query)
}

/// Steps that are asked for where nobody says how long they are to be.
const USUAL_STEPS: u64 = 240;

/// A step as rates. What did nothing in it did so at rate 0: `all` is what did anything in any step. Where others are there without their
/// names nobody knows what it did.
fn sample(node: &str, step: &HistoryStep, all: &BTreeSet<(CounterKind, String)>) -> Sample {
    let there: BTreeMap<_, _> =
        step.items.iter().map(|item| ((item.kind, item.name.as_str()), item)).collect();
    let of = |(kind, name): &(CounterKind, String)| match there.get(&(*kind, name.as_str())) {
        Some(item) => Some(grown(item, step.seconds)),
        None if there.contains_key(&(*kind, OTHERS)) => None,
        None => Some(grown(&ObjectCounters::new(*kind, name.clone()), step.seconds)),
    };
    let mut rates: Vec<Rates> = all.iter().filter_map(of).collect();
    rates.extend(totals(&rates));
    Sample {
        wall_ns: step.time_unix_ms * 1_000_000,
        node: node.to_owned(),
        seconds: step.seconds,
        rates,
        problem: None,
    }
}

/// The largest of each part of the span as a bar, of the largest of all. A value is of the `step` seconds up to its moment.
fn chart(values: &[(u64, f64)], step: u64, (from, to): (u64, u64)) -> String {
    let mut bars = [None::<f64>; WIDTH];
    let place = |at: u64| at.saturating_sub(from) as usize * WIDTH / (to - from).max(1) as usize;
    for (at, value) in values {
        // The moment itself is the last of the step.
        let (first, last) = (place(at.saturating_sub(step)), place(at.saturating_sub(1)));
        for bar in bars.iter_mut().take(last + 1).skip(first) {
            *bar = Some(bar.map_or(*value, |bar| bar.max(*value)));
        }
    }
    let top = values.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    let bar = |value: Option<f64>| match value {
        None => ' ',
        Some(value) if top > 0.0 => BARS.get((value / top * 7.0).round() as usize).copied().unwrap_or('█'),
        Some(_) => BARS[0],
    };
    bars.into_iter().map(bar).collect()
}

/// Answers with what was between two moments.
pub(super) async fn run(args: &Args, span: &Span, now: u64, context: &Context) -> CliResult {
    let question = question(args, span, now)?;
    let history: History = context.client.get(&question).await?;
    let wanted = |name: &str| args.object.as_ref().is_none_or(|pattern| name_matches(pattern, name));
    let things = history.steps.iter().flat_map(|step| &step.items);
    let all: BTreeSet<(CounterKind, String)> = things.map(|item| (item.kind, item.name.clone())).collect();
    let mut samples: Vec<Sample> =
        history.steps.iter().map(|step| sample(&history.node, step, &all)).collect();
    for sample in &mut samples {
        sample.rates.retain(|rates| wanted(&rates.name));
    }
    if context.json {
        samples.iter().for_each(|sample| outln!("{}", as_json(sample)));
        return Ok(());
    }
    if args.csv {
        let columns = csv::Columns::new(&history.node, &all, wanted);
        if columns.is_empty() {
            return Err(CliError::here(
                "nothing that matches --kind and --object was counted in that time: there would be no column.",
            ));
        }
        outln!("{}", columns.header());
        samples.iter().for_each(|sample| outln!("{}", columns.row(sample.wall_ns, &sample.rates)));
        return Ok(());
    }
    let (from, to) = (span.from.unix(now), span.to.unix(now));
    let counted: f64 = history.steps.iter().map(|step| step.seconds).sum();
    outln!(
        "{}  {} to {} UTC, steps of {}: means over the {} in which it was counted; latencies in ms; PEAK is the busiest step.",
        history.node,
        time(from),
        time(to),
        seconds(history.step_seconds),
        seconds(counted.round() as u64)
    );
    match history.since_unix_ms {
        None => outln!("Nothing is kept yet."),
        Some(since) if since / 1000 > from + history.step_seconds => {
            outln!("What is kept begins at {} UTC.", time(since / 1000));
        }
        Some(_) => {}
    }
    outln!();
    table(&samples, history.step_seconds, (from, to), args.top);
    Ok(())
}

/// What a thing did in each step: when it ended, how long it was, and its rates.
type Steps<'a> = Vec<(u64, f64, &'a Rates)>;

fn table(samples: &[Sample], step: u64, span: (u64, u64), top: usize) {
    let mut things: BTreeMap<(CounterKind, &str), Steps<'_>> = BTreeMap::new();
    for sample in samples {
        for rates in &sample.rates {
            let of = things.entry((rates.kind, &rates.name)).or_default();
            of.push((sample.wall_ns / 1_000_000_000, sample.seconds, rates));
        }
    }
    let only_sums = things.keys().all(|(_, name)| *name == TOTAL);
    let mut rows: Vec<_> = things
        .into_iter()
        .filter(|((kind, name), _)| match kind {
            CounterKind::Processor => *name == TOTAL,
            _ => only_sums || *name != TOTAL,
        })
        .map(|(_, steps)| (mean(steps.iter().map(|(_, seconds, rates)| (*seconds, *rates))), steps))
        .collect();
    rows.sort_by(|(a, _), (b, _)| {
        let busier = b.bytes().total_cmp(&a.bytes()).then(b.all_requests().total_cmp(&a.all_requests()));
        busier.then_with(|| (a.kind, &a.name).cmp(&(b.kind, &b.name)))
    });
    let headings = [
        "KIND",
        "NAME",
        ">REQUESTS/s",
        ">READ/s",
        ">WRITTEN/s",
        ">READ ms",
        ">WRITE ms",
        ">QUEUE",
        ">PEAK",
        "AT",
        "OVER TIME",
    ];
    let mut table = Table::new(&headings, "Nothing that was counted in that time matches.");
    let more = rows.len().saturating_sub(top);
    let mut of_qos = Vec::new();
    for (mean, steps) in rows.into_iter().take(top) {
        let values: Vec<(u64, f64)> = steps.iter().map(|(at, _, rates)| (*at, height(rates))).collect();
        let (at, peak) =
            values.iter().copied().fold((0, 0.0), |best, now| if now.1 > best.1 { now } else { best });
        let of_data = |text: String| {
            if matches!(mean.kind, CounterKind::Processor | CounterKind::Pool) { String::new() } else { text }
        };
        let (out, into) = mean.out_and_in();
        table.row([
            word(&mean.kind),
            mean.name.clone(),
            of_data(view::number(mean.all_requests())),
            of_data(view::volume(out)),
            of_data(view::volume(into)),
            of_data(view::milliseconds(&mean.read)),
            of_data(view::milliseconds(&mean.write)),
            of_data(format!("{:.2}", mean.data().queue)),
            match mean.kind {
                CounterKind::Processor => format!("{peak:.0} % busy"),
                CounterKind::Pool => format!("{} used", bytes(peak as u64)),
                _ => format!("{}/s", view::number(peak)),
            },
            if peak > 0.0 { time(at).split_off(5) } else { String::new() },
            chart(&values, step, span),
        ]);
        if mean.is_of_qos() && mean.name != TOTAL {
            of_qos.push(view::qos_line(&mean));
        }
    }
    table.print();
    of_qos.iter().for_each(|line| outln!("{line}"));
    if more > 0 {
        outln!("{more} more, less busy: --top shows them.");
    }
}

/// What the chart of a thing shows.
fn height(rates: &Rates) -> f64 {
    match rates.kind {
        CounterKind::Processor => rates.processor.busy(),
        CounterKind::Pool => rates.used,
        CounterKind::QosPolicy | CounterKind::QosFlow => rates.qos.normalized,
        _ => rates.all_requests(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(words: &[&str]) -> String {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: Args,
            /// An option of all commands, which those of this one name.
            #[arg(id = "json", long)]
            _json: bool,
        }
        let line: Line = clap::Parser::parse_from([&["perf", "--from", "1h"], words].concat());
        let span =
            Span { from: line.args.from.expect("it is given"), to: line.args.to, step: line.args.step };
        question(&line.args, &span, 10_000).expect("a question")
    }

    #[test]
    fn what_is_very_many_is_not_asked_for_unless_it_is_wanted() {
        assert_eq!(
            asked(&[]),
            "/history?from_unix_ms=6400000&to_unix_ms=10000000&kind=share,lun,volume,space,disk,processor,pool"
        );
        assert!(asked(&["--kind", "policy,flow"]).ends_with("&kind=qos-policy,qos-flow"));
        let flows = asked(&["--kind", "flow", "--object", "vm:/a&b *"]);
        assert!(flows.ends_with("&kind=qos-flow&name=vm%3A%2Fa%26b%20%2A"), "{flows}");
        // Sums are made of everything that there is.
        for all in ["_total", "*", "_T*"] {
            let sums = asked(&["--kind", "flow", "--object", all]);
            assert!(sums.ends_with("&kind=qos-flow"), "{sums}");
        }
    }

    #[test]
    fn a_chart_has_the_largest_of_each_part_and_gaps_where_nothing_was() {
        let values: Vec<(u64, f64)> = (1..=64)
            .filter(|at| *at <= 32 || *at > 48)
            .map(|at| (at, if at == 10 { 14.0 } else { 7.0 }))
            .collect();
        let drawn: Vec<char> = chart(&values, 1, (0, 64)).chars().collect();
        assert_eq!(drawn.len(), WIDTH);
        assert_eq!((drawn[4], drawn[0], drawn[31]), ('█', '▅', '▅'));
        assert!(drawn[16..24].iter().all(|bar| *bar == ' '), "{drawn:?}");
        // Long steps are as wide as they are long, and no wider.
        let long = chart(&[(30, 1.0), (60, 2.0)], 30, (0, 60));
        assert_eq!(long, "▅".repeat(WIDTH / 2) + &"█".repeat(WIDTH / 2));
        assert_eq!(chart(&[(60, 0.0)], 30, (0, 60)), " ".repeat(WIDTH / 2) + &"▁".repeat(WIDTH / 2));
    }
}
