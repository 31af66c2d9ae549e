//! What nodes say to each other directly, as bytes.
//!
//! A frame is its length in two bytes and so many bytes, little-endian, the first of which is its kind. The side that connects sends
//! [`Frame::Hello`] first and gets one back, or [`Frame::Refused`] with a reason for people; after that only it sends. Kinds that are not
//! known are left alone, so that nodes of two releases work together; a change that an older release must not overlook raises [`VERSION`], and
//! the lower version of the two sides is spoken.

use byte_codec::{DecodeError, Reader, Writer};
use cluster_store::keys::{ClusterName, NodeId};
use cluster_store::values::Incarnation;
use pool_ownership::Message;

/// The version that this release speaks.
pub(crate) const VERSION: u16 = 1;
/// The longest frame: names and a reason are the longest things in one.
pub(crate) const MAX_FRAME: usize = 1024;
const MAGIC: &[u8; 4] = b"HFNL";
const MAX_REASON: usize = 512;

const HELLO: u8 = 1;
const REFUSED: u8 = 2;
const ASK: u8 = 3;
const PROMISE: u8 = 4;
const ALIVE: u8 = 5;
const ASIDE: u8 = 6;

/// One thing that is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// Who speaks to whom.
    Hello(Hello),
    /// There will be no conversation.
    Refused(String),
    /// One of the state machine's.
    Message(Message),
    /// The link works.
    Alive,
    /// Somebody else's, for whom the link is only the way: see [`crate::Aside`].
    Aside(Vec<u8>),
    /// Of a later release.
    Other(u8),
}

/// Who speaks to whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    /// The highest version that the speaker knows.
    pub(crate) version: u16,
    pub(crate) cluster: String,
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
}

impl Frame {
    /// The bytes without their length.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        match self {
            Self::Hello(hello) => {
                writer.u8(HELLO);
                writer.raw(MAGIC);
                writer.u16(hello.version);
                writer.text(&hello.cluster);
                writer.u16(hello.from.number());
                writer.u16(hello.to.number());
            }
            Self::Refused(reason) => {
                writer.u8(REFUSED);
                let reason: String = reason.chars().filter(|c| !c.is_control()).collect();
                writer.text(&reason[..reason.floor_char_boundary(MAX_REASON)]);
            }
            Self::Message(Message::Ask { incarnation, round }) => {
                writer.u8(ASK);
                writer.u64(incarnation.0);
                writer.u64(*round);
            }
            Self::Message(Message::Promise { incarnation, round }) => {
                writer.u8(PROMISE);
                writer.u64(incarnation.0);
                writer.u64(*round);
            }
            Self::Alive => writer.u8(ALIVE),
            Self::Aside(bytes) => {
                writer.u8(ASIDE);
                writer.raw(bytes);
            }
            Self::Other(kind) => writer.u8(*kind),
        }
        writer.finish()
    }

    /// With the length before it.
    pub(crate) fn framed(&self) -> Vec<u8> {
        let body = self.encode();
        let mut bytes = u16::try_from(body.len()).unwrap_or(u16::MAX).to_le_bytes().to_vec();
        bytes.extend_from_slice(&body);
        bytes
    }

    /// Any bytes may come. What follows the fields that are known here is a later release's, and left alone.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        if bytes.len() > MAX_FRAME {
            return Err(DecodeError::Invalid("length"));
        }
        let mut reader = Reader::new(bytes);
        Ok(match reader.u8()? {
            HELLO => {
                if reader.raw(MAGIC.len())? != MAGIC {
                    return Err(DecodeError::WrongMagic);
                }
                let version = reader.u16()?;
                if version == 0 {
                    return Err(DecodeError::Invalid("version"));
                }
                let cluster = reader.text()?;
                if ClusterName::new(&cluster).is_none() {
                    return Err(DecodeError::Invalid("name of a cluster"));
                }
                let node = |number| NodeId::new(number).ok_or(DecodeError::Invalid("number of a node"));
                Self::Hello(Hello { version, cluster, from: node(reader.u16()?)?, to: node(reader.u16()?)? })
            }
            REFUSED => {
                let reason = reader.text()?;
                if reason.len() > MAX_REASON || reason.chars().any(char::is_control) {
                    return Err(DecodeError::Invalid("reason"));
                }
                Self::Refused(reason)
            }
            kind @ (ASK | PROMISE) => {
                let (incarnation, round) = (Incarnation(reader.u64()?), reader.u64()?);
                Self::Message(if kind == ASK {
                    Message::Ask { incarnation, round }
                } else {
                    Message::Promise { incarnation, round }
                })
            }
            ALIVE => Self::Alive,
            ASIDE => Self::Aside(reader.raw(reader.remaining())?.to_vec()),
            other => Self::Other(other),
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    #[test]
    fn frames_come_back_as_they_were() {
        for (name, bytes) in crate::fuzz::samples() {
            let frame = Frame::decode(&bytes).expect(name);
            assert_eq!(frame.encode(), bytes, "{name}");
            assert!(bytes.len() <= MAX_FRAME, "{name}");
            if matches!(frame, Frame::Aside(_)) {
                // Its length, and what a later release has, is for whom it is.
                continue;
            }
            for end in 0..bytes.len() {
                assert!(Frame::decode(&bytes[..end]).is_err(), "{name} cut to {end} bytes");
            }
            let longer = [bytes.as_slice(), b"later"].concat();
            assert_eq!(Frame::decode(&longer), Ok(frame), "{name} of a later release");
        }
        assert_eq!(Frame::decode(&[200, 1, 2]), Ok(Frame::Other(200)));
        assert!(Frame::decode(&[0; MAX_FRAME + 1]).is_err());
        let long = Frame::Refused("é".repeat(1000)).encode();
        assert!(long.len() <= MAX_FRAME && Frame::decode(&long).is_ok());
    }

    #[test]
    fn what_no_writer_makes_is_refused() {
        let hello = |cluster: &str, from: u16, version: u16| {
            let mut writer = Writer::default();
            writer.u8(HELLO);
            writer.raw(MAGIC);
            writer.u16(version);
            writer.text(cluster);
            writer.u16(from);
            writer.u16(2);
            Frame::decode(&writer.finish())
        };
        assert!(hello("c", 1, 7).is_ok(), "a later version says hello in the same way");
        assert!(hello("", 1, 1).is_err());
        assert!(hello("a/b", 1, 1).is_err());
        assert!(hello(&"c".repeat(65), 1, 1).is_err());
        assert!(hello("c", 0, 1).is_err());
        assert!(hello("c", 1, 0).is_err());
    }
}
