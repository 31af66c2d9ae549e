//! Offloaded data transfer: a token stands for data as they were when it was made (MS-FSA 2.1.5.10.18, .19).
//!
//! A token is random, so that nobody makes one up, and good for the user that asked for it, over the share that the source
//! was opened through: elsewhere other rights may hold. It names a range and how often its file's data had been changed.
//! Where they changed since, the token is void: the client copies by itself, which is always right.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use shard_runtime::Monotonic;
use smb_protocol::NtStatus;
use smb_protocol::access::AccessMask;
use smb_protocol::fsctl::copy::{
    OffloadReadFlags, OffloadReadInput, OffloadReadOutput, OffloadWriteInput, OffloadWriteOutput, TOKEN_ZERO,
};
use smb_protocol::wire::Wire;

use super::{Answer, reply};
use crate::error::{Result, refuse};
use crate::file_system::{Open, Transfer};
use crate::locks::ByteRange;

/// How long a token lives: a client's wish up to five minutes, else half a minute as on Windows.
const LIFE: Duration = Duration::from_secs(30);
const LIFE_MAX: Duration = Duration::from_secs(300);
/// Most bytes that a token stands for.
const TRANSFER_MAX: u64 = 256 << 20;
/// What offsets and lengths are multiples of.
const SECTOR: u64 = 512;

impl Open {
    /// FSCTL_OFFLOAD_READ: a token for a range.
    pub(super) fn offload_read(self: &Arc<Self>, input: &[u8], limit: usize) -> Result<Answer> {
        let Ok(asked) = OffloadReadInput::decode(input) else {
            return refuse(NtStatus::INVALID_PARAMETER, "the input is not whole");
        };
        if self.directory || !self.stream.is_empty() {
            return refuse(NtStatus::OFFLOAD_READ_FILE_NOT_SUPPORTED, "only files' data are offloaded");
        }
        self.needs(AccessMask::READ_DATA, "the open may not read")?;
        let aligned = [asked.file_offset, asked.copy_length].iter().all(|value| value.is_multiple_of(SECTOR));
        if asked.size as usize != OffloadReadInput::SIZE || !aligned || asked.copy_length == 0 {
            return refuse(NtStatus::INVALID_PARAMETER, "a range that is not made of sectors");
        }
        let size = self.data()?.size();
        if asked.file_offset >= size {
            return refuse(NtStatus::END_OF_FILE, "");
        }
        // The last sector counts as whole.
        let left = (size - asked.file_offset).next_multiple_of(SECTOR);
        let length = asked.copy_length.min(left).min(TRANSFER_MAX);
        self.check_locks(ByteRange { offset: asked.file_offset, length }, false)?;
        let wish = Duration::from_millis(u64::from(asked.time_to_live));
        let life = if wish.is_zero() { LIFE } else { wish.min(LIFE_MAX) };
        let now = self.core.clock.now();
        let transfer = Transfer {
            source: Arc::downgrade(self),
            user: self.caller.token.user,
            root: self.caller.share.root,
            offset: asked.file_offset,
            length,
            version: self.node.data_version.load(Ordering::Acquire),
            expires: Monotonic(now.0.saturating_add(life.as_nanos() as u64)),
        };
        let (token, spare) = self.core.tokens.lock().give(transfer, now);
        drop(spare);
        let output = OffloadReadOutput {
            size: OffloadReadOutput::SIZE as u32,
            flags: OffloadReadFlags::NONE,
            transfer_length: length,
            token,
        };
        reply(&output, limit)
    }

    /// FSCTL_OFFLOAD_WRITE: what a token stands for is written here.
    pub(super) async fn offload_write(self: &Arc<Self>, input: &[u8], limit: usize) -> Result<Answer> {
        let Ok(asked) = OffloadWriteInput::decode(input) else {
            return refuse(NtStatus::INVALID_PARAMETER, "the input is not whole");
        };
        if self.directory || !self.stream.is_empty() {
            return refuse(NtStatus::OFFLOAD_WRITE_FILE_NOT_SUPPORTED, "only files' data are offloaded");
        }
        self.needs(AccessMask::WRITE_DATA, "the open may not write")?;
        let fields = [asked.file_offset, asked.copy_length, asked.transfer_offset];
        let aligned = fields.iter().all(|value| value.is_multiple_of(SECTOR) && *value <= i64::MAX as u64);
        if asked.size as usize != OffloadWriteInput::SIZE || !aligned {
            return refuse(NtStatus::INVALID_PARAMETER, "a range that is not made of sectors");
        }
        let size = self.data()?.size();
        if asked.file_offset >= size {
            return refuse(NtStatus::END_OF_FILE, "");
        }
        let room = (size - asked.file_offset).min(TRANSFER_MAX);
        let length = if asked.token.kind() == TOKEN_ZERO {
            let length = asked.copy_length.min(room);
            self.write_zeros(asked.file_offset, length).await?;
            length
        } else {
            self.write_transfer(&asked, room).await?
        };
        let output = OffloadWriteOutput {
            size: OffloadWriteOutput::SIZE as u32,
            flags: 0,
            length_written: length.next_multiple_of(SECTOR),
        };
        reply(&output, limit)
    }

    async fn write_zeros(self: &Arc<Self>, offset: u64, length: u64) -> Result<()> {
        self.check_locks(ByteRange { offset, length }, true)?;
        let (open, data) = (Arc::clone(self), self.data()?);
        self.change(async move {
            open.core.break_for_change(&open.node, &open.stream, &open.by()).await?;
            open.node.data_changes();
            data.zero_range(offset, length, block_device::Durability::Durable).await?;
            open.core.data_changed(&open, false).await;
            Ok(())
        })
        .await
    }

    async fn write_transfer(self: &Arc<Self>, asked: &OffloadWriteInput, room: u64) -> Result<u64> {
        let found = self.core.tokens.lock().find(&asked.token, &self.caller, self.core.clock.now());
        let void = || {
            let reason =
                "the token is unknown, another user's, of another share, too old, or its data changed";
            refuse(NtStatus::INVALID_TOKEN, reason)
        };
        let Some((transfer, source)) =
            found.and_then(|found| Some((found.source()?, found))).map(|(s, t)| (t, s))
        else {
            return void();
        };
        let is_current = || source.node.data_version.load(Ordering::Acquire) == transfer.version;
        if !is_current() {
            return void();
        }
        let Some(left) = transfer.length.checked_sub(asked.transfer_offset).filter(|left| *left > 0) else {
            return refuse(NtStatus::INVALID_PARAMETER, "behind what the token stands for");
        };
        let from = transfer.offset + asked.transfer_offset;
        let there = source.data()?.size().saturating_sub(from);
        let length = asked.copy_length.min(left).min(room).min(there);
        if length == 0 {
            return refuse(NtStatus::INVALID_TOKEN, "nothing is left of what the token stands for");
        }
        self.copy_range(&source, from, asked.file_offset, length).await?;
        // What was read while it changed is not what the token stands for: the client copies by itself.
        if self.node.file != source.node.file && !is_current() {
            return void();
        }
        Ok(length)
    }
}
