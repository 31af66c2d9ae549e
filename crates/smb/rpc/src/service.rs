//! The pipes: what the SMB server opens, writes to and reads from.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use smb_auth::{Acceptor, Accounts, Authenticated, NoAccounts};
use smb_protocol::NtStatus;
use smb_protocol::security::sid::Sid;

use crate::connection::Connection;
use crate::handles::Handles;
use crate::interface::endpoint;
use crate::pdu::{FRAGMENT_MAX, HEADER_BYTES, Header, HeaderError, answer, kind};
use crate::view::ServerView;

/// Most bytes of requests that wait because answers have not been read. Who writes more has to read first.
pub const INBOX_MAX: usize = 1 << 20;
/// While this many bytes of answers wait, no further request is looked at. One answer may be longer.
pub const OUTBOX_HIGH: usize = 1 << 20;
/// Most association groups: more pipes than a server has open at a time.
const GROUPS_MAX: usize = 65_536;

/// Most pipes that one client has open, over all of its sessions: each can hold some MiB of requests and answers. Clients open
/// one for a call, or keep a few.
pub const PIPES_MAX: usize = 128;

/// Who opened a pipe, or who proved to be another on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RpcClient {
    /// The user's name.
    pub user: String,
    /// The user's domain: this server's name, or a directory's.
    pub domain: String,
    /// Its SID.
    pub sid: Sid,
    /// Whether it may administer the server.
    pub is_administrator: bool,
}

/// Who proves a client that authenticates itself once more, inside the pipe.
pub trait Authenticator: Send + Sync {
    /// An authentication, with a challenge of its own; `None` where there are none.
    fn acceptor(&self) -> Option<Acceptor>;

    /// Who knows the users.
    fn accounts(&self) -> &dyn Accounts;

    /// Who it is, for the operations; `None` for who may not call any.
    fn client(&self, who: &Authenticated) -> Option<RpcClient>;

    /// What a client, whom this or the session has found good earlier, is now: rights come and go while a pipe is open.
    /// `None` for one that has been disabled or is gone. Asked before each call.
    fn current(&self, client: &RpcClient) -> Option<RpcClient>;
}

/// No authentication inside pipes: the session's has to do.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoAuthenticator;

impl Authenticator for NoAuthenticator {
    fn acceptor(&self) -> Option<Acceptor> {
        None
    }

    fn accounts(&self) -> &dyn Accounts {
        &NoAccounts
    }

    fn client(&self, _: &Authenticated) -> Option<RpcClient> {
        None
    }

    fn current(&self, client: &RpcClient) -> Option<RpcClient> {
        Some(client.clone())
    }
}

/// Connections that share their handles.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) id: u32,
    owner: Sid,
    pub(crate) handles: Mutex<Handles>,
}

#[derive(Default)]
struct Groups {
    last: u32,
    known: BTreeMap<u32, Weak<Group>>,
}

/// What all pipes have in common.
pub(crate) struct Shared {
    pub(crate) view: Arc<dyn ServerView>,
    pub(crate) authenticator: Arc<dyn Authenticator>,
    groups: Mutex<Groups>,
    /// How many pipes each client has open.
    pipes: Mutex<BTreeMap<Sid, usize>>,
}

impl Shared {
    /// A seat for one more pipe of a client; `None` when it has too many.
    fn seat(self: &Arc<Self>, client: Sid) -> Option<Seat> {
        let mut pipes = self.pipes.lock();
        let count = pipes.entry(client).or_default();
        if *count >= PIPES_MAX {
            return None;
        }
        *count += 1;
        Some(Seat { shared: Arc::clone(self), client })
    }

    /// A new group for 0, otherwise the one that this client already has (C706 12.6.4.3).
    pub(crate) fn group(&self, id: u32, owner: Sid) -> Option<Arc<Group>> {
        let mut groups = self.groups.lock();
        if id != 0 {
            return groups.known.get(&id)?.upgrade().filter(|group| group.owner == owner);
        }
        if groups.known.len() >= GROUPS_MAX {
            groups.known.retain(|_, group| group.strong_count() > 0);
            if groups.known.len() >= GROUPS_MAX {
                return None;
            }
        }
        let mut id = groups.last.wrapping_add(1).max(1);
        while groups.known.get(&id).is_some_and(|group| group.strong_count() > 0) {
            id = id.wrapping_add(1).max(1);
        }
        groups.last = id;
        let group = Arc::new(Group { id, owner, handles: Mutex::default() });
        groups.known.insert(id, Arc::downgrade(&group));
        Some(group)
    }

    fn left(&self, group: &Arc<Group>) {
        // This pipe's reference is the last one.
        if Arc::strong_count(group) == 1 {
            self.groups.lock().known.remove(&group.id);
        }
    }
}

/// Counts a pipe while it is open.
struct Seat {
    shared: Arc<Shared>,
    client: Sid,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut pipes = self.shared.pipes.lock();
        if let Some(count) = pipes.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                pipes.remove(&self.client);
            }
        }
    }
}

/// Opens pipes.
#[derive(Clone)]
pub struct RpcService(Arc<Shared>);

impl RpcService {
    /// A service that shows `view`.
    #[must_use]
    pub fn new(view: Arc<dyn ServerView>, authenticator: Arc<dyn Authenticator>) -> Self {
        let (groups, pipes) = (Mutex::default(), Mutex::default());
        Self(Arc::new(Shared { view, authenticator, groups, pipes }))
    }

    /// Opens a pipe by its name, with or without `\PIPE\` before it.
    ///
    /// # Errors
    /// [`NtStatus::OBJECT_NAME_NOT_FOUND`] when nothing answers there, [`NtStatus::ACCESS_DENIED`] for who did not say
    /// who it is and may not look (RestrictNullSessAccess), [`NtStatus::INSUFFICIENT_RESOURCES`] for who has
    /// [`PIPES_MAX`] open.
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
