//! Requests other than SCSI commands: NOP, task management, text, logout.

use std::rc::Rc;
use std::sync::Arc;

use iscsi_protocol::discovery::send_targets;
use iscsi_protocol::keys::{Answer, Negotiator, Phase};
use iscsi_protocol::pdu::{RESERVED_TAG, flag, opcode, reject};
use iscsi_protocol::text::put;
use iscsi_protocol::{Bhs, IscsiName};
use scsi_core::{TaskManagement, TaskManagementOutcome, WireLun};
use tokio::sync::oneshot;

use super::running::{Abort, Done, Running};
use super::{Connection, End};
use crate::limits::MAX_IMMEDIATE;
use crate::session::{Message, Session, Turn};

/// Requests other than SCSI commands held back for their turn: initiators send these one at a time.
const MAX_DEFERRED: usize = 16;

/// Response codes of task management (RFC 7143 11.6.1).
mod tmf {
    pub(super) const COMPLETE: u8 = 0;
    pub(super) const NO_TASK: u8 = 1;
    pub(super) const NO_LUN: u8 = 2;
    pub(super) const NO_REASSIGN: u8 = 4;
    pub(super) const NOT_SUPPORTED: u8 = 5;
    pub(super) const NOT_AUTHORIZED: u8 = 6;
    pub(super) const REJECTED: u8 = 255;
}

impl Connection {
    /// Takes a request that is neither a SCSI command nor its data.
    pub(super) fn on_request(&mut self, bhs: &Bhs, data: &[u8]) -> Result<(), End> {
        match bhs.opcode() {
            opcode::NOP_OUT | opcode::TASK_MANAGEMENT | opcode::TEXT | opcode::LOGOUT => {}
            opcode::SNACK => {
                self.reject(reject::SNACK_REJECT, bhs);
                return Ok(());
            }
            opcode::LOGIN => return Err(End::Protocol("login request in full feature phase")),
            _ => {
                self.reject(reject::COMMAND_NOT_SUPPORTED, bhs);
                return Ok(());
            }
        }
        // The answer to our ping carries no number of its own.
        if bhs.opcode() == opcode::NOP_OUT && bhs.itt() == RESERVED_TAG {
            return Ok(());
        }
        if !bhs.immediate() {
            let turn = match &self.session {
                Some(session) => session.turn(bhs.cmd_sn(), &self.peer, &mut self.released),
                None if bhs.cmd_sn() == self.discovery_cmd_sn => {
                    self.discovery_cmd_sn = self.discovery_cmd_sn.wrapping_add(1);
                    Turn::Now
                }
                None => Turn::Ignore,
            };
            match turn {
                Turn::Now => {}
                Turn::Ignore => return Ok(()),
                Turn::Later => {
                    if self.deferred.len() >= MAX_DEFERRED {
                        return Err(End::Protocol("too many requests out of order"));
                    }
                    self.deferred.insert(bhs.cmd_sn(), (*bhs, data.to_vec()));
                    return Ok(());
                }
            }
        }
        self.execute(bhs, data)
    }

    /// Carries a request out whose turn has come.
    pub(super) fn execute(&mut self, bhs: &Bhs, data: &[u8]) -> Result<(), End> {
        if bhs.opcode() == opcode::TASK_MANAGEMENT {
            self.task_management(bhs);
            return Ok(());
        }
        if !bhs.immediate()
            && let Some(session) = &self.session
        {
            session.credit();
        }
        match bhs.opcode() {
            opcode::NOP_OUT => self.nop_out(bhs, data),
            opcode::TEXT => return self.text(bhs, data),
            _ => self.logout(bhs),
        }
        Ok(())
    }

    fn nop_out(&mut self, request: &Bhs, data: &[u8]) {
        let mut bhs = Bhs::new(opcode::NOP_IN, flag::FINAL);
        bhs.set_lun(request.lun());
        bhs.set_u32(16, request.itt());
        bhs.set_u32(20, RESERVED_TAG);
        let len = data.len().min(self.params.peer_max_recv as usize);
        self.respond(bhs, &data[..len]);
    }

    /// Asks whether the initiator is there. Takes no StatSN.
    pub(super) fn ping(&mut self) {
        let mut bhs = Bhs::new(opcode::NOP_IN, flag::FINAL);
        bhs.set_u32(16, RESERVED_TAG);
        let ttt = self.new_ttt();
        bhs.set_u32(20, ttt);
        let (expected, max) = self.window();
        bhs.set_sequence(self.stat_sn, expected, max);
        self.transmit.pdu(bhs, &[]);
    }

    fn task_management(&mut self, request: &Bhs) {
        let (itt, numbered) = (request.itt(), !request.immediate());
        let Some(session) = self.session() else {
            self.reject(reject::COMMAND_NOT_SUPPORTED, request);
            return;
        };
        let now = |connection: &mut Self, response| connection.managed(itt, response, false, numbered);
        let lun = WireLun(request.lun());
        let function = match request.flags() & 0x7f {
            1 => {
                if self.immediate >= MAX_IMMEDIATE {
                    return now(self, tmf::REJECTED);
                }
                let found = self.tasks.get(&request.u32_at(20)).is_some_and(|task| task.lun == lun);
                let task = if found { self.remove_task(request.u32_at(20)) } else { None };
                let response = if task.is_some() { tmf::COMPLETE } else { tmf::NO_TASK };
                let Some(task) = task else { return now(self, response) };
                task.abort.abort();
                self.immediate += 1;
                // The command dropped above is polled, and so really gone, before this.
                let settling = async move {
                    session.device.settled().await;
                    Done::Management { itt, response, cold: false, numbered }
                };
                self.running.push(Running::new(Rc::new(Abort::default()), settling));
                return;
            }
            2 => TaskManagement::AbortTaskSet,
            4 => TaskManagement::ClearTaskSet,
            5 => TaskManagement::LogicalUnitReset,
            6 => TaskManagement::TargetWarmReset,
            7 => TaskManagement::TargetColdReset,
            8 => return now(self, tmf::NO_REASSIGN),
            _ => return now(self, tmf::NOT_SUPPORTED),
        };
        if function == TaskManagement::TargetColdReset && self.concerns_others() {
            return now(self, tmf::NOT_AUTHORIZED);
        }
        if self.immediate >= MAX_IMMEDIATE {
            return now(self, tmf::REJECTED);
        }
        self.immediate += 1;
        let whole = matches!(function, TaskManagement::TargetWarmReset | TaskManagement::TargetColdReset);
        let cancelled = (!whole).then_some(lun);
        self.cancel_tasks(cancelled);
        let mut others = Vec::new();
        for peer in session.peers().into_iter().filter(|peer| !Arc::ptr_eq(peer, &self.peer)) {
            let (done, wait) = oneshot::channel();
            peer.tell(Message::Cancel(cancelled, done));
            others.push(wait);
        }
        let future = async move {
            for other in others {
                // An error means that the connection is gone, and its commands with it.
                let _ = other.await;
            }
            let outcome = session.device.task_management(&session.nexus, lun, function).await;
            let response = match outcome {
                TaskManagementOutcome::Complete => tmf::COMPLETE,
                TaskManagementOutcome::IncorrectLun => tmf::NO_LUN,
                TaskManagementOutcome::Rejected => tmf::REJECTED,
            };
            let cold = function == TaskManagement::TargetColdReset && response == tmf::COMPLETE;
            Done::Management { itt, response, cold, numbered }
        };
        // The commands dropped above are polled, and so really gone, before this: the set is first in, first out.
        self.running.push(Running::new(Rc::new(Abort::default()), future));
    }

    /// Answers a task management request.
    pub(super) fn managed(&mut self, itt: u32, response: u8, cold: bool, numbered: bool) {
        let mut bhs = Bhs::new(opcode::TASK_MANAGEMENT_RESPONSE, flag::FINAL);
        bhs.0[2] = response;
        bhs.set_u32(16, itt);
        if numbered && let Some(session) = &self.session {
            session.credit();
        }
        self.respond(bhs, &[]);
        if cold {
            self.end_all_sessions();
        }
    }

    /// Whether a cold reset would end the session of another initiator whose units this one does not reach: it is not
    /// authorized then (RFC 7143 11.6.1).
    fn concerns_others(&self) -> bool {
        let Some(session) = self.session() else { return false };
        let target = self.shared.targets.read().get(&session.target).cloned();
        let others: Vec<Arc<Session>> =
            target.map_or_else(Vec::new, |t| t.sessions.lock().values().cloned().collect());
        others.iter().any(|other| {
            other.initiator != session.initiator && !session.device.reaches(&session.nexus, &other.nexus)
        })
    }

    /// A cold reset ends all sessions of the target, this one after its answer.
    fn end_all_sessions(&mut self) {
        self.closing = Some(End::Told);
        let Some(session) = self.session() else { return };
        let target = self.shared.targets.read().get(&session.target).cloned();
        let others: Vec<Arc<Session>> =
            target.map_or_else(Vec::new, |t| t.sessions.lock().values().cloned().collect());
        for other in others {
            for peer in other.peers().into_iter().filter(|peer| !Arc::ptr_eq(peer, &self.peer)) {
                peer.tell(Message::Close);
            }
        }
    }

    fn logout(&mut self, request: &Bhs) {
        let (reason, cid) = (request.flags() & 0x7f, request.u16_at(20));
        let mut response = 0;
        match (reason, &self.session) {
            (0, Some(session)) => {
                for peer in session.peers().into_iter().filter(|peer| !Arc::ptr_eq(peer, &self.peer)) {
                    peer.tell(Message::Close);
                }
                self.closing = Some(End::Logout);
            }
            (0 | 1, None) => self.closing = Some(End::Logout),
            (1, Some(_)) if cid == self.peer.cid => self.closing = Some(End::Logout),
            (1, Some(session)) => match session.peer(cid) {
                Some(peer) => peer.tell(Message::Close),
                None => response = 1,
            },
            // Recovery of a connection needs error recovery level 2.
            (2, _) => response = 2,
            _ => {
                self.reject(reject::INVALID_PDU_FIELD, request);
                return;
            }
        }
        if self.closing.is_some() {
            // Commands in progress end without an answer (RFC 7143 11.14).
            self.cancel_tasks(None);
        }
        let mut bhs = Bhs::new(opcode::LOGOUT_RESPONSE, flag::FINAL);
        bhs.0[2] = response;
        bhs.set_u32(16, request.itt());
        let params = self.session().map(|session| session.params.clone()).unwrap_or_default();
        bhs.set_u16(40, params.time2wait);
        bhs.set_u16(42, params.time2retain);
        self.respond(bhs, &[]);
    }

    fn text(&mut self, request: &Bhs, data: &[u8]) -> Result<(), End> {
        if request.ttt() != RESERVED_TAG {
            // The initiator asks for the rest of an answer, or goes on with its own text.
            if let Some((_, rest)) = self.text_out.take_if(|(ttt, _)| *ttt == request.ttt()) {
                self.text_answer(request, rest);
                return Ok(());
            }
            if self.text_in.is_empty() {
                self.reject(reject::INVALID_PDU_FIELD, request);
                return Ok(());
            }
        } else {
            // A new request ends what was not finished.
            self.text_in = Default::default();
            self.text_out = None;
        }
        if self.text_in.push(data).is_err() {
            return Err(End::Protocol("text too long"));
        }
        if request.flags() & flag::CONTINUE != 0 {
            let mut bhs = Bhs::new(opcode::TEXT_RESPONSE, 0);
            bhs.set_lun(request.lun());
            bhs.set_u32(16, request.itt());
            let ttt = self.new_ttt();
            bhs.set_u32(20, ttt);
            self.respond(bhs, &[]);
            return Ok(());
        }
        let Ok(pairs) = self.text_in.take() else {
            self.reject(reject::PROTOCOL_ERROR, request);
            return Ok(());
        };
        let mut out = Vec::new();
        for (key, value) in &pairs {
            if key == "SendTargets" {
                self.list_targets(value, &mut out);
                continue;
            }
            let mut negotiator = Negotiator::new(self.shared.config.read().offer.clone());
            match negotiator.handle(key, value, Phase::FullFeature) {
                Ok(Answer::Value(answer)) => put(&mut out, key, &answer),
                Ok(Answer::Silent) if key == "MaxRecvDataSegmentLength" => {
                    self.params.peer_max_recv = negotiator.connection.peer_max_recv;
                }
                Ok(Answer::Silent) => {}
                Err(_) => {
                    self.reject(reject::PROTOCOL_ERROR, request);
                    return Ok(());
                }
            }
        }
        self.text_answer(request, out);
        Ok(())
    }

    fn list_targets(&self, value: &str, out: &mut Vec<u8>) {
        let own = self.session.as_ref().map(|session| session.target.clone());
        let only = match (value, own) {
            ("All", None) => None,
            // In a normal session an initiator may ask for its own target only (RFC 7143 appendix C).
            ("All", Some(_)) => return put(out, "SendTargets", "Reject"),
            ("", Some(own)) => Some(own),
            (name, own) => match IscsiName::parse(name) {
                Ok(name) if own.is_none() || own.as_ref() == Some(&name) => Some(name),
                _ => return,
            },
        };
        // What holds now counts: the user may be gone since this discovery session began.
        if self.session.is_none() && !self.shared.may_discover(&self.initiator, self.user.as_ref()) {
            return;
        }
        let list = self.shared.listing(&self.initiator, self.user.as_ref(), self.peer.local, only.as_ref());
        out.extend_from_slice(&send_targets(list.iter()));
    }

    fn text_answer(&mut self, request: &Bhs, mut text: Vec<u8>) {
        let limit = self.params.peer_max_recv as usize;
        let mut bhs = Bhs::new(opcode::TEXT_RESPONSE, flag::FINAL);
        bhs.set_lun(request.lun());
        bhs.set_u32(16, request.itt());
        bhs.set_u32(20, RESERVED_TAG);
        if text.len() > limit {
            let rest = text.split_off(limit);
            let ttt = self.new_ttt();
            bhs.0[1] = flag::CONTINUE;
            bhs.set_u32(20, ttt);
            self.text_out = Some((ttt, rest));
        }
        self.respond(bhs, &text);
    }
}
