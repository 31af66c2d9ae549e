//! Opens as the protocol knows them: identifiers, who holds them, how they outlive a connection.
//!
//! ```text
//!   Session ─ volatile id ─► Open ─► smb_files::Open (share modes, caching, locks)   or a pipe
//!   Opens ── persistent id ──┘ └─ Link: breaks find their way to the session's connections
//! ```

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use smb_files::{Durability, Granted, Holder, Kept, LeaseBreak, OpenId};
use smb_protocol::access::{CreateAction, OplockLevel};
use smb_protocol::create::lease::LeaseFlags;
use smb_protocol::file::FileId;
use smb_protocol::oplock::{BreakNotification, LeaseBreakFlags, LeaseBreakNotification, OplockBreak};
use smb_protocol::security::sid::Sid;
use smb_protocol::{Guid, NtStatus};

use crate::opens::Table;
use crate::peer::Mail;
use crate::persistence::{self, Stored};
use crate::pipe::Pipe;
use crate::replay::Sequence;
use crate::session::Session;
use crate::tree::Tree;

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
}

impl Default for State {
    fn default() -> Self {
        Self {
            lasting: Lasting::No,
            timeout: Duration::ZERO,
            generation: 0,
            sequence: Sequence::default(),
            action: CreateAction::OPENED,
        }
    }
}

/// An open.
pub(crate) struct Open {
    pub(crate) id: FileId,
    pub(crate) tree: Arc<Tree>,
    pub(crate) thing: Thing,
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

    /// Whether it would stay if its connection were lost now.
    pub(crate) fn lasts(&self) -> bool {
        self.state.lock().lasting != Lasting::No
    }

    /// Takes it out of its session.
    pub(crate) fn forget(&self) {
        if let Some(session) = self.link.session.read().upgrade() {
            session.remove_open(self.id.volatile);
        }
    }

    /// The session that it belongs to; `None` while it waits for its client.
    pub(crate) fn session(&self) -> Option<Arc<Session>> {
        self.link.session.read().upgrade()
    }

    /// Closes what is open.
    pub(crate) async fn close(&self) {
        if let Thing::File(file) = &self.thing {
            // Closed before means closed.
            let _ = file.close(false).await;
            if let Err(status) = persistence::forget(self).await {
                tracing::error!(path = file.path(), %status, "a persistent open is closed, but not forgotten: it comes back after a restart");
            }
        }
    }
}

/// The way from a file to its client.
pub(crate) struct Link {
    pub(crate) id: FileId,
    pub(crate) session: RwLock<Weak<Session>>,
    pub(crate) opens: RwLock<Weak<Table>>,
    /// The last break that its client was told of, and over which connection.
    told: Mutex<Option<(u64, BreakNotification)>>,
}

impl Link {
    pub(crate) fn new(id: FileId, session: Weak<Session>, opens: Weak<Table>) -> Arc<Self> {
        Arc::new(Self {
            id,
            session: RwLock::new(session),
            opens: RwLock::new(opens),
            told: Mutex::default(),
        })
    }

    /// The link of an open that came back after a restart: it leads nowhere yet.
    pub(crate) fn detached(id: FileId) -> Arc<Self> {
        Self::new(id, Weak::new(), Weak::new())
    }

    fn tell(&self, notification: BreakNotification) {
        let Some(session) = self.session.read().upgrade() else { return };
        // Under the lock, so that the loss of a connection is seen here or sees what was told over it.
        let mut told = self.told.lock();
        let mail = Mail::Break { session: session.id, notification };
        let over = match (notification, self.opens.read().upgrade()) {
            // Where the session encrypts, only its own connections can.
            (BreakNotification::Lease(_), Some(opens)) if !session.encrypt => {
                opens.clients.tell_one(&session, mail)
            }
            _ => session.tell_one(mail),
        };
        *told = over.map(|peer| (peer, notification));
        if over.is_none() {
            tracing::debug!(session = session.id, "a break reaches nobody: its client is gone");
        }
    }

    /// The client has heard what it was told.
    pub(crate) fn answered(&self) {
        *self.told.lock() = None;
    }

    /// A connection of the session is lost. Nobody knows whether the client has heard what it was told over it, and a
    /// client that has not goes on using its cache: if it still matters, it is told once more.
    pub(crate) fn channel_lost(&self, peer: u64, file: &smb_files::Open) {
        let Some((_, notification)) = self.told.lock().filter(|(over, _)| *over == peer) else { return };
        let matters = match (notification, file.caching()) {
            (BreakNotification::Oplock(_), Granted::Oplock(_)) => true,
            (BreakNotification::Lease(told), Granted::Lease { state, flags, .. }) => {
                match told.flags.contains(LeaseBreakFlags::ACK_REQUIRED) {
                    true => flags.contains(LeaseFlags::BREAK_IN_PROGRESS),
                    false => state == told.new,
                }
            }
            _ => false,
        };
        if matters {
            self.tell(notification);
        }
    }
}

impl Holder for Link {
    fn break_oplock(&self, _: OpenId, to: OplockLevel) {
        self.tell(BreakNotification::Oplock(OplockBreak { level: to, file_id: self.id }));
    }

    fn break_lease(&self, _: OpenId, change: LeaseBreak) {
        let flags = if change.ack_required { LeaseBreakFlags::ACK_REQUIRED } else { LeaseBreakFlags::NONE };
        self.tell(BreakNotification::Lease(LeaseBreakNotification {
            new_epoch: change.epoch,
            flags,
            key: change.key,
            current: change.current,
            new: change.new,
        }));
    }

    fn closed(&self, _: OpenId) {
        if let Some(session) = self.session.read().upgrade() {
            session.remove_open(self.id.volatile);
        }
        let Some(opens) = self.opens.read().upgrade() else { return };
        let Some(open) = opens.take(self.id.persistent) else { return };
        opens.run(Box::new(move || {
            Box::pin(async move {
                let _ = persistence::forget(&open).await;
            })
        }));
    }

    fn keep_record(&self, _: OpenId) -> Kept<'_> {
        Box::pin(async move {
            let found = self.opens.read().upgrade().and_then(|opens| opens.find(self.id.persistent));
            // One that is not among the opens yet is stored as it is then.
            match found {
                Some(open) => persistence::save(&open).await,
                None => Ok(()),
            }
        })
    }

    fn record_changed(&self, _: OpenId) {
        let Some(opens) = self.opens.read().upgrade() else { return };
        let found = opens.find(self.id.persistent);
        if let Some(open) = found.filter(|open| open.lasts()) {
            opens.run(Box::new(move || {
                Box::pin(async move {
                    // Logged where it failed; what is stored promises more caching, which a reconnection corrects.
                    let _ = persistence::save(&open).await;
                })
            }));
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
