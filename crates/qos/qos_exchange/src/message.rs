//! A round as messages.
//!
//! ```text
//!   bytes   0..4   the round, the same in all of its messages        little-endian
//!           4..6   which message of the round, from 0
//!           6      1: the last of the round
//!           7      demands that follow
//!           8..    demands, 56 bytes each: policy 16, volume 16, units 8, bytes 8, got 8
//! ```
//! What follows is a later release's, and left alone.

use byte_codec::{DecodeError, Reader, Writer};
use uuid::Uuid;

use crate::Demand;

/// The longest message in bytes: a frame of a link between nodes has room for it.
pub const MOST_BYTES: usize = 1000;

const HEADER: usize = 8;
const DEMAND: usize = 56;
const EACH: usize = (MOST_BYTES - HEADER) / DEMAND;
const _: () = assert!(EACH >= 1 && EACH <= u8::MAX as usize);

pub(crate) struct Message {
    pub(crate) round: u32,
    pub(crate) number: u16,
    pub(crate) is_last: bool,
    pub(crate) demands: Vec<Demand>,
}

impl Message {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.u32(self.round);
        writer.u16(self.number);
        writer.u8(self.is_last.into());
        writer.u8(self.demands.len() as u8);
        for demand in &self.demands {
            writer.raw(demand.policy.as_bytes());
            writer.raw(demand.volume.as_bytes());
            writer.u64(demand.units);
            writer.u64(demand.bytes);
            writer.u64(demand.got);
        }
        writer.finish()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let (round, number, is_last) = (reader.u32()?, reader.u16()?, reader.u8()? & 1 != 0);
        let count = usize::from(reader.u8()?);
        if count > EACH {
            return Err(DecodeError::Invalid("number of demands"));
        }
        let mut demands = Vec::with_capacity(count);
        for _ in 0..count {
            let (policy, volume) = (Uuid::from_bytes(reader.guid()?), Uuid::from_bytes(reader.guid()?));
            let (units, bytes, got) = (reader.u64()?, reader.u64()?, reader.u64()?);
            demands.push(Demand { policy, volume, units, bytes, got });
        }
        Ok(Self { round, number, is_last, demands })
    }
}

/// The messages of a round: at least one, which says that there is nothing.
pub(crate) fn round(round: u32, demands: &[Demand]) -> Vec<Vec<u8>> {
    let demands = &demands[..demands.len().min(crate::MOST_DEMANDS)];
    let parts: Vec<&[Demand]> = if demands.is_empty() { vec![&[]] } else { demands.chunks(EACH).collect() };
    let last = parts.len() - 1;
    let message = |(number, demands): (usize, &[Demand])| {
        Message { round, number: number as u16, is_last: number == last, demands: demands.to_vec() }.encode()
    };
    parts.into_iter().enumerate().map(message).collect()
}
