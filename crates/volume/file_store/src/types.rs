//! What the traits speak of.

/// A file of a volume; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u64);

/// What an id names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileKind {
    /// Data.
    File,
    /// Names.
    Directory,
}

/// FILE_ATTRIBUTE_* bits as SMB defines them (MS-FSCC 2.6); kept as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes(pub u32);

impl Attributes {
    /// FILE_ATTRIBUTE_READONLY. The store keeps it and lets everybody write all the same: it is for who serves the file.
    pub const READ_ONLY: Self = Self(1);

    /// Whether it makes a file read-only that was not.
    #[must_use]
    pub fn makes_read_only(self, before: Self) -> bool {
        self.0 & !before.0 & Self::READ_ONLY.0 != 0
    }
}

/// The four times of a file, in nanoseconds since 1970-01-01 00:00 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// When it was made.
    pub created: u64,
    /// When it was last read (kept lazily).
    pub accessed: u64,
    /// When its data last changed; of a directory, its names. Seen at once, durable some time after the file is
    /// closed, and in a file that stays open after a minute or so.
    pub written: u64,
    /// When anything of it last changed; with `written` if that was data.
    pub changed: u64,
}

/// A name in a directory and what it names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// The name, in the case it was given.
    pub name: String,
    /// The file.
    pub file: FileId,
    /// What it is.
    pub kind: FileKind,
}

/// A place in an enumeration. Start with the default; go on with what the last page gave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirectoryCursor(pub Vec<u8>);

/// Some entries of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryPage {
    /// The entries.
    pub entries: Vec<DirectoryEntry>,
    /// Where to go on; `None` at the end.
    pub next: Option<DirectoryCursor>,
}

/// How to make a file.
#[derive(Clone, Debug)]
pub struct NewFile {
    /// File or directory.
    pub kind: FileKind,
    /// Its first attributes.
    pub attributes: Attributes,
    /// Its security descriptor; empty for none.
    pub security: Vec<u8>,
}

/// What is known of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileInfo {
    /// The file.
    pub file: FileId,
    /// Where it is (its directory; that of its first name, if it has several); the root is its own parent.
    pub parent: FileId,
    /// What it is.
    pub kind: FileKind,
    /// How many names it has: 1, more where it was linked, 0 once it is removed.
    pub names: u32,
    /// Size of the unnamed stream, in bytes.
    pub size: u64,
    /// Space that the unnamed stream takes, in bytes, shared space included.
    pub allocated: u64,
    /// Attribute bits.
    pub attributes: Attributes,
    /// Times.
    pub times: Times,
}

/// Changes to a file's attributes and times.
#[derive(Clone, Copy, Debug, Default)]
pub struct InfoChange {
    /// New attribute bits.
    pub attributes: Option<Attributes>,
    /// New creation time.
    pub created: Option<u64>,
    /// New time of last reading.
    pub accessed: Option<u64>,
    /// New time of last writing.
    pub written: Option<u64>,
    /// New time of last change.
    pub changed: Option<u64>,
}

/// A stream of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamInfo {
    /// Its name; empty for the unnamed one.
    pub name: String,
    /// Size in bytes.
    pub size: u64,
    /// Space taken, in bytes.
    pub allocated: u64,
}

/// What an open may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Read data.
    pub read: bool,
    /// Change data and size.
    pub write: bool,
    /// Delete or rename.
    pub delete: bool,
}

/// What an open lets others do at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Others may read.
    pub read: bool,
    /// Others may write.
    pub write: bool,
    /// Others may delete or rename the file and directories above it, and change the size of the stream. Of those who do not share
    /// this each may change the size.
    pub delete: bool,
}

impl Access {
    /// Read and write.
    pub const READ_WRITE: Self = Self { read: true, write: true, delete: false };
    /// Read only.
    pub const READ: Self = Self { read: true, write: false, delete: false };
}

impl Share {
    /// Everything is shared.
    pub const ALL: Self = Self { read: true, write: true, delete: true };
    /// Nothing is shared.
    pub const NONE: Self = Self { read: false, write: false, delete: false };
}

/// How to open a stream.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// The stream; empty for the unnamed one.
    pub stream: String,
    /// Make the named stream if it isn't there.
    pub create_stream: bool,
    /// What this open may do.
    pub access: Access,
    /// What it lets others do.
    pub share: Share,
}

impl OpenOptions {
    /// The unnamed stream, with `access`, sharing everything.
    #[must_use]
    pub fn shared(access: Access) -> Self {
        Self { stream: String::new(), create_stream: false, access, share: Share::ALL }
    }
}

/// A range of a stream, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Where it starts.
    pub offset: u64,
    /// How long it is.
    pub len: u64,
}

/// Space of a volume, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreUsage {
    /// What the volume can grow to hold.
    pub capacity: u64,
    /// Data clusters in use, shared ones counted once.
    pub used: u64,
    /// Clusters mapped to files ahead of their first write; given back when space gets short.
    pub reserved: u64,
    /// What the volume's own structures take.
    pub metadata: u64,
    /// Sum over files of what they take, shared clusters counted for each.
    pub referenced: u64,
}

/// A row of durable state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateRow {
    /// Its key.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
}

/// A change to durable state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateChange {
    /// Which table ("reservation", "open" …).
    pub table: String,
    /// Which row.
    pub key: Vec<u8>,
    /// Its new value; `None` removes it.
    pub value: Option<Vec<u8>>,
}
