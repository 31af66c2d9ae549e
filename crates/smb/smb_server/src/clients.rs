//! Connections by client and user: a lease is a client's, whichever of its sessions has the opens, and its breaks go over
//! the first of the client's connections that is alive, as those of Windows (MS-SMB2 3.3.4.7).
//!
//! A client says itself who it is. So the user, who has been proven, counts too: nobody else is told what is meant for a
//! client, or even instead of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use smb_protocol::Guid;
use smb_protocol::security::sid::Sid;

use crate::peer::{Mail, Peer};
use crate::session::Session;

/// What a client calls itself, and its user.
type Name = (Guid, Sid);

/// Connections over which somebody has logged in, oldest first.
#[derive(Default)]
pub(crate) struct Clients {
    peers: Mutex<BTreeMap<Name, Vec<Arc<Peer>>>>,
}

fn name(session: &Session) -> Name {
    (session.terms.client, session.user().token.user)
}

/// Whether two sessions are of one client and user.
pub(crate) fn are_one(a: &Session, b: &Session) -> bool {
    a.terms.client == b.terms.client && name(a) == name(b)
}

impl Clients {
    /// A session has one connection more.
    pub(crate) fn join(&self, session: &Session, peer: &Arc<Peer>) {
        let mut all = self.peers.lock();
        let peers = all.entry(name(session)).or_default();
        if peers.iter().all(|other| other.id != peer.id) {
            peers.push(Arc::clone(peer));
        }
    }

    /// A connection of a session is gone, and with it from all others.
    pub(crate) fn leave(&self, session: &Session, peer: &Peer) {
        let mut all = self.peers.lock();
        let name = name(session);
        if let Some(peers) = all.get_mut(&name) {
            peers.retain(|other| other.id != peer.id);
            if peers.is_empty() {
                all.remove(&name);
            }
        }
    }

    /// Whether a session's client has a connection at all.
    pub(crate) fn has_any(&self, session: &Session) -> bool {
        self.peers.lock().contains_key(&name(session))
    }

    /// Tells the first connection of a session's client that is alive; returns its number.
    pub(crate) fn tell_one(&self, session: &Session, mail: Mail) -> Option<u64> {
        let all = self.peers.lock();
        all.get(&name(session))?.iter().find(|peer| peer.tell(mail)).map(|peer| peer.id)
    }
}
