//! The pipes: what the SMB server opens, writes to and reads from.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use smb_protocol::NtStatus;
use smb_protocol::security::sid::Sid;

use crate::association::{Seat, Shared};
use crate::client::{Authenticator, RpcClient};
use crate::connection::Connection;
use crate::endpoint::endpoint;
use crate::pdu::{FRAGMENT_MAX, HEADER_BYTES, Header, HeaderError, answer, kind};
use crate::view::ServerView;

/// Most bytes of requests that wait because answers have not been read. Who writes more has to read first.
pub const INBOX_MAX: usize = 1 << 20;
/// While this many bytes of answers wait, no further request is looked at. One answer may be longer.
pub const OUTBOX_HIGH: usize = 1 << 20;

/// Opens pipes.
#[derive(Clone)]
pub struct RpcService(Arc<Shared>);

impl RpcService {
    /// A service that shows `view`.
    #[must_use]
    pub fn new(view: Arc<dyn ServerView>, authenticator: Arc<dyn Authenticator>) -> Self {
        Self(Arc::new(Shared::new(view, authenticator)))
    }

    /// Opens a pipe by its name, with or without `\PIPE\` before it.
    ///
    /// # Errors
    /// [`NtStatus::OBJECT_NAME_NOT_FOUND`] when nothing answers there, [`NtStatus::ACCESS_DENIED`] for who did not say
    /// who it is and may not look (RestrictNullSessAccess), [`NtStatus::INSUFFICIENT_RESOURCES`] for who has
    /// [`PIPES_MAX`](crate::PIPES_MAX) open.
    pub fn open(&self, name: &str, client: RpcClient) -> Result<RpcPipe, NtStatus> {
        let endpoint = endpoint(name).ok_or(NtStatus::OBJECT_NAME_NOT_FOUND)?;
        if client.sid == Sid::ANONYMOUS && !self.0.view.anonymous_may_look() {
            return Err(NtStatus::ACCESS_DENIED);
        }
        let seat = self.0.seat(client.sid).ok_or(NtStatus::INSUFFICIENT_RESOURCES)?;
        let connection = Connection::new(Arc::clone(&self.0), endpoint, client);
        let state = State {
            connection,
            _seat: seat,
            inbox: Vec::new(),
            outbox: VecDeque::new(),
            waiting: 0,
            taken: 0,
        };
        Ok(RpcPipe(Mutex::new(state)))
    }
}

/// An open pipe.
pub struct RpcPipe(Mutex<State>);

struct State {
    connection: Connection,
    _seat: Seat,
    /// What has not been looked at.
    inbox: Vec<u8>,
    /// What has not been read, a PDU each.
    outbox: VecDeque<Vec<u8>>,
    /// Bytes in `outbox`.
    waiting: usize,
    /// Bytes of the first PDU that have been read.
    taken: usize,
}

impl RpcPipe {
    /// Takes bytes of the client: PDUs, in one piece or in several.
    ///
    /// # Errors
    /// [`NtStatus::PIPE_DISCONNECTED`] after something that was no PDU, [`NtStatus::INSUFFICIENT_RESOURCES`] when the
    /// client does not read its answers; nothing was taken then.
    pub fn write(&self, bytes: &[u8]) -> Result<(), NtStatus> {
        let mut state = self.0.lock();
        if state.connection.is_broken() {
            return Err(NtStatus::PIPE_DISCONNECTED);
        }
        if state.inbox.len() + bytes.len() > INBOX_MAX + usize::from(FRAGMENT_MAX) {
            return Err(NtStatus::INSUFFICIENT_RESOURCES);
        }
        state.inbox.extend_from_slice(bytes);
        state.pump();
        Ok(())
    }

    /// At most `limit` bytes of the answer that is first in line, and whether more of this answer follows: a message at a
    /// time, a fragment being a message. `None` when there is none.
    pub fn read(&self, limit: usize) -> Option<(Vec<u8>, bool)> {
        let mut state = self.0.lock();
        let first = state.outbox.front()?;
        let rest = first.get(state.taken..).unwrap_or_default();
        let part = rest.get(..limit).unwrap_or(rest).to_vec();
        let more = part.len() < rest.len();
        state.waiting = state.waiting.saturating_sub(part.len());
        if more {
            state.taken += part.len();
        } else {
            state.outbox.pop_front();
            state.taken = 0;
            state.pump();
        }
        Some((part, more))
    }

    /// Bytes of the answers that wait, and of the first of them: what FSCTL_PIPE_PEEK asks for.
    #[must_use]
    pub fn available(&self) -> (usize, usize) {
        let state = self.0.lock();
        let first = state.outbox.front().map_or(0, |first| first.len().saturating_sub(state.taken));
        (state.waiting, first)
    }
}

impl State {
    /// Answers what is whole, while there is room for answers.
    fn pump(&mut self) {
        let mut done = 0;
        while self.waiting < OUTBOX_HIGH && !self.connection.is_broken() {
            let rest = self.inbox.get(done..).unwrap_or_default();
            let header = match Header::decode(rest) {
                Ok(Some(header)) => header,
                Ok(None) => break,
                Err(error) => {
                    let refusal = refuse(rest, error);
                    self.send(refusal.into_iter().collect());
                    self.connection.give_up();
                    break;
                }
            };
            let Some(pdu) = rest.get(..usize::from(header.fragment)) else { break };
            let answers = self.connection.take(header, pdu);
            done += usize::from(header.fragment);
            self.send(answers);
        }
        self.inbox.drain(..done);
        if self.connection.is_broken() {
            self.inbox = Vec::new();
        }
    }

    fn send(&mut self, answers: Vec<Vec<u8>>) {
        self.waiting += answers.iter().map(Vec::len).sum::<usize>();
        self.outbox.extend(answers);
    }
}

/// What is said to bytes that are no PDU: who speaks another version is told ours.
fn refuse(bytes: &[u8], error: HeaderError) -> Option<Vec<u8>> {
    let is_bind = bytes.get(2) == Some(&kind::BIND) && bytes.len() >= HEADER_BYTES;
    (is_bind && error == HeaderError::Version).then(|| answer::bind_nak(0, answer::Reject::ProtocolVersion))
}

impl Drop for State {
    fn drop(&mut self) {
        self.connection.leave(|shared, group| shared.left(group));
    }
}
