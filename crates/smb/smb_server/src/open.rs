//! Opens as the protocol knows them: identifiers, who holds them, how they outlive a connection.
//!
//! ```text
//!   Session ─ volatile id ─► Open ─► smb_files::Open (share modes, caching, locks)   or a pipe
//!   table ── persistent id ──┘ ├─ link: breaks find their way to the session's connections
//!                              └─ persistence: what of it outlives the server
//! ```

pub(crate) mod disk;
pub(crate) mod link;
pub(crate) mod persistence;
pub(crate) mod queued;
pub(crate) mod table;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use disk::DiskOpen;
use link::Link;
use parking_lot::Mutex;
use persistence::Stored;
use smb_files::{Durability, FileSystem};
use smb_protocol::access::CreateAction;
use smb_protocol::file::FileId;
use smb_protocol::security::sid::Sid;
use smb_protocol::{Guid, NtStatus};

use crate::clients::ClientName;
use crate::logical_flows::LogicalFlow;
use crate::peer::Mail;
use crate::pipe::Pipe;
use crate::replay::Sequence;
use crate::tree::{Target, Tree};
use queued::Queued;
use table::CreateName;

/// The session that an open belongs to, as far as the open has to do with it.
pub(crate) trait OpenOwner: Send + Sync {
    /// The session's number.
    fn id(&self) -> u64;

    /// Whether everything must be encrypted, which only the session's own connections can.
    fn encrypts(&self) -> bool;

    /// Whose it is.
    fn client(&self) -> ClientName;

    /// Tells one connection, the first that is alive; returns its number.
    fn tell_one(&self, mail: Mail) -> Option<u64>;

    /// The open is not the session's any more.
    fn forget(&self, volatile: u64);
}

/// What is open.
pub(crate) enum Thing {
    File(Arc<smb_files::Open>),
    Pipe(Arc<dyn Pipe>),
}

/// How an open outlives its connection (MS-SMB2 3.3.1.10).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Lasting {
    /// The open does not outlive its connection.
    #[default]
    No,
    /// DHnQ.
    V1,
    /// DH2Q.
    V2 { persistent: bool },
    /// FSCTL_LMR_REQUEST_RESILIENCY.
    Resilient,
}

/// The application that an open belongs to, for Hyper-V the virtual machine (MS-SMB2 2.2.13.2.13, 2.2.13.2.15).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct App {
    /// Zero for none.
    pub(crate) id: Guid,
    /// Which instance of it; the newer one has the larger number.
    pub(crate) version: Option<(u64, u64)>,
}

/// What of an open changes.
pub(crate) struct State {
    pub(crate) lasting: Lasting,
    /// How long it waits for its client.
    pub(crate) timeout: Duration,
    /// Rises with each disconnection and reconnection: a timer of an earlier one finds another number.
    pub(crate) generation: u64,
    /// Requests on other channels that must not be done twice.
    pub(crate) sequence: Sequence,
    /// What its CREATE did; a replay is told the same.
    pub(crate) action: CreateAction,
    /// The flow that its reads and writes belong to, once there were any.
    pub(crate) queued: Option<Queued>,
    /// What its host has said that it belongs to.
    pub(crate) logical: Option<Arc<LogicalFlow>>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            lasting: Lasting::No,
            timeout: Duration::ZERO,
            generation: 0,
            sequence: Sequence::default(),
            action: CreateAction::OPENED,
            queued: None,
            logical: None,
        }
    }
}

/// An open.
pub(crate) struct Open {
    pub(crate) id: FileId,
    pub(crate) tree: Arc<Tree>,
    pub(crate) thing: Thing,
    /// Of an open of a shared virtual disk: what it has besides its file. Shared as `state` is.
    pub(crate) disk: Option<Arc<DiskOpen>>,
    pub(crate) client: Guid,
    pub(crate) user: Sid,
    /// DH2Q's name for it; zero without one.
    pub(crate) create_guid: Guid,
    /// Whether the client has used it, and so has had the answer to its CREATE.
    pub(crate) used: AtomicBool,
    pub(crate) app: App,
    pub(crate) link: Arc<Link>,
    /// Shared by all that stand for the same open, one after the other, as clients reconnect: what is still under way for
    /// an earlier one counts for the next.
    pub(crate) state: Arc<Mutex<State>>,
    /// What is on stable storage of it (`persistence`). Shared as `state` is, so that no two write the row at once.
    pub(crate) row: Arc<tokio::sync::Mutex<Stored>>,
}

impl Open {
    /// The file, or why there is none: pipes know no more than reading and writing.
    pub(crate) fn file(&self) -> Result<&Arc<smb_files::Open>, NtStatus> {
        match &self.thing {
            Thing::File(file) => Ok(file),
            Thing::Pipe(_) => Err(NtStatus::INVALID_DEVICE_REQUEST),
        }
    }

    /// What its client has called it, if it has.
    pub(crate) fn create_name(&self) -> Option<CreateName> {
        (!self.create_guid.is_zero()).then_some(((self.client, self.user), self.create_guid))
    }

    /// Whether its file is one of these.
    pub(crate) fn is_of(&self, files: &FileSystem) -> bool {
        matches!(&self.tree.target, Target::Disk(disk) if disk.files.is(files))
    }

    /// Whether it would stay if its connection were lost now.
    pub(crate) fn lasts(&self) -> bool {
        self.state.lock().lasting != Lasting::No
    }

    /// Takes it out of its session.
    pub(crate) fn forget(&self) {
        if let Some(owner) = self.owner() {
            owner.forget(self.id.volatile);
        }
    }

    /// The session that it belongs to; `None` while it waits for its client.
    pub(crate) fn owner(&self) -> Option<Arc<dyn OpenOwner>> {
        self.link.owner()
    }

    /// Closes what is open.
    pub(crate) async fn close(&self) {
        if let Some(disk) = &self.disk {
            disk.close().await;
        }
        if let Thing::File(file) = &self.thing {
            // Closed before means closed.
            let _ = file.close(false).await;
            if let Err(status) = persistence::forget(self).await
                && persistence::may_tell(self, "row not removed")
            {
                tracing::error!(path = file.path(), %status, "a persistent open is closed, but not forgotten: it comes back after a restart");
            }
        }
    }
}

impl From<Lasting> for Durability {
    fn from(lasting: Lasting) -> Self {
        match lasting {
            Lasting::No => Self::None,
            Lasting::V1 | Lasting::V2 { persistent: false } => Self::Durable,
            Lasting::Resilient => Self::Resilient,
            Lasting::V2 { persistent: true } => Self::Persistent,
        }
    }
}
