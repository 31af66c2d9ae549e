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

/// What a client calls itself, and its user.
pub(crate) type ClientName = (Guid, Sid);

/// Connections over which somebody has logged in, oldest first.
#[derive(Default)]
pub(crate) struct Clients {
    peers: Mutex<BTreeMap<ClientName, Vec<Arc<Peer>>>>,
}

impl Clients {
    /// A session of a client has one connection more.
    pub(crate) fn join(&self, client: ClientName, peer: &Arc<Peer>) {
        let mut all = self.peers.lock();
        let peers = all.entry(client).or_default();
        if peers.iter().all(|other| other.id != peer.id) {
            peers.push(Arc::clone(peer));
        }
    }

    /// A connection of a session is gone, and with it from all others.
    pub(crate) fn leave(&self, client: ClientName, peer: &Peer) {
        let mut all = self.peers.lock();
        if let Some(peers) = all.get_mut(&client) {
            peers.retain(|other| other.id != peer.id);
            if peers.is_empty() {
                all.remove(&client);
            }
        }
    }

    /// Whether a client has a connection at all.
    pub(crate) fn has_any(&self, client: ClientName) -> bool {
        self.peers.lock().contains_key(&client)
    }

    /// Tells the first connection of a client that is alive; returns its number.
    pub(crate) fn tell_one(&self, client: ClientName, mail: Mail) -> Option<u64> {
        let all = self.peers.lock();
        all.get(&client)?.iter().find(|peer| peer.tell(mail)).map(|peer| peer.id)
    }
}
