//! Commands on the medium. READ and WRITE are one backing call; long ones look for aborts between steps.

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::Durability;
use qos_gate::Kind;
use scsi_core::ScsiStatus;
use scsi_defs::{Cdb, Op, Sense, SenseKey, asc, be};

use crate::backing::first_difference;
use crate::limits::{MAX_TRANSFER_BYTES, MAX_UNMAP_DESCRIPTORS, STEP_BYTES};
use crate::reply::{Failure, Outcome, Reply};
use crate::unit::LogicalUnit;
use crate::view::Caller;

/// Most descriptors in GET LBA STATUS data.
const MAX_STATUS_DESCRIPTORS: usize = 256;
/// Rounds of ORWRITE against other writers of the same blocks before BUSY.
const ORWRITE_ROUNDS: usize = 64;

impl LogicalUnit {
    /// Whole blocks of the data that came, at most `len`: an initiator that expected to send less than the CDB
    /// says gets that part written, and the transport reports the residual.
    fn sent(&self, data: &SharedBuf, len: u64) -> SharedBuf {
        let have = (data.len() as u64).min(len) / self.block() * self.block();
        if have == data.len() as u64 { data.clone() } else { data.slice(0..have as usize) }
    }

    pub(crate) async fn data_command(
        &self,
        caller: &Caller<'_>,
        task: u64,
        cdb: &Cdb,
        data: SharedBuf,
    ) -> Outcome {
        let small = matches!(cdb.op, Op::Read6 | Op::Write6 | Op::Unmap);
        if !small
            && !matches!(
                cdb.op,
                Op::SyncCache10 | Op::SyncCache16 | Op::Prefetch10 | Op::Prefetch16 | Op::GetLbaStatus
            )
            && cdb.byte(1) >> 5 != 0
        {
            return Err(Sense::cdb_field(1).into()); // protection information: the unit has none
        }
        if cdb.op == Op::Unmap {
            return self.unmap(caller, task, cdb, &data).await;
        }
        if cdb.op == Op::GetLbaStatus {
            return self.lba_status(cdb).await;
        }
        let fua = !small && cdb.bit(1, 3);
        if matches!(cdb.op, Op::WriteSame10 | Op::WriteSame16) {
            return self.write_same(caller, task, cdb, data).await;
        }
        let (offset, len) = self.range(cdb.lba(), u64::from(cdb.length()))?;
        match cdb.op {
            Op::SyncCache10 | Op::SyncCache16 => {
                self.flush(caller.nexus.id).await?;
                return Reply::good(0);
            }
            Op::Prefetch10 | Op::Prefetch16 => return Reply::good(0),
            Op::Verify10 | Op::Verify12 | Op::Verify16 => {
                return self.verify(caller, task, cdb, (offset, len), data).await;
            }
            _ => {}
        }
        if len > MAX_TRANSFER_BYTES {
            return Err(Sense::cdb_field(if cdb.byte(0) >> 5 == 4 { 10 } else { 6 }).into());
        }
        match cdb.op {
            Op::CompareAndWrite => return self.compare_and_write(cdb, offset, len, data).await,
            _ if len == 0 => return Reply::good(0),
            Op::Read6 | Op::Read10 | Op::Read12 | Op::Read16 => {
                let buf = self.read_exact(offset, len).await?;
                return Ok(Reply { data: Some(buf.freeze()), transfer: len });
            }
            _ => {}
        }
        let data = self.sent(&data, len);
        self.tokens.changing(offset, data.len() as u64);
        match cdb.op {
            Op::OrWrite => self.or_write(offset, data).await?,
            Op::WriteVerify10 | Op::WriteVerify12 | Op::WriteVerify16 => {
                if cdb.byte(1) >> 1 & 3 > 1 {
                    return Err(Sense::cdb_field(1).into());
                }
                self.backing().write(offset, data.clone(), Durability::Durable).await?;
                let back = self.read_exact(offset, data.len() as u64).await?;
                if let Some(at) = first_difference(&back, &data) {
                    return Err(miscompare(at));
                }
            }
            _ => {
                let (durability, caching) = self.durability(caller.nexus.id, fua).await?;
                self.backing().write(offset, data, durability).await?;
                self.settle(durability, caching.as_ref()).await?;
            }
        }
        Reply::good(len)
    }

    async fn compare_and_write(&self, cdb: &Cdb, offset: u64, len: u64, data: SharedBuf) -> Outcome {
        if data.len() as u64 != 2 * len {
            return Err(Sense::cdb_field(13).into());
        }
        if len == 0 {
            return Reply::good(0);
        }
        debug_assert_eq!(cdb.op, Op::CompareAndWrite);
        let (half, all) = (len as usize, data.len());
        self.tokens.changing(offset, len);
        match self.backing().compare_and_write(offset, data.slice(0..half), data.slice(half..all)).await? {
            None => Reply::good(2 * len),
            Some(at) => Err(miscompare(at)),
        }
    }

    /// Read, or, and write back only if nobody wrote in between.
    async fn or_write(&self, offset: u64, data: SharedBuf) -> Result<(), Failure> {
        if data.is_empty() {
            return Ok(());
        }
        for _ in 0..ORWRITE_ROUNDS {
            let old = self.read_exact(offset, data.len() as u64).await?;
            let mut new = IoBuf::copy_from(&old);
            new.iter_mut().zip(data.iter()).for_each(|(byte, bits)| *byte |= bits);
            self.tokens.changing(offset, data.len() as u64);
            if self.backing().compare_and_write(offset, old.freeze(), new.freeze()).await?.is_none() {
                return Ok(());
            }
        }
        Err(Failure::Status(ScsiStatus::Busy))
    }

    async fn verify(
        &self,
        caller: &Caller<'_>,
        task: u64,
        cdb: &Cdb,
        (offset, len): (u64, u64),
        data: SharedBuf,
    ) -> Outcome {
        let check = cdb.byte(1) >> 1 & 3;
        let compared = match check {
            0 => 0,
            1 => len,
            3 => self.block().min(len),
            _ => return Err(Sense::cdb_field(1).into()),
        };
        if compared > MAX_TRANSFER_BYTES {
            return Err(Sense::cdb_field(1).into());
        }
        let data = self.sent(&data, compared);
        if check == 3 && compared > 0 && data.is_empty() {
            return Err(Sense::cdb_field(1).into());
        }
        let end = if check == 1 { data.len() as u64 } else { len };
        let mut at = 0;
        while at < end {
            let step = STEP_BYTES.min(end - at);
            let _permit = self.step(caller, task, cdb, Kind::Read, step).await?;
            let read = self.read_exact(offset + at, step).await?;
            let differs = match check {
                0 => None,
                1 => first_difference(&read, &data[at as usize..(at + step) as usize]),
                _ => read.chunks(data.len()).enumerate().find_map(|(i, block)| {
                    first_difference(block, &data).map(|d| d + (i * data.len()) as u64)
                }),
            };
            if let Some(differs) = differs {
                return Err(miscompare(at + differs));
            }
            at += step;
        }
        Reply::good(compared)
    }

    async fn write_same(&self, caller: &Caller<'_>, task: u64, cdb: &Cdb, data: SharedBuf) -> Outcome {
        let (anchor, unmap) = (cdb.bit(1, 4), cdb.bit(1, 3));
        let no_data = cdb.op == Op::WriteSame16 && cdb.bit(1, 0);
        if anchor {
            return Err(Sense::cdb_field(1).into());
        }
        // WSNZ: no count means "to the end of the unit" elsewhere, which nobody should get by a forgotten field.
        if cdb.length() == 0 {
            return Err(Sense::cdb_field(if cdb.op == Op::WriteSame10 { 7 } else { 10 }).into());
        }
        let (offset, len) = self.range(cdb.lba(), u64::from(cdb.length()))?;
        let block = self.block() as usize;
        if !no_data && data.len() != block {
            return Err(Sense::cdb_field(1).into());
        }
        let pattern = if no_data { &[][..] } else { &data[..block] };
        let zeroes = pattern.iter().all(|byte| *byte == 0);
        let (durability, caching) = self.durability(caller.nexus.id, false).await?;
        let fill = (!zeroes).then(|| {
            let mut fill = IoBuf::new(STEP_BYTES.min(len) as usize);
            fill.chunks_exact_mut(block).for_each(|chunk| chunk.copy_from_slice(pattern));
            fill.freeze()
        });
        // Zeros need no transfer, so their steps are longer; both look for aborts in between.
        let step = if zeroes { STEP_BYTES << 10 } else { STEP_BYTES };
        let mut at = 0;
        while at < len {
            let step = step.min(len - at);
            // Zeros move nothing: a step of them is one I/O.
            let moved = if zeroes { 0 } else { step };
            let _permit = self.step(caller, task, cdb, Kind::Write, moved).await?;
            self.tokens.changing(offset + at, step);
            match &fill {
                Some(fill) => {
                    self.backing().write(offset + at, fill.slice(0..step as usize), durability).await?
                }
                None if unmap && self.backing().unmap_zeroes() => {
                    self.backing().unmap(offset + at, step).await?
                }
                None => self.backing().write_zeroes(offset + at, step, durability).await?,
            }
            at += step;
        }
        self.settle(durability, caching.as_ref()).await?;
        Reply::good(if no_data { 0 } else { self.block() })
    }

    async fn unmap(&self, caller: &Caller<'_>, task: u64, cdb: &Cdb, data: &[u8]) -> Outcome {
        let length = cdb.length() as usize;
        if cdb.bit(1, 0) {
            return Err(Sense::cdb_field(1).into());
        }
        if length == 0 {
            return Reply::good(0);
        }
        let list = data.get(..length).filter(|list| list.len() >= 8);
        let list = list.ok_or(Sense::illegal(asc::PARAMETER_LIST_LENGTH_ERROR))?;
        let bytes = (be(list, 2, 2) as usize / 16 * 16).min((length - 8) / 16 * 16);
        if bytes / 16 > MAX_UNMAP_DESCRIPTORS as usize {
            return Err(Sense::parameter_field(2).into());
        }
        let descriptors = list[8..8 + bytes].chunks_exact(16);
        let ranges: Result<Vec<_>, _> =
            descriptors.filter(|d| be(d, 8, 4) != 0).map(|d| self.range(be(d, 0, 8), be(d, 8, 4))).collect();
        for (offset, len) in joined(ranges?) {
            let _permit = self.step(caller, task, cdb, Kind::Write, 0).await?;
            self.tokens.changing(offset, len);
            self.backing().unmap(offset, len).await?;
        }
        Reply::good(length as u64)
    }

    async fn lba_status(&self, cdb: &Cdb) -> Outcome {
        let (lba, all, block) = (cdb.lba(), self.blocks(), self.block());
        if lba >= all {
            return Err(Sense::illegal(asc::LBA_OUT_OF_RANGE).with_information(lba).into());
        }
        let room = (cdb.length().saturating_sub(8) as usize / 16).clamp(1, MAX_STATUS_DESCRIPTORS);
        let ranges = self.backing().allocated(lba * block, (all - lba) * block, room + 1).await?;
        let mut pieces: Vec<(u64, u64, u8)> = Vec::new(); // start, end, 0 mapped | 1 deallocated
        let mut at = lba;
        for range in &ranges {
            let start = (range.offset / block).max(at);
            let end = range.offset.saturating_add(range.len).div_ceil(block).min(all);
            if start > at {
                pieces.push((at, start, 1));
            }
            if end > start {
                match pieces.last_mut() {
                    Some(last) if last.2 == 0 => last.1 = end,
                    _ => pieces.push((start, end, 0)),
                }
                at = end;
            }
        }
        if at < all && ranges.len() <= room {
            pieces.push((at, all, 1));
        }
        let mut out = vec![0; 8];
        for (start, end, status) in pieces.into_iter().take(room) {
            out.extend_from_slice(&start.to_be_bytes());
            out.extend_from_slice(&u32::try_from(end - start).unwrap_or(u32::MAX).to_be_bytes());
            out.extend_from_slice(&[status, 0, 0, 0]);
            if end - start > u64::from(u32::MAX) {
                break; // the next descriptor would leave a gap
            }
        }
        let listed = (out.len() - 4) as u32;
        out[..4].copy_from_slice(&listed.to_be_bytes());
        Reply::parameters(&out, cdb.length())
    }
}

/// Ranges that follow each other directly as one: each is an operation of the backing with its own metadata.
fn joined(ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (offset, len) in ranges {
        match joined.last_mut() {
            Some((start, before)) if *start + *before == offset => *before += len,
            _ => joined.push((offset, len)),
        }
    }
    joined
}

fn miscompare(at: u64) -> Failure {
    Sense::new(SenseKey::Miscompare, asc::MISCOMPARE).with_information(at).into()
}
