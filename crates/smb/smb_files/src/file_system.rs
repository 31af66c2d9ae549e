//! One volume as a file system: what belongs to no single open. Below it are the files that are in use, and their opens.

mod node;
mod tokens;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use file_store::names::fold;
use file_store::{FileId, FileStore};
use observe::FastMap;
use parking_lot::Mutex;
use shard_runtime::{Clock, Entropy};
use smb_protocol::access::CreateOptions;
use smb_protocol::create::lease::{LeaseKey, LeaseState};
use smb_protocol::fsctl::copy::ResumeKey;
use smb_protocol::security::Sid;
use smb_protocol::{FileTime, Guid, NtStatus};

use self::tokens::Tokens;
use crate::api::{Caller, LeaseName, OpenId, OpenSummary};
use crate::error::{Result, refuse};
use crate::name_locks::NameLocks;
use crate::shared_folders::{SharedFolder, SharedFolders};
use crate::short_names::Tunnel;
use crate::watches::Watches;

pub use self::node::{DirectoryQuery, Open, OpenLookup, WriteFlags};
pub(crate) use self::node::{LateTime, NewOpen, Node, NodeState, Pin, Place, decode_security, stream_key};
pub(crate) use self::tokens::Transfer;

/// Most opens of a volume: what 100,000 opens take is about 200 MB, and a client that leaks handles must hit something.
pub const OPENS_MAX: usize = 1_000_000;

/// How the volume presents itself.
#[derive(Clone, Debug)]
pub struct VolumeOptions {
    /// Its label at first.
    pub label: String,
    /// Its serial number: of 64 bits in FileIdInformation, the lower half in FileFsVolumeInformation.
    pub serial: u64,
    /// Its identifier.
    pub id: Guid,
    /// When it was made.
    pub created: FileTime,
    /// Bytes of a cluster.
    pub cluster: u32,
    /// What it says it is: clients decide by the name what to try.
    pub kind: String,
}

/// The files of one volume with their opens. Cheap to clone.
#[derive(Clone)]
pub struct FileSystem {
    pub(crate) core: Arc<Core>,
}

/// Locks, in the order in which they may be held together: a node's state, an open's state; all others alone.
pub(crate) struct Core {
    /// With durable changes.
    pub(crate) store: Arc<dyn FileStore>,
    /// The same files, with volatile changes.
    relaxed: Arc<dyn FileStore>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: VolumeOptions,
    /// The label that clients see now.
    pub(crate) label: Mutex<String>,
    /// Makes resume keys of this run unguessable.
    pub(crate) instance: [u8; 16],
    pub(crate) nodes: Mutex<FastMap<FileId, Arc<Node>>>,
    pub(crate) opens: Mutex<BTreeMap<OpenId, Arc<Open>>>,
    /// Where each lease is: a key of a client's user names one stream of one file (MS-SMB2 3.3.5.9.8). The keys are the clients'
    /// choice, therefore no hash table.
    pub(crate) leases: Mutex<BTreeMap<LeaseName, (FileId, String)>>,
    /// Folders of shares stay pinned: finding out where one is may take a search.
    roots: Mutex<BTreeMap<FileId, Pin>>,
    shared: Arc<SharedFolders>,
    /// All reparse points, once they have been looked up.
    pub(crate) reparse: Mutex<Option<BTreeSet<FileId>>>,
    pub(crate) names: NameLocks,
    pub(crate) tunnel: Mutex<Tunnel>,
    pub(crate) watches: Watches,
    pub(crate) tokens: Mutex<Tokens>,
    next_open: AtomicU64,
    /// Bytes that what is below the store has room for, where that may be less than the store's.
    pub(crate) limit: OnceLock<Limit>,
}

/// Says how many bytes there is room for behind so many.
pub(crate) type Limit = Box<dyn Fn(u64) -> u64 + Send + Sync>;

impl FileSystem {
    /// The file system on a store. `entropy` makes resume keys and tokens that nobody can guess.
    #[must_use]
    pub fn new(
        store: Arc<dyn FileStore>,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
        options: VolumeOptions,
    ) -> Self {
        Self {
            core: Arc::new(Core {
                relaxed: store.volatile().unwrap_or_else(|| Arc::clone(&store)),
                store,
                clock,
                label: Mutex::new(options.label.clone()),
                options,
                instance: entropy.next_id(),
                nodes: Mutex::default(),
                opens: Mutex::default(),
                leases: Mutex::default(),
                roots: Mutex::default(),
                shared: Arc::default(),
                reparse: Mutex::default(),
                names: NameLocks::default(),
                tunnel: Mutex::default(),
                watches: Watches::default(),
                tokens: Mutex::new(Tokens::new(entropy)),
                next_open: AtomicU64::new(1),
                limit: OnceLock::new(),
            }),
        }
    }

    /// Clients are told of no more free space than `can_hold` says that there is room for below the store, behind the bytes that the
    /// store's own structures may take at the most. To be said once, before it is served.
    pub fn limit_space(&self, can_hold: impl Fn(u64) -> u64 + Send + Sync + 'static) {
        // Who says it again is wrong, and the first one stays.
        let _ = self.core.limit.set(Box::new(can_hold));
    }

    /// Clients see this label from now on.
    pub fn set_label(&self, label: &str) {
        label.clone_into(&mut self.core.label.lock());
    }

    /// Whether both are the same one.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.core, &other.core)
    }

    /// The store below.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn FileStore> {
        &self.core.store
    }

    /// Somebody else changed a file's attributes or descriptor in the store (an administrator's verb): what is kept of
    /// them is read again.
    pub fn refresh(&self, file: FileId) {
        let node = self.core.nodes.lock().get(&file).cloned();
        if let Some(node) = node {
            node.forget();
        }
    }

    /// A share serves a folder, named from the volume's root with `\` or `/` between names, until the result is dropped.
    #[must_use]
    pub fn share_folder(&self, folder: &str) -> SharedFolder {
        let names = folder.split(['\\', '/']).filter(|name| !name.is_empty());
        let folder: Vec<String> = names.map(fold).collect();
        self.core.shared.share(folder)
    }

    /// All opens, oldest first.
    #[must_use]
    pub fn opens(&self) -> Vec<OpenSummary> {
        let opens: Vec<Arc<Open>> = self.core.opens.lock().values().cloned().collect();
        opens.iter().map(|open| open.summary()).collect()
    }

    /// How many opens there are.
    #[must_use]
    pub fn open_count(&self) -> usize {
        self.core.opens.lock().len()
    }

    /// What is kept of files although nothing is open: nothing, unless something was forgotten. For tests of who uses this.
    #[must_use]
    pub fn leftovers(&self) -> Vec<String> {
        let mut left = Vec::new();
        if !self.core.leases.lock().is_empty() {
            left.push("leases".to_owned());
        }
        if !self.core.names.is_free() {
            left.push("names that are being changed".to_owned());
        }
        if self.core.watches.any() {
            left.push("watches".to_owned());
        }
        let roots = self.core.roots.lock();
        for (file, node) in self.core.nodes.lock().iter() {
            let state = node.state.lock();
            if !state.opens.is_empty() || !state.streams.is_empty() {
                left.push(format!("opens or streams of {file:?}"));
            }
            if node.names.going() > 0 {
                left.push(format!("a deletion of {file:?} that nobody will do"));
            }
            if *file != self.core.store.root() && !roots.contains_key(file) {
                left.push(format!("the node of {file:?}"));
            }
        }
        left
    }

    /// The open with this number.
    #[must_use]
    pub fn open_by_id(&self, id: OpenId) -> Option<Arc<Open>> {
        self.core.opens.lock().get(&id).cloned()
    }

    /// The open whose resume key this is; of any session: the caller compares the owner.
    #[must_use]
    pub fn open_by_resume_key(&self, key: ResumeKey) -> Option<Arc<Open>> {
        let (id, instance) = key.0.split_first_chunk::<8>()?;
        let open = self.open_by_id(OpenId(u64::from_le_bytes(*id)))?;
        (instance == self.core.instance).then_some(open)
    }

    /// Acknowledges a lease break; returns the state that the lease has now.
    ///
    /// # Errors
    /// OBJECT_NAME_NOT_FOUND where this user of the client has no such lease, UNSUCCESSFUL when it is not being broken, REQUEST_NOT_ACCEPTED when
    /// `state` is more than was offered (MS-SMB2 3.3.5.22.2).
    pub fn acknowledge_lease(
        &self,
        client: Guid,
        user: Sid,
        key: LeaseKey,
        state: LeaseState,
    ) -> Result<LeaseState> {
        let name = LeaseName { client, user, key };
        let place = self.core.leases.lock().get(&name).cloned();
        let node = place.and_then(|(file, stream)| Some((self.core.find_pinned(file)?, stream)));
        let Some((node, stream)) = node else {
            return refuse(NtStatus::OBJECT_NAME_NOT_FOUND, "there is no such lease");
        };
        self.core.acknowledge_lease(&node, &stream, name, state)
    }
}

impl Core {
    /// The store for what a client changes: durable when it is answered over a continuously available share, and through opens that
    /// write through; else as NTFS has it, durable when the file is flushed, or soon.
    pub(crate) fn store_for(&self, caller: &Caller, options: CreateOptions) -> &Arc<dyn FileStore> {
        self.store_that_is(is_durable(caller, options))
    }

    /// The store whose changes are durable when they are answered, or the one that has them durable soon.
    pub(crate) fn store_that_is(&self, durable: bool) -> &Arc<dyn FileStore> {
        if durable { &self.store } else { &self.relaxed }
    }

    pub(crate) fn next_open(&self) -> OpenId {
        OpenId(self.next_open.fetch_add(1, Ordering::Relaxed))
    }

    /// The node of a share's folder.
    pub(crate) async fn share_root(self: &Arc<Self>, root: FileId) -> Result<Pin> {
        if let Some(pin) = self.roots.lock().get(&root) {
            return Ok(pin.clone());
        }
        let pin = self.pin_by_id(root).await?;
        if !pin.is_directory() {
            return refuse(NtStatus::OBJECT_PATH_NOT_FOUND, "the share's folder is a file");
        }
        let spare = self.roots.lock().insert(root, pin.clone());
        // Not under the lock of the roots: the last pin of a node takes the table's lock.
        drop(spare);
        Ok(pin)
    }

    /// Whether a share is gone when this is.
    pub(crate) fn is_shared(&self, node: &Pin) -> bool {
        if !node.is_directory() {
            return false;
        }
        let root = self.store.root();
        let folder: Vec<String> = node.names_below(root).iter().map(|name| fold(name)).collect();
        node.file == root || self.shared.has(&folder)
    }

    /// Refuses to delete or rename what a share serves.
    ///
    /// # Errors
    /// `status`.
    pub(crate) fn keep_shared(&self, node: &Pin, caller: &Caller, status: NtStatus) -> Result<()> {
        if node.file == caller.share.root || self.is_shared(node) {
            return refuse(
                status,
                "a share serves the folder, or one in it: its administrator takes it away",
            );
        }
        Ok(())
    }
}

/// Whether what a client changes is durable when it is answered.
pub(crate) fn is_durable(caller: &Caller, options: CreateOptions) -> bool {
    caller.share.write_through || options.contains(CreateOptions::WRITE_THROUGH)
}
