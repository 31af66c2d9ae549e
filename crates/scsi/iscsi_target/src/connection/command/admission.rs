//! Which commands may have memory for their data: the connection's budget, and the node's, which all connections share.
//!
//! A command that comes while the node's memory is short is asked for the first of its data before it gets a buffer for all of
//! it: who only says that much will come takes nothing from others.

use aligned_buffer::IoBuf;
use tcp_service::{ALLOWANCE, Admission, SHOWN};

use super::Connection;
use crate::limits::{SEND_HIGH_WATER, TRANSFER_BUDGET};

impl Connection {
    /// Bytes that the connection holds: data of commands that run, are received or wait, and answers.
    pub(in crate::connection) fn held(&self) -> usize {
        (self.charged + self.early) as usize + self.transmit.waiting()
    }

    /// Whether data is due from the initiator.
    pub(in crate::connection) fn is_receiving(&self) -> bool {
        self.tasks.values().any(|task| !task.started && (task.unsolicited || task.outstanding() > 0))
    }

    /// Whether the node has memory for a command that needs `charge` bytes, `wanted` of them for data of which `received` are
    /// here; its early data takes `early` of what is held.
    pub(super) fn admit(&mut self, charge: u64, wanted: u32, received: u32, early: u64) -> bool {
        let total = self.held() + charge.saturating_sub(early) as usize;
        let shown = received >= wanted.min(SHOWN as u32) || total <= ALLOWANCE;
        if !shown && self.account.budget().is_tight() {
            // While memory is short, who only says that much will come gets none for it.
            self.account.withdraw();
            return false;
        }
        let admission = self.account.admit(total);
        self.refused |= admission == Admission::Refused;
        admission == Admission::Now
    }

    /// Asks for the first of the data of a command that waits, to see whether it comes.
    fn probe(&mut self, itt: u32) {
        let Some(session) = self.session.clone() else { return };
        let Some(task) = self.tasks.get_mut(&itt) else { return };
        let until = task.wanted.min(SHOWN as u32);
        if !task.turn || task.unsolicited || !task.r2ts.is_empty() || task.received >= until {
            return;
        }
        if task.data.as_ref().is_none_or(|data| data.len() < until as usize) {
            let mut larger = IoBuf::new(until as usize);
            if let Some(early) = task.data.take() {
                let here = (task.received as usize).min(early.len());
                larger[..here].copy_from_slice(&early[..here]);
            }
            let early = larger.capacity() as u64;
            self.early = self.early + early - task.early;
            task.early = early;
            task.data = Some(larger);
        }
        self.ask(&session, itt, until);
    }

    /// Lets commands go on for which the budget has room again.
    pub(in crate::connection) fn start_waiting(&mut self) {
        while let Some(itt) = self.waiting.front().copied() {
            if self.transmit.waiting() >= SEND_HIGH_WATER {
                self.account.withdraw();
                return;
            }
            let Some(task) = self.tasks.get_mut(&itt).filter(|task| !task.charged) else {
                self.waiting.pop_front();
                continue;
            };
            if task.failed.is_some() {
                // It is answered when its turn comes, and needs nothing.
                self.waiting.pop_front();
                continue;
            }
            let in_transfer = task.wanted > 0 && task.data.is_none();
            if in_transfer || (self.charged > 0 && self.charged + task.charge > TRANSFER_BUDGET) {
                self.account.withdraw();
                return;
            }
            let (charge, wanted, received, early) = (task.charge, task.wanted, task.received, task.early);
            if !self.admit(charge, wanted, received, early) {
                if self.account.budget().is_tight() {
                    self.probe(itt);
                }
                return;
            }
            let Some(task) = self.tasks.get_mut(&itt) else { return };
            self.waiting.pop_front();
            self.early -= std::mem::take(&mut task.early);
            self.charged += task.charge;
            task.charged = true;
            if let Some(early) = task.data.take() {
                let mut whole = IoBuf::new(task.wanted as usize);
                let here = (task.received as usize).min(early.len());
                whole[..here].copy_from_slice(&early[..here]);
                task.data = Some(whole);
            }
            self.advance(itt);
        }
        // Whoever waited was aborted or has failed: others do not wait behind it.
        self.account.withdraw();
    }
}
