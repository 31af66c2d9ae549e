//! Granting caching, and what each open has.

use smb_protocol::access::OplockLevel;
use smb_protocol::create::lease::{LeaseFlags, LeaseState};

use super::{Breaking, Caching, Entry, H, Kind, LeaseView, NONE, Others, R, RWH, W, level, state_of};
use crate::api::{Granted, LeaseName, LeaseRequest, OpenId};

impl Caching {
    /// Grants an oplock to an open that is being admitted.
    pub(crate) fn grant_oplock(&mut self, open: OpenId, wanted: OplockLevel, others: Others) -> Granted {
        let mut state = state_of(wanted);
        if others.directory || others.locks || self.entries.iter().any(|e| e.state.contains(W)) {
            state = NONE;
        }
        if others.plain_opens || self.entries.iter().any(|e| e.state != NONE) {
            state = state & R;
        }
        // Oplocks and cached handles of leases exclude each other (MS-FSA 2.1.5.18.1).
        if self.entries.iter().any(|e| e.is_lease() && e.state.contains(H)) {
            state = NONE;
        }
        if state != NONE {
            self.entries.push(Entry { kind: Kind::Oplock, state, breaking: None, opens: vec![open] });
        }
        Granted::Oplock(level(state))
    }

    /// Grants a lease to an open that is being admitted, or lets the open share the one of that name.
    pub(crate) fn grant_lease(
        &mut self,
        open: OpenId,
        name: LeaseName,
        request: &LeaseRequest,
        others: Others,
    ) -> Granted {
        let mut state = request.state & RWH;
        // R, RH, RW and RWH exist (MS-SMB2 2.2.13.2.8).
        if !state.contains(R) || others.locks {
            state = NONE;
        }
        if others.directory {
            state = if request.v2.is_some() { state.without(W) } else { NONE };
        }
        let mut rivals =
            self.entries.iter().filter(|e| !matches!(e.kind, Kind::Lease { name: n, .. } if n == name));
        if rivals.clone().any(|e| e.state.contains(W)) {
            state = NONE;
        }
        if others.plain_opens || rivals.clone().any(|e| e.state != NONE) {
            state = state.without(W);
        }
        if rivals.any(|e| !e.is_lease() && e.state != NONE) {
            state = state.without(H);
        }
        let found =
            self.entries.iter_mut().find(|e| matches!(e.kind, Kind::Lease { name: n, .. } if n == name));
        let entry = match found {
            Some(entry) => {
                // Upgraded only if all of a true superset can be had, and no break is under way.
                let all = if others.directory { request.state.without(W) } else { request.state };
                let more = state.contains(entry.state) && state != entry.state && state == all;
                if more && entry.breaking.is_none() {
                    entry.state = state;
                    entry.next_epoch();
                }
                entry.opens.push(open);
                entry
            }
            None => {
                let v2 = request.v2.is_some();
                let epoch = request.v2.map_or(0, |v2| v2.epoch.wrapping_add(1));
                let parent = request.v2.and_then(|v2| v2.parent);
                let kind = Kind::Lease { name, v2, epoch, parent };
                self.entries.push(Entry { kind, state, breaking: None, opens: vec![open] });
                let Some(entry) = self.entries.last_mut() else { return Granted::Oplock(OplockLevel::NONE) };
                entry
            }
        };
        granted(entry)
    }

    /// What an open caches.
    pub(crate) fn of(&self, open: OpenId) -> Granted {
        let entry = self.entries.iter().find(|entry| entry.opens.contains(&open));
        entry.map_or(Granted::Oplock(OplockLevel::NONE), granted)
    }

    /// What a lease is now, if it is one of the stream's.
    pub(crate) fn lease_state(&self, name: LeaseName) -> Option<LeaseState> {
        let is_it = |e: &&Entry| matches!(e.kind, Kind::Lease { name: n, .. } if n == name);
        self.entries.iter().find(is_it).map(|entry| entry.state)
    }

    /// What of an open's caching a restart may give back: its oplock, or its lease. What is being broken is still held until
    /// it is given up, but for reads that nobody waits for: data may have changed under them.
    pub(crate) fn recorded(&self, open: OpenId) -> (OplockLevel, Option<LeaseView>) {
        let Some(entry) = self.entries.iter().find(|entry| entry.opens.contains(&open)) else {
            return (OplockLevel::NONE, None);
        };
        let wrong = |breaking: Breaking| !breaking.required.contains(R) && !entry.state.contains(W);
        let state = if entry.breaking.is_some_and(wrong) { NONE } else { entry.state };
        match self.lease_of(open) {
            Some(view) => (OplockLevel::LEASE, Some(LeaseView { state, ..view })),
            None => (level(state), None),
        }
    }

    /// The lease that an open shares.
    pub(crate) fn lease_of(&self, open: OpenId) -> Option<LeaseView> {
        self.entries.iter().filter(|entry| entry.opens.contains(&open)).find_map(|entry| match entry.kind {
            Kind::Oplock => None,
            Kind::Lease { name, v2, epoch, parent } => {
                Some(LeaseView { name, state: entry.state, epoch, v2, parent })
            }
        })
    }

    /// Puts an oplock back as it was before a restart.
    pub(crate) fn restore_oplock(&mut self, open: OpenId, oplock: OplockLevel) {
        let state = state_of(oplock);
        if state != NONE {
            self.entries.push(Entry { kind: Kind::Oplock, state, breaking: None, opens: vec![open] });
        }
    }

    /// Puts a lease back as it was before a restart.
    pub(crate) fn restore_lease(&mut self, open: OpenId, view: &LeaseView) {
        let same = |e: &&mut Entry| matches!(e.kind, Kind::Lease { name, .. } if name == view.name);
        if let Some(entry) = self.entries.iter_mut().find(same) {
            // The power may have gone between two records of a lease that changed: then nobody went on with either.
            entry.state = entry.state & view.state;
            entry.opens.push(open);
            return;
        }
        let kind = Kind::Lease { name: view.name, v2: view.v2, epoch: view.epoch, parent: view.parent };
        self.entries.push(Entry { kind, state: view.state, breaking: None, opens: vec![open] });
    }
}

/// What an entry's opens are told that they have.
fn granted(entry: &Entry) -> Granted {
    match entry.kind {
        Kind::Oplock => Granted::Oplock(level(entry.state)),
        Kind::Lease { name, v2, epoch, parent } => {
            let mut flags = LeaseFlags::NONE;
            if entry.breaking.is_some() {
                flags |= LeaseFlags::BREAK_IN_PROGRESS;
            }
            if v2 && parent.is_some() {
                flags |= LeaseFlags::PARENT_LEASE_KEY_SET;
            }
            Granted::Lease {
                key: name.key,
                state: entry.state,
                flags,
                parent: parent.unwrap_or_default(),
                epoch: v2.then_some(epoch),
            }
        }
    }
}
