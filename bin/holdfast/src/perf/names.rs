//! The names that Performance Monitor gives to counters, and how each is made of rates.

use control_api::CounterKind;

use super::rates::Rates;

/// A counter: its name, and its value in the unit that the name says.
pub(super) type Named = (&'static str, fn(&Rates) -> f64);

/// The counter set that a kind of thing is in. Volumes are what a cluster shows as CSVs, spaces what a machine sees as disks of
/// its own; LUNs and iSCSI sessions have no set that is usual.
pub(super) fn set(kind: CounterKind) -> &'static str {
    match kind {
        CounterKind::SmbSession => "SMB Server Sessions",
        CounterKind::IscsiSession => "iSCSI Sessions",
        CounterKind::Share => "SMB Server Shares",
        CounterKind::Lun => "iSCSI LUN",
        CounterKind::Volume => "Cluster CSV File System",
        CounterKind::Space => "LogicalDisk",
        CounterKind::Disk => "PhysicalDisk",
        CounterKind::Processor => "Processor",
        CounterKind::Pool => "Storage Pool",
        CounterKind::QosPolicy => "Storage QoS Policy",
        CounterKind::QosFlow => "Storage QoS Flow",
    }
}

/// The counters of a kind of thing. Latencies are seconds, sizes bytes.
pub(super) fn counters(kind: CounterKind) -> &'static [Named] {
    match kind {
        CounterKind::SmbSession | CounterKind::IscsiSession => SESSION,
        CounterKind::Share => SHARE,
        CounterKind::Volume => VOLUME,
        CounterKind::Lun | CounterKind::Space | CounterKind::Disk => DISK,
        CounterKind::Processor => PROCESSOR,
        CounterKind::Pool => POOL,
        CounterKind::QosPolicy | CounterKind::QosFlow => QOS,
    }
}

const DISK: &[Named] = &[
    ("Disk Transfers/sec", |rates| rates.data().per_second),
    ("Disk Reads/sec", |rates| rates.read.per_second),
    ("Disk Writes/sec", |rates| rates.write.per_second),
    ("Disk Bytes/sec", |rates| rates.data().bytes_per_second),
    ("Disk Read Bytes/sec", |rates| rates.read.bytes_per_second),
    ("Disk Write Bytes/sec", |rates| rates.write.bytes_per_second),
    ("Avg. Disk Bytes/Transfer", |rates| rates.data().size()),
    ("Avg. Disk sec/Transfer", |rates| rates.data().latency()),
    ("Avg. Disk sec/Read", |rates| rates.read.latency()),
    ("Avg. Disk sec/Write", |rates| rates.write.latency()),
    ("Avg. Disk Queue Length", |rates| rates.data().queue),
    ("Current Disk Queue Length", |rates| rates.in_flight),
    ("Disk Errors/sec", errors),
];

const VOLUME: &[Named] = &[
    ("reads/sec", |rates| rates.read.per_second),
    ("writes/sec", |rates| rates.write.per_second),
    ("read latency", |rates| rates.read.latency()),
    ("write latency", |rates| rates.write.latency()),
    ("IO Read Bytes/sec", |rates| rates.read.bytes_per_second),
    ("IO Write Bytes/sec", |rates| rates.write.bytes_per_second),
    ("Read Queue Length", |rates| rates.read.queue),
    ("Write Queue Length", |rates| rates.write.queue),
    ("Flushes/sec", |rates| rates.other.per_second),
    ("Errors/sec", errors),
];

const SHARE: &[Named] = &[
    ("Data Requests/sec", |rates| rates.data().per_second),
    ("Read Requests/sec", |rates| rates.read.per_second),
    ("Write Requests/sec", |rates| rates.write.per_second),
    ("Data Bytes/sec", |rates| rates.data().bytes_per_second),
    ("Read Bytes/sec", |rates| rates.read.bytes_per_second),
    ("Write Bytes/sec", |rates| rates.write.bytes_per_second),
    ("Avg. Data Bytes/Request", |rates| rates.data().size()),
    ("Avg. Sec/Data Request", |rates| rates.data().latency()),
    ("Avg. sec/Read", |rates| rates.read.latency()),
    ("Avg. sec/Write", |rates| rates.write.latency()),
    ("Avg. Data Queue Length", |rates| rates.data().queue),
    ("Current Data Queue Length", |rates| rates.in_flight),
    ("Metadata Requests/sec", |rates| rates.other.per_second),
    ("Errors/sec", errors),
];

const SESSION: &[Named] = &[
    ("Requests/sec", |rates| rates.requests),
    ("Data Requests/sec", |rates| rates.data().per_second),
    ("Read Requests/sec", |rates| rates.read.per_second),
    ("Write Requests/sec", |rates| rates.write.per_second),
    ("Avg. Sec/Data Request", |rates| rates.data().latency()),
    ("Avg. sec/Read", |rates| rates.read.latency()),
    ("Avg. sec/Write", |rates| rates.write.latency()),
    ("Avg. Data Queue Length", |rates| rates.data().queue),
    ("Sent Bytes/sec", |rates| rates.sent),
    ("Received Bytes/sec", |rates| rates.received),
    ("Errors/sec", errors),
];

/// Percents of the interval. Time in the kernel includes that in interrupts and in what they leave for later, as on Windows.
const PROCESSOR: &[Named] = &[
    ("% Processor Time", |rates| rates.processor.busy()),
    ("% User Time", |rates| rates.processor.user),
    ("% Privileged Time", |rates| rates.processor.privileged),
    ("% Interrupt Time", |rates| rates.processor.interrupt),
    ("% DPC Time", |rates| rates.processor.deferred),
    ("% Idle Time", |rates| rates.processor.idle),
];

/// How full it is.
const POOL: &[Named] = &[
    ("Used Bytes", |rates| rates.used),
    ("Size Bytes", |rates| rates.size),
    ("% Used", |rates| if rates.size > 0.0 { 100.0 * rates.used / rates.size } else { 0.0 }),
];

/// What was done and what held for it. A limit that there is none of is 0.
const QOS: &[Named] = &[
    ("Normalized IOPS", |rates| rates.qos.normalized),
    ("Reads/sec", |rates| rates.read.per_second),
    ("Writes/sec", |rates| rates.write.per_second),
    ("Bytes/sec", |rates| rates.data().bytes_per_second),
    ("Avg. sec/Read on disk", |rates| rates.read.latency()),
    ("Avg. sec/Write on disk", |rates| rates.write.latency()),
    ("Avg. sec/Transfer held back", Rates::held),
    ("Minimum IOPS", |rates| rates.qos.min_iops),
    ("Maximum IOPS", |rates| rates.qos.max_iops),
    ("Maximum Bandwidth", |rates| rates.qos.max_bandwidth),
];

/// Operations of all kinds that failed, per second.
pub(super) fn errors(rates: &Rates) -> f64 {
    rates.data().errors_per_second + rates.other.errors_per_second
}
