//! The way from a file to its client: how breaks of its caching are told, and what becomes of what is stored.

use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};
use smb_files::{Closes, Granted, Holder, Kept, LeaseBreak, OpenId};
use smb_protocol::access::OplockLevel;
use smb_protocol::create::lease::LeaseFlags;
use smb_protocol::file::FileId;
use smb_protocol::oplock::{BreakNotification, LeaseBreakFlags, LeaseBreakNotification, OplockBreak};

use super::table::{Opens, Table};
use super::{OpenOwner, persistence};
use crate::peer::Mail;

/// The way from a file to its client.
pub(crate) struct Link {
    pub(crate) id: FileId,
    /// The session that the open belongs to; none while it waits for its client.
    pub(crate) owner: RwLock<Option<Weak<dyn OpenOwner>>>,
    pub(crate) opens: RwLock<Weak<Table>>,
    /// The last break that its client was told of, and over which connection.
    told: Mutex<Option<(u64, BreakNotification)>>,
}

impl Link {
    /// The way from a file, yet to be opened, to a session.
    pub(crate) fn new(id: FileId, owner: Weak<dyn OpenOwner>, opens: &Opens) -> Arc<Self> {
        let (owner, opens) = (RwLock::new(Some(owner)), RwLock::new(opens.table()));
        Arc::new(Self { id, owner, opens, told: Mutex::default() })
    }

    /// The link of an open that came back after a restart: it leads nowhere yet.
    pub(crate) fn detached(id: FileId) -> Arc<Self> {
        Arc::new(Self { id, owner: RwLock::default(), opens: RwLock::default(), told: Mutex::default() })
    }

    /// The session that the open belongs to; `None` while it waits for its client.
    pub(crate) fn owner(&self) -> Option<Arc<dyn OpenOwner>> {
        self.owner.read().as_ref()?.upgrade()
    }

    fn tell(&self, notification: BreakNotification) {
        let Some(session) = self.owner() else { return };
        // Under the lock, so that the loss of a connection is seen here or sees what was told over it.
        let mut told = self.told.lock();
        let mail = Mail::Break { session: session.id(), notification };
        let over = match (notification, self.opens.read().upgrade()) {
            // Where the session encrypts, only its own connections can.
            (BreakNotification::Lease(_), Some(opens)) if !session.encrypts() => {
                opens.clients.tell_one(session.client(), mail)
            }
            _ => session.tell_one(mail),
        };
        *told = over.map(|peer| (peer, notification));
        if over.is_none() {
            tracing::debug!(session = session.id(), "a break reaches nobody: its client is gone");
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

    fn closes(&self, _: OpenId) -> Closes<'_> {
        let found = self.opens.read().upgrade().and_then(|opens| opens.find(self.id.persistent));
        let disk = found.and_then(|open| open.disk.clone());
        Box::pin(async move {
            if let Some(disk) = disk {
                disk.close().await;
            }
        })
    }

    fn closed(&self, _: OpenId) {
        if let Some(session) = self.owner() {
            session.forget(self.id.volatile);
        }
        let Some(opens) = self.opens.read().upgrade() else { return };
        let Some(open) = opens.take(self.id.persistent) else { return };
        opens.run(Box::new(move || {
            Box::pin(async move {
                if let Some(disk) = &open.disk {
                    disk.close().await;
                }
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
