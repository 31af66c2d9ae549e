//! Opens into records, and records into opens.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use file_store::FileKind;
use futures_util::StreamExt as _;
use smb_protocol::NtStatus;

use super::{LeaseRecord, LockRecord, OpenRecord};
use crate::FileSystem;
use crate::api::{Caller, Durability, ShareRoot};
use crate::caching::LeaseView;
use crate::data::{READS, WRITES};
use crate::error::{Result, refuse};
use crate::file_system::{Core, NewOpen, Open, Pin};
use crate::locks::{ByteRange, Lock};

/// How many opens are brought back at a time: enough to keep the disks of a volume busy.
const AT_A_TIME: usize = 32;

impl Open {
    /// Its durable form, as it is now.
    #[must_use]
    pub fn record(&self) -> OpenRecord {
        let (oplock, lease, locks, pending) = {
            let state = self.node.state.lock();
            let stream = state.streams.get(&self.stream);
            let (oplock, lease) =
                stream.map_or_else(Default::default, |stream| stream.caching.recorded(self.id));
            let locks = stream.into_iter().flat_map(|stream| stream.locks.of(self.id));
            let locks = locks.map(|lock| LockRecord {
                offset: lock.range.offset,
                length: lock.range.length,
                exclusive: lock.exclusive,
            });
            let pending = if self.stream.is_empty() {
                self.node.name.is_going()
            } else {
                stream.is_some_and(|stream| stream.delete_pending)
            };
            (oplock, lease, locks.collect(), pending)
        };
        let place = self.node.place();
        let (parent, name) =
            place.map_or((self.node.file, String::new()), |(parent, name)| (parent.file, name));
        let state = self.state.lock();
        OpenRecord {
            file: self.node.file,
            parent,
            name,
            stream: self.stream_now(),
            token: (*self.caller.token).clone(),
            root: self.caller.share.root,
            share_access_cap: self.caller.share.maximal_access,
            access_based_enumeration: self.caller.share.access_based_enumeration,
            write_through: self.caller.share.write_through,
            client: self.caller.client,
            owner: state.owner,
            granted: self.granted,
            share_access: self.share_access,
            options: self.options,
            oplock,
            lease: lease.map(|view| LeaseRecord {
                key: view.name.key,
                state: view.state,
                epoch: view.epoch,
                v2: view.v2,
                parent: view.parent,
            }),
            locks,
            delete_on_close: state.delete_on_close,
            delete_pending: pending,
            position: state.position,
            disk: self.disk,
        }
    }
}

impl FileSystem {
    /// Brings disconnected persistent opens back, before anything else is served. Each is as it was, without a holder,
    /// or the reason why it cannot be, in the order of the records. Several are on their way at a time: clients wait for the last.
    pub async fn restore(&self, records: Vec<OpenRecord>) -> Vec<Result<Arc<Open>>> {
        let restoring = records.into_iter().map(|record| self.core.restore_one(record));
        futures_util::stream::iter(restoring).buffered(AT_A_TIME).collect().await
    }
}

impl Core {
    async fn restore_one(self: &Arc<Self>, mut record: OpenRecord) -> Result<Arc<Open>> {
        self.share_root(record.root).await?;
        let (node, at_its_place) = self.find_recorded(&record).await?;
        if !at_its_place && self.info(&node).await?.names > 1 {
            // The name that was to go is not there, and nobody asked for one of the others to go.
            (record.delete_on_close, record.delete_pending) = (false, false);
        }
        let directory = node.kind == FileKind::Directory && record.stream.is_empty();
        let share = ShareRoot {
            root: record.root,
            maximal_access: record.share_access_cap,
            access_based_enumeration: record.access_based_enumeration,
            write_through: record.write_through,
        };
        let caller = Caller {
            token: Arc::new(record.token.clone()),
            share: Arc::new(share),
            client: record.client,
            owner: record.owner,
        };
        let lease = record.lease.map(|lease| LeaseView {
            name: caller.lease(lease.key),
            state: lease.state,
            epoch: lease.epoch,
            v2: lease.v2,
            parent: lease.parent,
        });
        let new = NewOpen {
            node,
            stream_name: record.stream.clone(),
            directory,
            granted: record.granted,
            share_access: record.share_access,
            options: record.options,
            caller,
            lease: lease.map(|lease| lease.name),
            holder: None,
            delete_on_close: record.delete_on_close,
            disk: record.disk,
        };
        let open = Arc::new(Open::new(self, new));
        open.state.lock().position = record.position;
        open.set_durability(Durability::Persistent);
        open.detach();
        // With rights to data the open needs the stream in the store.
        let (reads, writes) = (record.granted.intersects(READS), record.granted.intersects(WRITES));
        if !directory && !record.disk && (reads || writes) {
            let data = self.store_handle(&open, writes, false).await?;
            *open.data.write() = Some(data);
        }
        self.put_back(&open, &record, lease)?;
        Ok(open)
    }

    /// The file of a record: where it was (true), or wherever it is now.
    async fn find_recorded(self: &Arc<Self>, record: &OpenRecord) -> Result<(Pin, bool)> {
        if let Ok(parent) = self.pin_by_id(record.parent).await
            && parent.is_directory()
            && let Ok(Some(node)) = self.child_now(&parent, &record.name).await
            && node.file == record.file
        {
            return Ok((node, true));
        }
        Ok((self.pin_by_id(record.file).await?, false))
    }

    fn put_back(&self, open: &Arc<Open>, record: &OpenRecord, lease: Option<LeaseView>) -> Result<()> {
        if let Some(view) = &lease {
            let mut leases = self.leases.lock();
            let place = (open.node.file, open.stream.clone());
            if leases.get(&view.name).is_some_and(|other| *other != place) {
                return refuse(NtStatus::INVALID_PARAMETER, "two files with one lease");
            }
            leases.insert(view.name, place);
        }
        let mut state = open.node.state.lock();
        if open.stream.is_empty() && record.delete_pending {
            // The record does not tell who has asked for that: it may have been somebody to whom it was promised durably.
            open.node.name.goes(true);
        }
        let stream = state.stream(&open.stream);
        if !open.stream.is_empty() {
            stream.delete_pending |= record.delete_pending;
            stream.delete_durably |= record.delete_pending;
        }
        match &lease {
            Some(view) => stream.caching.restore_lease(open.id, view),
            None => stream.caching.restore_oplock(open.id, record.oplock),
        }
        for lock in &record.locks {
            let range = ByteRange { offset: lock.offset, length: lock.length };
            stream.locks.restore(Lock { open: open.id, range, exclusive: lock.exclusive });
        }
        open.node.locked.fetch_add(record.locks.len(), Ordering::AcqRel);
        state.opens.push(Arc::clone(open));
        drop(state);
        self.opens.lock().insert(open.id, Arc::clone(open));
        Ok(())
    }
}
