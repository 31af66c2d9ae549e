//! What pipes share: the seam to the node, the handles of association groups, and how many each client may have open.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use smb_protocol::security::sid::Sid;

use crate::client::Authenticator;
use crate::handles::Handles;
use crate::view::ServerView;

/// Most association groups: more pipes than a server has open at a time.
const GROUPS_MAX: usize = 65_536;
/// Most pipes that one client has open, over all of its sessions: each can hold some MiB of requests and answers. Clients open
/// one for a call, or keep a few.
pub const PIPES_MAX: usize = 128;

/// Connections that share their handles.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) id: u32,
    owner: Sid,
    pub(crate) handles: Mutex<Handles>,
}

#[derive(Default)]
struct Groups {
    last: u32,
    known: BTreeMap<u32, Weak<Group>>,
}

/// What all pipes have in common.
pub(crate) struct Shared {
    pub(crate) view: Arc<dyn ServerView>,
    pub(crate) authenticator: Arc<dyn Authenticator>,
    groups: Mutex<Groups>,
    /// How many pipes each client has open.
    pipes: Mutex<BTreeMap<Sid, usize>>,
}

impl Shared {
    /// Nothing open yet.
    pub(crate) fn new(view: Arc<dyn ServerView>, authenticator: Arc<dyn Authenticator>) -> Self {
        Self { view, authenticator, groups: Mutex::default(), pipes: Mutex::default() }
    }

    /// A seat for one more pipe of a client; `None` when it has too many.
    pub(crate) fn seat(self: &Arc<Self>, client: Sid) -> Option<Seat> {
        let mut pipes = self.pipes.lock();
        let count = pipes.entry(client).or_default();
        if *count >= PIPES_MAX {
            return None;
        }
        *count += 1;
        Some(Seat { shared: Arc::clone(self), client })
    }

    /// A new group for 0, otherwise the one that this client already has (C706 12.6.4.3).
    pub(crate) fn group(&self, id: u32, owner: Sid) -> Option<Arc<Group>> {
        let mut groups = self.groups.lock();
        if id != 0 {
            return groups.known.get(&id)?.upgrade().filter(|group| group.owner == owner);
        }
        if groups.known.len() >= GROUPS_MAX {
            groups.known.retain(|_, group| group.strong_count() > 0);
            if groups.known.len() >= GROUPS_MAX {
                return None;
            }
        }
        let mut id = groups.last.wrapping_add(1).max(1);
        while groups.known.get(&id).is_some_and(|group| group.strong_count() > 0) {
            id = id.wrapping_add(1).max(1);
        }
        groups.last = id;
        let group = Arc::new(Group { id, owner, handles: Mutex::default() });
        groups.known.insert(id, Arc::downgrade(&group));
        Some(group)
    }

    /// A pipe leaves its group, which ends with its last one.
    pub(crate) fn left(&self, group: &Arc<Group>) {
        // This pipe's reference is the last one.
        if Arc::strong_count(group) == 1 {
            self.groups.lock().known.remove(&group.id);
        }
    }
}

/// Counts a pipe while it is open.
pub(crate) struct Seat {
    shared: Arc<Shared>,
    client: Sid,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut pipes = self.shared.pipes.lock();
        if let Some(count) = pipes.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                pipes.remove(&self.client);
            }
        }
    }
}
