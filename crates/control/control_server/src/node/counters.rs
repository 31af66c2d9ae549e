//! Raw counters of everything that does I/O, for who makes rates of them.

use control_api::{CounterKind, Counters, IoCounters, ObjectCounters, OperationCounters, Protocol, Session};
use observe::{IoTotals, KindTotals};

use super::Node;
use super::pool_summary::summary;

/// What a disk has done, as its description says it.
pub(super) fn io_counters(totals: IoTotals) -> IoCounters {
    let IoTotals { read, write, other, .. } = totals;
    let operations = read.operations + write.operations + other.operations;
    let nanos = read.nanos.saturating_add(write.nanos).saturating_add(other.nanos);
    IoCounters {
        reads: read.operations,
        writes: write.operations,
        read_bytes: read.bytes,
        written_bytes: write.bytes,
        errors: read.errors + write.errors + other.errors,
        mean_latency_us: if operations == 0 { 0.0 } else { nanos as f64 / 1000.0 / operations as f64 },
    }
}

/// Totals of operations of one kind, as the API says them.
pub(crate) fn operations(totals: KindTotals) -> OperationCounters {
    OperationCounters {
        operations: totals.operations,
        bytes: totals.bytes,
        errors: totals.errors,
        latency_ns: totals.nanos,
    }
}

fn object(kind: CounterKind, name: String, totals: IoTotals) -> ObjectCounters {
    ObjectCounters {
        read: Some(operations(totals.read)),
        write: Some(operations(totals.write)),
        other: Some(operations(totals.other)),
        in_flight: Some(totals.in_flight),
        ..ObjectCounters::new(kind, name)
    }
}

fn session(session: Session) -> ObjectCounters {
    let user = session.smb.map(|smb| smb.user);
    let (kind, who) = match session.protocol {
        Protocol::Smb => (CounterKind::SmbSession, user.unwrap_or_default()),
        Protocol::Iscsi => (CounterKind::IscsiSession, session.initiator),
    };
    ObjectCounters {
        read: Some(session.read),
        write: Some(session.write),
        requests: Some(session.commands),
        sent_bytes: Some(session.read_bytes),
        received_bytes: Some(session.written_bytes),
        ..ObjectCounters::new(kind, format!("{who} {} {}", session.address, session.id))
    }
}

impl Node {
    /// All counters now; `flows`: with QoS policies and flows. Waits for no shard and no disk: whoever looks each second disturbs nobody. Flows
    /// may be ten thousands, each of which has to be looked at and named: they are for who needs them.
    pub fn counters(&self, flows: bool) -> Counters {
        let since_start = self.clock.now().since(self.started);
        let mut items = Vec::new();
        let shares: Vec<String> =
            self.config.with(|config| config.shares.iter().map(|share| share.name.clone()).collect());
        for name in shares {
            let Some(totals) = self.backends.smb.share_totals(&name) else { continue };
            let mut share = object(CounterKind::Share, name, totals.io);
            share.other = Some(OperationCounters { operations: totals.metadata, ..Default::default() });
            items.push(share);
        }
        let luns = self.backends.iscsi.lun_counters().into_iter();
        items.extend(luns.map(|(name, totals)| object(CounterKind::Lun, name, totals)));
        for (name, slot) in self.volumes.lock().iter() {
            let totals = slot.handle.as_ref().and_then(|handle| handle.counters());
            items.extend(totals.map(|totals| object(CounterKind::Volume, name.clone(), totals)));
        }
        for slot in self.pools.lock().values() {
            let Some(pool) = &slot.handle else { continue };
            let space = summary(&pool.info());
            let size = space.capacity_bytes.saturating_sub(space.reserved_bytes);
            items.push(ObjectCounters {
                used_bytes: Some(size.saturating_sub(space.free_bytes)),
                size_bytes: Some(size),
                ..ObjectCounters::new(CounterKind::Pool, slot.name.clone())
            });
            // Two pools may have spaces of one name.
            let named =
                |(space, totals)| object(CounterKind::Space, format!("{}/{space}", slot.name), totals);
            items.extend(pool.space_counters().into_iter().map(named));
        }
        for known in self.disks.all() {
            let totals = known.open.and_then(|open| open.counters());
            items.extend(totals.map(|totals| object(CounterKind::Disk, known.found.id, totals)));
        }
        let sessions = self.backends.smb.sessions().into_iter().chain(self.backends.iscsi.sessions());
        items.extend(sessions.map(session));
        items.extend(super::processors::processors());
        if flows {
            items.extend(self.qos_counters());
        }
        Counters {
            node: self.name(),
            process: std::process::id(),
            monotonic_ns: u64::try_from(since_start.as_nanos()).unwrap_or(u64::MAX),
            items,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_described_by_all_its_operations() {
        let kind = |operations, nanos| KindTotals { operations, bytes: 10, errors: 1, nanos };
        let totals =
            IoTotals { read: kind(2, 4000), write: kind(1, 2000), other: kind(1, 2000), in_flight: 3 };
        let io = io_counters(totals);
        assert_eq!((io.reads, io.writes, io.errors), (2, 1, 3));
        assert!((io.mean_latency_us - 2.0).abs() < 1e-9, "{io:?}");
        assert!(io_counters(IoTotals::default()).mean_latency_us.abs() < 1e-9);
    }
}
