//! The store of a node on its own: one file, replaced as a whole by each transaction.
//!
//! ```text
//!   state.new  written, made durable ──► state.old := state (a second name) ──► state := state.new ──► folder made durable
//! ```
//! Whatever moment the power goes at, `state` holds all of the transactions that were answered, and at most one more. Its content
//! has a checksum over all of it. A `state` that is damaged or gone is never replaced silently by `state.old`, which lacks the
//! last transaction: it may be the vote that keeps a stale disk out. The error names both, and which revision the older one has.
//!
//! The file: `HFCSTORE`, version (4 bytes), length of what follows, revision, number of keys, then for each key its name, value,
//! revisions of making and of the last change; XXH3 over everything before it. Little-endian. See `docs/formats/cluster_store.md`.
//!
//! The data directory's lock keeps a second process away. The futures of the trait block on the folder's disk: they are for the
//! control plane's threads, never for a shard.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::task::{Poll, Waker};

use byte_codec::{DecodeError, Reader, Writer, xxh3};
use parking_lot::Mutex;

use crate::files::{Files, Folder};
use crate::txn::{MAX_KEY, MAX_VALUE, check_key};
use crate::{
    Change, ClusterStore, Found, Outcome, Range, Revision, Snapshot, StoreError, StoreFuture, Transaction,
    Tree, Watch,
};

const STATE: &str = "state";
const OLDER: &str = "state.old";
const NEW: &str = "state.new";

const MAGIC: &[u8; 8] = b"HFCSTORE";
const VERSION: u32 = 1;
/// Nothing that one node keeps comes near this; a larger file is not ours.
const MAX_FILE: u64 = 256 << 20;

/// Why a local store does not open.
#[derive(Debug)]
pub enum LocalError {
    /// The system says no.
    Io(String, std::io::Error),
    /// The file cannot be believed.
    Damaged {
        /// The file.
        place: String,
        /// What is wrong.
        why: DecodeError,
        /// What there is besides, and what to do.
        older: String,
    },
}

impl fmt::Display for LocalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(place, error) => write!(f, "{place}: {error}"),
            Self::Damaged { place, why, older } => {
                write!(f, "{place}: the node's shared state {why}; {older}")
            }
        }
    }
}

impl std::error::Error for LocalError {}

struct Inner {
    files: Box<dyn Files>,
    tree: Tree,
    /// Why nothing goes on: it is not known what the disk has.
    stopped: Option<String>,
    waiting: Vec<Waker>,
}

/// Keys and values in a folder. Clones are the same store.
#[derive(Clone)]
pub struct LocalStore(Arc<Mutex<Inner>>);

impl LocalStore {
    /// Opens the store in a folder, which is made when it is not there. Blocks on its disk.
    ///
    /// # Errors
    /// When the state cannot be read, is damaged, or is of a later release: nothing is changed then.
    pub fn open(path: &Path) -> Result<Self, LocalError> {
        let folder = Folder::open(path).map_err(|error| LocalError::Io(path.display().to_string(), error))?;
        Self::with_files(Box::new(folder))
    }

    /// Opens the store in these files.
    ///
    /// # Errors
    /// As those of [`Self::open`].
    pub fn with_files(files: Box<dyn Files>) -> Result<Self, LocalError> {
        let read =
            |name: &str| files.read(name, MAX_FILE).map_err(|error| LocalError::Io(files.place(name), error));
        let tree = match read(STATE)?.map(|bytes| decode(&bytes)) {
            Some(Ok(tree)) => tree,
            // The first transaction of all was cut off, or there was none.
            None if read(OLDER)?.is_none() => Tree::default(),
            found => {
                let why = found.and_then(Result::err).unwrap_or(DecodeError::Truncated);
                let older = match read(OLDER)?.map(|bytes| decode(&bytes)) {
                    Some(Ok(tree)) => format!(
                        "{} is sound and of revision {}, without the last change: copying it over is for \
                         who knows that no disk was lost since",
                        files.place(OLDER),
                        tree.revision().0
                    ),
                    _ => "there is no sound older copy: restore the folder from a backup".to_owned(),
                };
                return Err(LocalError::Damaged { place: files.place(STATE), why, older });
            }
        };
        Ok(Self(Arc::new(Mutex::new(Inner { files, tree, stopped: None, waiting: Vec::new() }))))
    }

    /// What [`ClusterStore::get`] answers.
    ///
    /// # Errors
    /// When the store has stopped.
    pub fn get_now(&self, range: &Range) -> Result<Snapshot, StoreError> {
        let inner = self.0.lock();
        inner.going()?;
        Ok(inner.tree.get(range))
    }

    /// What [`ClusterStore::transact`] answers. Blocks on the folder's disk.
    ///
    /// # Errors
    /// As those of the trait.
    pub fn transact_now(&self, transaction: &Transaction) -> Result<Outcome, StoreError> {
        let mut inner = self.0.lock();
        inner.going()?;
        let mut tree = inner.tree.clone();
        let outcome = tree.apply(transaction)?;
        if tree.revision() != inner.tree.revision() {
            inner.replace(&encode(&tree))?;
            inner.tree = tree;
            for waker in inner.waiting.drain(..) {
                waker.wake();
            }
        }
        Ok(outcome)
    }
}

impl Inner {
    fn going(&self) -> Result<(), StoreError> {
        match &self.stopped {
            Some(why) => Err(StoreError::NotDone(format!("the store has stopped: {why}"))),
            None => Ok(()),
        }
    }

    fn replace(&mut self, content: &[u8]) -> Result<(), StoreError> {
        let files = &mut self.files;
        // Nothing has the name `state` yet that is new: until then a failure has no effect.
        let begun = files.remove(NEW).and_then(|()| files.write(NEW, content)).and_then(|()| files.sync(NEW));
        let begun = begun.and_then(|()| files.remove(OLDER));
        let begun = begun.and_then(|()| match files.read(STATE, MAX_FILE)? {
            Some(_) => files.link(STATE, OLDER),
            None => Ok(()),
        });
        if let Err(error) = begun {
            return Err(StoreError::NotDone(format!("{}: {error}", files.place(NEW))));
        }
        let named = files.rename(NEW, STATE).and_then(|()| files.sync_folder());
        named.map_err(|error| {
            let why = format!("{}: {error}", files.place(STATE));
            // A name that could not be made durable is not made durable by trying again: what the disk has is known
            // after the next opening.
            self.stopped = Some(why.clone());
            for waker in self.waiting.drain(..) {
                waker.wake();
            }
            StoreError::Unknown(why)
        })
    }
}

impl ClusterStore for LocalStore {
    fn get(&self, range: Range) -> StoreFuture<'_, Snapshot> {
        Box::pin(async move { self.get_now(&range) })
    }

    fn transact(&self, transaction: Transaction) -> StoreFuture<'_, Outcome> {
        Box::pin(async move { self.transact_now(&transaction) })
    }

    fn watch(&self, prefix: String, after: Revision) -> StoreFuture<'_, Box<dyn Watch>> {
        Box::pin(async move {
            let inner = self.0.lock();
            inner.going()?;
            inner.tree.changes(&prefix, after)?;
            Ok(Box::new(LocalWatch { store: self.clone(), prefix, after }) as Box<dyn Watch>)
        })
    }
}

struct LocalWatch {
    store: LocalStore,
    prefix: String,
    after: Revision,
}

impl Watch for LocalWatch {
    fn next(&mut self) -> StoreFuture<'_, Vec<Change>> {
        Box::pin(std::future::poll_fn(move |context| {
            let mut inner = self.store.0.lock();
            if let Err(error) = inner.going() {
                return Poll::Ready(Err(error));
            }
            match inner.tree.changes(&self.prefix, self.after) {
                Ok(changes) if changes.is_empty() => {
                    // What went by without concerning this prefix need not be kept for it.
                    self.after = inner.tree.revision();
                    if !inner.waiting.iter().any(|waker| waker.will_wake(context.waker())) {
                        inner.waiting.push(context.waker().clone());
                    }
                    Poll::Pending
                }
                Ok(changes) => {
                    self.after = inner.tree.revision();
                    Poll::Ready(Ok(changes))
                }
                Err(error) => Poll::Ready(Err(error)),
            }
        }))
    }
}

fn encode(tree: &Tree) -> Vec<u8> {
    let mut body = Writer::default();
    body.u64(tree.revision().0);
    body.u32(tree.all().len() as u32);
    for found in tree.all() {
        body.text(&found.key);
        body.u32(found.value.len() as u32);
        body.raw(&found.value);
        body.u64(found.created.0);
        body.u64(found.modified.0);
    }
    let body = body.finish();
    let mut all = Writer::default();
    all.raw(MAGIC);
    all.u32(VERSION);
    all.u64(body.len() as u64);
    all.raw(&body);
    let mut bytes = all.finish();
    let sum = xxh3(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

/// Reads what [`encode`] wrote; any bytes may come.
pub(crate) fn decode(bytes: &[u8]) -> Result<Tree, DecodeError> {
    let mut head = Reader::new(bytes);
    if head.raw(MAGIC.len())? != MAGIC {
        return Err(DecodeError::WrongMagic);
    }
    let version = head.u32()?;
    if version != VERSION {
        return Err(DecodeError::Unsupported(version));
    }
    let length = usize::try_from(head.u64()?).map_err(|_| DecodeError::Truncated)?;
    let body = head.raw(length)?;
    let sum = head.u64()?;
    if head.remaining() != 0 {
        return Err(DecodeError::Invalid("length"));
    }
    if xxh3(&bytes[..bytes.len() - 8]) != sum {
        return Err(DecodeError::WrongChecksum);
    }
    let mut reader = Reader::new(body);
    let revision = Revision(reader.u64()?);
    let count = reader.u32()?;
    let mut entries: Vec<Found> = Vec::new();
    for _ in 0..count {
        let key = reader.text()?;
        if key.len() > MAX_KEY
            || check_key(&key).is_err()
            || entries.last().is_some_and(|last| last.key >= key)
        {
            return Err(DecodeError::Invalid("key"));
        }
        let length = reader.u32()? as usize;
        if length > MAX_VALUE {
            return Err(DecodeError::Invalid("value"));
        }
        let value = reader.raw(length)?.to_vec();
        let (created, modified) = (Revision(reader.u64()?), Revision(reader.u64()?));
        if created.0 == 0 || created > modified || modified > revision {
            return Err(DecodeError::Invalid("revision"));
        }
        entries.push(Found { key, value, created, modified });
    }
    if reader.remaining() != 0 {
        return Err(DecodeError::Invalid("number of keys"));
    }
    Ok(Tree::restored(revision, entries))
}
