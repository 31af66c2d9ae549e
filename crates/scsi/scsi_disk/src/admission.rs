//! Who gets in: a command enters the task set unless there is news for its nexus first, and is admitted if reservations, the unit's
//! state and write protection let it; so is what a command to another unit reads or writes here.

use scsi_core::{ScsiStatus, TaskAttribute};
use scsi_defs::{Cdb, Effect, Op, Sense, SenseKey, asc};

use crate::reply::Failure;
use crate::task_set::TaskGuard;
use crate::unit::{Inner, LogicalUnit, UnitState};
use crate::view::Caller;

impl LogicalUnit {
    /// Puts a command into the task set, unless there is news for its nexus first.
    pub(crate) fn enter(
        &self,
        caller: &Caller<'_>,
        parsed: &Result<Cdb, Sense>,
        attribute: TaskAttribute,
    ) -> Result<TaskGuard<'_>, Failure> {
        let mut inner = self.inner.lock();
        if inner.closed {
            return Err(inner.gone());
        }
        let hears =
            !matches!(parsed, Ok(cdb) if matches!(cdb.op, Op::Inquiry | Op::ReportLuns | Op::RequestSense));
        if attribute == TaskAttribute::Aca {
            return Err(Sense::cdb_field(0).into());
        }
        // Whoever serves it has news of its own.
        if hears && inner.state == UnitState::Busy {
            return Err(Failure::OnTheWay);
        }
        let me = caller.nexus.id;
        if hears && inner.nexuses.get(&me).is_some_and(|entry| !entry.attentions.is_empty()) {
            // News is not taken by a command that finds no room.
            if self.tasks.is_full(|other| inner.same_initiator(other, me)) {
                return Err(Failure::Status(ScsiStatus::TaskSetFull));
            }
            if let Some(entry) = inner.nexuses.get_mut(&me) {
                return Err(Sense::new(SenseKey::UnitAttention, entry.attentions.remove(0)).into());
            }
        }
        self.tasks.enter(me, attribute, |other| inner.same_initiator(other, me))
    }

    /// A command `of` another unit that writes here: it can be aborted here, and is waited for, also when the transport has dropped
    /// it.
    pub(crate) fn join(&self, nexus: u64, of: (&Self, u64)) -> Result<TaskGuard<'_>, Failure> {
        let guest = {
            let inner = self.inner.lock();
            if inner.closed {
                return Err(Sense::new(SenseKey::CopyAborted, asc::UNREACHABLE_COPY_TARGET).into());
            }
            self.tasks.enter(nexus, TaskAttribute::HeadOfQueue, |other| inner.same_initiator(other, nexus))?
        };
        self.tasks.is_guest(guest.id, (&of.0.tasks, of.1))?;
        Ok(guest)
    }

    /// Reservations, state and write protection.
    pub(crate) fn admit(&self, caller: &Caller<'_>, cdb: &Cdb) -> Result<(), Failure> {
        let mut inner = self.inner.lock();
        if inner.left_behind(caller.nexus.id) {
            return Err(Failure::OnTheWay);
        }
        inner.sanitize.allows(cdb.op)?;
        if inner.state == UnitState::Busy
            && !matches!(cdb.op, Op::Inquiry | Op::ReportLuns | Op::RequestSense)
        {
            return Err(Failure::Status(ScsiStatus::Busy));
        }
        let always = cdb.effect == Effect::Always;
        let reserving = cdb.op.is_reservation_command();
        let removes = cdb.op == Op::PreventAllow || cdb.op == Op::StartStop;
        if inner.legacy.is_some_and(|holder| holder != caller.nexus.id)
            && (!always || reserving || removes)
            && !matches!(cdb.op, Op::Release6 | Op::Release10)
        {
            return Err(Failure::Status(ScsiStatus::ReservationConflict));
        }
        if inner.reservations.reservation.is_some() && (!always || cdb.op == Op::StartStop && !cdb.bit(4, 0))
        {
            let reads = cdb.effect == Effect::Read;
            let allowed = inner
                .nexuses
                .get(&caller.nexus.id)
                .is_some_and(|e| inner.reservations.allows(&e.port, reads));
            if !allowed {
                return Err(Failure::Status(ScsiStatus::ReservationConflict));
            }
        }
        let medium = !always || matches!(cdb.op, Op::TestUnitReady | Op::ReadCapacity10 | Op::ReadCapacity16);
        if medium {
            if matches!(inner.state, UnitState::Offline(_)) {
                return Err(Sense::new(SenseKey::NotReady, asc::NOT_READY_OFFLINE).into());
            }
            if matches!(inner.state, UnitState::Elsewhere(_)) {
                return Err(Sense::new(SenseKey::NotReady, asc::PORT_UNAVAILABLE).into());
            }
            if cdb.op == Op::TestUnitReady && self.is_away() {
                return Err(Failure::Away);
            }
            if inner.stopped && !matches!(cdb.op, Op::ModeSense6 | Op::ModeSense10) {
                return Err(Sense::new(SenseKey::NotReady, asc::INITIALIZING_COMMAND_REQUIRED).into());
            }
        }
        if cdb.effect == Effect::Write && self.protected(&inner, caller)
            || caller.read_only && inner.would_change_for_all(cdb)
        {
            return Err(Sense::new(SenseKey::DataProtect, asc::WRITE_PROTECTED).into());
        }
        if matches!(cdb.effect, Effect::Read | Effect::Write) {
            inner.uses(caller.nexus.id);
        }
        Ok(())
    }

    pub(crate) fn protected(&self, inner: &Inner, caller: &Caller<'_>) -> bool {
        caller.read_only
            || inner.mode.swp
            || self.backing().read_only()
            || matches!(inner.state, UnitState::ReadOnly(_))
    }

    /// Whether a command to another unit may read here for the caller, or write: not where this unit itself would refuse it
    /// that. `caller` is as this unit is mapped to it.
    pub(crate) fn third_party(&self, caller: &Caller<'_>, writes: bool) -> Result<(), Failure> {
        let mut inner = self.inner.lock();
        let me = caller.nexus.id;
        let port = inner.port_of(me);
        let reserved = inner.legacy.is_some_and(|holder| holder != me)
            || !port.is_some_and(|port| inner.reservations.allows(&port, !writes));
        let serves =
            !matches!(inner.state, UnitState::Offline(_) | UnitState::Busy | UnitState::Elsewhere(_))
                && !inner.stopped;
        if !serves
            || reserved
            || inner.sanitize.allows(Op::ExtendedCopy1).is_err()
            || (writes && self.protected(&inner, caller))
        {
            return Err(Sense::new(SenseKey::CopyAborted, asc::COPY_TARGET_NOT_REACHABLE).into());
        }
        inner.uses(me);
        Ok(())
    }
}

impl Inner {
    /// Whether two nexuses are of one initiator, which has one share of the task set over all its sessions. Commands of sessions that are
    /// gone are on their way out, and nobody's.
    fn same_initiator(&self, a: u64, b: u64) -> bool {
        let name = |nexus| self.nexuses.get(&nexus).map(|entry| entry.port.initiator_name());
        a == b || name(a).is_some_and(|a| Some(a) == name(b))
    }

    /// Whether a command that leaves the medium alone changes what other nexuses find: not for one that may only read.
    fn would_change_for_all(&self, cdb: &Cdb) -> bool {
        match cdb.op {
            Op::ModeSelect6 | Op::ModeSelect10 | Op::Reserve6 | Op::Reserve10 => true,
            // Power conditions are not kept; START stands for a unit that runs.
            Op::StartStop => cdb.byte(4) >> 4 == 0 && cdb.bit(4, 0) == self.stopped,
            op => op.is_persistent_reserve_out(),
        }
    }
}
