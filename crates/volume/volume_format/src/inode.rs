//! Records of the database: what a file is, and what a name names.

use byte_codec::{DecodeError, Reader, Writer};

/// Version of the records; a reader refuses others.
const VERSION: u8 = 1;
/// Bits of an inode's kind.
const DIRECTORY: u8 = 1;
const FROZEN: u8 = 2;
/// It has more names than one, and they follow.
const LINKED: u8 = 4;
/// Streams of a file, at most: what fits a record that is read whole.
const STREAMS_MAX: usize = 1024;
/// Names of a file beside the first, at most: NTFS has 1024 in all.
pub const OTHER_NAMES_MAX: usize = 1023;

/// A stream of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamRecord {
    /// Its number within the file; 0 is the unnamed one. Never reused.
    pub id: u32,
    /// Its name; empty for the unnamed one.
    pub name: String,
    /// Size in bytes.
    pub size: u64,
}

/// A name of a file beside its first one (a hard link).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtherName {
    /// The directory it is in.
    pub parent: u64,
    /// The name there.
    pub name: String,
}

/// A file or directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inode {
    /// Whether it is a directory.
    pub directory: bool,
    /// Whether it belongs to a snapshot: nothing of it changes any more.
    pub frozen: bool,
    /// The directory it is in; its own number for the root, and for the roots of snapshots.
    pub parent: u64,
    /// Its name there.
    pub name: String,
    /// FILE_ATTRIBUTE_* bits.
    pub attributes: u32,
    /// Created, accessed, written, changed: nanoseconds since 1970.
    pub times: [u64; 4],
    /// The next stream's number.
    pub next_stream: u32,
    /// Its streams.
    pub streams: Vec<StreamRecord>,
    /// Its other names; only files of a volume with [`crate::FEATURE_NAMES`] have some.
    pub others: Vec<OtherName>,
}

impl Inode {
    /// The record.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.u8(VERSION);
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        let linked = !self.others.is_empty();
        w.u8(bit(self.directory, DIRECTORY) | bit(self.frozen, FROZEN) | bit(linked, LINKED));
        w.u64(self.parent);
        w.text(&self.name);
        w.u32(self.attributes);
        self.times.iter().for_each(|time| w.u64(*time));
        w.u32(self.next_stream);
        w.u16(self.streams.len() as u16);
        for stream in &self.streams {
            w.u32(stream.id);
            w.text(&stream.name);
            w.u64(stream.size);
        }
        if linked {
            w.u16(self.others.len() as u16);
            for other in &self.others {
                w.u64(other.parent);
                w.text(&other.name);
            }
        }
        w.finish()
    }

    /// The record in `bytes`.
    ///
    /// # Errors
    /// When the bytes are not a record that [`Inode::encode`] writes.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let version = r.u8()?;
        if version != VERSION {
            return Err(DecodeError::Unsupported(u32::from(version)));
        }
        let kind = r.u8()?;
        if kind & !(DIRECTORY | FROZEN | LINKED) != 0 {
            return Err(DecodeError::Invalid("kind"));
        }
        let mut inode = Self {
            directory: kind & DIRECTORY != 0,
            frozen: kind & FROZEN != 0,
            parent: r.u64()?,
            name: r.text()?,
            attributes: r.u32()?,
            times: [r.u64()?, r.u64()?, r.u64()?, r.u64()?],
            next_stream: r.u32()?,
            streams: Vec::new(),
            others: Vec::new(),
        };
        let streams = usize::from(r.u16()?);
        if streams > STREAMS_MAX {
            return Err(DecodeError::Invalid("streams"));
        }
        for _ in 0..streams {
            inode.streams.push(StreamRecord { id: r.u32()?, name: r.text()?, size: r.u64()? });
        }
        if kind & LINKED != 0 {
            let others = usize::from(r.u16()?);
            if others == 0 || others > OTHER_NAMES_MAX || inode.directory {
                return Err(DecodeError::Invalid("names"));
            }
            for _ in 0..others {
                inode.others.push(OtherName { parent: r.u64()?, name: r.text()? });
            }
        }
        if r.remaining() > 0 { Err(DecodeError::Invalid("length")) } else { Ok(inode) }
    }
}

/// What a name in a directory names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The file.
    pub file: u64,
    /// Whether it is a directory.
    pub directory: bool,
    /// The name, in the case it was given (the key has it in upper case).
    pub name: String,
}

impl Entry {
    /// The record.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.u64(self.file);
        w.u8(u8::from(self.directory));
        w.text(&self.name);
        w.finish()
    }

    /// The record in `bytes`.
    ///
    /// # Errors
    /// When the bytes are not a record that [`Entry::encode`] writes.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let entry = Self { file: r.u64()?, directory: r.u8()? != 0, name: r.text()? };
        if r.remaining() > 0 { Err(DecodeError::Invalid("length")) } else { Ok(entry) }
    }
}
