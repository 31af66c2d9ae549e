//! Rates, latencies and queue lengths from two looks at counters that only grow.

use std::collections::BTreeMap;

use control_api::{CounterKind, Counters, ObjectCounters, OperationCounters, ProcessorCounters, QosCounters};

/// Operations of one kind over the time between two looks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct OperationRates {
    /// Operations that succeeded, per second.
    pub(crate) per_second: f64,
    /// Bytes that they moved, per second.
    pub(crate) bytes_per_second: f64,
    /// Operations that failed, per second.
    pub(crate) errors_per_second: f64,
    /// How many were under way on average: what they took per second (Little's law).
    pub(crate) queue: f64,
}

impl OperationRates {
    /// Mean seconds of an operation; 0 when none ended.
    pub(crate) fn latency(&self) -> f64 {
        ratio(self.queue, self.per_second)
    }

    /// Mean bytes of an operation; 0 when none ended.
    pub(crate) fn size(&self) -> f64 {
        ratio(self.bytes_per_second, self.per_second)
    }

    fn plus(self, other: Self) -> Self {
        Self {
            per_second: self.per_second + other.per_second,
            bytes_per_second: self.bytes_per_second + other.bytes_per_second,
            errors_per_second: self.errors_per_second + other.errors_per_second,
            queue: self.queue + other.queue,
        }
    }
}

fn ratio(value: f64, by: f64) -> f64 {
    if by > 0.0 { value / by } else { 0.0 }
}

/// What a processor did, in percents of its time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ProcessorRates {
    pub(crate) user: f64,
    pub(crate) privileged: f64,
    pub(crate) interrupt: f64,
    pub(crate) deferred: f64,
    pub(crate) idle: f64,
}

impl ProcessorRates {
    /// All but idle.
    pub(crate) fn busy(&self) -> f64 {
        self.user + self.privileged
    }

    fn plus(self, other: Self) -> Self {
        Self {
            user: self.user + other.user,
            privileged: self.privileged + other.privileged,
            interrupt: self.interrupt + other.interrupt,
            deferred: self.deferred + other.deferred,
            idle: self.idle + other.idle,
        }
    }

    fn over(self, count: f64) -> Self {
        Self {
            user: self.user / count,
            privileged: self.privileged / count,
            interrupt: self.interrupt / count,
            deferred: self.deferred / count,
            idle: self.idle / count,
        }
    }
}

/// What QoS counts of a policy or flow beside its reads and writes. I/Os are normalised; a limit that there is none of is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct QosRates {
    /// I/Os that went to the volume, per second.
    pub(crate) normalized: f64,
    /// How many requests were held back on average.
    pub(crate) held: f64,
    /// I/Os per second that were promised at the end.
    pub(crate) min_iops: f64,
    /// I/Os per second that were allowed then.
    pub(crate) max_iops: f64,
    /// Bytes per second that were allowed then.
    pub(crate) max_bandwidth: f64,
}

/// The name of the sum of all things of a kind.
pub(crate) const TOTAL: &str = "_Total";
/// The name of the sum of what the history does not keep by itself, as very much else did something.
pub(crate) const OTHERS: &str = "_Others";

/// What a thing did between two looks.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Rates {
    pub(crate) kind: CounterKind,
    pub(crate) name: String,
    pub(crate) read: OperationRates,
    pub(crate) write: OperationRates,
    pub(crate) other: OperationRates,
    /// Operations under way at the second look.
    pub(crate) in_flight: f64,
    /// Requests of a session per second.
    pub(crate) requests: f64,
    /// Bytes sent to its client per second.
    pub(crate) sent: f64,
    /// Bytes received from it per second.
    pub(crate) received: f64,
    /// What a processor did.
    pub(crate) processor: ProcessorRates,
    /// Bytes of a pool that are taken.
    pub(crate) used: f64,
    /// Bytes of a pool that may be.
    pub(crate) size: f64,
    /// What QoS counts of a policy or flow.
    pub(crate) qos: QosRates,
}

impl Rates {
    /// Reads and writes together.
    pub(crate) fn data(&self) -> OperationRates {
        self.read.plus(self.write)
    }

    /// Whether it is a session: what its messages carried is counted beside what its reads and writes moved.
    pub(crate) fn is_session(&self) -> bool {
        matches!(self.kind, CounterKind::SmbSession | CounterKind::IscsiSession)
    }

    /// Bytes per second from it and to it; of a session those on the network.
    pub(crate) fn out_and_in(&self) -> (f64, f64) {
        match self.is_session() {
            true => (self.sent, self.received),
            false => (self.read.bytes_per_second, self.write.bytes_per_second),
        }
    }

    /// Whether it is a policy or flow of QoS.
    pub(crate) fn is_of_qos(&self) -> bool {
        matches!(self.kind, CounterKind::QosPolicy | CounterKind::QosFlow)
    }

    /// Mean seconds that a request of a policy or flow was held back; 0 when none was let go on.
    pub(crate) fn held(&self) -> f64 {
        ratio(self.qos.held, self.data().per_second)
    }

    /// Bytes per second in both directions.
    pub(crate) fn bytes(&self) -> f64 {
        let (out, into) = self.out_and_in();
        out + into
    }

    /// Requests of all kinds per second.
    pub(crate) fn all_requests(&self) -> f64 {
        if self.is_session() { self.requests } else { self.data().per_second + self.other.per_second }
    }
}

/// The sum of each kind of thing that there is one of; of processors the mean, as Performance Monitor has it.
pub(crate) fn totals(rates: &[Rates]) -> Vec<Rates> {
    let mut totals: BTreeMap<CounterKind, (f64, Rates)> = BTreeMap::new();
    for each in rates {
        let (count, sum) = totals.entry(each.kind).or_default();
        *count += 1.0;
        sum.read = sum.read.plus(each.read);
        sum.write = sum.write.plus(each.write);
        sum.other = sum.other.plus(each.other);
        sum.in_flight += each.in_flight;
        sum.requests += each.requests;
        sum.sent += each.sent;
        sum.received += each.received;
        sum.processor = sum.processor.plus(each.processor);
        sum.used += each.used;
        sum.size += each.size;
        sum.qos.normalized += each.qos.normalized;
        sum.qos.held += each.qos.held;
        // Limits have no sum: several flows may have one together, and an aggregated policy has one for all of its disks.
    }
    let named = |(kind, (count, sum)): (CounterKind, (f64, Rates))| {
        let processor = sum.processor.over(count);
        Rates { kind, name: TOTAL.to_owned(), processor, ..sum }
    };
    totals.into_iter().map(named).collect()
}

/// What a processor did; nothing, not even idle, when none of its ticks has passed. The kernel may take some idle time back.
fn processor(before: Option<ProcessorCounters>, now: Option<ProcessorCounters>) -> ProcessorRates {
    let (Some(before), Some(now)) = (before, now) else { return ProcessorRates::default() };
    let grown = |of: fn(&ProcessorCounters) -> u64| of(&now).saturating_sub(of(&before)) as f64;
    let (user, privileged) = (grown(|cpu| cpu.user_ns), grown(|cpu| cpu.privileged_ns));
    let idle = grown(|cpu| cpu.idle_ns);
    let percent = |part: f64| 100.0 * ratio(part, user + privileged + idle);
    ProcessorRates {
        user: percent(user),
        privileged: percent(privileged),
        interrupt: percent(grown(|cpu| cpu.interrupt_ns)),
        deferred: percent(grown(|cpu| cpu.deferred_ns)),
        idle: percent(idle),
    }
}

/// Growth per second; `None` when the counter went back.
fn growth(before: u64, now: u64, seconds: f64) -> Option<f64> {
    Some(now.checked_sub(before)? as f64 / seconds)
}

/// The same of operations. What was not counted before or is not now did not grow.
fn operations(
    before: Option<OperationCounters>,
    now: Option<OperationCounters>,
    seconds: f64,
) -> Option<OperationRates> {
    let (Some(before), Some(now)) = (before, now) else { return Some(OperationRates::default()) };
    Some(OperationRates {
        per_second: growth(before.operations, now.operations, seconds)?,
        bytes_per_second: growth(before.bytes, now.bytes, seconds)?,
        errors_per_second: growth(before.errors, now.errors, seconds)?,
        queue: growth(before.latency_ns, now.latency_ns, seconds)? / 1e9,
    })
}

/// The same of a policy or flow; limits are those of now.
fn qos(before: Option<QosCounters>, now: Option<QosCounters>, seconds: f64) -> Option<QosRates> {
    let (Some(before), Some(now)) = (before, now) else { return Some(QosRates::default()) };
    let limit = |limit: Option<u64>| limit.unwrap_or(0) as f64;
    Some(QosRates {
        normalized: growth(before.normalized, now.normalized, seconds)?,
        held: growth(before.held_ns, now.held_ns, seconds)? / 1e9,
        min_iops: limit(now.min_iops),
        max_iops: limit(now.max_iops),
        max_bandwidth: limit(now.max_bandwidth),
    })
}

/// `None` when the thing has begun to count anew: it was closed and opened again, or made anew under its name.
fn of(before: &ObjectCounters, now: &ObjectCounters, seconds: f64) -> Option<Rates> {
    let grown = |before: Option<u64>, now: Option<u64>| match (before, now) {
        (Some(before), Some(now)) => growth(before, now, seconds),
        _ => Some(0.0),
    };
    Some(Rates {
        kind: now.kind,
        name: now.name.clone(),
        read: operations(before.read, now.read, seconds)?,
        write: operations(before.write, now.write, seconds)?,
        other: operations(before.other, now.other, seconds)?,
        in_flight: now.in_flight.unwrap_or(0) as f64,
        requests: grown(before.requests, now.requests)?,
        sent: grown(before.sent_bytes, now.sent_bytes)?,
        received: grown(before.received_bytes, now.received_bytes)?,
        processor: processor(before.processor, now.processor),
        used: now.used_bytes.unwrap_or(0) as f64,
        size: now.size_bytes.unwrap_or(0) as f64,
        qos: qos(before.qos, now.qos, seconds)?,
    })
}

/// What a thing did in a step in which its counters grew by so much.
pub(crate) fn grown(growth: &ObjectCounters, seconds: f64) -> Rates {
    let zero = ObjectCounters {
        read: Some(OperationCounters::default()),
        write: Some(OperationCounters::default()),
        other: Some(OperationCounters::default()),
        requests: Some(0),
        sent_bytes: Some(0),
        received_bytes: Some(0),
        processor: Some(ProcessorCounters::default()),
        qos: Some(QosCounters::default()),
        ..ObjectCounters::new(growth.kind, growth.name.clone())
    };
    // Nothing is below zero. A step in which nothing was counted has no rates.
    let rates = if seconds > 0.0 { of(&zero, growth, seconds) } else { None };
    rates.unwrap_or_else(|| Rates { kind: growth.kind, name: growth.name.clone(), ..Rates::default() })
}

/// The mean of what one thing did in several steps of so many seconds.
pub(crate) fn mean<'a>(steps: impl Iterator<Item = (f64, &'a Rates)>) -> Rates {
    let mut mean = Rates::default();
    let mut counted = 0.0;
    for (seconds, rates) in steps {
        counted += seconds;
        // Each step counts by its share of the time so far.
        let part = ratio(seconds, counted);
        let toward = |mean: &mut f64, value: f64| *mean += (value - *mean) * part;
        let operations = |mean: &mut OperationRates, value: &OperationRates| {
            toward(&mut mean.per_second, value.per_second);
            toward(&mut mean.bytes_per_second, value.bytes_per_second);
            toward(&mut mean.errors_per_second, value.errors_per_second);
            toward(&mut mean.queue, value.queue);
        };
        operations(&mut mean.read, &rates.read);
        operations(&mut mean.write, &rates.write);
        operations(&mut mean.other, &rates.other);
        toward(&mut mean.in_flight, rates.in_flight);
        toward(&mut mean.requests, rates.requests);
        toward(&mut mean.sent, rates.sent);
        toward(&mut mean.received, rates.received);
        toward(&mut mean.processor.user, rates.processor.user);
        toward(&mut mean.processor.privileged, rates.processor.privileged);
        toward(&mut mean.processor.interrupt, rates.processor.interrupt);
        toward(&mut mean.processor.deferred, rates.processor.deferred);
        toward(&mut mean.processor.idle, rates.processor.idle);
        toward(&mut mean.used, rates.used);
        toward(&mut mean.size, rates.size);
        toward(&mut mean.qos.normalized, rates.qos.normalized);
        toward(&mut mean.qos.held, rates.qos.held);
        // Limits have no mean: those of the last step in which it did anything.
        if rates.data().per_second > 0.0 || mean.kind != rates.kind {
            let QosRates { min_iops, max_iops, max_bandwidth, .. } = rates.qos;
            mean.qos = QosRates { min_iops, max_iops, max_bandwidth, ..mean.qos };
        }
        (mean.kind, mean.name) = (rates.kind, rates.name.clone());
    }
    mean
}

/// The seconds between two looks, and what all that was there both times did; `None` when the node has counted from zero between
/// them.
pub(crate) fn between(before: &Counters, now: &Counters) -> Option<(f64, Vec<Rates>)> {
    let nanos = now.monotonic_ns.checked_sub(before.monotonic_ns).filter(|nanos| *nanos > 0)?;
    if before.process != now.process {
        return None;
    }
    let seconds = nanos as f64 / 1e9;
    let earlier: BTreeMap<_, _> =
        before.items.iter().map(|object| ((object.kind, &object.name), object)).collect();
    let rates = now.items.iter().filter_map(|object| {
        let before = earlier.get(&(object.kind, &object.name))?;
        of(before, object, seconds)
    });
    Some((seconds, rates.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(name: &str, operations: u64, latency_ns: u64) -> ObjectCounters {
        let read = OperationCounters { operations, bytes: operations * 4096, errors: 0, latency_ns };
        ObjectCounters {
            read: Some(read),
            in_flight: Some(3),
            ..ObjectCounters::new(CounterKind::Disk, name)
        }
    }

    fn node(process: u32, monotonic_ns: u64, items: Vec<ObjectCounters>) -> Counters {
        Counters { node: "n".into(), process, monotonic_ns, items }
    }

    #[test]
    fn policies_have_the_limits_that_held_at_last() {
        let policy = |done: u64, max_iops| ObjectCounters {
            read: Some(OperationCounters { operations: done, ..Default::default() }),
            write: Some(OperationCounters::default()),
            qos: Some(QosCounters {
                normalized: 2 * done,
                held_ns: 3_000_000 * done,
                max_iops,
                ..Default::default()
            }),
            ..ObjectCounters::new(CounterKind::QosPolicy, "gold")
        };
        let now = grown(&policy(100, Some(500)), 2.0);
        assert!((now.qos.normalized - 100.0).abs() < 1e-9 && (now.held() - 0.003).abs() < 1e-9, "{now:?}");
        let idle = grown(&ObjectCounters::new(CounterKind::QosPolicy, "gold"), 2.0);
        let later = grown(&policy(50, Some(800)), 2.0);
        let mean = mean([(2.0, &now), (2.0, &later), (2.0, &idle)].into_iter());
        assert!((mean.qos.normalized - 50.0).abs() < 1e-9, "{mean:?}");
        assert!(
            (mean.qos.max_iops - 800.0).abs() < 1e-9,
            "a step in which nothing was done has no limits: {mean:?}"
        );
        let sum = &totals(&[now.clone(), later])[0];
        assert!((sum.qos.normalized - 150.0).abs() < 1e-9, "{sum:?}");
        assert!(sum.qos.max_iops.abs() < 1e-9, "limits of several have no sum: {sum:?}");
        assert_eq!(
            super::super::view::qos_line(&now),
            "qos-policy gold: 100 normalised IOPS (at most 500 IOPS), held back 3.000 ms a request"
        );
        let others = Rates { name: OTHERS.to_owned(), ..sum.clone() };
        let line = super::super::view::qos_line(&others);
        assert!(line.contains("(each with limits of its own)"), "{line}");
    }

    #[test]
    fn growth_over_the_nodes_own_time_is_the_rate() {
        let before = node(1, 1_000_000_000, vec![disk("a", 100, 0)]);
        let now = node(1, 3_000_000_000, vec![disk("a", 1100, 4_000_000_000), disk("new", 5, 5)]);
        let (seconds, rates) = between(&before, &now).expect("one run");
        assert!((seconds - 2.0).abs() < 1e-9);
        assert_eq!(rates.len(), 1, "what was not there before has no rate yet");
        let read = rates[0].read;
        assert!((read.per_second - 500.0).abs() < 1e-9 && (read.queue - 2.0).abs() < 1e-9, "{read:?}");
        assert!((read.latency() - 0.004).abs() < 1e-9 && (read.size() - 4096.0).abs() < 1e-9, "{read:?}");
        assert!((rates[0].in_flight - 3.0).abs() < 1e-9);
        assert!(rates[0].write.latency().abs() < 1e-9, "no operation, no latency");
    }

    #[test]
    fn a_reset_gives_no_rate_and_none_below_zero() {
        let before = node(1, 5, vec![disk("a", 100, 50), disk("b", 10, 10)]);
        // The node has started anew: by its time, and by its process when it has run for longer than before already.
        assert!(between(&before, &node(1, 4, vec![disk("a", 1, 1)])).is_none());
        assert!(between(&before, &node(2, 900, vec![disk("a", 101, 60)])).is_none());
        assert!(between(&before, &before).is_none(), "no time has passed");
        // One disk was opened anew.
        let (_, rates) =
            between(&before, &node(1, 10, vec![disk("a", 99, 60), disk("b", 11, 11)])).expect("one run");
        assert_eq!(rates.iter().map(|rates| rates.name.as_str()).collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn of_a_session_the_network_counts_once() {
        let operations =
            |operations, bytes| OperationCounters { operations, bytes, errors: 0, latency_ns: 0 };
        let at = |kind, factor: u64| ObjectCounters {
            read: Some(operations(6 * factor, 6000 * factor)),
            write: Some(operations(2 * factor, 2000 * factor)),
            requests: Some(10 * factor),
            sent_bytes: Some(7000 * factor),
            received_bytes: Some(3000 * factor),
            ..ObjectCounters::new(kind, "x")
        };
        for kind in [CounterKind::SmbSession, CounterKind::IscsiSession] {
            let (before, now) = (node(1, 0, vec![at(kind, 1)]), node(1, 1_000_000_000, vec![at(kind, 2)]));
            let (_, rates) = between(&before, &now).expect("one run");
            let [session] = rates.as_slice() else { panic!("{rates:?}") };
            let close = |(a, b): (f64, f64), (c, d): (f64, f64)| (a - c).abs() < 1e-9 && (b - d).abs() < 1e-9;
            // Its reads and writes are among its requests, and what they moved among the messages' bytes.
            assert!(close((session.all_requests(), session.bytes()), (10.0, 10_000.0)), "{session:?}");
            assert!(close(session.out_and_in(), (7000.0, 3000.0)), "{session:?}");
            assert!(close((session.read.per_second, session.write.per_second), (6.0, 2.0)), "{session:?}");
        }
    }

    #[test]
    fn totals_are_sums_and_of_processors_means() {
        let cpu = |name: &str, user_ns, interrupt_ns, idle_ns| ObjectCounters {
            processor: Some(ProcessorCounters {
                user_ns,
                privileged_ns: interrupt_ns,
                interrupt_ns,
                deferred_ns: 0,
                idle_ns,
            }),
            ..ObjectCounters::new(CounterKind::Processor, name)
        };
        let before = node(1, 0, vec![disk("a", 0, 0), disk("b", 0, 0), cpu("0", 5, 5, 5), cpu("1", 0, 0, 0)]);
        let now = node(
            1,
            1_000_000_000,
            vec![disk("a", 100, 1_000_000_000), disk("b", 300, 0), cpu("0", 65, 25, 25), cpu("1", 0, 0, 7)],
        );
        let (_, rates) = between(&before, &now).expect("one run");
        assert!((rates[2].processor.busy() - 80.0).abs() < 1e-9, "{rates:?}");
        let totals = totals(&rates);
        assert_eq!(
            totals.iter().map(|each| each.kind).collect::<Vec<_>>(),
            [CounterKind::Disk, CounterKind::Processor]
        );
        assert!(totals.iter().all(|each| each.name == TOTAL));
        assert!((totals[0].read.per_second - 400.0).abs() < 1e-9, "{totals:?}");
        assert!((totals[0].read.latency() - 0.0025).abs() < 1e-9, "over all operations: {totals:?}");
        let cpu = totals[1].processor;
        assert!((cpu.busy() - 40.0).abs() < 1e-9 && (cpu.interrupt - 10.0).abs() < 1e-9, "{cpu:?}");
        assert!((cpu.idle - 60.0).abs() < 1e-9, "{cpu:?}");
    }
}
