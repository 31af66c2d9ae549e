//! Where opens meet: share modes, breaks, and what caching the new open gets (MS-FSA 2.1.5.1.2.2, 2.1.4.12, 2.1.5.18).

use std::sync::Arc;

use file_store::{Access, OpenFile, OpenOptions, Share};
use smb_protocol::NtStatus;
use smb_protocol::access::{AccessMask, CreateOptions, OplockLevel, ShareAccess};

use super::plan::Plan;
use crate::api::{CachingRequest, DiskUse, Durability, Granted, LeftBehind};
use crate::breaks::with_caching;
use crate::caching::{Notice, Opening, Others};
use crate::data::{READS, WRITES};
use crate::error::{Result, refuse};
use crate::file_system::{Core, NewOpen, NodeState, OPENS_MAX, Open, Pin};
use crate::share_mode::{conflict, is_lease_stat_open, is_stat_open, takes_part};

/// An open that wants in.
pub(super) struct Admission {
    pub(super) node: Pin,
    pub(super) stream_name: String,
    pub(super) make_stream: bool,
    pub(super) directory: bool,
    pub(super) granted: AccessMask,
    /// Rights that are used while the open is made, and not granted: others have to share them.
    pub(super) implied: AccessMask,
    pub(super) overwrites: bool,
}

/// What one look at the others came to.
enum Look {
    /// It is in. `raised`: others that share its lease have more of it now than before.
    In {
        caching: Granted,
        raised: bool,
    },
    Wait {
        deadline: Option<shard_runtime::Monotonic>,
        closes: bool,
    },
    /// Opens that the application has left behind are in the way, and nobody else is.
    Succeed(Vec<Arc<Open>>),
    Gone,
}

impl Core {
    /// Admits an open, waiting for breaks where they are needed. `None`: the file is gone.
    pub(super) async fn admit(
        self: &Arc<Self>,
        plan: &Plan<'_>,
        admission: Admission,
    ) -> Result<Option<(Arc<Open>, Granted)>> {
        let make_stream = admission.make_stream;
        let (overwrites, implied) = (admission.overwrites, admission.implied);
        let open = Arc::new(Open::new(
            self,
            NewOpen {
                node: admission.node,
                stream_name: admission.stream_name,
                directory: admission.directory,
                granted: admission.granted,
                share_access: plan.request.share_access,
                options: plan.request.options,
                caller: plan.caller.clone(),
                lease: plan.lease(),
                holder: Some(Arc::clone(&plan.request.holder)),
                delete_on_close: plan.has(CreateOptions::DELETE_ON_CLOSE),
                disk: plan.request.disk == DiskUse::Disk,
            },
        ));
        let mut first = true;
        plan.asker.is_there()?;
        let caching = loop {
            let mut notices = Vec::new();
            let changed;
            let look = {
                let mut state = open.node.state.lock();
                changed = open.node.changed.notified();
                let look = self.look(plan, &open, &mut state, (first, overwrites, implied), &mut notices);
                let raised = matches!(look, Ok(Look::In { raised: true, .. }));
                state.changes_caching(&open.stream, raised || !notices.is_empty());
                look
            };
            first = false;
            self.deliver(&open.node, &open.stream, notices).await;
            match look? {
                Look::In { caching, .. } => break caching,
                Look::Gone => return Ok(None),
                Look::Succeed(left) => {
                    for old in left {
                        self.close_from_outside(&old).await;
                    }
                }
                Look::Wait { closes: true, .. } => {}
                Look::Wait { deadline, closes: false } => {
                    (plan.request.on_wait)(true);
                    let waited = plan.asker.unless_gone(self.wait_changed(changed, deadline)).await;
                    (plan.request.on_wait)(false);
                    waited?;
                }
            }
        };
        // From here on it is an open like any other; should this future be dropped, it has to go again.
        plan.unwind.arm(&open);
        self.keep_records(&open.node, &open.stream).await?;
        self.open_data(&open, make_stream, overwrites).await?;
        Ok(Some((open, caching)))
    }

    /// One look at the other opens, under the node's lock.
    fn look(
        self: &Arc<Self>,
        plan: &Plan<'_>,
        open: &Arc<Open>,
        state: &mut NodeState,
        (first, overwrites, implied): (bool, bool, AccessMask),
        notices: &mut Vec<Notice>,
    ) -> Result<Look> {
        if open.node.name.is_gone() || state.key_of(&open.stream_name) != open.stream {
            return Ok(Look::Gone);
        }
        if open.node.name.is_going()
            || state.streams.get(&open.stream).is_some_and(|stream| stream.delete_pending)
        {
            return refuse(NtStatus::DELETE_PENDING, "the file is being deleted");
        }
        if let Some(name) = open.lease {
            let elsewhere = self
                .leases
                .lock()
                .get(&name)
                .is_some_and(|(file, stream)| *file != open.node.file || *stream != open.stream);
            if elsewhere {
                return refuse(NtStatus::INVALID_PARAMETER, "the lease key is in use for another file");
            }
        }
        let mine = (open.granted | implied, open.share_access);
        let left = left_behind(plan, open, state)?;
        let (mut violation, mut protected, mut disk_in_the_way) = (false, false, false);
        for other in state.opens_of(&open.stream).filter(|other| !left.iter().any(|old| old.id == other.id)) {
            if other.disk != open.disk && other.uses_data() && takes_part(mine.0) {
                // Whoever serves the disk has the file for itself alone.
                disk_in_the_way |= other.disk;
                violation = true;
                protected |= other.is_detached() && other.durability() == Durability::Persistent;
            }
            if conflict((other.granted, other.share_access), mine) {
                violation = true;
                protected |= other.is_detached() && other.durability() == Durability::Persistent;
            }
        }
        if !left.is_empty() && !violation {
            // Those that somebody else is closing are waited for: closing them once more would come back at once.
            let closing = left.iter().all(|old| old.is_closed());
            return Ok(if closing {
                Look::Wait { deadline: None, closes: false }
            } else {
                Look::Succeed(left)
            });
        }
        let (now, limit) = self.timing();
        // Who only looks at attributes breaks nothing (MS-FSA 2.1.5.1.2).
        let stat = is_stat_open(open.granted) && !overwrites;
        let opening = Opening {
            lease: open.lease,
            violation,
            overwrites,
            lease_stat: is_lease_stat_open(open.granted) && !overwrites,
            first,
        };
        let looked = with_caching(state, &open.stream, |caching, link| {
            notices.extend(caching.expire(now));
            if stat {
                return (false, false, None);
            }
            let outcome = caching.break_for_open(&opening, now, limit, link);
            notices.extend(outcome.notices);
            (outcome.wait, outcome.unavailable, caching.next_deadline())
        });
        let (wait, unavailable, deadline) = looked.unwrap_or_default();
        if disk_in_the_way && plan.request.disk == DiskUse::HostBytes {
            return refuse(NtStatus::VHD_SHARED, "the file is open as a shared virtual disk");
        }
        if unavailable || protected {
            return refuse(NtStatus::FILE_NOT_AVAILABLE, "a persistent open that is away protects the file");
        }
        if wait {
            let closes = notices.iter().any(|notice| matches!(notice, Notice::Close(_)));
            return Ok(Look::Wait { deadline, closes });
        }
        if violation {
            return refuse(NtStatus::SHARING_VIOLATION, "another open does not share what is asked for");
        }
        if open.stream.is_empty() && open.granted.contains(AccessMask::DELETE) {
            // Who may delete the file takes its streams along: each of their opens has to share that.
            let keeps = |other: &&Arc<Open>| {
                !other.stream.is_empty() && !other.share_access.contains(ShareAccess::DELETE)
            };
            if state.opens.iter().any(|other| keeps(&other)) {
                return refuse(NtStatus::SHARING_VIOLATION, "an open of a stream does not share deletion");
            }
        }
        let (caching, raised) = self.enter(plan, open, state)?;
        Ok(Look::In { caching, raised })
    }

    /// Puts the open into the tables and grants caching; says whether a lease that others share is more than before.
    fn enter(
        self: &Arc<Self>,
        plan: &Plan<'_>,
        open: &Arc<Open>,
        state: &mut NodeState,
    ) -> Result<(Granted, bool)> {
        {
            let mut opens = self.opens.lock();
            if opens.len() >= OPENS_MAX {
                return refuse(NtStatus::TOO_MANY_OPENED_FILES, "the volume has too many opens");
            }
            opens.insert(open.id, Arc::clone(open));
        }
        state.stream(&open.stream);
        let shared = open.lease.and_then(|name| state.stream(&open.stream).caching.lease_state(name));
        let granted = self.grant(plan, open, state);
        if let (Some(name), Granted::Lease { .. }) = (open.lease, granted) {
            self.leases.lock().insert(name, (open.node.file, open.stream.clone()));
        }
        state.opens.push(Arc::clone(open));
        let raised =
            matches!((shared, granted), (Some(before), Granted::Lease { state, .. }) if state != before);
        Ok((granted, raised))
    }

    fn grant(&self, plan: &Plan<'_>, open: &Arc<Open>, state: &mut NodeState) -> Granted {
        let NodeState { opens, streams, .. } = state;
        let Some(stream) = streams.get_mut(&open.stream) else { return Granted::Oplock(OplockLevel::NONE) };
        let caching = &mut stream.caching;
        let plain = |other: &Arc<Open>| {
            let caches = match caching.of(other.id) {
                Granted::Oplock(level) => level != OplockLevel::NONE,
                Granted::Lease { state, key, .. } => {
                    !state.is_empty() || open.lease == Some(other.caller.lease(key))
                }
            };
            other.stream == open.stream && !caches && !is_lease_stat_open(other.granted)
        };
        let others = Others {
            plain_opens: opens.iter().any(plain),
            locks: !stream.locks.is_empty(),
            directory: open.directory,
        };
        match &plan.request.caching {
            CachingRequest::None => Granted::Oplock(OplockLevel::NONE),
            CachingRequest::Oplock(level) => caching.grant_oplock(open.id, *level, others),
            CachingRequest::Lease(lease) => {
                caching.grant_lease(open.id, plan.caller.lease(lease.key), lease, others)
            }
        }
    }

    /// Opens the stream in the store as far as the open's rights need it.
    async fn open_data(&self, open: &Arc<Open>, make_stream: bool, overwrites: bool) -> Result<()> {
        if open.directory || open.disk {
            return Ok(());
        }
        let writes = open.granted.intersects(WRITES);
        let _turn = if open.stream.is_empty() { None } else { Some(self.streams_turn(&open.node).await) };
        if make_stream {
            // Also who only looks at attributes makes the stream that is to be looked at.
            let data = self.store_handle(open, true, true).await?;
            if writes || open.granted.intersects(READS) {
                *open.data.write() = Some(data);
            }
            return Ok(());
        }
        if writes || overwrites || open.granted.intersects(READS) {
            let data = self.store_handle(open, writes, false).await?;
            if writes || open.granted.intersects(READS) {
                *open.data.write() = Some(data);
            }
        }
        Ok(())
    }

    /// A handle on the open's stream that can write: its own, or one for now.
    pub(crate) async fn writer(&self, open: &Arc<Open>) -> Result<Arc<dyn OpenFile>> {
        let own = open.data.read().clone().filter(|_| open.granted.intersects(WRITES));
        match own {
            Some(data) => Ok(data),
            None => self.store_handle(open, true, false).await,
        }
    }

    /// A handle in the store, shared by all opens of the stream that only read, or for now. It shares everything: who may do what at
    /// the same time is decided here. What else is open in the store (a LUN on the file) still counts, both ways.
    ///
    /// Who opens to write opens in the store, too: what is written durably stands on the name that the file had at *that* opening
    /// ([`FileStore`]), and the file may have been renamed by a volatile change since somebody else's.
    pub(crate) async fn store_handle(
        &self,
        open: &Open,
        write: bool,
        make_stream: bool,
    ) -> Result<Arc<dyn OpenFile>> {
        if !write {
            let mut state = open.node.state.lock();
            let known = state.stream(&open.stream).reader.as_ref().and_then(std::sync::Weak::upgrade);
            if let Some(handle) = known {
                return Ok(handle);
            }
        }
        let options = OpenOptions {
            stream: open.stream_now(),
            create_stream: make_stream,
            access: Access { read: true, write, delete: false },
            share: Share::ALL,
        };
        let handle = open.store().open(open.node.file, options).await?;
        if !write {
            open.node.state.lock().stream(&open.stream).reader = Some(Arc::downgrade(&handle));
        }
        Ok(handle)
    }
}

/// The opens that this one takes the place of.
///
/// # Errors
/// FILE_FORCED_CLOSED for who comes from the machine that the application has left.
fn left_behind(plan: &Plan<'_>, open: &Open, state: &NodeState) -> Result<Vec<Arc<Open>>> {
    let mut left = Vec::new();
    for LeftBehind { open: id, is_newer } in plan.request.left_behind {
        let Some(old) = state.opens_of(&open.stream).find(|old| old.id == *id) else { continue };
        // Nodes of a cluster have accounts of their own, so the rights tell who goes on for whom, too.
        let same_user = old.caller.token.user == open.caller.token.user;
        if *is_newer && (same_user || old.granted.contains(open.granted)) {
            return refuse(NtStatus::FILE_FORCED_CLOSED, "the application has moved on to another machine");
        }
        if !is_newer && (same_user || open.granted.contains(old.granted)) {
            left.push(Arc::clone(old));
        }
    }
    Ok(left)
}
