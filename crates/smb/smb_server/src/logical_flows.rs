//! Logical flows (MS-SQOS 3.2.1): what hosts say of the virtual machines whose disks they have open. Opens that name the same flow share
//! it; it is there as long as one of them is.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use smb_protocol::Guid;

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
pub(crate) struct LogicalFlows(Mutex<BTreeMap<Guid, Weak<LogicalFlow>>>);

impl LogicalFlows {
    /// The flow of this identity.
    pub(crate) fn find(&self, id: Guid) -> Arc<LogicalFlow> {
        let mut flows = self.0.lock();
        if let Some(flow) = flows.get(&id).and_then(Weak::upgrade) {
            return flow;
        }
        // One in, one or two out: what is gone does not pile up.
        let gone: Vec<Guid> =
            flows.iter().filter(|(_, flow)| flow.strong_count() == 0).map(|(id, _)| *id).take(2).collect();
        gone.iter().for_each(|id| drop(flows.remove(id)));
        let (said, generation) = (Mutex::default(), AtomicU64::new(0));
        let flow = Arc::new(LogicalFlow { id, said, generation });
        flows.insert(id, Arc::downgrade(&flow));
        flow
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_share_a_flow_and_it_goes_with_the_last() {
        let flows = LogicalFlows::default();
        let one = flows.find(Guid([1; 16]));
        one.say(|said| said.limit = 100);
        let other = flows.find(Guid([1; 16]));
        assert_eq!((other.said().limit, other.generation()), (100, 1));
        drop((one, other));
        assert_eq!(flows.find(Guid([1; 16])).said(), Said::default(), "another one of the identity");
        for n in 0..100 {
            flows.find(Guid([n; 16]));
        }
        assert!(flows.0.lock().len() <= 2);
    }
}
