//! A sample as a table, the busiest first.

use control_api::CounterKind;

use super::rates::{OTHERS, OperationRates, QosRates, Rates, TOTAL};
use super::{Sample, names};
use crate::table::{Table, word};
use crate::units::{bytes, time};

/// Upper left corner, and nothing left of what stood there.
const CLEAR: &str = "\x1b[H\x1b[J";

/// A number per second.
pub(super) fn number(value: f64) -> String {
    if value == 0.0 || value >= 10.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

pub(super) fn volume(value: f64) -> String {
    if value == 0.0 { "0".to_owned() } else { bytes(value as u64) }
}

/// Milliseconds, where anything ended.
pub(super) fn milliseconds(rates: &OperationRates) -> String {
    if rates.per_second == 0.0 { String::new() } else { format!("{:.3}", rates.latency() * 1000.0) }
}

fn row(rates: &Rates) -> [String; 10] {
    let (out, into) = rates.out_and_in();
    [
        word(&rates.kind),
        rates.name.clone(),
        number(rates.all_requests()),
        number(rates.read.per_second),
        number(rates.write.per_second),
        volume(out),
        volume(into),
        milliseconds(&rates.read),
        milliseconds(&rates.write),
        format!("{:.2}", rates.data().queue),
    ]
}

/// What a policy or flow had and what held for it, in a line.
pub(super) fn qos_line(rates: &Rates) -> String {
    let QosRates { normalized, min_iops, max_iops, max_bandwidth, .. } = rates.qos;
    let limits = [
        (min_iops > 0.0).then(|| format!("at least {min_iops:.0} IOPS")),
        (max_iops > 0.0).then(|| format!("at most {max_iops:.0} IOPS")),
        (max_bandwidth > 0.0).then(|| format!("at most {}/s", volume(max_bandwidth))),
    ];
    let limits: Vec<String> = limits.into_iter().flatten().collect();
    let limits = match limits.as_slice() {
        [] if rates.name == OTHERS => "each with limits of its own".to_owned(),
        [] => "no limits".to_owned(),
        limits => limits.join(", "),
    };
    format!(
        "{} {}: {} normalised IOPS ({limits}), held back {:.3} ms a request",
        word(&rates.kind),
        rates.name,
        number(normalized),
        rates.held() * 1000.0
    )
}

/// Prints a sample, on a cleared screen when `live`.
pub(super) fn show(sample: &Sample, number: u64, top: usize, live: bool) {
    if live {
        out!("{CLEAR}");
    }
    outln!(
        "{}  {} UTC, sample {number}: means over {:.2} s, per second; latencies in ms; QUEUE is how many reads and writes were under way.{}",
        sample.node,
        time(sample.wall_ns / 1_000_000_000),
        sample.seconds,
        if live { " Ctrl-C ends." } else { "" }
    );
    if let Some(problem) = &sample.problem {
        outln!("No rates: {problem}.");
        return;
    }
    let is_processor = |rates: &&Rates| rates.kind == CounterKind::Processor;
    for rates in sample.rates.iter().filter(is_processor) {
        // Each where they are asked for alone, else all as one.
        if rates.name == TOTAL || sample.rates.iter().all(|each| is_processor(&each)) {
            outln!(
                "processor {}: {:.1} % busy: user {:.1}, privileged {:.1} (interrupts {:.1}, deferred {:.1})",
                rates.name,
                rates.processor.busy(),
                rates.processor.user,
                rates.processor.privileged,
                rates.processor.interrupt,
                rates.processor.deferred
            );
        }
    }
    for pool in sample.rates.iter().filter(|rates| rates.kind == CounterKind::Pool && rates.name != TOTAL) {
        let percent = if pool.size > 0.0 { 100.0 * pool.used / pool.size } else { 0.0 };
        outln!("pool {}: {} of {} used ({percent:.0} %)", pool.name, volume(pool.used), volume(pool.size));
    }
    let is_aside = |rates: &&Rates| is_processor(rates) || rates.kind == CounterKind::Pool;
    // A table of all things needs no sums of them, unless they are what was asked for.
    let only_sums = sample.rates.iter().all(|rates| rates.name == TOTAL);
    let in_table = |rates: &&Rates| !is_aside(rates) && (only_sums || rates.name != TOTAL);
    let mut rates: Vec<&Rates> = sample.rates.iter().filter(in_table).collect();
    if rates.is_empty() && !sample.rates.is_empty() {
        return;
    }
    rates.sort_by(|a, b| {
        let busier = b.bytes().total_cmp(&a.bytes()).then(b.all_requests().total_cmp(&a.all_requests()));
        busier.then_with(|| (a.kind, &a.name).cmp(&(b.kind, &b.name)))
    });
    outln!();
    let mut table = Table::new(
        &[
            "KIND",
            "NAME",
            ">REQUESTS/s",
            ">READS/s",
            ">WRITES/s",
            ">READ/s",
            ">WRITTEN/s",
            ">READ ms",
            ">WRITE ms",
            ">QUEUE",
        ],
        "Nothing that is counted is there, or matches.",
    );
    rates.iter().take(top).for_each(|rates| table.row(row(rates)));
    table.print();
    if rates.len() > top {
        outln!("{} more, less busy: --top shows them.", rates.len() - top);
    }
    let of_qos = rates.iter().filter(|rates| rates.is_of_qos() && rates.name != TOTAL);
    of_qos.take(top).for_each(|rates| outln!("{}", qos_line(rates)));
    for failing in rates.iter().filter(|rates| names::errors(rates) > 0.0) {
        outln!("{} {}: {:.1} errors/s", word(&failing.kind), failing.name, names::errors(failing));
    }
}
