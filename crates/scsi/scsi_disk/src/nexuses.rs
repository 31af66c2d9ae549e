//! Initiators come to a unit and go.

use std::collections::VecDeque;

use scsi_core::Nexus;
use scsi_defs::asc;

use crate::reservations::{Port, host_of};
use crate::unit::{Inner, LogicalUnit, NexusEntry};

impl LogicalUnit {
    pub(crate) fn connect(&self, nexus: &Nexus) {
        let port = Port {
            initiator: nexus.initiator_port_name().to_lowercase(),
            device: nexus.target.to_lowercase(),
            target: nexus.target_port,
        };
        let elsewhere = self.is_elsewhere();
        let mut inner = self.inner.lock();
        let Inner { nexuses, departed, untold, reservations, .. } = &mut *inner;
        reservations.know(&port);
        nexuses.entry(nexus.id).or_insert_with(|| NexusEntry {
            used: false,
            // Of a unit that another node serves, that one tells.
            attentions: if elsewhere { Vec::new() } else { vec![asc::POWER_ON] },
            copies: VecDeque::new(),
            tokens: VecDeque::new(),
            // A host is told by whichever of its ports it comes back.
            lost_writes: departed.comes_back(&port.initiator)
                || departed.to_be_told().any(|gone| host_of(gone) == port.initiator_name())
                || untold.contains(port.initiator_name()),
            host_knows: false,
            named: false,
            port,
        });
    }

    pub(crate) fn disconnect(&self, nexus: u64) {
        self.forget_nexus(nexus);
        self.end_flow(nexus);
    }

    fn forget_nexus(&self, nexus: u64) {
        let mut inner = self.inner.lock();
        if let Some(entry) = inner.nexuses.remove(&nexus)
            && (entry.used || entry.lost_writes)
        {
            inner.departed.leaves(entry.port.initiator, entry.lost_writes && !entry.host_knows);
        }
        if inner.legacy == Some(nexus) {
            inner.legacy = None;
        }
    }

    /// A nexus is gone.
    pub(crate) fn end_flow(&self, nexus: u64) {
        let ended = self.flows.lock().of.remove(&nexus);
        drop(ended);
    }
}
