//! Offloaded data transfer: a token stands for data as they were when it was made (MS-FSA 2.1.5.10.18, .19).
//!
//! A token names a range and how often its file's data had been changed. Where they changed since, the token is void: the
//! client copies by itself, which is always right.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use shard_runtime::Monotonic;
use smb_protocol::NtStatus;
use smb_protocol::access::AccessMask;
use smb_protocol::fsctl::copy::{
    OffloadReadFlags, OffloadReadInput, OffloadReadOutput, OffloadToken, OffloadWriteInput,
    OffloadWriteOutput, TOKEN_ZERO,
};
use smb_protocol::wire::Wire;

use super::{Answer, reply};
use crate::error::{Result, refuse};
use crate::locks::ByteRange;
use crate::open::Open;

/// Our type of token; the specification leaves all but a few values to vendors.
const TOKEN_KIND: u32 = 0x4846_0001;
/// Most tokens at a time: clients use each at once.
const TOKENS_MAX: usize = 4096;
/// How long a token lives: a client's wish up to five minutes, else half a minute as on Windows.
const LIFE: Duration = Duration::from_secs(30);
const LIFE_MAX: Duration = Duration::from_secs(300);
/// Most bytes that a token stands for.
const TRANSFER_MAX: u64 = 256 << 20;
/// What offsets and lengths are multiples of.
const SECTOR: u64 = 512;

/// What a token stands for.
#[derive(Clone)]
struct Transfer {
    source: Arc<Open>,
    offset: u64,
    length: u64,
    version: u64,
    expires: Monotonic,
}

/// Tokens that were given out.
pub(crate) struct Tokens {
    secret: [u8; 16],
    next: u64,
    given: BTreeMap<u64, Transfer>,
}

impl Tokens {
    /// None yet; `secret` makes them unguessable.
    pub(crate) fn new(secret: [u8; 16]) -> Self {
        Self { secret, next: 1, given: BTreeMap::new() }
    }

    fn id(&self, number: u64) -> [u8; 24] {
        let mut id = [0; 24];
        let (head, tail) = id.split_at_mut(8);
        head.copy_from_slice(&number.to_be_bytes());
        tail.copy_from_slice(&self.secret);
        id
    }

    /// Gives a token out; what is returned besides must be dropped without the lock.
    fn give(&mut self, transfer: Transfer, now: Monotonic) -> (OffloadToken, Vec<Transfer>) {
        let mut dead: Vec<u64> = self
            .given
            .iter()
            .filter(|(_, t)| t.expires <= now || t.source.is_closed())
            .map(|(n, _)| *n)
            .collect();
        if self.given.len() - dead.len() >= TOKENS_MAX {
            dead.extend(self.given.keys().next());
        }
        let spare = dead.iter().filter_map(|number| self.given.remove(number)).collect();
        let number = self.next;
        self.next += 1;
        self.given.insert(number, transfer);
        (OffloadToken::new(TOKEN_KIND, &self.id(number)), spare)
    }

    fn find(&self, token: &OffloadToken, now: Monotonic) -> Option<Transfer> {
        let id = token.id().filter(|_| token.kind() == TOKEN_KIND)?;
        let number = u64::from_be_bytes(*id.first_chunk()?);
        let transfer = self.given.get(&number)?;
        (id == self.id(number) && transfer.expires > now).then(|| transfer.clone())
    }
}

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
            source: Arc::clone(self),
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
        self.core.break_for_change(&self.node, &self.stream, &self.by()).await;
        self.data()?.zero_range(offset, length, block_device::Durability::Durable).await?;
        self.core.data_changed(self, false).await;
        Ok(())
    }

    async fn write_transfer(self: &Arc<Self>, asked: &OffloadWriteInput, room: u64) -> Result<u64> {
        let found = self.core.tokens.lock().find(&asked.token, self.core.clock.now());
        let current = |t: &Transfer| {
            t.source.node.data_version.load(Ordering::Acquire) == t.version && !t.source.is_closed()
        };
        let Some(transfer) = found.filter(current) else {
            return refuse(NtStatus::INVALID_TOKEN, "the token is unknown, too old, or its data changed");
        };
        let Some(left) = transfer.length.checked_sub(asked.transfer_offset).filter(|left| *left > 0) else {
            return refuse(NtStatus::INVALID_PARAMETER, "behind what the token stands for");
        };
        let from = transfer.offset + asked.transfer_offset;
        let there = transfer.source.data()?.size().saturating_sub(from);
        let length = asked.copy_length.min(left).min(room).min(there);
        if length == 0 {
            return refuse(NtStatus::INVALID_TOKEN, "nothing is left of what the token stands for");
        }
        self.copy_range(&transfer.source, from, asked.file_offset, length).await?;
        Ok(length)
    }
}
