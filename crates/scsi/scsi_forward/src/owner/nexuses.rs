//! I_T nexuses at other nodes, as the units of this one know them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use observe::IoTally;
use parking_lot::Mutex;
use scsi_core::{Nexus, ScsiDevice as _};
use scsi_disk::TargetDevice;

use crate::wire::Port;

/// The most nexuses of one node: as many sessions as its portals take.
const MAX_NEXUSES: usize = 16_384;
/// Nexuses at this node are counted from 1; those of others from here.
const FIRST: u64 = 1 << 63;

/// A nexus at another node. The units hear that it is gone when nobody has it any more: its last command has ended then.
pub(super) struct RemoteNexus {
    pub(super) nexus: Arc<Nexus>,
    pub(super) device: Arc<TargetDevice>,
}

impl Drop for RemoteNexus {
    fn drop(&mut self) {
        self.device.nexus_lost(&self.nexus);
    }
}

/// Which nexus of whom: node, its life, the nexus's number there.
pub(super) type Whose = (u16, u64, u64);

struct Known {
    nexus: Arc<RemoteNexus>,
    /// The connections over which its commands come.
    over: BTreeSet<u32>,
}

/// All of them.
#[derive(Default)]
pub(super) struct Nexuses {
    known: Mutex<BTreeMap<Whose, Known>>,
    next: AtomicU64,
}

impl Nexuses {
    /// A nexus whose commands come over a connection from now on; none where there are too many.
    pub(super) fn enter(
        &self,
        whose: Whose,
        channel: u32,
        port: &Port,
        device: Arc<TargetDevice>,
    ) -> Option<Arc<RemoteNexus>> {
        let mut known = self.known.lock();
        let mut over = BTreeSet::from([channel]);
        if let Some(known) = known.get_mut(&whose) {
            known.over.insert(channel);
            // A target that was taken away and made again has another device, and the nexus begins anew there.
            if Arc::ptr_eq(&known.nexus.device, &device) {
                return Some(known.nexus.clone());
            }
            over.clone_from(&known.over);
        }
        let of_node = known.range((whose.0, 0, 0)..=(whose.0, u64::MAX, u64::MAX)).count();
        if of_node >= MAX_NEXUSES {
            return None;
        }
        let nexus = Arc::new(Nexus {
            id: FIRST | self.next.fetch_add(1, Ordering::Relaxed),
            initiator: port.initiator.clone(),
            initiator_port: port.initiator_port,
            target: port.target.clone(),
            target_port: port.target_port,
            io: IoTally::default(),
        });
        device.nexus_established(&nexus);
        let nexus = Arc::new(RemoteNexus { nexus, device });
        let before = known.insert(whose, Known { nexus: nexus.clone(), over });
        drop(known);
        // Units hear of the end without the lock.
        drop(before);
        Some(nexus)
    }

    /// No commands of it come over a connection any more; over none at all when it is `lost`.
    pub(super) fn leave(&self, whose: Whose, channel: u32, lost: bool) {
        let gone = {
            let mut all = self.known.lock();
            let Some(known) = all.get_mut(&whose) else { return };
            known.over.remove(&channel);
            if lost || known.over.is_empty() { all.remove(&whose) } else { None }
        };
        // Units hear of it without the lock.
        drop(gone);
    }
}
