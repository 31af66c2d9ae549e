//! EXTENDED COPY (LID1) and RECEIVE COPY RESULTS. A copy ends before its status is returned, so that there is
//! never a copy in progress to ask about. Between two files of one volume it is a clone by reference.

use std::sync::Arc;

use scsi_defs::copy::{CopyList, MAX_DESCRIPTOR_BYTES, MAX_SEGMENTS, MAX_TARGETS};
use scsi_defs::{Cdb, Op, Sense, SenseKey, asc};

use crate::data::STEP_BYTES;
use crate::reply::{Failure, Outcome, Reply};
use crate::target::{Caller, MappedUnit};
use crate::unit::LogicalUnit;

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
            Op::ReceiveCopyStatus1 => Err(Sense::cdb_field(2).into()), // no list is kept after it has ended
            _ => self.extended_copy(caller, task, cdb, data).await,
        }
    }

    async fn extended_copy(&self, caller: &Caller<'_>, task: u64, cdb: &Cdb, data: &[u8]) -> Outcome {
        let length = cdb.length();
        if length == 0 {
            return Reply::good(0);
        }
        let short = Sense::illegal(asc::PARAMETER_LIST_LENGTH_ERROR);
        let list = CopyList::parse(data.get(..length as usize).ok_or(short)?)?;
        let aborted = |code| Failure::Sense(Sense::new(SenseKey::CopyAborted, code));
        let mut targets: Vec<&MappedUnit> = Vec::new();
        for designator in &list.targets {
            let found = caller.view.values().find(|m| {
                designator.get(1).is_some_and(|kind| kind & 0x3f == 3)
                    && designator.get(4..) == Some(&m.unit.naa()[..])
            });
            targets.push(found.ok_or_else(|| aborted(asc::UNREACHABLE_COPY_TARGET))?);
        }
        for segment in &list.segments {
            let (from, to) = (targets[segment.source], targets[segment.destination]);
            let counted = if segment.destination_count { &to.unit } else { &from.unit };
            let bytes = u64::from(segment.blocks) * counted.block();
            let (source, _) = from.unit.range(segment.source_lba, bytes.div_ceil(from.unit.block()))?;
            let (target, _) = to.unit.range(segment.destination_lba, bytes.div_ceil(to.unit.block()))?;
            if bytes % from.unit.block() != 0 || bytes % to.unit.block() != 0 {
                return Err(aborted(asc::INVALID_FIELD_IN_PARAMETER_LIST));
            }
            for (unit, writes) in [(&from.unit, false), (&to.unit, true)] {
                let inner = unit.inner.lock();
                let me = caller.nexus.id;
                let port = inner.port_of(me);
                let reserved = inner.legacy.is_some_and(|holder| holder != me)
                    || !port.is_some_and(|port| inner.reservations.allows(&port, !writes));
                let there = Caller { read_only: to.read_only, ..*caller };
                if reserved || (writes && unit.protected(&inner, &there)) {
                    return Err(aborted(asc::COPY_TARGET_NOT_REACHABLE));
                }
            }
            self.copy_range(task, (&from.unit, source), (&to.unit, target), bytes).await?;
        }
        Reply::good(u64::from(length))
    }

    async fn copy_range(
        &self,
        task: u64,
        from: (&Arc<LogicalUnit>, u64),
        to: (&Arc<LogicalUnit>, u64),
        bytes: u64,
    ) -> Result<(), Failure> {
        let overlap = Arc::ptr_eq(from.0, to.0) && from.1 < to.1 + bytes && to.1 < from.1 + bytes;
        if let (Some(source), Some(target), false) =
            (from.0.backing.clone_handle(), to.0.backing.clone_handle(), overlap)
            && Arc::ptr_eq(&source.store, &target.store)
        {
            self.still_wanted(task)?;
            source.store.clone_range((source.file, from.1), (target.file, to.1), bytes).await?;
            return Ok(());
        }
        let durability = to.0.durability(false);
        let mut done = 0;
        while done < bytes {
            self.still_wanted(task)?;
            let step = STEP_BYTES.min(bytes - done);
            // Overlapping upwards: from the end, so that nothing is read after it was overwritten.
            let at = if overlap && from.1 < to.1 { bytes - done - step } else { done };
            let buf = from.0.read_exact(from.1 + at, step).await?;
            to.0.backing.write(to.1 + at, buf.freeze(), durability).await?;
            done += step;
        }
        Ok(())
    }
}
