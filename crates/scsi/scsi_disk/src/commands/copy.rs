//! EXTENDED COPY (LID1, LID4) and RECEIVE COPY RESULTS. A copy ends before its status is returned (also when IMMED
//! would allow it to go on), so that there is never one in progress to ask about; how it ended is kept for its nexus. Between two files of one volume a
//! copy is a clone by reference.

use std::sync::Arc;

use qos_gate::Kind;
use scsi_core::Nexus;
use scsi_defs::copy::{CopyList, ListId, MAX_DESCRIPTOR_BYTES, MAX_SEGMENTS, MAX_TARGETS};
use scsi_defs::{Cdb, Op, Sense, SenseKey, asc};

use crate::ended::EndedCopy;
use crate::limits::STEP_BYTES;
use crate::reply::{Failure, Outcome, Reply};
use crate::turn::Consent;
use crate::unit::LogicalUnit;
use crate::view::{Caller, MappedUnit};

/// Longest segment: what its 16-bit count can say in 4 KiB blocks.
const MAX_SEGMENT_BYTES: u32 = 65535 * 4096;

impl LogicalUnit {
    pub(crate) async fn copy_command(
        &self,
        caller: &Caller<'_>,
        task: u64,
        cdb: &Cdb,
        data: &[u8],
    ) -> Outcome {
        match cdb.op {
            Op::ReceiveCopyParameters => {
                let mut out = vec![0, 0, 0, 42, 1, 0, 0, 0];
                for value in [MAX_TARGETS as u16, MAX_SEGMENTS as u16] {
                    out.extend_from_slice(&value.to_be_bytes());
                }
                out.extend_from_slice(&(MAX_DESCRIPTOR_BYTES as u32).to_be_bytes());
                out.extend_from_slice(&MAX_SEGMENT_BYTES.to_be_bytes());
                out.resize(34, 0); // no inline data, held data or stream devices
                out.extend_from_slice(&[0, 1, 1, 9, 0, 0, 0, 0, 0, 2, 2, 0xe4]);
                Reply::parameters(&out, cdb.length())
            }
            Op::ReceiveCopyStatus1 => {
                let inner = self.inner.lock();
                let mut ended = inner.ended_copies(caller.nexus.id);
                let found = ended.find(|copy| copy.list_id == ListId::One(cdb.byte(2))).copied();
                Reply::parameters(&found.ok_or(Sense::cdb_field(2))?.status(), cdb.length())
            }
            Op::ReceiveCopyStatus4 => {
                let id = u32::from_be_bytes([cdb.byte(2), cdb.byte(3), cdb.byte(4), cdb.byte(5)]);
                let inner = self.inner.lock();
                let mut ended = inner.ended_copies(caller.nexus.id);
                let found = ended.find(|copy| copy.list_id == ListId::Four(id)).copied();
                Reply::parameters(&found.ok_or(Sense::cdb_field(2))?.status_lid4(), cdb.length())
            }
            _ => self.extended_copy(caller, task, cdb, data).await,
        }
    }

    async fn extended_copy(&self, caller: &Caller<'_>, task: u64, cdb: &Cdb, data: &[u8]) -> Outcome {
        let length = cdb.length();
        if length == 0 {
            return Reply::good(0);
        }
        let short = Sense::illegal(asc::PARAMETER_LIST_LENGTH_ERROR);
        let data = data.get(..length as usize).ok_or(short)?;
        let list =
            if cdb.op == Op::ExtendedCopy4 { CopyList::parse_lid4(data) } else { CopyList::parse(data) }?;
        let mut ended = EndedCopy { list_id: list.list_id, good: false, segments: 0, bytes: 0 };
        let outcome = self.copy_segments(caller, (task, cdb), &list, &mut ended).await;
        ended.good = outcome.is_ok();
        if let Some(copies) = self.inner.lock().ended_copies_mut(caller.nexus.id) {
            ended.remember(copies);
        }
        outcome?;
        Reply::good(u64::from(length))
    }

    async fn copy_segments(
        &self,
        caller: &Caller<'_>,
        (task, cdb): (u64, &Cdb),
        list: &CopyList,
        ended: &mut EndedCopy,
    ) -> Result<(), Failure> {
        let aborted = |code| Failure::Sense(Sense::new(SenseKey::CopyAborted, code));
        let mut targets: Vec<&MappedUnit> = Vec::new();
        for designator in &list.targets {
            let found = caller.view.values().find(|m| {
                designator.get(1).is_some_and(|kind| kind & 0x3f == 3)
                    && designator.get(4..) == Some(&m.unit.designator()[..])
            });
            targets.push(found.ok_or_else(|| aborted(asc::UNREACHABLE_COPY_TARGET))?);
        }
        for segment in &list.segments {
            let (from, to) = (targets[segment.source], targets[segment.destination]);
            let counted = if segment.destination_count { &to.unit } else { &from.unit };
            let bytes = u64::from(segment.blocks) * counted.block();
            // Blocks past the end: the unit is there, so the copy is aborted without the word that it cannot be reached.
            let place = |unit: &LogicalUnit, lba| {
                let range = unit.range(lba, bytes.div_ceil(unit.block()));
                range.map(|(start, _)| start).map_err(|_| aborted(asc::NONE))
            };
            let source = place(&from.unit, segment.source_lba)?;
            let target = place(&to.unit, segment.destination_lba)?;
            if bytes % from.unit.block() != 0 || bytes % to.unit.block() != 0 {
                return Err(aborted(asc::INVALID_FIELD_IN_PARAMETER_LIST));
            }
            // The destination's own task set knows of the copy, so that who fences us there waits for it.
            let guest = match std::ptr::eq(Arc::as_ptr(&to.unit), self) {
                true => None,
                false => Some(to.unit.join(caller.nexus.id, (self, task))?),
            };
            let both = || {
                from.unit.third_party(caller, false)?;
                to.unit.third_party(&Caller { read_only: to.read_only, ..*caller }, true)
            };
            both()?;
            let allowed = || self.admit(caller, cdb).and_then(|()| both());
            let wanted = || {
                self.still_wanted(task)?;
                guest.as_ref().map_or(Ok(()), |guest| to.unit.still_wanted(guest.id))
            };
            let consent = Consent { wanted: &wanted, allowed: &allowed };
            Self::copy_range(caller.nexus, &consent, (&from.unit, source), (&to.unit, target), bytes).await?;
            ended.segments += 1;
            ended.bytes += bytes;
        }
        Ok(())
    }

    /// Copies for a nexus, whose steps wait for their turn at both units; whether it is wanted is asked before each step and after each
    /// reading.
    pub(crate) async fn copy_range(
        nexus: &Nexus,
        consent: &Consent<'_>,
        from: (&Arc<LogicalUnit>, u64),
        to: (&Arc<LogicalUnit>, u64),
        bytes: u64,
    ) -> Result<(), Failure> {
        let overlap = Arc::ptr_eq(from.0, to.0) && from.1 < to.1 + bytes && to.1 < from.1 + bytes;
        if let (Some(source), Some(target), false) =
            (from.0.backing().clone_handle(), to.0.backing().clone_handle(), overlap)
            && Arc::ptr_eq(&source.store, &target.store)
        {
            let _permit = to.0.step_of_other(nexus, Kind::Write, 0, consent).await?;
            to.0.tokens.changing(to.1, bytes);
            source.store.clone_range((source.file, from.1), (target.file, to.1), bytes).await?;
            return (consent.wanted)();
        }
        let (durability, caching) = to.0.durability(nexus.id, false).await?;
        let mut done = 0;
        while done < bytes {
            let step = STEP_BYTES.min(bytes - done);
            // Overlapping upwards: from the end, so that nothing is read after it was overwritten.
            let at = if overlap && from.1 < to.1 { bytes - done - step } else { done };
            let permit = from.0.step_of_other(nexus, Kind::Read, step, consent).await?;
            let buf = from.0.read_exact(from.1 + at, step).await?;
            // Nothing waits for one place while it holds another.
            drop(permit);
            let _permit = to.0.step_of_other(nexus, Kind::Write, step, consent).await?;
            to.0.tokens.changing(to.1 + at, step);
            to.0.backing().write(to.1 + at, buf.freeze(), durability).await?;
            done += step;
        }
        to.0.settle(durability, caching.as_ref()).await
    }
}
