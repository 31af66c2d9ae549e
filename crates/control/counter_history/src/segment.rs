//! The bytes of a segment: a file that is only added to.
//!
//! ```text
//!   ┌───────────┬─────────┬─────────────┬──────────┐┌──────────┬────────────┬─────────┐┌───
//!   │ HFHISTRY  │ version │ step length │ first ms ││ length   │ CRC-32C    │ payload ││ …
//!   │ 8 bytes   │ u32     │ u32 seconds │ u64      ││ u32      │ u32        │         ││
//!   └───────────┴─────────┴─────────────┴──────────┘└──────────┴────────────┴─────────┘└───
//!     header, once                                    frame, one for each step
//!
//!   payload:  end ms u64 │ nanoseconds u64 │ count, new names │ count, things
//!   new name: kind u8 │ length │ UTF-8                       its number is its place among all of the segment
//!   thing:    number, less that of the thing before │ mask of the numbers that are not 0 │ those
//! ```
//! Fixed numbers are little-endian; counts, lengths, and what is written of things are LEB128. The checksum is of the payload.
//! A segment needs no other: who reads it learns its names on the way. It is good up to the first frame that is not.

use byte_codec::{DecodeError, Reader, Writer, crc32c};
use control_api::CounterKind;

use crate::step::Step;
use crate::values::{FIELDS, Values, kind_number, kind_of};

const MAGIC: u64 = u64::from_le_bytes(*b"HFHISTRY");
/// The version of the format that is written.
pub(crate) const VERSION: u32 = 1;
/// Bytes of the header.
pub(crate) const HEADER: usize = 24;
/// Bytes before a payload.
const FRAME: usize = 8;
/// The longest payload that is written or taken.
const MAX_PAYLOAD: usize = 8 << 20;
/// Most names in a segment; a new one begins before there are more.
pub(crate) const MAX_NAMES: usize = 100_000;
/// The longest name in bytes; longer ones are cut.
const MAX_NAME: usize = 4096;

fn varint(writer: &mut Writer, mut value: u64) {
    while value >= 0x80 {
        writer.u8(value as u8 | 0x80);
        value >>= 7;
    }
    writer.u8(value as u8);
}

fn read_varint(reader: &mut Reader<'_>) -> Result<u64, DecodeError> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = reader.u8()?;
        let part = u64::from(byte & 0x7F);
        if shift == 63 && part > 1 {
            return Err(DecodeError::Invalid("number"));
        }
        value |= part << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(DecodeError::Invalid("number"))
}

/// A count of things that take at least `each` bytes, so that it says nothing that could not be there.
fn read_count(reader: &mut Reader<'_>, each: usize) -> Result<usize, DecodeError> {
    let count = usize::try_from(read_varint(reader)?).map_err(|_| DecodeError::Invalid("count"))?;
    if count > reader.remaining() / each { Err(DecodeError::Truncated) } else { Ok(count) }
}

/// The header of a segment whose first step ends at `first_ms`, of steps of `seconds`.
pub(crate) fn header(seconds: u32, first_ms: u64) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.u64(MAGIC);
    writer.u32(VERSION);
    writer.u32(seconds);
    writer.u64(first_ms);
    writer.finish()
}

/// The step length and the first moment that a header says.
pub(crate) fn read_header(bytes: &[u8]) -> Result<(u32, u64), DecodeError> {
    let mut reader = Reader::new(bytes);
    if reader.u64()? != MAGIC {
        return Err(DecodeError::WrongMagic);
    }
    match reader.u32()? {
        VERSION => Ok((reader.u32()?, reader.u64()?)),
        other => Err(DecodeError::Unsupported(other)),
    }
}

/// The names of a segment that is being written, with their numbers.
#[derive(Debug, Default)]
pub(crate) struct Names {
    numbers: std::collections::BTreeMap<(CounterKind, String), u64>,
}

impl Names {
    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Knows a name that is in the segment already.
    pub(crate) fn know(&mut self, kind: CounterKind, name: &str) {
        let number = self.numbers.len() as u64;
        self.numbers.entry((kind, name.to_owned())).or_insert(number);
    }
}

fn cut(name: &str) -> &str {
    let mut end = name.len().min(MAX_NAME);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name.get(..end).unwrap_or_default()
}

/// The frame of a step; `None` when it would be longer than anybody takes.
pub(crate) fn frame(step: &Step, names: &mut Names) -> Option<Vec<u8>> {
    let known = names.numbers.len() as u64;
    let mut new = Vec::new();
    let mut things = Vec::with_capacity(step.things.len());
    for thing in &step.things {
        let name = cut(&thing.name);
        let next = names.numbers.len() as u64;
        let number = *names.numbers.entry((thing.kind, name.to_owned())).or_insert_with(|| {
            new.push((thing.kind, name));
            next
        });
        things.push((number, &thing.values));
    }
    things.sort_by_key(|(number, _)| *number);
    things.dedup_by_key(|(number, _)| *number);
    let mut payload = Writer::default();
    payload.u64(step.wall_ms);
    payload.u64(step.nanos);
    varint(&mut payload, new.len() as u64);
    for (kind, name) in new {
        payload.u8(kind_number(kind));
        varint(&mut payload, name.len() as u64);
        payload.raw(name.as_bytes());
    }
    varint(&mut payload, things.len() as u64);
    let mut last = 0;
    for (number, Values(values)) in things {
        varint(&mut payload, number - last);
        last = number;
        let mask = values.iter().enumerate().filter(|(_, value)| **value != 0);
        varint(&mut payload, mask.fold(0, |mask, (place, _)| mask | 1 << place));
        values.iter().filter(|value| **value != 0).for_each(|value| varint(&mut payload, *value));
    }
    let payload = payload.finish();
    if payload.len() > MAX_PAYLOAD {
        // Nobody learns these names.
        names.numbers.retain(|_, number| *number < known);
        return None;
    }
    let mut frame = Writer::default();
    frame.u32(payload.len() as u32);
    frame.u32(crc32c(&payload));
    frame.raw(&payload);
    Some(frame.finish())
}

/// A frame as it is read: things by the numbers of their names.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) wall_ms: u64,
    pub(crate) nanos: u64,
    pub(crate) things: Vec<(usize, Values)>,
}

/// Goes through the frames of a segment.
pub(crate) struct Frames<'a> {
    rest: &'a [u8],
    /// The names so far; `None` for one of a kind that this release does not know.
    names: Vec<Option<(CounterKind, String)>>,
}

impl<'a> Frames<'a> {
    /// Those of a segment, after its header.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, names: Vec::new() }
    }

    pub(crate) fn names(&self) -> &[Option<(CounterKind, String)>] {
        &self.names
    }

    /// The next one; `None` at the end.
    ///
    /// # Errors
    /// When it is not as it was written. There is nothing behind it that could be read.
    pub(crate) fn next(&mut self) -> Result<Option<Frame>, DecodeError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let mut reader = Reader::new(self.rest);
        let (len, sum) = (reader.u32()? as usize, reader.u32()?);
        if len > MAX_PAYLOAD {
            return Err(DecodeError::Invalid("length"));
        }
        let payload = reader.raw(len)?;
        if crc32c(payload) != sum {
            return Err(DecodeError::WrongChecksum);
        }
        let frame = self.payload(payload)?;
        self.rest = self.rest.get(FRAME + len..).unwrap_or_default();
        Ok(Some(frame))
    }

    pub(crate) fn payload(&mut self, payload: &[u8]) -> Result<Frame, DecodeError> {
        let mut reader = Reader::new(payload);
        let (wall_ms, nanos) = (reader.u64()?, reader.u64()?);
        let new = read_count(&mut reader, 2)?;
        if self.names.len() + new > MAX_NAMES {
            return Err(DecodeError::Invalid("count of names"));
        }
        for _ in 0..new {
            let kind = kind_of(reader.u8()?);
            let len = read_count(&mut reader, 1)?;
            if len > MAX_NAME {
                return Err(DecodeError::Invalid("name"));
            }
            let name = std::str::from_utf8(reader.raw(len)?).map_err(|_| DecodeError::Invalid("name"))?;
            self.names.push(kind.map(|kind| (kind, name.to_owned())));
        }
        let count = read_count(&mut reader, 2)?;
        if count > self.names.len() {
            return Err(DecodeError::Invalid("count of things"));
        }
        let mut things = Vec::with_capacity(count);
        let mut number = 0_u64;
        for place in 0..count {
            let more = read_varint(&mut reader)?;
            number = number.checked_add(more).ok_or(DecodeError::Invalid("name number"))?;
            let at = usize::try_from(number).ok().filter(|at| *at < self.names.len());
            let at = at.ok_or(DecodeError::Invalid("name number"))?;
            if place > 0 && more == 0 {
                return Err(DecodeError::Invalid("name number"));
            }
            let mask = read_varint(&mut reader)?;
            if mask >> FIELDS != 0 {
                return Err(DecodeError::Invalid("mask"));
            }
            let mut values = Values::default();
            for (bit, value) in values.0.iter_mut().enumerate() {
                if mask & 1 << bit != 0 {
                    *value = read_varint(&mut reader)?;
                }
            }
            things.push((at, values));
        }
        if reader.remaining() > 0 {
            return Err(DecodeError::Invalid("length"));
        }
        Ok(Frame { wall_ms, nanos, things })
    }
}
