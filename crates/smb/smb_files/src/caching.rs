//! Oplocks and leases of one stream: who caches what, and what has to be taken back (MS-FSA 2.1.4.12, 2.1.5.18,
//! MS-SMB2 3.3.1.4, 3.3.4.6, 3.3.4.7). Pure: time is an argument, and who must be told comes back as a list.
//!
//! An oplock is looked at as a lease of one open: BATCH caches reads, writes and the handle, EXCLUSIVE reads and writes,
//! II reads. What differs: it can only be broken to II or to nothing, and its own open's writes break II.
//!
//! ```text
//!             break_for_open / _for_change / _handles
//!   holding ───────────────────────────────────────────► breaking(requested, required, deadline)
//!      ▲  └─ nothing to acknowledge: state changes at once      │ more is needed meanwhile: required shrinks
//!      └──────────── acknowledged, closed, or timed out ◄───────┘ then the next step is asked for
//! ```

mod grant;
#[cfg(test)]
mod tests;

use std::time::Duration;

use shard_runtime::Monotonic;
use smb_protocol::NtStatus;
use smb_protocol::access::OplockLevel;
use smb_protocol::create::lease::{LeaseKey, LeaseState};

use crate::api::{LeaseBreak, LeaseName, OpenId};
use crate::error::{FileError, Result, refuse};

const NONE: LeaseState = LeaseState::NONE;
const R: LeaseState = LeaseState::READ;
const H: LeaseState = LeaseState::HANDLE;
const W: LeaseState = LeaseState::WRITE;
const RW: LeaseState = LeaseState(R.0 | W.0);
const RH: LeaseState = LeaseState(R.0 | H.0);
const RWH: LeaseState = LeaseState(R.0 | W.0 | H.0);

/// Who can be told about an open's caching.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Link {
    /// Its client hears.
    Connected,
    /// Its client is away, and what conflicts with the open ends it.
    Durable,
    /// Its client is away; what conflicts takes its caching, and the open stays (MS-SMB2 3.3.4.6, 3.3.4.7).
    Resilient,
    /// Its client is away, and the open protects the file.
    Persistent,
}

/// Somebody must be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// An open's oplock goes to a level.
    Oplock(OpenId, OplockLevel),
    /// A lease changes; one of its opens is named.
    Lease(OpenId, LeaseBreak),
    /// A disconnected durable open is in the way and has to be closed.
    Close(OpenId),
    /// A disconnected persistent open's state changed.
    Changed(OpenId),
}

/// What an operation finds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Who must be told.
    pub(crate) notices: Vec<Notice>,
    /// Whether the operation must wait for acknowledgements.
    pub(crate) wait: bool,
    /// Whether a disconnected persistent open is in the way.
    pub(crate) unavailable: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Oplock,
    Lease { name: LeaseName, v2: bool, epoch: u16, parent: Option<LeaseKey> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Breaking {
    /// What the client was asked to go to.
    requested: LeaseState,
    /// What is needed by now.
    required: LeaseState,
    deadline: Monotonic,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    kind: Kind,
    state: LeaseState,
    breaking: Option<Breaking>,
    /// One for an oplock.
    opens: Vec<OpenId>,
}

/// Who operates: its own lease is not in its way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct By {
    /// The open, unless it is being made.
    pub(crate) open: Option<OpenId>,
    /// Its lease.
    pub(crate) lease: Option<LeaseName>,
    /// It is a CREATE that overwrites: what it was granted begins with what it leaves.
    pub(crate) creates: bool,
}

/// How an open that is being made meets the caching of others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    /// Its lease, if it wants one.
    pub(crate) lease: Option<LeaseName>,
    /// Share modes conflict: if handles are cached, closing them may help.
    pub(crate) violation: bool,
    /// It overwrites: reads that are cached become wrong.
    pub(crate) overwrites: bool,
    /// It looks at attributes and the descriptor only.
    pub(crate) lease_stat: bool,
    /// It has not waited yet.
    pub(crate) first: bool,
}

/// What is known of the other opens of the stream when caching is granted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Others {
    /// Another open without caching does more than look at attributes.
    pub(crate) plain_opens: bool,
    /// Byte ranges are locked.
    pub(crate) locks: bool,
    /// It is a directory.
    pub(crate) directory: bool,
}

/// The caching of one stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct Caching {
    entries: Vec<Entry>,
}

/// A lease as it is shown and recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseView {
    pub(crate) name: LeaseName,
    pub(crate) state: LeaseState,
    pub(crate) epoch: u16,
    pub(crate) v2: bool,
    pub(crate) parent: Option<LeaseKey>,
}

impl Entry {
    fn is(&self, by: &By) -> bool {
        match &self.kind {
            Kind::Oplock => by.open.is_some_and(|open| self.opens.contains(&open)),
            Kind::Lease { name, .. } => by.lease == Some(*name),
        }
    }

    fn is_lease(&self) -> bool {
        matches!(self.kind, Kind::Lease { .. })
    }

    /// Starts a break to `to`, or adds to the one that is under way.
    fn break_to(
        &mut self,
        to: LeaseState,
        now: Monotonic,
        timeout: Duration,
        link: &dyn Fn(OpenId) -> Link,
        out: &mut Outcome,
    ) {
        if let Some(breaking) = &mut self.breaking {
            // The client learns of it when it has acknowledged: one break at a time (MS-SMB2 3.3.4.7).
            breaking.required = breaking.required & to;
            return;
        }
        let Some(told) = self.told(link) else {
            self.state = to;
            self.next_epoch();
            out.notices.extend(self.opens.iter().map(|open| Notice::Changed(*open)));
            return;
        };
        self.next_epoch();
        out.notices.push(self.ask(told, to, now, timeout));
    }

    /// The open over which the client hears of breaks.
    fn told(&self, link: &dyn Fn(OpenId) -> Link) -> Option<OpenId> {
        self.opens.iter().copied().find(|open| link(*open) == Link::Connected)
    }

    /// Asks the holder, over one of its opens, to go to `to`.
    fn ask(&mut self, told: OpenId, to: LeaseState, now: Monotonic, timeout: Duration) -> Notice {
        let ack_required = self.state.intersects(if self.is_lease() { W | H } else { W });
        let before = self.state;
        if ack_required {
            self.breaking = Some(Breaking {
                requested: to,
                required: to,
                deadline: Monotonic(now.0.saturating_add(timeout.as_nanos() as u64)),
            });
        } else {
            self.state = to;
        }
        self.notice(told, before, to, ack_required)
    }

    fn next_epoch(&mut self) {
        if let Kind::Lease { v2: true, epoch, .. } = &mut self.kind {
            *epoch = epoch.wrapping_add(1);
        }
    }

    fn notice(&self, open: OpenId, current: LeaseState, new: LeaseState, ack_required: bool) -> Notice {
        match &self.kind {
            Kind::Oplock => Notice::Oplock(open, level(new)),
            Kind::Lease { name, v2, epoch, .. } => {
                let epoch = if *v2 { *epoch } else { 0 };
                Notice::Lease(open, LeaseBreak { key: name.key, current, new, ack_required, epoch })
            }
        }
    }

    /// All clients that share it are away: what protects the most of its opens.
    fn away(&self, link: &dyn Fn(OpenId) -> Link) -> Option<Link> {
        let links = || self.opens.iter().map(|open| link(*open));
        if links().any(|link| link == Link::Connected) { None } else { links().max().or(Some(Link::Durable)) }
    }
}

/// An oplock level as a lease's state.
fn state_of(level: OplockLevel) -> LeaseState {
    match level {
        OplockLevel::BATCH => RWH,
        OplockLevel::EXCLUSIVE => RW,
        OplockLevel::II => R,
        _ => NONE,
    }
}

/// A state as an oplock level.
fn level(state: LeaseState) -> OplockLevel {
    match state {
        RWH => OplockLevel::BATCH,
        RW => OplockLevel::EXCLUSIVE,
        state if state.contains(R) => OplockLevel::II,
        _ => OplockLevel::NONE,
    }
}

impl Caching {
    /// Whether nobody caches anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Ends breaks that were not acknowledged in time: their holders cache nothing any more (MS-SMB2 3.3.6.1, 3.3.6.5).
    pub(crate) fn expire(&mut self, now: Monotonic) -> Vec<Notice> {
        let mut changed = Vec::new();
        for entry in &mut self.entries {
            if entry.breaking.is_some_and(|breaking| breaking.deadline <= now) {
                entry.breaking = None;
                entry.state = NONE;
                changed.extend(entry.opens.iter().map(|open| Notice::Changed(*open)));
            }
        }
        self.entries.retain(|entry| entry.is_lease() || entry.state != NONE);
        changed
    }

    /// When the first break under way ends by itself.
    pub(crate) fn next_deadline(&self) -> Option<Monotonic> {
        self.entries.iter().filter_map(|entry| Some(entry.breaking?.deadline)).min()
    }

    /// A new open is about to be admitted. What it needs broken is broken; it must not be admitted while the outcome says
    /// to wait.
    pub(crate) fn break_for_open(
        &mut self,
        opening: &Opening,
        now: Monotonic,
        timeout: Duration,
        link: &dyn Fn(OpenId) -> Link,
    ) -> Outcome {
        let mut out = Outcome::default();
        // Windows takes the handle back when share modes conflict, and the right to cache writes otherwise.
        let mask = if opening.violation { H } else { W };
        for entry in &mut self.entries {
            if entry.is(&By { lease: opening.lease, ..By::default() })
                || (entry.is_lease() && opening.lease_stat)
            {
                continue;
            }
            let mut to = entry.state.without(mask);
            if opening.overwrites {
                to = to.without(RH);
            }
            if entry.state == to {
                out.wait |= entry.breaking.is_some();
                continue;
            }
            if let Some(away) = entry.away(link) {
                if away == Link::Persistent && entry.state.intersects(mask) {
                    out.unavailable = true;
                } else if away != Link::Durable {
                    entry.break_to(NONE, now, timeout, link, &mut out);
                } else {
                    out.notices.extend(entry.opens.iter().map(|open| Notice::Close(*open)));
                    out.wait = true;
                }
                continue;
            }
            if opening.overwrites {
                to = NONE;
            }
            if !entry.is_lease() {
                to = to & R;
            }
            let was_breaking = entry.breaking.is_some();
            out.wait |= entry.state.intersects(mask) || (was_breaking && !opening.first);
            entry.break_to(to, now, timeout, link, &mut out);
        }
        self.forget_none();
        out
    }

    /// Data, size or locks change: nobody else may go on reading from its cache (MS-FSA 2.1.4.12). The operation does
    /// not wait: it could not be seen that it had.
    pub(crate) fn break_for_change(
        &mut self,
        by: &By,
        now: Monotonic,
        timeout: Duration,
        link: &dyn Fn(OpenId) -> Link,
    ) -> Outcome {
        let mut out = Outcome::default();
        for entry in &mut self.entries {
            let own = entry.is(by);
            // The writer's own II is broken too, its own EXCLUSIVE, BATCH or lease is not.
            let spared = own && (entry.is_lease() || entry.state.contains(W) || by.creates);
            if spared || !entry.state.contains(R) {
                continue;
            }
            match entry.away(link) {
                Some(Link::Durable) => {
                    out.notices.extend(entry.opens.iter().map(|open| Notice::Close(*open)));
                }
                _ => entry.break_to(NONE, now, timeout, link, &mut out),
            }
        }
        self.forget_none();
        out
    }

    /// The file is to be renamed or deleted, or its name replaced: nobody else may keep a handle that it closed already.
    pub(crate) fn break_handles(
        &mut self,
        by: &By,
        now: Monotonic,
        timeout: Duration,
        link: &dyn Fn(OpenId) -> Link,
    ) -> Outcome {
        let mut out = Outcome::default();
        for entry in &mut self.entries {
            if entry.is(by) {
                continue;
            }
            if !entry.state.contains(H) {
                out.wait |= entry.breaking.is_some();
                continue;
            }
            match entry.away(link) {
                Some(Link::Persistent) => out.unavailable = true,
                Some(Link::Resilient) => entry.break_to(NONE, now, timeout, link, &mut out),
                Some(_) => {
                    out.notices.extend(entry.opens.iter().map(|open| Notice::Close(*open)));
                    out.wait = true;
                }
                None => {
                    let to = entry.state.without(H) & if entry.is_lease() { RWH } else { R };
                    out.wait = true;
                    entry.break_to(to, now, timeout, link, &mut out);
                }
            }
        }
        out
    }

    /// What a directory holds changed: leases on it whose holders did not do it themselves are broken.
    pub(crate) fn break_listing(
        &mut self,
        cause: Option<LeaseName>,
        now: Monotonic,
        timeout: Duration,
        link: &dyn Fn(OpenId) -> Link,
    ) -> Outcome {
        self.break_for_change(&By { lease: cause, ..By::default() }, now, timeout, link)
    }

    fn forget_none(&mut self) {
        self.entries.retain(|entry| entry.is_lease() || entry.state != NONE || entry.breaking.is_some());
    }

    /// A client acknowledges the break of its lease. `None` instead of a state: there is no such lease here.
    pub(crate) fn acknowledge_lease(
        &mut self,
        name: LeaseName,
        state: LeaseState,
        now: Monotonic,
        timeout: Duration,
        link: &dyn Fn(OpenId) -> Link,
    ) -> Result<(LeaseState, Outcome)> {
        let found =
            self.entries.iter_mut().find(|e| matches!(e.kind, Kind::Lease { name: n, .. } if n == name));
        let Some(entry) = found else {
            return refuse(NtStatus::OBJECT_NAME_NOT_FOUND, "there is no such lease");
        };
        let Some(breaking) = entry.breaking else {
            return refuse(NtStatus::UNSUCCESSFUL, "the lease is not being broken");
        };
        if !breaking.requested.contains(state) {
            return refuse(NtStatus::REQUEST_NOT_ACCEPTED, "more is kept than was offered");
        }
        // Without R there is no lease: who keeps only the right to write or the handle keeps nothing.
        let state = if state.contains(R) { state } else { NONE };
        entry.state = state;
        entry.breaking = None;
        let mut out = Outcome::default();
        out.notices.extend(entry.opens.iter().map(|open| Notice::Changed(*open)));
        let left = state.without(breaking.required);
        if !left.is_empty() {
            let mut next = state & breaking.required;
            // Windows goes in steps: first to R, then to nothing.
            if state != R {
                next |= R;
            }
            match entry.told(link) {
                // The same break goes on: the epoch that its first step had stays (as Windows).
                Some(told) => out.notices.push(entry.ask(told, next & state, now, timeout)),
                None => entry.break_to(next & state, now, timeout, link, &mut out),
            }
            if let Some(running) = &mut entry.breaking {
                running.required = breaking.required;
            }
        }
        Ok((state, out))
    }

    /// A client acknowledges the break of an oplock (MS-SMB2 3.3.5.22.1).
    pub(crate) fn acknowledge_oplock(
        &mut self,
        open: OpenId,
        to: OplockLevel,
    ) -> Result<(OplockLevel, Outcome)> {
        if to != OplockLevel::NONE && to != OplockLevel::II {
            return refuse(NtStatus::INVALID_PARAMETER, "an oplock cannot be kept at that level");
        }
        let found = self.entries.iter_mut().find(|e| !e.is_lease() && e.opens.contains(&open));
        let Some(entry) = found else {
            return refuse(NtStatus::INVALID_OPLOCK_PROTOCOL, "there is no oplock");
        };
        let Some(breaking) = entry.breaking.take() else {
            return refuse(NtStatus::INVALID_DEVICE_STATE, "the oplock is not being broken");
        };
        let mut out = Outcome::default();
        out.notices.push(Notice::Changed(open));
        let kept = state_of(to);
        let result = if !breaking.requested.contains(kept) {
            entry.state = NONE;
            Err(FileError::new(NtStatus::INVALID_OPLOCK_PROTOCOL, "more is kept than was offered"))
        } else {
            entry.state = kept & breaking.required;
            if entry.state != kept {
                out.notices.push(Notice::Oplock(open, OplockLevel::NONE));
            }
            Ok((to, out))
        };
        self.forget_none();
        result
    }

    /// An open is gone. Says which lease went with it, if it was the last one that shared it.
    pub(crate) fn close(&mut self, open: OpenId) -> Option<LeaseName> {
        let mut gone = None;
        self.entries.retain_mut(|entry| {
            entry.opens.retain(|other| *other != open);
            if entry.opens.is_empty()
                && let Kind::Lease { name, .. } = entry.kind
            {
                gone = Some(name);
            }
            !entry.opens.is_empty()
        });
        gone
    }
}
