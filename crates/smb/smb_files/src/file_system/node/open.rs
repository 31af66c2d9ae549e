//! An open file, directory or stream.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

use file_store::OpenFile;
use parking_lot::{Mutex, RwLock};
use smb_protocol::Utf16;
use smb_protocol::access::{AccessMask, CreateOptions, OplockLevel, ShareAccess};
use smb_protocol::directory::QueryDirectoryFlags;
use smb_protocol::fscc::FileClass;
use smb_protocol::fsctl::copy::ResumeKey;

use super::Pin;
use crate::api::{Caller, Durability, Granted, Holder, LeaseName, OpenId, OpenSummary, OwnerId};
use crate::caching::{By, Link};
use crate::changes::Changes;
use crate::error::{Result, refuse};
use crate::file_system::{Core, is_durable};
use crate::scan::Scan;
use crate::share_mode::takes_part;
use crate::watches::Watch;
use smb_protocol::NtStatus;

/// An open: what CREATE made and CLOSE ends.
pub struct Open {
    pub(crate) core: Arc<Core>,
    pub(crate) id: OpenId,
    pub(crate) node: Pin,
    /// The key of what opens of the stream share: its folded name, while nobody renames it; empty for the unnamed one and for
    /// directories.
    pub(crate) stream: String,
    /// The stream's name as it was when it was opened; see [`Open::stream_now`].
    pub(crate) stream_name: String,
    /// Whether the directory itself is open, not one of its streams.
    pub(crate) directory: bool,
    pub(crate) granted: AccessMask,
    pub(crate) share_access: ShareAccess,
    pub(crate) options: CreateOptions,
    pub(crate) caller: Caller,
    pub(crate) lease: Option<LeaseName>,
    /// Whether it is the virtual disk in the file that is open, not its bytes.
    pub(crate) disk: bool,
    /// The stream in the store, if the open may read or write.
    pub(crate) data: RwLock<Option<Arc<dyn OpenFile>>>,
    pub(crate) state: Mutex<OpenState>,
    /// Where QUERY_DIRECTORY is. Requests on one open take turns.
    pub(crate) scan: tokio::sync::Mutex<Option<Scan>>,
    /// What CHANGE_NOTIFY watches, once it has been asked.
    pub(crate) watch: OnceLock<Arc<Watch>>,
    /// 0 connected, 1 away and closable, 2 away and protecting, 3 away and staying: what breaks look at.
    link: AtomicU8,
    /// Changes that are under way through it.
    pub(crate) changes: Changes,
    pub(crate) closed: AtomicBool,
    /// It changed data: its close is a change of its directory's listing.
    pub(crate) wrote: AtomicBool,
}

/// What of an open changes.
pub(crate) struct OpenState {
    pub(crate) holder: Option<Arc<dyn Holder>>,
    /// Who keeps its record: the holder, also while it is away.
    recorder: Option<Arc<dyn Holder>>,
    pub(crate) owner: OwnerId,
    pub(crate) durability: Durability,
    pub(crate) position: u64,
    /// Options that FileModeInformation can change.
    pub(crate) mode: CreateOptions,
    pub(crate) delete_on_close: bool,
    pub(crate) sticky: Sticky,
    /// It wrote before: what the time of the next write waits for depends on it.
    pub(crate) wrote_before: bool,
    /// Where listing extended attributes goes on.
    pub(crate) ea_index: usize,
    /// Where listing quotas goes on.
    pub(crate) quota_index: usize,
}

/// Times that this open has set, or frozen: its operations do not change them (MS-FSA 2.1.1.6 UserSet…Time).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sticky {
    pub(crate) created: bool,
    pub(crate) accessed: bool,
    /// The time of writing to put back after writes, in the store's form.
    pub(crate) written: Option<u64>,
    pub(crate) changed: Option<u64>,
}

/// How to write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteFlags {
    /// Durable when answered; also when the open or the share says so.
    pub write_through: bool,
}

/// A QUERY_DIRECTORY.
#[derive(Clone, Copy, Debug)]
pub struct DirectoryQuery<'a> {
    /// In which form.
    pub class: FileClass,
    /// Where to begin, and whether one entry is wanted or many.
    pub flags: QueryDirectoryFlags,
    /// Where to go on: not used, as entries have no index here (nor on NTFS; MS-FSCC 2.4 FileIndex).
    pub file_index: u32,
    /// Which names.
    pub pattern: Utf16<'a>,
    /// Most bytes of the answer.
    pub limit: usize,
}

/// How a control finds the other open that it names; the server looks in the same session only.
pub trait OpenLookup {
    /// The open with a file identifier of DUPLICATE_EXTENTS.
    fn by_file_id(&self, id: smb_protocol::file::FileId) -> Option<Arc<Open>>;
    /// The open with a resume key of COPYCHUNK; see [`Open::resume_key`].
    fn by_resume_key(&self, key: ResumeKey) -> Option<Arc<Open>>;
}

/// What a new open is made of.
pub(crate) struct NewOpen {
    pub(crate) node: Pin,
    pub(crate) stream_name: String,
    pub(crate) directory: bool,
    pub(crate) granted: AccessMask,
    pub(crate) share_access: ShareAccess,
    pub(crate) options: CreateOptions,
    pub(crate) caller: Caller,
    pub(crate) lease: Option<LeaseName>,
    pub(crate) holder: Option<Arc<dyn Holder>>,
    pub(crate) delete_on_close: bool,
    pub(crate) disk: bool,
}

impl Open {
    pub(crate) fn new(core: &Arc<Core>, new: NewOpen) -> Self {
        let state = OpenState {
            recorder: new.holder.clone(),
            holder: new.holder,
            owner: new.caller.owner,
            durability: Durability::None,
            position: 0,
            mode: new.options,
            delete_on_close: new.delete_on_close,
            sticky: Sticky::default(),
            wrote_before: false,
            ea_index: 0,
            quota_index: 0,
        };
        let stream = new.node.state.lock().key_of(&new.stream_name);
        Self {
            core: Arc::clone(core),
            id: core.next_open(),
            node: new.node,
            stream,
            stream_name: new.stream_name,
            directory: new.directory,
            granted: new.granted,
            share_access: new.share_access,
            options: new.options,
            caller: new.caller,
            lease: new.lease,
            disk: new.disk,
            data: RwLock::new(None),
            state: Mutex::new(state),
            scan: tokio::sync::Mutex::new(None),
            watch: OnceLock::new(),
            link: AtomicU8::new(0),
            closed: AtomicBool::new(false),
            changes: Changes::default(),
            wrote: AtomicBool::new(false),
        }
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> OpenId {
        self.id
    }

    /// The file.
    #[must_use]
    pub fn file(&self) -> file_store::FileId {
        self.node.file
    }

    /// Its rights.
    #[must_use]
    pub fn granted(&self) -> AccessMask {
        self.granted
    }

    /// Its options.
    #[must_use]
    pub fn options(&self) -> CreateOptions {
        self.options
    }

    /// What it shares.
    #[must_use]
    pub fn share_access(&self) -> ShareAccess {
        self.share_access
    }

    /// Whether somebody has the virtual disk in its file open, this open or another one.
    #[must_use]
    pub fn is_of_shared_disk(&self) -> bool {
        self.stream.is_empty() && self.node.state.lock().opens_of("").any(|open| open.disk)
    }

    /// Whether it has a right that share modes speak of.
    pub(crate) fn uses_data(&self) -> bool {
        takes_part(self.granted)
    }

    /// Whether it is a directory.
    #[must_use]
    pub fn is_directory(&self) -> bool {
        self.directory
    }

    /// The path below the share's root, without a backslash before it, with the stream if it is a named one.
    #[must_use]
    pub fn path(&self) -> String {
        let mut path = self.node.path_below(self.caller.share.root);
        self.add_stream(&mut path);
        path
    }

    /// The path in the volume as its store has it, with `/` before each name, without a stream.
    #[must_use]
    pub fn volume_path(&self) -> String {
        format!("/{}", self.node.names_below(self.core.store.root()).join("/"))
    }

    fn add_stream(&self, path: &mut String) {
        let stream = self.stream_now();
        if !stream.is_empty() {
            path.push(':');
            path.push_str(&crate::path::to_client(&stream));
        }
    }

    /// Who opened it and through which share.
    #[must_use]
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// The session that holds this open now.
    #[must_use]
    pub fn owner(&self) -> OwnerId {
        self.state.lock().owner
    }

    /// The key that names this open as a source of COPYCHUNK.
    #[must_use]
    pub fn resume_key(&self) -> ResumeKey {
        let mut key = [0; 24];
        let (id, instance) = key.split_at_mut(8);
        id.copy_from_slice(&self.id.0.to_le_bytes());
        instance.copy_from_slice(&self.core.instance);
        ResumeKey(key)
    }

    /// What caching it has now.
    #[must_use]
    pub fn caching(&self) -> Granted {
        let state = self.node.state.lock();
        let stream = state.streams.get(&self.stream);
        stream.map_or(Granted::Oplock(OplockLevel::NONE), |stream| stream.caching.of(self.id))
    }

    /// Says how long it outlives its connection.
    pub fn set_durability(&self, durability: Durability) {
        self.state.lock().durability = durability;
        if self.is_detached() {
            self.link.store(away(durability), Ordering::Release);
        }
    }

    /// How long it outlives its connection.
    #[must_use]
    pub fn durability(&self) -> Durability {
        self.state.lock().durability
    }

    /// Its connection is gone: nobody hears of breaks. What waits on it (locks, notification) is the server's to cancel.
    /// From now on what conflicts with a durable open's caching closes it, and what conflicts with a persistent one is
    /// answered with FILE_NOT_AVAILABLE.
    pub fn detach(&self) {
        let durability = {
            let mut state = self.state.lock();
            state.holder = None;
            state.durability
        };
        self.link.store(away(durability), Ordering::Release);
        // Who waits for an acknowledgement that cannot come any more looks again.
        self.node.changed.notify_waiters();
    }

    /// Its client is back.
    pub fn attach(&self, holder: Arc<dyn Holder>, owner: OwnerId) {
        let mut state = self.state.lock();
        state.recorder = Some(Arc::clone(&holder));
        state.holder = Some(holder);
        state.owner = owner;
        self.link.store(0, Ordering::Release);
    }

    /// Whether it is detached.
    #[must_use]
    pub fn is_detached(&self) -> bool {
        self.link.load(Ordering::Acquire) != 0
    }

    /// Whether it was closed, by whomever.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn link(&self) -> Link {
        match self.link.load(Ordering::Acquire) {
            0 => Link::Connected,
            2 => Link::Persistent,
            3 => Link::Resilient,
            _ => Link::Durable,
        }
    }

    /// The store for what this open changes.
    pub(crate) fn store(&self) -> &Arc<dyn file_store::FileStore> {
        self.core.store_for(&self.caller, self.options)
    }

    /// Whether what it changes is durable when it is answered.
    pub(crate) fn is_durable(&self) -> bool {
        is_durable(&self.caller, self.options)
    }

    /// Who it is when it operates.
    pub(crate) fn by(&self) -> By {
        By { open: Some(self.id), lease: self.lease, creates: false }
    }

    /// Says who keeps its record before its client is back: for one that came back after a restart.
    pub fn recorded_by(&self, holder: Arc<dyn Holder>) {
        self.state.lock().recorder = Some(holder);
    }

    /// Who keeps its record, if it is one that outlives the server.
    pub(crate) fn recorder(&self) -> Option<Arc<dyn Holder>> {
        let state = self.state.lock();
        state.recorder.clone().filter(|_| state.durability == Durability::Persistent)
    }

    /// Who has to know that it is closed, also while its client is away.
    pub(crate) fn keeper(&self) -> Option<Arc<dyn Holder>> {
        let state = self.state.lock();
        state.holder.clone().or_else(|| state.recorder.clone())
    }

    pub(crate) fn holder(&self) -> Option<Arc<dyn Holder>> {
        self.state.lock().holder.clone()
    }

    /// Refuses what the open has no right to.
    pub(crate) fn needs(&self, rights: AccessMask, what: &'static str) -> Result<()> {
        if self.is_closed() {
            return refuse(NtStatus::FILE_CLOSED, "the file is closed");
        }
        if !self.granted.contains(rights) {
            return refuse(NtStatus::ACCESS_DENIED, what);
        }
        Ok(())
    }

    /// Refuses what the open has none of the rights to.
    pub(crate) fn needs_any(&self, rights: AccessMask, what: &'static str) -> Result<()> {
        if self.is_closed() {
            return refuse(NtStatus::FILE_CLOSED, "the file is closed");
        }
        if !self.granted.intersects(rights) {
            return refuse(NtStatus::ACCESS_DENIED, what);
        }
        Ok(())
    }

    /// The stream in the store.
    pub(crate) fn data(&self) -> Result<Arc<dyn OpenFile>> {
        match &*self.data.read() {
            Some(data) => Ok(Arc::clone(data)),
            None if self.is_closed() => refuse(NtStatus::FILE_CLOSED, "the file is closed"),
            None if self.directory => refuse(NtStatus::INVALID_DEVICE_REQUEST, "a directory has no data"),
            None => refuse(NtStatus::ACCESS_DENIED, "the open reads and writes no data"),
        }
    }

    /// How it is listed.
    #[must_use]
    pub fn summary(&self) -> OpenSummary {
        let (lease, granted, locks, pending) = {
            let state = self.node.state.lock();
            let stream = state.streams.get(&self.stream);
            let lease =
                stream.and_then(|s| s.caching.lease_of(self.id)).map(|view| (view.name.key, view.state));
            let granted =
                stream.map_or(Granted::Oplock(OplockLevel::NONE), |stream| stream.caching.of(self.id));
            let locks = stream.map_or(0, |stream| stream.locks.of(self.id).count());
            (lease, granted, locks, self.node.name.is_going() || stream.is_some_and(|s| s.delete_pending))
        };
        let mut path = self.node.path_below(self.core.store.root());
        self.add_stream(&mut path);
        let state = self.state.lock();
        OpenSummary {
            id: self.id,
            owner: state.owner,
            file: self.node.file,
            path,
            access: self.granted,
            share_access: self.share_access,
            oplock: granted.level(),
            lease,
            locks,
            durability: state.durability,
            disconnected: self.is_detached(),
            directory: self.directory,
            delete_pending: pending || state.delete_on_close,
        }
    }
}

fn away(durability: Durability) -> u8 {
    match durability {
        Durability::Persistent => 2,
        Durability::Resilient => 3,
        Durability::None | Durability::Durable => 1,
    }
}
