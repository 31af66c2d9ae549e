//! Offloaded copies by token (ODX): POPULATE TOKEN names blocks of this unit, WRITE USING TOKEN copies them to
//! where they are wanted, RECEIVE ROD TOKEN INFORMATION tells how it went (SPC-4 6.31, SBC-3 5.34 and 5.53).
//!
//! A token stands for the blocks as they were: the first change of one of them ends it ("point in time copy,
//! change vulnerable"). Changes say so *before* they begin, and a copy looks whether its token still stands *after*
//! it has read, so that no copy that ends well has seen a change. Only who sees the source unit can use a token.

use std::sync::Arc;
use std::time::Duration;

use qos_gate::Kind;
use scsi_core::Nexus;
use scsi_defs::{Cdb, Op, Sense, asc, be};
use shard_runtime::{Entropy, SystemEntropy};

use crate::ended::EndedToken;
use crate::limits::{MAX_TOKEN_RANGES, MAX_TOKEN_TRANSFER, TOKEN_TIMEOUTS};
use crate::reply::{Failure, Outcome, Reply};
use crate::tokens::Token;
use crate::turn::Consent;
use crate::unit::LogicalUnit;
use crate::view::Caller;

/// Bytes of a token.
pub(crate) const TOKEN_BYTES: usize = 512;
/// Point in time copy, change vulnerable.
const ROD_TYPE: [u8; 4] = [0, 0x80, 0, 1];
/// The well-known token that stands for zeros.
const ZERO_TYPE: [u8; 4] = [0xff, 0xff, 0, 1];

impl LogicalUnit {
    pub(crate) async fn token_command(
        self: &Arc<Self>,
        caller: &Caller<'_>,
        task: u64,
        cdb: &Cdb,
        data: &[u8],
    ) -> Outcome {
        let number = |at: usize| (at..at + 4).fold(0, |id, i| id << 8 | u32::from(cdb.byte(i)));
        if cdb.op == Op::ReceiveRodTokenInformation {
            let inner = self.inner.lock();
            let entry = inner.nexuses.get(&caller.nexus.id);
            let found = entry.and_then(|entry| entry.tokens.iter().find(|e| e.list_id == number(2)));
            return Reply::parameters(&found.ok_or(Sense::cdb_field(2))?.information(), cdb.length());
        }
        let length = cdb.length();
        if length == 0 {
            return Reply::good(0);
        }
        let short = Sense::illegal(asc::PARAMETER_LIST_LENGTH_ERROR);
        let data = data.get(..length as usize).ok_or(short)?;
        let mut ended = EndedToken {
            list_id: number(6),
            action: cdb.byte(1) & 0x1f,
            blocks: 0,
            sense: Vec::new(),
            token: None,
        };
        let outcome = match cdb.op {
            Op::PopulateToken => self.populate(caller.nexus, data, &mut ended),
            _ => self.write_using(caller, (task, cdb), data, &mut ended).await,
        };
        if let Err(failure) = &outcome
            && let Some(sense) = failure.sense()
        {
            ended.sense = sense.encode(false);
        }
        if let Some(entry) = self.inner.lock().nexuses.get_mut(&caller.nexus.id) {
            ended.remember(&mut entry.tokens);
        }
        outcome?;
        Reply::good(u64::from(length))
    }

    /// The range descriptors of a list, as bytes; `at` is where their length stands.
    fn ranges(&self, data: &[u8], at: usize) -> Result<Vec<(u64, u64)>, Sense> {
        let list = data.get(at + 2..).ok_or(Sense::illegal(asc::PARAMETER_LIST_LENGTH_ERROR))?;
        let length = be(data, at, 2) as usize;
        if be(data, 0, 2) as usize + 2 > data.len() || length > list.len() || length < 16 {
            return Err(Sense::illegal(asc::PARAMETER_LIST_LENGTH_ERROR));
        }
        if length / 16 > usize::from(MAX_TOKEN_RANGES) {
            return Err(Sense::illegal(asc::TOO_MANY_SEGMENT_DESCRIPTORS));
        }
        if data[2] & 1 != 0 {
            return Err(Sense::parameter_field(2)); // IMMED: operations end before their status is returned
        }
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for range in list[..length].chunks_exact(16) {
            let range = self.range(be(range, 0, 8), be(range, 8, 4))?;
            if ranges.iter().any(|other| other.0 < range.0 + range.1 && range.0 < other.0 + other.1) {
                return Err(Sense::parameter_field(at as u16 + 2));
            }
            ranges.push(range);
        }
        Ok(ranges)
    }

    fn populate(self: &Arc<Self>, nexus: &Nexus, data: &[u8], ended: &mut EndedToken) -> Result<(), Failure> {
        let asked = self.ranges(data, 14)?;
        let wanted: [u8; 4] = std::array::from_fn(|i| data[8 + i]);
        if data[2] & 2 != 0 && ![[0; 4], ROD_TYPE, [0, 0x80, 0xff, 0xff]].contains(&wanted) {
            return Err(Sense::parameter_field(8).into());
        }
        let timeout = match be(data, 4, 4) as u32 {
            0 => TOKEN_TIMEOUTS.0,
            seconds if seconds > TOKEN_TIMEOUTS.1 => return Err(Sense::parameter_field(4).into()),
            seconds => seconds,
        };
        // What is too much is left out at the end, and the count says so.
        let (mut room, mut ranges) = (MAX_TOKEN_TRANSFER, Vec::new());
        for (offset, len) in asked {
            let len = len.min(room);
            room -= len;
            if len > 0 {
                ranges.push((offset, len));
            }
        }
        let bytes = MAX_TOKEN_TRANSFER - room;
        let mut id = [0; 16];
        SystemEntropy.fill(&mut id);
        let mut token = [&ROD_TYPE[..], &[0, 0, 1, 0xf8], &id[..8]].concat();
        let designator = self.designator();
        token.extend_from_slice(&[0xe4, 0, 0, 0, 1, 3, 0, designator.len() as u8]);
        token.extend_from_slice(&designator);
        token.resize(48, 0);
        token.extend_from_slice(&u128::from(bytes).to_be_bytes());
        token.resize(96, 0);
        token.extend_from_slice(&self.config.block_size.to_be_bytes());
        token.resize(128, 0);
        token.extend_from_slice(&id);
        token.resize(TOKEN_BYTES, 0);
        self.tokens.add(Token { nexus: nexus.id, id, ranges, used: false });
        (ended.blocks, ended.token) = (bytes / self.block(), Some(token));
        let unit = Arc::downgrade(self);
        shard_runtime::detach(async move {
            loop {
                shard_runtime::sleep(Duration::from_secs(u64::from(timeout))).await;
                if !unit.upgrade().is_some_and(|unit| unit.tokens.still_used(&id)) {
                    return;
                }
            }
        });
        Ok(())
    }

    async fn write_using(
        self: &Arc<Self>,
        caller: &Caller<'_>,
        (task, cdb): (u64, &Cdb),
        data: &[u8],
        ended: &mut EndedToken,
    ) -> Result<(), Failure> {
        let targets = self.ranges(data, 534)?;
        let token = &data[16..16 + TOKEN_BYTES];
        let total: u64 = targets.iter().map(|(_, len)| len).sum();
        if total > MAX_TOKEN_TRANSFER {
            return Err(Sense::parameter_field(534).into());
        }
        if token[..4] == ZERO_TYPE {
            for (offset, len) in targets {
                let _permit = self.step(caller, task, cdb, Kind::Write, 0).await?;
                self.tokens.changing(offset, len);
                let (durability, caching) = self.durability(caller.nexus.id, false).await?;
                self.backing().write_zeroes(offset, len, durability).await?;
                self.settle(durability, caching.as_ref()).await?;
                ended.blocks += len / self.block();
            }
            return Ok(());
        }
        if token[..4] != ROD_TYPE {
            return Err(Sense::illegal(asc::INVALID_TOKEN_UNKNOWN).into());
        }
        let unknown = || Failure::Sense(Sense::illegal(asc::INVALID_TOKEN_UNKNOWN));
        let id = &token[128..144];
        let designator = token.get(24..24 + usize::from(token[23]));
        let mut units = caller.view.values().map(|mapped| &mapped.unit);
        let source = units.find(|unit| designator == Some(&unit.designator()[..]));
        let source = source.ok_or_else(unknown)?;
        let mut pieces = source.tokens.find(id).ok_or_else(unknown)?;
        // What may not be read there now may not be read through a token.
        source.third_party(caller, false)?;
        let represented: u64 = pieces.iter().map(|(_, len)| len).sum();
        let skip = be(data, 8, 8).checked_mul(self.block()).filter(|skip| *skip < represented);
        let mut skip = skip.ok_or(Sense::parameter_field(8))?;
        if represented - skip < total {
            return Err(Sense::parameter_field(534).into());
        }
        pieces.reverse();
        for (mut offset, mut len) in targets {
            while len > 0 {
                let Some((start, there)) = pieces.pop() else { return Err(unknown()) };
                if skip >= there {
                    skip -= there;
                    continue;
                }
                let (start, there) = (start + skip, there - skip);
                skip = 0;
                let step = there.min(len);
                if there > step {
                    pieces.push((start + step, there - step));
                }
                let wanted = || {
                    self.still_wanted(task)?;
                    if source.tokens.find(id).is_none() { Err(unknown()) } else { Ok(()) }
                };
                let allowed = || self.admit(caller, cdb).and_then(|()| source.third_party(caller, false));
                let consent = Consent { wanted: &wanted, allowed: &allowed };
                Self::copy_range(caller.nexus, &consent, (source, start), (self, offset), step).await?;
                (offset, len) = (offset + step, len - step);
                ended.blocks += step / self.block();
            }
        }
        Ok(())
    }
}
