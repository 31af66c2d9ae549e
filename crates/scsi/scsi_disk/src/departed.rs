//! Initiators come to a unit and go; of those that have used it and gone is remembered what they are to be told: one that comes back is told at its next flush, like those that stayed, that
//! writes it had cached may be lost.

use std::collections::VecDeque;

use scsi_core::Nexus;
use scsi_defs::asc;

use crate::reservations::Port;
use crate::unit::{Inner, LogicalUnit, NexusEntry};

/// How many are remembered at most; those that have nothing to be told are forgotten first.
const MAX_DEPARTED: usize = 256;

/// Who has gone, longest ago first, and whether cached writes may have been lost since it was told last.
#[derive(Default)]
pub(crate) struct Departed {
    ports: VecDeque<(String, bool)>,
}

impl Departed {
    /// An initiator port goes.
    pub(crate) fn leaves(&mut self, port: String, lost_writes: bool) {
        let before = self.comes_back(&port);
        if self.ports.len() == MAX_DEPARTED {
            let harmless = self.ports.iter().position(|(_, lost)| !lost);
            self.ports.remove(harmless.unwrap_or(0));
        }
        self.ports.push_back((port, lost_writes || before));
    }

    /// An initiator port is there again; whether it is to be told that cached writes may be lost.
    pub(crate) fn comes_back(&mut self, port: &str) -> bool {
        let known = self.ports.iter().position(|(known, _)| known == port);
        known.and_then(|at| self.ports.remove(at)).is_some_and(|(_, lost)| lost)
    }

    /// Cached writes may be lost: each is to be told.
    pub(crate) fn lose_writes(&mut self) {
        self.ports.iter_mut().for_each(|(_, lost)| *lost = true);
    }
}

impl LogicalUnit {
    pub(crate) fn connect(&self, nexus: &Nexus) {
        let port = Port {
            initiator: nexus.initiator_port_name().to_lowercase(),
            device: nexus.target.to_lowercase(),
            target: nexus.target_port,
        };
        let mut inner = self.inner.lock();
        let Inner { nexuses, departed, reservations, .. } = &mut *inner;
        reservations.know(&port);
        nexuses.entry(nexus.id).or_insert_with(|| NexusEntry {
            used: false,
            attentions: vec![asc::POWER_ON],
            copies: VecDeque::new(),
            tokens: VecDeque::new(),
            lost_writes: departed.comes_back(&port.initiator),
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
            inner.departed.leaves(entry.port.initiator, entry.lost_writes);
        }
        if inner.legacy == Some(nexus) {
            inner.legacy = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_is_bounded_and_losses_are_kept_longest() {
        let mut departed = Departed::default();
        departed.leaves("loser".into(), true);
        for n in 0..2 * MAX_DEPARTED {
            departed.leaves(format!("host {n}"), false);
        }
        assert_eq!(departed.ports.len(), MAX_DEPARTED);
        assert!(departed.comes_back("loser") && !departed.comes_back("loser"), "once");
        assert!(!departed.comes_back(&format!("host {}", 2 * MAX_DEPARTED - 1)));
    }
}
