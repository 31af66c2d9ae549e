//! The numbers of one thing in a row of fixed places, which is what is stored of it. Policies and flows of QoS have places that mean other
//! things for other kinds: a release that does not know these kinds passes them over.

use control_api::{CounterKind, ObjectCounters, OperationCounters, ProcessorCounters, QosCounters};

/// How many numbers a thing has at most.
pub(crate) const FIELDS: usize = 23;

/// Reads, writes and other operations have four each, from these places on.
const READ: usize = 0;
const WRITE: usize = 4;
const OTHER: usize = 8;
const REQUESTS: usize = 12;
const SENT: usize = 13;
const RECEIVED: usize = 14;
const PROCESSOR: usize = 15;
const IN_FLIGHT: usize = 20;
const USED: usize = 21;
const SIZE: usize = 22;
/// Of policies and flows.
const NORMALIZED: usize = REQUESTS;
const ASKED: usize = SENT;
const HELD: usize = RECEIVED;
const MIN_IOPS: usize = IN_FLIGHT;
const MAX_IOPS: usize = USED;
const MAX_BANDWIDTH: usize = SIZE;

/// From here on numbers do not grow, they are what they are at a moment.
const GAUGES: usize = IN_FLIGHT;

/// The numbers. What a thing does not have is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Values(pub(crate) [u64; FIELDS]);

impl Values {
    /// Those of a thing as it is now.
    pub(crate) fn of(object: &ObjectCounters) -> Self {
        let mut values = [0; FIELDS];
        for (place, operations) in [(READ, object.read), (WRITE, object.write), (OTHER, object.other)] {
            let OperationCounters { operations, bytes, errors, latency_ns } = operations.unwrap_or_default();
            values[place..place + 4].copy_from_slice(&[operations, bytes, errors, latency_ns]);
        }
        let ProcessorCounters { user_ns, privileged_ns, interrupt_ns, deferred_ns, idle_ns } =
            object.processor.unwrap_or_default();
        values[PROCESSOR..PROCESSOR + 5].copy_from_slice(&[
            user_ns,
            privileged_ns,
            interrupt_ns,
            deferred_ns,
            idle_ns,
        ]);
        for (place, value) in [
            (REQUESTS, object.requests),
            (SENT, object.sent_bytes),
            (RECEIVED, object.received_bytes),
            (IN_FLIGHT, object.in_flight),
            (USED, object.used_bytes),
            (SIZE, object.size_bytes),
        ] {
            values[place] = value.unwrap_or(0);
        }
        if let Some(qos) = object.qos {
            let QosCounters { normalized, asked, held_ns, min_iops, max_iops, max_bandwidth } = qos;
            for (place, value) in [
                (NORMALIZED, normalized),
                (ASKED, asked),
                (HELD, held_ns),
                // No limit is 0 in all of QoS.
                (MIN_IOPS, min_iops.unwrap_or(0)),
                (MAX_IOPS, max_iops.unwrap_or(0)),
                (MAX_BANDWIDTH, max_bandwidth.unwrap_or(0)),
            ] {
                values[place] = value;
            }
        }
        Self(values)
    }

    /// The thing that has these: what its kind does not count is absent.
    pub(crate) fn object(&self, kind: CounterKind, name: &str) -> ObjectCounters {
        let value = |place: usize| self.0.get(place).copied().unwrap_or(0);
        let operations = |place| {
            Some(OperationCounters {
                operations: value(place),
                bytes: value(place + 1),
                errors: value(place + 2),
                latency_ns: value(place + 3),
            })
        };
        let empty = ObjectCounters::new(kind, name);
        match kind {
            CounterKind::Processor => ObjectCounters {
                processor: Some(ProcessorCounters {
                    user_ns: value(PROCESSOR),
                    privileged_ns: value(PROCESSOR + 1),
                    interrupt_ns: value(PROCESSOR + 2),
                    deferred_ns: value(PROCESSOR + 3),
                    idle_ns: value(PROCESSOR + 4),
                }),
                ..empty
            },
            CounterKind::Pool => {
                ObjectCounters { used_bytes: Some(value(USED)), size_bytes: Some(value(SIZE)), ..empty }
            }
            CounterKind::SmbSession | CounterKind::IscsiSession => ObjectCounters {
                read: operations(READ),
                write: operations(WRITE),
                requests: Some(value(REQUESTS)),
                sent_bytes: Some(value(SENT)),
                received_bytes: Some(value(RECEIVED)),
                ..empty
            },
            CounterKind::QosPolicy | CounterKind::QosFlow => {
                let limit = |place| Some(value(place)).filter(|limit| *limit > 0);
                let qos = QosCounters {
                    normalized: value(NORMALIZED),
                    asked: value(ASKED),
                    held_ns: value(HELD),
                    min_iops: limit(MIN_IOPS),
                    max_iops: limit(MAX_IOPS),
                    max_bandwidth: limit(MAX_BANDWIDTH),
                };
                ObjectCounters { read: operations(READ), write: operations(WRITE), qos: Some(qos), ..empty }
            }
            CounterKind::Share
            | CounterKind::Lun
            | CounterKind::Volume
            | CounterKind::Space
            | CounterKind::Disk => ObjectCounters {
                read: operations(READ),
                write: operations(WRITE),
                other: operations(OTHER),
                in_flight: Some(value(IN_FLIGHT)),
                ..empty
            },
        }
    }

    /// How much was counted since `before`, with what it is at this moment; `None` when it has begun to count anew.
    pub(crate) fn since(&self, before: &Self) -> Option<Self> {
        let mut grown = *self;
        for (place, (value, before)) in grown.0.iter_mut().zip(before.0).enumerate().take(GAUGES) {
            *value = match value.checked_sub(before) {
                Some(growth) => growth,
                // The kernel may take some idle time back.
                None if (PROCESSOR..PROCESSOR + 5).contains(&place) => 0,
                None => return None,
            };
        }
        Some(grown)
    }

    /// Whether it did nothing and nothing is under way. Limits alone are no work: policies that nobody uses would take the room of all others.
    pub(crate) fn is_idle(&self, kind: CounterKind) -> bool {
        let counted = if is_of_qos(kind) { GAUGES } else { FIELDS };
        self.0.iter().take(counted).all(|value| *value == 0)
    }

    /// Adds what another thing of the kind did in the same time. Limits of several policies or flows have no sum: they may hold for one and the same
    /// disk, or for all together. The sum has none.
    pub(crate) fn add(&mut self, other: &Self, kind: CounterKind) {
        for (place, (sum, value)) in self.0.iter_mut().zip(other.0).enumerate() {
            *sum = if place >= GAUGES && is_of_qos(kind) { 0 } else { sum.saturating_add(value) };
        }
    }

    /// Adds what the same thing did in the time after this.
    pub(crate) fn then(&mut self, later: &Self) {
        for (place, (sum, value)) in self.0.iter_mut().zip(later.0).enumerate() {
            *sum = if place < GAUGES { sum.saturating_add(value) } else { value };
        }
    }

    /// How much it did, to tell the busiest: bytes, then operations. Of policies and flows those come first that were held back for longest.
    pub(crate) fn work(&self, kind: CounterKind) -> (u64, u64) {
        let sum = |places: &[usize]| {
            places
                .iter()
                .filter_map(|place| self.0.get(*place))
                .fold(0_u64, |sum, value| sum.saturating_add(*value))
        };
        if is_of_qos(kind) {
            return (sum(&[HELD]), sum(&[ASKED]));
        }
        (sum(&[READ + 1, WRITE + 1, SENT, RECEIVED]), sum(&[READ, WRITE, OTHER, REQUESTS, IN_FLIGHT]))
    }
}

/// Whether a kind is one of QoS, of which fewer are stored by themselves.
pub(crate) fn is_of_qos(kind: CounterKind) -> bool {
    matches!(kind, CounterKind::QosPolicy | CounterKind::QosFlow)
}

/// The number that stands for a kind on a file. Numbers stay what they are for ever.
pub(crate) fn kind_number(kind: CounterKind) -> u8 {
    match kind {
        CounterKind::SmbSession => 0,
        CounterKind::IscsiSession => 1,
        CounterKind::Share => 2,
        CounterKind::Lun => 3,
        CounterKind::Volume => 4,
        CounterKind::Space => 5,
        CounterKind::Disk => 6,
        CounterKind::Processor => 7,
        CounterKind::Pool => 8,
        CounterKind::QosPolicy => 9,
        CounterKind::QosFlow => 10,
    }
}

/// The kind that a number stands for; `None` for one of a later release.
pub(crate) fn kind_of(number: u8) -> Option<CounterKind> {
    Some(match number {
        0 => CounterKind::SmbSession,
        1 => CounterKind::IscsiSession,
        2 => CounterKind::Share,
        3 => CounterKind::Lun,
        4 => CounterKind::Volume,
        5 => CounterKind::Space,
        6 => CounterKind::Disk,
        7 => CounterKind::Processor,
        8 => CounterKind::Pool,
        9 => CounterKind::QosPolicy,
        10 => CounterKind::QosFlow,
        _ => return None,
    })
}
