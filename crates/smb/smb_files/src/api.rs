//! What callers give and get: who asks, what CREATE asks for, and who is told of breaks.

use std::pin::Pin;
use std::sync::Arc;

use file_store::FileId;
use smb_protocol::access::{
    AccessMask, CreateDisposition, CreateOptions, FileAttributes, OplockLevel, ShareAccess,
};
use smb_protocol::create::lease::{LeaseFlags, LeaseKey, LeaseState};
use smb_protocol::security::Sid;
use smb_protocol::{FileTime, Guid, NtStatus, Utf16};
use smb_security::Token;

/// The owner of an open: an opaque number of the caller's, shown in listings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerId(pub u64);

/// An open of a [`FileSystem`](crate::FileSystem); never reused while the process runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpenId(pub u64);

/// The folder that a share serves, and what it allows at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareRoot {
    /// The folder: paths begin here, and none leads out of it.
    pub root: FileId,
    /// Rights that the share's permissions grant this user: opens get no more.
    pub maximal_access: AccessMask,
    /// Whether listings leave out what the user may not read.
    pub access_based_enumeration: bool,
    /// Whether every write is durable when it is answered: continuously available shares (invariant W2).
    pub write_through: bool,
}

/// Who opens files through which share: one for each tree connect, cheap to clone.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The user.
    pub token: Arc<Token>,
    /// The share.
    pub share: Arc<ShareRoot>,
    /// The client, whose lease keys mean something only together with it and with the user.
    pub client: Guid,
    /// The owner of the opens that will be made.
    pub owner: OwnerId,
}

impl Caller {
    /// The name of the lease that it means by a key.
    pub(crate) fn lease(&self, key: LeaseKey) -> LeaseName {
        LeaseName { client: self.client, user: self.token.user, key }
    }
}

/// A lease's name. A key means something only together with its client, and only for its user: a client says itself who it is, and
/// whoever listens can say the same, while the user has been proven. The sessions of one user share their leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LeaseName {
    pub(crate) client: Guid,
    pub(crate) user: Sid,
    pub(crate) key: LeaseKey,
}

/// A lease that an open wants or shares (MS-SMB2 2.2.13.2.8, 2.2.13.2.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseRequest {
    /// The client's name for it.
    pub key: LeaseKey,
    /// What is wanted.
    pub state: LeaseState,
    /// In a lease of version 2: the epoch to start from and the parent's key, if its flag was set.
    pub v2: Option<LeaseRequestV2>,
}

/// What version 2 of a lease request has more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseRequestV2 {
    /// The client's epoch.
    pub epoch: u16,
    /// The key of the directory's lease.
    pub parent: Option<LeaseKey>,
}

/// What caching an open wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CachingRequest {
    /// None.
    #[default]
    None,
    /// An oplock.
    Oplock(OplockLevel),
    /// A lease.
    Lease(LeaseRequest),
}

/// What caching an open got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granted {
    /// An oplock, NONE included.
    Oplock(OplockLevel),
    /// A lease, perhaps with nothing in it: the answer to RqLs.
    Lease {
        /// Its key.
        key: LeaseKey,
        /// What it allows.
        state: LeaseState,
        /// BREAK_IN_PROGRESS, PARENT_LEASE_KEY_SET.
        flags: LeaseFlags,
        /// The parent's key, if there is one.
        parent: LeaseKey,
        /// The epoch, if the lease is of version 2.
        epoch: Option<u16>,
    },
}

impl Granted {
    /// What the response's OplockLevel says.
    #[must_use]
    pub fn level(&self) -> OplockLevel {
        match self {
            Self::Oplock(level) => *level,
            Self::Lease { .. } => OplockLevel::LEASE,
        }
    }
}

/// An open that an application may have left behind when it moved to another machine (MS-SMB2 3.3.5.9.13). An application is named
/// by its clients, and whoever listens knows the name: the open gives way to one of the same file that is allowed, and that is the
/// same user's or is granted at least the same rights. To all others it is an open like any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftBehind {
    /// The open.
    pub open: OpenId,
    /// The machine that asks now is the one that the application has left: it comes too late.
    pub is_newer: bool,
}

/// What a file is to an open: its bytes, or the virtual disk in it. Opens of the one kind exclude those of the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DiskUse {
    /// Its bytes.
    #[default]
    Bytes,
    /// Its bytes, for a host that knows of shared virtual disks: it is told where the file is one (MS-RSVD 3.2.5.1).
    HostBytes,
    /// The virtual disk, shared with all that open it so. The open reads and writes no bytes of the file: whoever serves the disk has the file
    /// open in the store, for itself alone.
    Disk,
}

/// What a CREATE asks for. Contexts about durability are the server's affair.
pub struct CreateRequest<'a> {
    /// The path below the share's root, or eight bytes with OPEN_BY_FILE_ID.
    pub name: Utf16<'a>,
    /// Rights.
    pub desired_access: AccessMask,
    /// Attributes of a new file.
    pub attributes: FileAttributes,
    /// What others may do meanwhile.
    pub share_access: ShareAccess,
    /// What to do when it exists, and when not.
    pub disposition: CreateDisposition,
    /// Options.
    pub options: CreateOptions,
    /// Oplock or lease.
    pub caching: CachingRequest,
    /// SecD: a new file's descriptor.
    pub security: Option<&'a [u8]>,
    /// ExtA: a new file's extended attributes.
    pub ea: Option<&'a [u8]>,
    /// AlSi: bytes to reserve for a new file.
    pub allocation_size: Option<u64>,
    /// TWrp: the file as it was at that time.
    pub timewarp: Option<FileTime>,
    /// MxAc, with its time if it had one.
    pub maximal_access: Option<Option<FileTime>>,
    /// QFid.
    pub on_disk_id: bool,
    /// What the file is to the open.
    pub disk: DiskUse,
    /// Who is told of breaks of what is granted.
    pub holder: Arc<dyn Holder>,
    /// Opens of the same application from other clients.
    pub left_behind: &'a [LeftBehind],
    /// Called with `true` when the operation begins to wait for somebody else (a client's acknowledgement): time for an interim response,
    /// and from then on it can be given up. With `false` when it goes on, and changes something. Perhaps more than once.
    pub on_wait: &'a (dyn Fn(bool) + 'a),
}

impl<'a> CreateRequest<'a> {
    /// An open of an existing file for everything, sharing everything; what differs is set afterwards.
    #[must_use]
    pub fn open(name: Utf16<'a>, holder: Arc<dyn Holder>) -> Self {
        Self {
            name,
            desired_access: AccessMask::MAXIMUM_ALLOWED,
            attributes: FileAttributes::NONE,
            share_access: ShareAccess::READ | ShareAccess::WRITE | ShareAccess::DELETE,
            disposition: CreateDisposition::OPEN,
            options: CreateOptions::NONE,
            caching: CachingRequest::None,
            security: None,
            ea: None,
            allocation_size: None,
            timewarp: None,
            maximal_access: None,
            on_disk_id: false,
            disk: DiskUse::Bytes,
            holder,
            left_behind: &[],
            on_wait: &|_| {},
        }
    }
}

/// Times, sizes and attributes as CREATE and CLOSE answer them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenInfo {
    /// Created.
    pub creation_time: FileTime,
    /// Last read.
    pub last_access_time: FileTime,
    /// Last written.
    pub last_write_time: FileTime,
    /// Last changed in any way.
    pub change_time: FileTime,
    /// Bytes that it takes.
    pub allocation_size: u64,
    /// Bytes that it has.
    pub end_of_file: u64,
    /// Attributes.
    pub attributes: FileAttributes,
}

/// A lease break for a client (MS-SMB2 2.2.23.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseBreak {
    /// Which lease.
    pub key: LeaseKey,
    /// What it allows until now.
    pub current: LeaseState,
    /// What it allows then.
    pub new: LeaseState,
    /// Whether the client must acknowledge.
    pub ack_required: bool,
    /// The new epoch; 0 for a lease of version 1.
    pub epoch: u16,
}

/// Who is told what happens to an open. Calls come from any thread, with no lock held, and must not block.
pub trait Holder: Send + Sync {
    /// The open's oplock is broken: tell the client. EXCLUSIVE and BATCH are acknowledged with
    /// [`Open::acknowledge_oplock`](crate::Open::acknowledge_oplock); II, broken to NONE, is not.
    fn break_oplock(&self, open: OpenId, to: OplockLevel);

    /// A lease that the open shares is broken: tell the client. Only one of the opens that share it is called.
    fn break_lease(&self, open: OpenId, change: LeaseBreak);

    /// The open is about to be closed from outside. Ends when nothing of it is under way any more that this file system does not know of, as
    /// at the disk in its file: who takes its place is let in after that.
    fn closes(&self, open: OpenId) -> Closes<'_> {
        let _ = open;
        Box::pin(std::future::ready(()))
    }

    /// The open was closed from outside: by an administrator, or as a disconnected durable open in somebody's way.
    fn closed(&self, open: OpenId);

    /// Something that is in the open's [`OpenRecord`](crate::record::OpenRecord) changed other than by an operation on
    /// this open: a break took effect, or a folder above was renamed.
    fn record_changed(&self, open: OpenId) {
        let _ = open;
    }

    /// Ends when the open's record as it is now is on stable storage: somebody is about to do what a break made way for, and a
    /// restart must not give back what was broken. With an error it is not done.
    fn keep_record(&self, open: OpenId) -> Kept<'_> {
        let _ = open;
        Box::pin(std::future::ready(Ok(())))
    }
}

/// The future of [`Holder::keep_record`].
pub type Kept<'a> = Pin<Box<dyn Future<Output = std::result::Result<(), NtStatus>> + 'a>>;

/// The future of [`Holder::closes`].
pub type Closes<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// A holder that ignores everything: for opens that nobody caches.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHolder;

impl Holder for NoHolder {
    fn break_oplock(&self, _: OpenId, _: OplockLevel) {}
    fn break_lease(&self, _: OpenId, _: LeaseBreak) {}
    fn closed(&self, _: OpenId) {}
}

/// How long an open outlives its connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// The open does not outlive its connection.
    #[default]
    None,
    /// Until something conflicts with what it caches, or the server's timer ends it: DHnQ, DH2Q.
    Durable,
    /// Until the server's timer ends it; what conflicts with what it caches takes that and leaves the open:
    /// FSCTL_LMR_REQUEST_RESILIENCY.
    Resilient,
    /// It keeps protecting the file while it is disconnected: DH2Q with PERSISTENT on a continuously available share.
    Persistent,
}

/// An open in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenSummary {
    /// Which.
    pub id: OpenId,
    /// Whose.
    pub owner: OwnerId,
    /// The file.
    pub file: FileId,
    /// The path below the volume's root, with the stream if it is a named one.
    pub path: String,
    /// Rights.
    pub access: AccessMask,
    /// What it shares.
    pub share_access: ShareAccess,
    /// Its oplock; LEASE with a lease.
    pub oplock: OplockLevel,
    /// Its lease, if it has one.
    pub lease: Option<(LeaseKey, LeaseState)>,
    /// Byte ranges that it has locked.
    pub locks: usize,
    /// Whether it outlives its connection.
    pub durability: Durability,
    /// Whether nobody holds it now.
    pub disconnected: bool,
    /// Whether it is a directory.
    pub directory: bool,
    /// Whether the file goes when it is closed.
    pub delete_pending: bool,
}
