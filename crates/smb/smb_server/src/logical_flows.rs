//! Logical flows (MS-SQOS 3.2.1): what hosts say of the virtual machines whose disks they have open. Opens of one user that
//! name the same flow share it; it is there as long as one of them is. Another user's flow of that identity is another one.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use smb_protocol::Guid;
use smb_protocol::security::sid::Sid;

/// What a host has said of a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Said {
    /// Zero for none.
    pub(crate) policy: Guid,
    pub(crate) initiator: Guid,
    /// Normalised I/Os per second; 0 for none.
    pub(crate) limit: u64,
    pub(crate) reservation: u64,
    /// Kilobytes per second; 0 for none.
    pub(crate) bandwidth_limit: u64,
    /// Whether who said it may promise something to itself.
    pub(crate) may_reserve: bool,
    pub(crate) name: String,
    pub(crate) node: String,
}

/// A logical flow.
pub(crate) struct LogicalFlow {
    pub(crate) id: Guid,
    /// Its number, which no other flow of the server has had.
    pub(crate) number: u64,
    said: Mutex<Said>,
    generation: AtomicU64,
}

impl LogicalFlow {
    /// What its host has said.
    pub(crate) fn said(&self) -> Said {
        self.said.lock().clone()
    }

    /// Its host says something else.
    pub(crate) fn say(&self, change: impl FnOnce(&mut Said)) {
        change(&mut self.said.lock());
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// A number that changes with what is said.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }
}

/// The flows that opens of the server belong to. No more than there are opens, but for some whose opens have just gone.
#[derive(Default)]
pub(crate) struct LogicalFlows {
    flows: Mutex<BTreeMap<(Sid, Guid), Weak<LogicalFlow>>>,
    next: AtomicU64,
}

impl LogicalFlows {
    /// The flow of this identity of a user.
    pub(crate) fn find(&self, user: Sid, id: Guid) -> Arc<LogicalFlow> {
        let mut flows = self.flows.lock();
        if let Some(flow) = flows.get(&(user, id)).and_then(Weak::upgrade) {
            return flow;
        }
        // One in, one or two out: what is gone does not pile up.
        let gone: Vec<(Sid, Guid)> = flows
            .iter()
            .filter(|(_, flow)| flow.strong_count() == 0)
            .map(|(name, _)| *name)
            .take(2)
            .collect();
        gone.iter().for_each(|name| drop(flows.remove(name)));
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (said, generation) = (Mutex::default(), AtomicU64::new(0));
        let flow = Arc::new(LogicalFlow { id, number, said, generation });
        flows.insert((user, id), Arc::downgrade(&flow));
        flow
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_share_a_flow_and_it_goes_with_the_last() {
        let flows = LogicalFlows::default();
        let (me, you) = (Sid::SYSTEM, Sid::USERS);
        let one = flows.find(me, Guid([1; 16]));
        one.say(|said| said.limit = 100);
        let other = flows.find(me, Guid([1; 16]));
        assert_eq!((other.said().limit, other.generation()), (100, 1));
        let yours = flows.find(you, Guid([1; 16]));
        assert_eq!(yours.said(), Said::default(), "nobody else's");
        assert_ne!(yours.number, one.number);
        drop((one, other, yours));
        assert_eq!(flows.find(me, Guid([1; 16])).said(), Said::default(), "another one of the identity");
        for n in 0..100 {
            flows.find(me, Guid([n; 16]));
        }
        assert!(flows.flows.lock().len() <= 2);
    }
}
