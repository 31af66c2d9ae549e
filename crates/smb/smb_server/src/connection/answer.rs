//! Answers: from what a command found to bytes on their way, signed or encrypted.

use std::rc::Rc;

use aligned_buffer::IoBuf;
use smb_protocol::compound::{self, FrameWriter};
use smb_protocol::error::{ErrorId, ErrorResponse, error_data};
use smb_protocol::framing::{PREFIX_BYTES, Prefix};
use smb_protocol::header::HEADER_BYTES;
use smb_protocol::message::has_error_body;
use smb_protocol::read::{READ_DATA_AT, ReadResponse};
use smb_protocol::session::Empty;
use smb_protocol::transform::TRANSFORM_BYTES;
use smb_protocol::write::WriteResponse;
use smb_protocol::{Dialect, Header, NtStatus, Out, Wire};
use tcp_service::SendQueue;

use super::channel::Channel;

/// Room before the data of a READ, so that prefix, transform and header are written there and the packet needs no
/// copy; a page, so that the data stay aligned.
pub(crate) const HEADROOM: usize = 4096;

/// The body of an answer.
pub(crate) enum Body {
    /// Four bytes that say nothing, or an error without data.
    Empty,
    /// An error's data.
    Error(ErrorId, Vec<u8>),
    /// A message whose first 64 bytes are the header's place.
    Message(Vec<u8>),
    /// The data of a READ behind [`HEADROOM`].
    Read(IoBuf),
    /// How many bytes were written.
    Written(u32),
}

impl Body {
    /// Bytes that it holds.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Empty | Self::Written(_) => 0,
            Self::Error(_, bytes) | Self::Message(bytes) => bytes.len(),
            Self::Read(buf) => buf.len(),
        }
    }

    /// A body that `encode` appends.
    pub(crate) fn of(encode: impl FnOnce(&mut Out<'_>)) -> Result<Self, NtStatus> {
        let mut bytes = vec![0; HEADER_BYTES];
        let mut out = Out::at(&mut bytes, 0);
        encode(&mut out);
        out.check().map_err(|_| NtStatus::INVALID_BUFFER_SIZE)?;
        Ok(Self::Message(bytes))
    }
}

/// What a command found.
pub(crate) struct Outcome {
    pub(crate) status: NtStatus,
    pub(crate) body: Body,
}

impl Outcome {
    pub(crate) fn ok(body: Body) -> Self {
        Self { status: NtStatus::SUCCESS, body }
    }
}

impl From<NtStatus> for Outcome {
    fn from(status: NtStatus) -> Self {
        Self { status, body: Body::Empty }
    }
}

/// Into which hash the bytes of an answer go (MS-SMB2 3.3.5.4, 3.3.5.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hashed {
    No,
    /// The connection's: NEGOTIATE.
    Connection,
    /// That of a login: SESSION_SETUP.
    Login(u64),
}

/// What comes of a message, and how it goes out.
pub(crate) struct Reply {
    pub(crate) outcome: Outcome,
    pub(crate) sign: Option<Rc<Channel>>,
    pub(crate) hash: Hashed,
    /// The number under which an interim answer has announced it.
    pub(crate) async_id: Option<u64>,
    /// Whether that one has granted no credits, so that this does.
    pub(crate) grants: bool,
    /// The session that it names instead of the request's.
    pub(crate) session: Option<u64>,
}

impl Reply {
    pub(crate) fn new(outcome: impl Into<Outcome>, sign: Option<Rc<Channel>>) -> Self {
        Self { outcome: outcome.into(), sign, hash: Hashed::No, async_id: None, grants: true, session: None }
    }
}

/// An answer that is ready but for its protection.
pub(crate) struct Answer {
    pub(crate) header: Header,
    pub(crate) body: Body,
    /// The session whose key signs it.
    pub(crate) sign: Option<Rc<Channel>>,
    pub(crate) hash: Hashed,
}

impl Answer {
    fn encode_body(&self, dialect: Dialect, out: &mut Out<'_>) {
        match &self.body {
            Body::Empty if has_error_body(self.header.command, self.header.status) => {
                ErrorResponse::default().encode(out);
            }
            Body::Empty => out.put(&Empty {}),
            Body::Error(id, data) => {
                let (context_count, data) = error_data(dialect, *id, data);
                ErrorResponse { context_count, data: &data }.encode(out);
            }
            Body::Message(bytes) => out.raw(bytes.get(HEADER_BYTES..).unwrap_or_default()),
            Body::Read(buf) => {
                let data = buf.get(HEADROOM..).unwrap_or_default();
                out.put(&ReadResponse::of(data.len() as u32));
                out.raw(data);
            }
            Body::Written(count) => out.put(&WriteResponse { count: *count }),
        }
    }
}

/// Queues a packet of answers. `seal` encrypts all of it; otherwise each is signed if it says so. Returns `false` when it
/// could not be made: then the connection cannot go on.
pub(crate) fn send(
    transmit: &mut SendQueue,
    dialect: Dialect,
    mut answers: Vec<Answer>,
    seal: Option<&Rc<Channel>>,
    mut hashed: impl FnMut(Hashed, &[u8]),
) -> bool {
    // The hot path: one READ.
    if let [Answer { body: Body::Read(_), .. }] = answers.as_slice()
        && let Some(Answer { header, body: Body::Read(buf), sign, .. }) = answers.pop()
    {
        return send_read(transmit, &header, buf, sign.as_ref(), seal);
    }
    transmit.small(|buffer| {
        let begin = buffer.len();
        if seal.is_some() {
            buffer.extend_from_slice(&[0; TRANSFORM_BYTES]);
        }
        let mut frame = FrameWriter::new(buffer);
        for answer in &answers {
            frame.push(&answer.header, |out| answer.encode_body(dialect, out));
        }
        if answers.len() > 1 {
            frame.pad();
        }
        if frame.finish(0).is_err() {
            buffer.truncate(begin);
            return false;
        }
        let made = match seal {
            Some(channel) => seal_packet(channel, buffer.get_mut(begin..).unwrap_or_default()),
            None => {
                let packet = buffer.get_mut(begin + PREFIX_BYTES..).unwrap_or_default();
                let mut answers = answers.iter();
                let mut made = true;
                compound::for_each_message(packet, |_, message| {
                    let Some(answer) = answers.next() else { return };
                    if let Some(channel) = &answer.sign {
                        made &= channel.signer.sign(message).is_ok();
                    }
                    if answer.hash != Hashed::No {
                        hashed(answer.hash, message);
                    }
                });
                made
            }
        };
        if !made {
            buffer.truncate(begin);
        }
        made
    })
}

/// Encrypts a packet for which `bytes` has place: 52 bytes, then the prefix and the messages as they would go out in the
/// clear; the prefix moves to the front.
fn seal_packet(channel: &Channel, bytes: &mut [u8]) -> bool {
    let inside = TRANSFORM_BYTES + PREFIX_BYTES;
    let Some(len) = bytes.len().checked_sub(inside) else { return false };
    let Some(prefix) = Prefix::encode(TRANSFORM_BYTES + len) else { return false };
    let Some((front, messages)) = bytes.split_at_mut_checked(inside) else { return false };
    let Some(header) = channel.seal(messages) else { return false };
    front[..PREFIX_BYTES].copy_from_slice(&prefix);
    front[PREFIX_BYTES..].copy_from_slice(&header);
    true
}

fn send_read(
    transmit: &mut SendQueue,
    header: &Header,
    mut buf: IoBuf,
    sign: Option<&Rc<Channel>>,
    seal: Option<&Rc<Channel>>,
) -> bool {
    let len = buf.len() - HEADROOM;
    let message_at = HEADROOM - READ_DATA_AT;
    let mut body = Vec::with_capacity(ReadResponse::SIZE);
    ReadResponse::of(len as u32).put(&mut body);
    let Some(head) = buf.get_mut(message_at..HEADROOM) else { return false };
    let (first, second) = head.split_at_mut(HEADER_BYTES);
    first.copy_from_slice(&header.encode());
    second.copy_from_slice(&body);
    let begin = match seal {
        Some(channel) => {
            let begin = message_at - TRANSFORM_BYTES - PREFIX_BYTES;
            if !seal_packet(channel, buf.get_mut(begin..).unwrap_or_default()) {
                return false;
            }
            begin
        }
        None => {
            let message = buf.get_mut(message_at..).unwrap_or_default();
            if sign.is_some_and(|channel| channel.signer.sign(message).is_err()) {
                return false;
            }
            let Some(prefix) = Prefix::encode(READ_DATA_AT + len) else { return false };
            let begin = message_at - PREFIX_BYTES;
            if let Some(place) = buf.get_mut(begin..message_at) {
                place.copy_from_slice(&prefix);
            }
            begin
        }
    };
    let end = buf.len();
    transmit.large(buf.freeze().slice(begin..end));
    true
}
