//! Sessions: a user that has proven who it is, with keys, tree connects and opens, over one or more connections.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use observe::IoTally;
use parking_lot::{Mutex, RwLock};
use smb_auth::Identity;
use smb_crypto::{CryptoError, Sealer, SessionKeys};
use smb_protocol::negotiate::contexts::{Cipher, SigningAlgorithm};
use smb_protocol::{Dialect, Guid, NtStatus};
use smb_security::Token;
use tokio::sync::Notify;

use crate::clients::ClientName;
use crate::limits::{MAX_BINDINGS, MAX_CHANNELS, MAX_OPENS_PER_SESSION, MAX_TREES_PER_SESSION};
use crate::open::{Open, OpenOwner, Thing};
use crate::peer::{Mail, Peer};
use crate::places::Place;
use crate::tree::Tree;

/// What was negotiated on the session's first connection; further ones must have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) dialect: Dialect,
    pub(crate) client: Guid,
    pub(crate) cipher: Option<Cipher>,
    pub(crate) signing: SigningAlgorithm,
}

/// Who the session belongs to.
#[derive(Clone, Debug)]
pub(crate) struct User {
    pub(crate) identity: Identity,
    pub(crate) token: Arc<Token>,
    /// What the client calls its machine.
    pub(crate) workstation: String,
}

impl User {
    /// Name for listings and logs.
    pub(crate) fn name(&self) -> String {
        match &self.identity {
            Identity::User { name, .. } => name.clone(),
            Identity::Anonymous => "anonymous".to_owned(),
        }
    }
}

/// A session that somebody has logged in to.
pub(crate) struct Session {
    pub(crate) id: u64,
    pub(crate) terms: Terms,
    pub(crate) keys: SessionKeys,
    /// Seals what we send, opens what the client sends; `None` where nothing can be encrypted.
    pub(crate) seal: Option<(Sealer, Sealer)>,
    /// Whether messages must be signed (or encrypted).
    pub(crate) signing_required: bool,
    /// Whether everything must be encrypted.
    pub(crate) encrypt: bool,
    /// When it was made, in nanoseconds since 1970.
    pub(crate) since: u64,
    pub(crate) user: RwLock<Arc<User>>,
    next_channel: AtomicU32,
    channels: Mutex<Vec<Arc<Peer>>>,
    next_tree: AtomicU32,
    trees: RwLock<BTreeMap<u32, (Arc<Tree>, Place)>>,
    opens: RwLock<BTreeMap<u64, Arc<Open>>>,
    /// Our challenge to those who want to join, the same for all where a second one would be seen: with AES-GMAC.
    pub(crate) binding_challenge: [u8; 8],
    /// Signatures of requests to join, see [`Session::is_new_binding`].
    bindings: Mutex<BTreeSet<[u8; 16]>>,
    ended: AtomicBool,
    /// Reads and writes of files, over all channels.
    pub(crate) io: IoTally,
    /// Writes that are under way, and who waits for them to end.
    writes: AtomicUsize,
    no_writes: Notify,
}

/// A write that is under way.
pub(crate) struct Writing(Arc<Session>);

impl Drop for Writing {
    fn drop(&mut self) {
        self.0.writes.fetch_sub(1, Ordering::SeqCst);
        if self.0.has_ended() {
            self.0.no_writes.notify_waiters();
        }
    }
}

/// How a session is to be.
pub(crate) struct NewSession {
    pub(crate) id: u64,
    pub(crate) terms: Terms,
    pub(crate) keys: SessionKeys,
    pub(crate) user: User,
    pub(crate) signing_required: bool,
    pub(crate) encrypt: bool,
    pub(crate) since: u64,
    pub(crate) binding_challenge: [u8; 8],
}

impl Session {
    pub(crate) fn new(new: NewSession) -> Result<Self, CryptoError> {
        let NewSession { id, terms, keys, user, signing_required, encrypt, since, binding_challenge } = new;
        let seal = match terms.cipher {
            Some(cipher) => Some((
                Sealer::new(cipher, &keys.server_to_client)?,
                Sealer::new(cipher, &keys.client_to_server)?,
            )),
            None => None,
        };
        Ok(Self {
            id,
            terms,
            keys,
            seal,
            signing_required,
            encrypt,
            since,
            user: RwLock::new(Arc::new(user)),
            next_channel: AtomicU32::new(0),
            channels: Mutex::new(Vec::new()),
            next_tree: AtomicU32::new(1),
            trees: RwLock::new(BTreeMap::new()),
            opens: RwLock::new(BTreeMap::new()),
            binding_challenge,
            bindings: Mutex::new(BTreeSet::new()),
            ended: AtomicBool::new(false),
            io: IoTally::default(),
            writes: AtomicUsize::new(0),
            no_writes: Notify::new(),
        })
    }

    /// A connection joins. Returns the number of the channel, which no other has had; `None` when there are too many or
    /// the session has ended.
    pub(crate) fn join(&self, peer: &Arc<Peer>) -> Option<u32> {
        let mut channels = self.channels.lock();
        if channels.len() >= MAX_CHANNELS || self.has_ended() {
            return None;
        }
        channels.push(Arc::clone(peer));
        peer.begins_to_carry();
        Some(self.next_channel.fetch_add(1, Ordering::Relaxed))
    }

    /// Whether a request to join has not been seen yet. After [`MAX_BINDINGS`] none is believed any more.
    pub(crate) fn is_new_binding(&self, signature: [u8; 16]) -> bool {
        let mut seen = self.bindings.lock();
        seen.len() < MAX_BINDINGS && seen.insert(signature)
    }

    /// A connection leaves; whether it was the last one.
    pub(crate) fn leave(&self, peer: &Peer) -> bool {
        let mut channels = self.channels.lock();
        channels.extract_if(.., |each| each.id == peer.id).for_each(|each| each.carries_no_more());
        channels.is_empty()
    }

    /// The connections.
    pub(crate) fn channels(&self) -> Vec<Arc<Peer>> {
        self.channels.lock().clone()
    }

    /// A connection other than `mine` that has nothing but this session, and its place among all connections, if that is the session's
    /// user's: it stands for that of a client which comes back over `mine`. None while it writes: who comes back waits for that.
    pub(crate) fn give_up_connection(&self, mine: &Peer) -> Option<(Arc<Peer>, Place)> {
        if self.is_writing() {
            return None;
        }
        let user = self.user().token.user;
        let channels = self.channels.lock();
        let mut alone = channels.iter().filter(|peer| peer.id != mine.id && peer.carries() == 1);
        alone.find_map(|peer| Some((Arc::clone(peer), peer.give_up_place(Some(user))?)))
    }

    /// Tells one connection, the first that is alive (MS-SMB2 3.3.4.6: in the order of the channel list); returns its
    /// number. Whether the client hears of it shows later: see [`Link::channel_lost`](crate::open::link::Link::channel_lost).
    pub(crate) fn tell_one(&self, mail: Mail) -> Option<u64> {
        self.channels().iter().find(|peer| peer.tell(mail)).map(|peer| peer.id)
    }

    /// A connection of several is lost: what it was to tell, and may not have, the others tell.
    pub(crate) fn channel_lost(&self, peer: u64) {
        let opens: Vec<_> = self.opens.read().values().cloned().collect();
        for open in opens {
            if let Thing::File(file) = &open.thing {
                open.link.channel_lost(peer, file);
            }
        }
    }

    /// Whose it is.
    pub(crate) fn client(&self) -> ClientName {
        (self.terms.client, self.user().token.user)
    }

    pub(crate) fn user(&self) -> Arc<User> {
        Arc::clone(&self.user.read())
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// Counts a write while it is under way.
    pub(crate) fn begin_write(self: &Arc<Self>) -> Result<Writing, NtStatus> {
        // Counted first: who ends the session sees it, or it is seen here that the session has ended.
        self.writes.fetch_add(1, Ordering::SeqCst);
        let writing = Writing(Arc::clone(self));
        if self.has_ended() { Err(NtStatus::USER_SESSION_DELETED) } else { Ok(writing) }
    }

    /// Whether writes are under way.
    pub(crate) fn is_writing(&self) -> bool {
        self.writes.load(Ordering::SeqCst) > 0
    }

    /// Ends when no write of the session, which has ended, is under way.
    pub(crate) async fn written(&self) {
        loop {
            let mut none = std::pin::pin!(self.no_writes.notified());
            // Before the look, so that an end after it is noticed.
            none.as_mut().enable();
            if !self.is_writing() {
                return;
            }
            none.await;
        }
    }

    /// Ends it: no more opens and trees; returns the opens and tells the connections, but for `except`. `None` when it
    /// has ended before.
    pub(crate) fn end(&self, except: Option<&Peer>) -> Option<Vec<Arc<Open>>> {
        let channels = {
            // Under the lock of the channels, so that none joins afterwards.
            let mut channels = self.channels.lock();
            if self.ended.swap(true, Ordering::SeqCst) {
                return None;
            }
            std::mem::take(&mut *channels)
        };
        channels.iter().for_each(|peer| peer.carries_no_more());
        for peer in channels.iter().filter(|peer| except.is_none_or(|except| except.id != peer.id)) {
            peer.tell(Mail::SessionEnded);
        }
        self.trees.write().clear();
        Some(std::mem::take(&mut *self.opens.write()).into_values().collect())
    }

    pub(crate) fn add_tree(
        &self,
        place: Place,
        make: impl FnOnce(u32) -> Tree,
    ) -> Result<Arc<Tree>, NtStatus> {
        let mut trees = self.trees.write();
        if trees.len() >= MAX_TREES_PER_SESSION || self.has_ended() {
            return Err(NtStatus::INSUFFICIENT_RESOURCES);
        }
        let id = self.next_tree.fetch_add(1, Ordering::Relaxed);
        let tree = Arc::new(make(id));
        trees.insert(id, (Arc::clone(&tree), place));
        Ok(tree)
    }

    pub(crate) fn tree(&self, id: u32) -> Option<Arc<Tree>> {
        self.trees.read().get(&id).map(|(tree, _)| Arc::clone(tree))
    }

    pub(crate) fn trees(&self) -> Vec<Arc<Tree>> {
        self.trees.read().values().map(|(tree, _)| Arc::clone(tree)).collect()
    }

    /// Takes a tree connect away, with the opens that came over it.
    pub(crate) fn remove_tree(&self, id: u32) -> Option<Vec<Arc<Open>>> {
        self.trees.write().remove(&id)?;
        let mut opens = self.opens.write();
        let gone: Vec<_> = opens.extract_if(.., |_, open| open.tree.id == id).map(|(_, open)| open).collect();
        Some(gone)
    }

    /// Gives the session an open that was not there before.
    pub(crate) fn add_open(&self, open: Arc<Open>) -> Result<(), NtStatus> {
        self.put_open(open, MAX_OPENS_PER_SESSION)
    }

    /// Gives the session an open that has waited for it: what was promised is not refused because there are many.
    pub(crate) fn take_up(&self, open: Arc<Open>) -> Result<(), NtStatus> {
        self.put_open(open, usize::MAX)
    }

    fn put_open(&self, open: Arc<Open>, most: usize) -> Result<(), NtStatus> {
        let mut opens = self.opens.write();
        // `end` takes the opens after it has set the flag: what is added here is seen there.
        if self.has_ended() {
            return Err(NtStatus::USER_SESSION_DELETED);
        }
        if opens.len() >= most {
            return Err(NtStatus::INSUFFICIENT_RESOURCES);
        }
        opens.insert(open.id.volatile, open);
        Ok(())
    }

    pub(crate) fn open(&self, volatile: u64) -> Option<Arc<Open>> {
        self.opens.read().get(&volatile).cloned()
    }

    pub(crate) fn remove_open(&self, volatile: u64) -> Option<Arc<Open>> {
        self.opens.write().remove(&volatile)
    }

    /// How many opens there are over each tree connect.
    pub(crate) fn opens_by_tree(&self) -> BTreeMap<u32, usize> {
        let mut counts = BTreeMap::new();
        for open in self.opens.read().values() {
            *counts.entry(open.tree.id).or_default() += 1;
        }
        counts
    }

    pub(crate) fn open_count(&self) -> usize {
        self.opens.read().len()
    }
}

impl OpenOwner for Session {
    fn id(&self) -> u64 {
        self.id
    }

    fn encrypts(&self) -> bool {
        self.encrypt
    }

    fn client(&self) -> ClientName {
        Session::client(self)
    }

    fn tell_one(&self, mail: Mail) -> Option<u64> {
        Session::tell_one(self, mail)
    }

    fn forget(&self, volatile: u64) {
        self.remove_open(volatile);
    }
}
