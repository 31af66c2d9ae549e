//! What the messages ask for, one module for each group of commands.

mod contexts;
mod create;
mod create_answer;
mod info;
mod io;
mod ioctl;
pub(crate) mod negotiate;
mod reconnect;
pub(crate) mod session_setup;
pub(crate) mod shared_disk;
mod storage_qos;
mod tree;
mod tunnel;
mod turn;

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use smb_files::{Detail, FileError};
use smb_protocol::error::ErrorId;
use smb_protocol::file::FileId;
use smb_protocol::header::HeaderFlags;
use smb_protocol::negotiate::Capabilities;
use smb_protocol::{Command, DecodeError, Dialect, Guid, Header, NtStatus};

use crate::connection::answer::{Body, HEADROOM, Outcome, Reply};
use crate::connection::channel::Channel;
use crate::connection::receive::Packet;
use crate::connection::state::{Conn, Pending};
use crate::limits::{CREDIT_BYTES, MAX_COMPOUND, MAX_TRANSFER};
use crate::open::Open;
use crate::open::table::CreateName;
use crate::session::Session;
use crate::tree::Tree;

/// What related messages take from the one before.
#[derive(Clone, Default)]
pub(crate) struct Carried {
    pub(crate) session: u64,
    pub(crate) tree: u32,
    /// The file that it opened or used.
    pub(crate) file: Option<FileId>,
    /// Why it failed; those that need its file fail with it.
    pub(crate) failed: Option<NtStatus>,
    /// Whether it had no session or tree that others could take from it.
    pub(crate) nothing: bool,
}

/// A message that has been admitted.
pub(crate) struct Call<'a> {
    pub(crate) conn: &'a Rc<Conn>,
    pub(crate) header: &'a Header,
    /// The packet; a WRITE takes its data out of it.
    pub(crate) packet: &'a mut Packet,
    /// Where the message lies in it.
    pub(crate) range: Range<usize>,
    pub(crate) channel: Option<Rc<Channel>>,
    pub(crate) sealed: Option<&'a Rc<Channel>>,
    pub(crate) carried: &'a RefCell<Carried>,
    /// Whether no other message follows in the packet.
    pub(crate) last: bool,
    /// Where to say that it begins to wait, and to hear that it is cancelled.
    pub(crate) pending: Rc<Pending>,
    /// Bytes of the answers to the messages before it in the packet, which go out together with its own.
    pub(crate) held: usize,
}

/// Who sends this message, and may it be believed? (MS-SMB2 3.3.5.2.4, 3.3.5.2.9, 3.3.5.2.11.)
///
/// # Errors
/// The command has ended, with this answer.
pub(crate) fn admit(
    conn: &Rc<Conn>,
    header: &Header,
    message: &mut [u8],
    sealed: Option<&Rc<Channel>>,
) -> Result<Option<Rc<Channel>>, Reply> {
    if header.command == Command::NEGOTIATE {
        return Ok(None);
    }
    if conn.negotiated().is_none_or(|negotiated| negotiated.terms.dialect == Dialect::WILDCARD) {
        conn.fail("a request before NEGOTIATE");
        return Err(Reply::new(NtStatus::INVALID_PARAMETER, None));
    }
    if let Some(sealed) = sealed
        && sealed.session.id != header.session_id
    {
        // What one session's key protects speaks for no other.
        conn.fail("another session inside a transform");
        return Err(Reply::new(NtStatus::INVALID_PARAMETER, None));
    }
    let channel = conn.channel(header.session_id);
    let Some(channel) = channel else {
        let without = match header.command {
            Command::SESSION_SETUP => true,
            Command::ECHO => header.session_id == 0,
            _ => false,
        };
        if without {
            return Ok(None);
        }
        let sign = session_setup::elsewhere(conn, header, message);
        return Err(Reply::new(NtStatus::USER_SESSION_DELETED, sign));
    };
    let signed = Conn::is_signed(header);
    if sealed.is_none() && signed && channel.signer.verify(message).is_err() {
        let user = channel.session.user();
        if conn.may_tell("wrong signature") {
            tracing::warn!(remote = %conn.peer.remote, user = user.name(), command = ?header.command, "SMB request refused: its signature is wrong");
        }
        return Err(Reply::new(NtStatus::ACCESS_DENIED, None));
    }
    if channel.session.has_ended() {
        return Err(Reply::new(NtStatus::USER_SESSION_DELETED, Some(channel).filter(|_| signed)));
    }
    let session = &channel.session;
    let setup = header.command == Command::SESSION_SETUP;
    // A CANCEL only stops what its sender has asked for, and gives nothing away: clients leave it unsigned.
    let must_sign = session.signing_required && header.command != Command::CANCEL;
    if sealed.is_none() && ((session.encrypt && !setup) || (must_sign && !signed)) {
        let user = session.user();
        if conn.may_tell("not signed") {
            tracing::warn!(remote = %conn.peer.remote, user = user.name(), command = ?header.command, "SMB request refused: it must be signed or encrypted");
        }
        return Err(Reply::new(NtStatus::ACCESS_DENIED, Some(channel).filter(|_| signed)));
    }
    Ok(Some(channel))
}

impl Call<'_> {
    /// The message, from its header on.
    pub(crate) fn message(&self) -> &[u8] {
        self.packet.message(&self.range)
    }

    pub(crate) fn dialect(&self) -> Dialect {
        self.conn.dialect()
    }

    pub(crate) fn session(&self) -> Result<Arc<Session>, NtStatus> {
        self.channel
            .as_ref()
            .map(|channel| Arc::clone(&channel.session))
            .ok_or(NtStatus::USER_SESSION_DELETED)
    }

    /// The tree connect that the message names (MS-SMB2 3.3.5.2.11).
    pub(crate) fn tree(&self, session: &Session) -> Result<Arc<Tree>, NtStatus> {
        let id = self.header.tree_id().ok_or(NtStatus::NETWORK_NAME_DELETED)?;
        let tree = session.tree(id).ok_or(NtStatus::NETWORK_NAME_DELETED)?;
        if tree.encrypt && self.sealed.is_none() {
            return Err(NtStatus::ACCESS_DENIED);
        }
        Ok(tree)
    }

    /// Whether the credits pay for what is sent and asked for, in bytes (MS-SMB2 3.3.5.2.5).
    pub(crate) fn check_charge(&self, send: usize, receive: u32) -> Result<(), NtStatus> {
        let bytes = u64::try_from(send).unwrap_or(u64::MAX).max(u64::from(receive));
        let negotiated = self.conn.negotiated().ok_or(NtStatus::INVALID_PARAMETER)?;
        if bytes > u64::from(negotiated.max_transfer) {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        // One packet goes out, and it has a longest length, whatever credits there are.
        if receive as usize + self.held > MAX_TRANSFER as usize + MAX_COMPOUND * HEADROOM {
            return Err(NtStatus::INSUFFICIENT_RESOURCES);
        }
        if !negotiated.capabilities.contains(Capabilities::LARGE_MTU) {
            return Ok(());
        }
        let needed = bytes.div_ceil(u64::from(CREDIT_BYTES)).max(1);
        if u64::from(self.header.credit_charge.max(1)) < needed {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        Ok(())
    }
}

/// A request that counts for its open's channel sequence while it is under way.
pub(crate) struct Counted<'a> {
    open: &'a Open,
    sequence: Option<u16>,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        if let Some(sequence) = self.sequence {
            self.open.state.lock().sequence.end(sequence);
        }
    }
}

impl Call<'_> {
    /// The open that the message names; related messages take that of the one before.
    pub(crate) fn open(&self, session: &Session, id: FileId) -> Result<Arc<Open>, NtStatus> {
        let id = if self.header.is_related() {
            let carried = self.carried.borrow();
            match (carried.file, carried.failed) {
                // Whatever it names itself (MS-SMB2 3.3.5.2.7.2).
                (Some(id), _) => id,
                (None, _) if id != FileId::RELATED => id,
                (None, Some(status)) => return Err(status),
                (None, None) => return Err(NtStatus::INVALID_PARAMETER),
            }
        } else {
            id
        };
        self.carried.borrow_mut().file = Some(id);
        // Only through the share that it was opened through: another one may grant less.
        let through = |open: &Arc<Open>| self.header.tree_id().is_none_or(|tree| tree == open.tree.id);
        let open = session.open(id.volatile).filter(|open| open.id == id && through(open));
        let open = open.ok_or(NtStatus::FILE_CLOSED)?;
        if !open.used.load(Ordering::Relaxed) {
            open.used.store(true, Ordering::Relaxed);
        }
        Ok(open)
    }

    /// Counts the request for its open, if the connection can lose others of it (SMB 3).
    pub(crate) fn sequenced<'o>(&self, open: &'o Open) -> Result<Counted<'o>, NtStatus> {
        let sequence = match self.dialect().is_smb3() {
            true => open.state.lock().sequence.begin(self.header)?,
            false => None,
        };
        Ok(Counted { open, sequence })
    }

    /// What the client calls an open to be.
    pub(crate) fn create_name(&self, session: &Session, create_guid: Guid) -> CreateName {
        ((self.conn.client(), session.user().token.user), create_guid)
    }

    /// Whether the request is sent again because its answer may have been lost.
    pub(crate) fn is_replay(&self) -> bool {
        self.header.flags.contains(HeaderFlags::REPLAY_OPERATION) && self.dialect().is_smb3()
    }

    /// Whether the session may have several connections.
    pub(crate) fn is_multichannel(&self) -> bool {
        self.conn
            .negotiated()
            .is_some_and(|negotiated| negotiated.capabilities.contains(Capabilities::MULTI_CHANNEL))
    }
}

impl From<FileError> for Outcome {
    fn from(error: FileError) -> Self {
        let body = match error.detail {
            Detail::None | Detail::Output(_) => Body::Empty,
            Detail::Needed(len) => Body::Error(ErrorId::DEFAULT, len.to_le_bytes().to_vec()),
            Detail::Symlink(data) => Body::Error(ErrorId::DEFAULT, data.into_vec()),
        };
        Self { status: error.status, body }
    }
}

impl From<DecodeError> for Outcome {
    fn from(error: DecodeError) -> Self {
        NtStatus::from(error).into()
    }
}

/// Runs a message.
pub(crate) async fn run(mut call: Call<'_>) -> Outcome {
    dispatch(&mut call).await.unwrap_or_else(|outcome| outcome)
}

async fn dispatch(call: &mut Call<'_>) -> Result<Outcome, Outcome> {
    let command = call.header.command;
    if command == Command::ECHO {
        return Ok(Outcome::ok(Body::Empty));
    }
    let session = call.session()?;
    match command {
        Command::LOGOFF => return Ok(session_setup::logoff(call.conn, &session)),
        Command::TREE_CONNECT => return Ok(tree::connect(call, &session).await?),
        _ => {}
    }
    let tree = call.tree(&session)?;
    match command {
        Command::READ => io::read(call, &session).await,
        Command::WRITE => io::write(call, &session).await,
        Command::CREATE => create::run(call, &session, &tree).await,
        Command::CLOSE => create::close(call, &session).await,
        Command::FLUSH => io::flush(call, &session).await,
        Command::LOCK => io::lock(call, &session).await,
        Command::IOCTL => ioctl::run(call, &session, &tree).await,
        Command::QUERY_DIRECTORY => info::directory(call, &session).await,
        Command::CHANGE_NOTIFY => info::notify(call, &session).await,
        Command::QUERY_INFO => info::query(call, &session).await,
        Command::SET_INFO => info::set(call, &session).await,
        Command::OPLOCK_BREAK => ioctl::acknowledge(call, &session, &tree),
        Command::TREE_DISCONNECT => Ok(tree::disconnect(call, &session, &tree)?),
        _ => Err(NtStatus::INVALID_PARAMETER.into()),
    }
}
