//! Breaks on their way: telling holders, waiting for acknowledgements, closing what is in the way.

use std::sync::Arc;
use std::time::Duration;

use shard_runtime::{Monotonic, timeout};
use smb_protocol::access::OplockLevel;
use smb_protocol::create::lease::LeaseState;
use tokio::sync::futures::Notified;

use crate::BREAK_TIMEOUT;
use crate::api::{LeaseName, OpenId};
use crate::caching::{By, Caching, Link, Notice, Outcome};
use crate::error::{Result, refuse};
use crate::file_system::{Core, Node, NodeState, Open};
use smb_protocol::NtStatus;

/// The clock's time and how long clients have.
pub(crate) type Timing = (Monotonic, Duration);

/// Calls `f` with a stream's caching and with what is known of its opens' clients.
pub(crate) fn with_caching<T>(
    state: &mut NodeState,
    stream: &str,
    f: impl FnOnce(&mut Caching, &dyn Fn(OpenId) -> Link) -> T,
) -> Option<T> {
    let NodeState { opens, streams, .. } = state;
    let caching = &mut streams.get_mut(stream)?.caching;
    let link = |id: OpenId| opens.iter().find(|open| open.id == id).map_or(Link::Durable, |open| open.link());
    Some(f(caching, &link))
}

impl Core {
    pub(crate) fn timing(&self) -> Timing {
        (self.clock.now(), BREAK_TIMEOUT)
    }

    /// Tells holders; what has to be closed comes back.
    fn tell(&self, notices: &[Notice]) -> Vec<Arc<Open>> {
        let mut to_close = Vec::new();
        for notice in notices {
            let (Notice::Oplock(id, _) | Notice::Lease(id, _) | Notice::Close(id) | Notice::Changed(id)) =
                notice;
            let Some(open) = self.opens.lock().get(id).cloned() else { continue };
            match (notice, open.holder()) {
                (Notice::Oplock(_, to), Some(holder)) => holder.break_oplock(*id, *to),
                (Notice::Lease(_, change), Some(holder)) => holder.break_lease(*id, *change),
                (Notice::Changed(_), _) => {
                    if let Some(recorder) = open.recorder() {
                        recorder.record_changed(*id);
                    }
                }
                (Notice::Close(_), _) => to_close.push(open),
                (_, None) => {}
            }
        }
        to_close
    }

    /// Tells holders of a stream's opens, and closes disconnected ones that are in the way. What has changed is recorded soon, also
    /// if nobody goes on to wait for that.
    pub(crate) async fn deliver(self: &Arc<Self>, node: &Node, stream: &str, notices: Vec<Notice>) {
        if !notices.is_empty() {
            node.record_soon(|open| open.stream == stream);
        }
        for open in self.tell(&notices) {
            if open.is_detached() {
                self.close_from_outside(&open).await;
            }
        }
    }

    /// Caching of a stream may have been broken, and what it was in the way of is about to be done: waits until a restart would
    /// not give it back any more. Only persistent opens are given anything back.
    ///
    /// # Errors
    /// When a record cannot be kept; what was to be done must not be.
    pub(crate) async fn keep_records(&self, node: &Node, stream: &str) -> Result<()> {
        let (version, recorders) = {
            let state = node.state.lock();
            let version = match state.streams.get(stream) {
                Some(stream) if stream.changed > stream.recorded => stream.changed,
                _ => return Ok(()),
            };
            let opens = state.opens_of(stream);
            let recorders: Vec<_> = opens.filter_map(|open| Some((open.id, open.recorder()?))).collect();
            (version, recorders)
        };
        for (open, recorder) in recorders {
            if let Err(status) = recorder.keep_record(open).await {
                return refuse(status, "what was broken of another open's caching cannot be made durable");
            }
        }
        if let Some(stream) = node.state.lock().streams.get_mut(stream) {
            stream.recorded = stream.recorded.max(version);
        }
        Ok(())
    }

    /// Waits until something of the node changed, or the first of its breaks under way ends by itself. `changed` was made
    /// while the lock was held under which the need to wait was seen.
    pub(crate) async fn wait_changed(&self, changed: Notified<'_>, deadline: Option<Monotonic>) {
        match deadline {
            Some(deadline) => {
                // A millisecond more: timers have that resolution, and waking too early would only mean to wait again.
                let left = deadline.since(self.clock.now()) + Duration::from_millis(1);
                let _ = timeout(left, changed).await;
            }
            None => changed.await,
        }
    }

    /// Data or size or locks of a stream are about to change, or have: caches of it become wrong.
    ///
    /// # Errors
    /// When what is broken cannot be made durable; the change must not be made.
    pub(crate) async fn break_for_change(self: &Arc<Self>, node: &Node, stream: &str, by: &By) -> Result<()> {
        let (now, limit) = self.timing();
        let notices = {
            let mut state = node.state.lock();
            let found = with_caching(&mut state, stream, |caching, link| {
                if caching.is_empty() {
                    return Vec::new();
                }
                let mut notices = caching.expire(now);
                notices.extend(caching.break_for_change(by, now, limit, link).notices);
                notices
            });
            let notices = found.unwrap_or_default();
            if !state.changes_caching(stream, !notices.is_empty()) {
                return Ok(());
            }
            notices
        };
        self.deliver(node, stream, notices).await;
        self.keep_records(node, stream).await
    }

    /// The file, or its name, is about to go: waits until nobody caches handles of it.
    ///
    /// # Errors
    /// FILE_NOT_AVAILABLE where a disconnected persistent open is in the way.
    pub(crate) async fn break_handles(
        self: &Arc<Self>,
        node: &Node,
        stream: &str,
        by: &By,
        on_wait: &dyn Fn(bool),
    ) -> Result<()> {
        loop {
            let (now, limit) = self.timing();
            let changed;
            let (outcome, deadline) = {
                let mut state = node.state.lock();
                changed = node.changed.notified();
                let found = with_caching(&mut state, stream, |caching, link| {
                    let mut notices = caching.expire(now);
                    let mut outcome = caching.break_handles(by, now, limit, link);
                    notices.append(&mut outcome.notices);
                    (Outcome { notices, ..outcome }, caching.next_deadline())
                });
                let found = found.unwrap_or_default();
                state.changes_caching(stream, !found.0.notices.is_empty());
                found
            };
            let closes = outcome.notices.iter().any(|notice| matches!(notice, Notice::Close(_)));
            self.deliver(node, stream, outcome.notices).await;
            if outcome.unavailable {
                return refuse(
                    NtStatus::FILE_NOT_AVAILABLE,
                    "a persistent open that is away protects the file",
                );
            }
            if !outcome.wait {
                return self.keep_records(node, stream).await;
            }
            if closes {
                continue;
            }
            on_wait(true);
            self.wait_changed(changed, deadline).await;
            on_wait(false);
        }
    }

    /// The file is being deleted: asks for cached handles back without waiting for them.
    pub(crate) async fn give_up_handles(self: &Arc<Self>, node: &Node, stream: &str, by: &By) {
        let (now, limit) = self.timing();
        let notices = {
            let mut state = node.state.lock();
            let found = with_caching(&mut state, stream, |caching, link| {
                let mut notices = caching.expire(now);
                notices.extend(caching.break_handles(by, now, limit, link).notices);
                notices
            });
            let notices = found.unwrap_or_default();
            state.changes_caching(stream, !notices.is_empty());
            notices
        };
        self.deliver(node, stream, notices).await;
    }

    /// What a directory lists changed: leases on it are broken, and what is known of it forgotten.
    pub(crate) async fn listing_changed(self: &Arc<Self>, directory: &Node, cause: Option<&Open>) {
        directory.touched();
        let (now, limit) = self.timing();
        let parent_lease = cause.and_then(|open| {
            let state = open.node.state.lock();
            let view = state.streams.get(&open.stream)?.caching.lease_of(open.id)?;
            Some(LeaseName { key: view.parent?, ..view.name })
        });
        let notices = {
            let mut state = directory.state.lock();
            let found = with_caching(&mut state, "", |caching, link| {
                if caching.is_empty() {
                    return Vec::new();
                }
                let mut notices = caching.expire(now);
                notices.extend(caching.break_listing(parent_lease, now, limit, link).notices);
                notices
            });
            let notices = found.unwrap_or_default();
            state.changes_caching("", !notices.is_empty());
            notices
        };
        if !notices.is_empty() {
            self.deliver(directory, "", notices).await;
            if let Err(error) = self.keep_records(directory, "").await {
                // The listing has changed already. Whoever next relies on the break keeps the records first.
                tracing::warn!("a break of what a client knows of a folder is not durable yet: {error}");
            }
        }
    }

    /// The lease's client answers a break.
    pub(crate) fn acknowledge_lease(
        &self,
        node: &Node,
        stream: &str,
        name: LeaseName,
        to: LeaseState,
    ) -> Result<LeaseState> {
        let (now, limit) = self.timing();
        let answered: Option<Result<(LeaseState, Vec<Notice>)>> = {
            let mut state = node.state.lock();
            with_caching(&mut state, stream, |caching, link| {
                let mut notices = caching.expire(now);
                let (state, outcome) = caching.acknowledge_lease(name, to, now, limit, link)?;
                notices.extend(outcome.notices);
                Ok((state, notices))
            })
            .inspect(|_| _ = state.changes_caching(stream, true))
        };
        let Some(answered) = answered else {
            return refuse(NtStatus::OBJECT_NAME_NOT_FOUND, "there is no such lease");
        };
        let (now_has, notices) = answered?;
        node.changed.notify_waiters();
        node.record_soon(|open| open.stream == stream);
        self.tell(&notices);
        Ok(now_has)
    }
}

impl Open {
    /// Acknowledges an oplock break; returns the level that the open has now (MS-SMB2 3.3.5.22.1).
    ///
    /// # Errors
    /// INVALID_PARAMETER, INVALID_OPLOCK_PROTOCOL, INVALID_DEVICE_STATE.
    pub fn acknowledge_oplock(&self, level: OplockLevel) -> Result<OplockLevel> {
        let (now, _) = self.core.timing();
        let answered = {
            let mut state = self.node.state.lock();
            with_caching(&mut state, &self.stream, |caching, _| {
                caching.expire(now);
                caching.acknowledge_oplock(self.id, level)
            })
            .inspect(|_| _ = state.changes_caching(&self.stream, true))
        };
        // Also when the answer was wrong: the oplock is gone then.
        self.node.changed.notify_waiters();
        self.node.record_soon(|open| open.stream == self.stream);
        let Some(answered) = answered else {
            return refuse(NtStatus::INVALID_OPLOCK_PROTOCOL, "there is no oplock");
        };
        let (level, outcome) = answered?;
        self.core.tell(&outcome.notices);
        Ok(level)
    }
}
