//! What the two ends say to each other, as bytes.
//!
//! A frame is the length of its head (two bytes), that of its data (four), the head, and the data, which belongs to a command or an answer
//! and is read straight to where it stays; numbers are little-endian. The end that connects sends [`Call::Hello`] and gets
//! [`Reply::Welcome`], or [`Reply::Refused`] with a reason for people. The two speak the lower of their versions.

use byte_codec::{DecodeError, Reader, Writer};
use scsi_core::{MAX_SENSE_BYTES, ScsiStatus, TaskAttribute, TaskManagement, TaskManagementOutcome, WireLun};

/// The version that this release speaks.
pub(crate) const VERSION: u16 = 1;
/// Bytes before the head.
pub(crate) const PREFIX: usize = 6;
/// The longest head: two names of 223 bytes, or sense data, are the longest things in one.
pub(crate) const MAX_HEAD: usize = 1024;
/// The most data of a command or an answer, as much as the transport takes from an initiator.
pub(crate) const MAX_DATA: usize = 32 << 20;
const MAGIC: &[u8; 4] = b"HFSF";
/// The longest name of an initiator or target (RFC 7143 4.2.7.1).
const MAX_NAME: usize = 223;
/// The longest command descriptor block.
const MAX_CDB: usize = 260;
const MAX_REASON: usize = 512;

/// Who connects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    /// The highest version that it knows.
    pub(crate) version: u16,
    /// The node that initiators have reached, and its life.
    pub(crate) from: u16,
    pub(crate) incarnation: u64,
    /// The node that is to carry commands out.
    pub(crate) to: u16,
    /// Which of its connections this is: a new one with the same number takes the place of the one before.
    pub(crate) channel: u32,
}

/// An I_T nexus at the node that the initiator has reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Port {
    pub(crate) nexus: u64,
    pub(crate) initiator: String,
    pub(crate) initiator_port: [u8; 6],
    pub(crate) target: String,
    pub(crate) target_port: u16,
}

/// Which unit is meant, and since when the command is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Aim {
    pub(crate) nexus: u64,
    pub(crate) lun: WireLun,
    /// Its identity: numbers may be given anew.
    pub(crate) unit: [u8; 16],
    /// What the owner's clock was, as it said itself, when the command had come from the initiator: nanoseconds.
    pub(crate) tick: u64,
    /// So long the command had waited by then for the owner to say so: nanoseconds.
    pub(crate) waited: u64,
}

/// What goes to the owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Hello(Hello),
    /// A nexus that commands follow of.
    Nexus(Port),
    Command {
        tag: u64,
        aim: Aim,
        attribute: TaskAttribute,
        limit: u32,
        cdb: Vec<u8>,
    },
    /// The command is not wanted any more. Answered by [`Reply::Unanswered`], unless its answer is under way.
    Abort(u64),
    Manage {
        tag: u64,
        aim: Aim,
        function: TaskManagement,
    },
    /// The nexus is gone.
    Lost(u64),
    /// What time is it? Answered by [`Reply::Tick`].
    Ask,
}

/// What comes back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Welcome {
        version: u16,
        tick: u64,
    },
    Refused(String),
    Answer {
        tag: u64,
        tick: u64,
        status: ScsiStatus,
        transfer: u64,
        sense: Vec<u8>,
    },
    /// The command has ended and is not answered.
    Unanswered(u64),
    /// The command was not begun: it is too old, its unit is not served here, or who sends it has no say.
    NotDone(u64),
    Managed {
        tag: u64,
        outcome: TaskManagementOutcome,
    },
    Tick(u64),
}

/// The lengths of a frame's head and data.
pub(crate) fn prefix(bytes: [u8; PREFIX]) -> Result<(usize, usize), DecodeError> {
    let mut reader = Reader::new(&bytes);
    let (head, data) = (usize::from(reader.u16()?), reader.u32()? as usize);
    if head == 0 || head > MAX_HEAD {
        return Err(DecodeError::Invalid("length of a head"));
    }
    if data > MAX_DATA { Err(DecodeError::Invalid("length of data")) } else { Ok((head, data)) }
}

/// A head with the lengths before it, for `data` bytes of data.
pub(crate) fn framed(head: &[u8], data: usize) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.u16(head.len() as u16);
    writer.u32(data as u32);
    writer.raw(head);
    writer.finish()
}

fn name(reader: &mut Reader<'_>) -> Result<String, DecodeError> {
    let name = reader.text()?;
    let fine = !name.is_empty() && name.len() <= MAX_NAME && !name.chars().any(char::is_control);
    if fine { Ok(name) } else { Err(DecodeError::Invalid("name")) }
}

fn six(reader: &mut Reader<'_>) -> Result<[u8; 6], DecodeError> {
    reader.raw(6)?.try_into().map_err(|_| DecodeError::Truncated)
}

const ATTRIBUTES: [TaskAttribute; 4] =
    [TaskAttribute::Simple, TaskAttribute::Ordered, TaskAttribute::HeadOfQueue, TaskAttribute::Aca];
const FUNCTIONS: [TaskManagement; 5] = [
    TaskManagement::AbortTaskSet,
    TaskManagement::ClearTaskSet,
    TaskManagement::LogicalUnitReset,
    TaskManagement::TargetWarmReset,
    TaskManagement::TargetColdReset,
];
const OUTCOMES: [TaskManagementOutcome; 3] =
    [TaskManagementOutcome::Complete, TaskManagementOutcome::IncorrectLun, TaskManagementOutcome::Rejected];
const STATUSES: [ScsiStatus; 6] = [
    ScsiStatus::Good,
    ScsiStatus::CheckCondition,
    ScsiStatus::Busy,
    ScsiStatus::ReservationConflict,
    ScsiStatus::TaskSetFull,
    ScsiStatus::TaskAborted,
];

fn number<T: PartialEq>(all: &[T], one: &T) -> u8 {
    all.iter().position(|known| known == one).unwrap_or_default() as u8
}

fn one_of<T: Copy>(all: &[T], number: u8, what: &'static str) -> Result<T, DecodeError> {
    all.get(usize::from(number)).copied().ok_or(DecodeError::Invalid(what))
}

impl Aim {
    fn encode(&self, writer: &mut Writer) {
        writer.u64(self.nexus);
        writer.raw(&self.lun.0);
        writer.raw(&self.unit);
        writer.u64(self.tick);
        writer.u64(self.waited);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let nexus = reader.u64()?;
        let lun = WireLun(reader.raw(8)?.try_into().map_err(|_| DecodeError::Truncated)?);
        Ok(Self { nexus, lun, unit: reader.guid()?, tick: reader.u64()?, waited: reader.u64()? })
    }
}

const HELLO: u8 = 1;
const NEXUS: u8 = 2;
const COMMAND: u8 = 3;
const ABORT: u8 = 4;
const MANAGE: u8 = 5;
const LOST: u8 = 6;
const ASK: u8 = 7;

impl Call {
    /// The head of its frame.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        match self {
            Self::Hello(hello) => {
                writer.u8(HELLO);
                writer.raw(MAGIC);
                writer.u16(hello.version);
                writer.u16(hello.from);
                writer.u64(hello.incarnation);
                writer.u16(hello.to);
                writer.u32(hello.channel);
            }
            Self::Nexus(port) => {
                writer.u8(NEXUS);
                writer.u64(port.nexus);
                writer.text(&port.initiator);
                writer.raw(&port.initiator_port);
                writer.text(&port.target);
                writer.u16(port.target_port);
            }
            Self::Command { tag, aim, attribute, limit, cdb } => {
                writer.u8(COMMAND);
                writer.u64(*tag);
                aim.encode(&mut writer);
                writer.u8(number(&ATTRIBUTES, attribute));
                writer.u32(*limit);
                writer.u16(cdb.len() as u16);
                writer.raw(cdb);
            }
            Self::Abort(tag) => {
                writer.u8(ABORT);
                writer.u64(*tag);
            }
            Self::Manage { tag, aim, function } => {
                writer.u8(MANAGE);
                writer.u64(*tag);
                aim.encode(&mut writer);
                writer.u8(number(&FUNCTIONS, function));
            }
            Self::Lost(nexus) => {
                writer.u8(LOST);
                writer.u64(*nexus);
            }
            Self::Ask => writer.u8(ASK),
        }
        writer.finish()
    }

    /// Any bytes may come. What follows the fields that are known here is a later release's, and left alone.
    pub(crate) fn decode(head: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(head);
        Ok(match reader.u8()? {
            HELLO => {
                if reader.raw(MAGIC.len())? != MAGIC {
                    return Err(DecodeError::WrongMagic);
                }
                let version = reader.u16()?;
                let (from, incarnation) = (reader.u16()?, reader.u64()?);
                let (to, channel) = (reader.u16()?, reader.u32()?);
                if version == 0 || from == 0 || to == 0 || incarnation == 0 {
                    return Err(DecodeError::Invalid("greeting"));
                }
                Self::Hello(Hello { version, from, incarnation, to, channel })
            }
            NEXUS => {
                let nexus = reader.u64()?;
                let (initiator, initiator_port) = (name(&mut reader)?, six(&mut reader)?);
                let (target, target_port) = (name(&mut reader)?, reader.u16()?);
                if initiator.chars().any(char::is_uppercase) || target_port == 0 {
                    return Err(DecodeError::Invalid("port"));
                }
                Self::Nexus(Port { nexus, initiator, initiator_port, target, target_port })
            }
            COMMAND => {
                let (tag, aim) = (reader.u64()?, Aim::decode(&mut reader)?);
                let attribute = one_of(&ATTRIBUTES, reader.u8()?, "task attribute")?;
                let (limit, length) = (reader.u32()?, usize::from(reader.u16()?));
                if length == 0 || length > MAX_CDB || limit as usize > MAX_DATA {
                    return Err(DecodeError::Invalid("length of a command"));
                }
                Self::Command { tag, aim, attribute, limit, cdb: reader.raw(length)?.to_vec() }
            }
            ABORT => Self::Abort(reader.u64()?),
            MANAGE => {
                let (tag, aim) = (reader.u64()?, Aim::decode(&mut reader)?);
                Self::Manage { tag, aim, function: one_of(&FUNCTIONS, reader.u8()?, "function")? }
            }
            LOST => Self::Lost(reader.u64()?),
            ASK => Self::Ask,
            _ => return Err(DecodeError::Invalid("kind")),
        })
    }

    /// Whether data may follow.
    pub(crate) fn carries_data(&self) -> bool {
        matches!(self, Self::Command { .. })
    }
}

const WELCOME: u8 = 1;
const REFUSED: u8 = 2;
const ANSWER: u8 = 3;
const UNANSWERED: u8 = 4;
const NOT_DONE: u8 = 5;
const MANAGED: u8 = 6;
const TICK: u8 = 7;

impl Reply {
    /// The head of its frame.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        match self {
            Self::Welcome { version, tick } => {
                writer.u8(WELCOME);
                writer.u16(*version);
                writer.u64(*tick);
            }
            Self::Refused(reason) => {
                writer.u8(REFUSED);
                let reason: String = reason.chars().filter(|c| !c.is_control()).collect();
                writer.text(&reason[..reason.floor_char_boundary(MAX_REASON)]);
            }
            Self::Answer { tag, tick, status, transfer, sense } => {
                writer.u8(ANSWER);
                writer.u64(*tag);
                writer.u64(*tick);
                writer.u8(number(&STATUSES, status));
                writer.u64(*transfer);
                writer.u8(sense.len() as u8);
                writer.raw(sense);
            }
            Self::Unanswered(tag) => {
                writer.u8(UNANSWERED);
                writer.u64(*tag);
            }
            Self::NotDone(tag) => {
                writer.u8(NOT_DONE);
                writer.u64(*tag);
            }
            Self::Managed { tag, outcome } => {
                writer.u8(MANAGED);
                writer.u64(*tag);
                writer.u8(number(&OUTCOMES, outcome));
            }
            Self::Tick(tick) => {
                writer.u8(TICK);
                writer.u64(*tick);
            }
        }
        writer.finish()
    }

    /// Any bytes may come.
    pub(crate) fn decode(head: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(head);
        Ok(match reader.u8()? {
            WELCOME => match (reader.u16()?, reader.u64()?) {
                (0, _) => return Err(DecodeError::Invalid("version")),
                (version, tick) => Self::Welcome { version, tick },
            },
            REFUSED => {
                let reason = reader.text()?;
                if reason.len() > MAX_REASON || reason.chars().any(char::is_control) {
                    return Err(DecodeError::Invalid("reason"));
                }
                Self::Refused(reason)
            }
            ANSWER => {
                let (tag, tick) = (reader.u64()?, reader.u64()?);
                let status = one_of(&STATUSES, reader.u8()?, "status")?;
                let (transfer, length) = (reader.u64()?, usize::from(reader.u8()?));
                if length > MAX_SENSE_BYTES {
                    return Err(DecodeError::Invalid("length of sense data"));
                }
                Self::Answer { tag, tick, status, transfer, sense: reader.raw(length)?.to_vec() }
            }
            UNANSWERED => Self::Unanswered(reader.u64()?),
            NOT_DONE => Self::NotDone(reader.u64()?),
            MANAGED => {
                let tag = reader.u64()?;
                Self::Managed { tag, outcome: one_of(&OUTCOMES, reader.u8()?, "outcome")? }
            }
            TICK => Self::Tick(reader.u64()?),
            _ => return Err(DecodeError::Invalid("kind")),
        })
    }

    /// Whether data may follow.
    pub(crate) fn carries_data(&self) -> bool {
        matches!(self, Self::Answer { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_as_they_were() {
        for (name, bytes) in crate::fuzz::samples() {
            let (head, data) = prefix(*bytes.first_chunk().expect(name)).expect(name);
            assert_eq!(bytes.len(), PREFIX + head + data, "{name}");
            let head = &bytes[PREFIX..PREFIX + head];
            let back = match name.strip_prefix("reply_") {
                None => Call::decode(head).expect(name).encode(),
                Some(_) => Reply::decode(head).expect(name).encode(),
            };
            assert_eq!(back, head, "{name}");
            for end in 0..head.len() {
                let short = &head[..end];
                assert!(Call::decode(short).is_err() || name.starts_with("reply_"), "{name} cut to {end}");
                assert!(Reply::decode(short).is_err() || !name.starts_with("reply_"), "{name} cut to {end}");
            }
        }
    }

    #[test]
    fn lengths_are_bounded_before_memory_is_taken() {
        let lengths = |head: u16, data: u32| {
            let bytes = [&head.to_le_bytes()[..], &data.to_le_bytes()].concat();
            prefix(*bytes.first_chunk().expect("a prefix"))
        };
        assert_eq!(lengths(1024, 32 << 20), Ok((1024, 32 << 20)));
        assert!(lengths(0, 0).is_err() && lengths(1025, 0).is_err() && lengths(1, (32 << 20) + 1).is_err());
    }

    #[test]
    fn what_no_writer_makes_is_refused() {
        let port = |initiator: &str, target_port| {
            let (initiator, target) = (initiator.to_owned(), "iqn.t".to_owned());
            Call::decode(
                &Call::Nexus(Port { nexus: 1, initiator, initiator_port: [0; 6], target, target_port })
                    .encode(),
            )
        };
        assert!(port("iqn.i", 17).is_ok());
        assert!(port("", 17).is_err() && port("iqn.I", 17).is_err() && port("iqn.i\n", 17).is_err());
        assert!(port(&"i".repeat(224), 17).is_err() && port("iqn.i", 0).is_err());
        let mut hello =
            Call::Hello(Hello { version: 1, from: 1, incarnation: 1, to: 2, channel: 0 }).encode();
        hello[1] = b'X';
        assert_eq!(Call::decode(&hello), Err(DecodeError::WrongMagic));
        assert!(Call::decode(&[99]).is_err() && Reply::decode(&[99]).is_err());
    }
}
