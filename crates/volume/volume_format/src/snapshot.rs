//! The record of a snapshot: a name for a frozen file or tree.

use byte_codec::{DecodeError, Reader, Writer};

/// Version of the record; a reader refuses others.
const VERSION: u8 = 1;
const QUIESCED: u8 = 1;
const DELETED: u8 = 2;

/// A snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotRecord {
    /// The frozen file, or the frozen tree's directory.
    pub root: u64,
    /// What it was taken of.
    pub source: u64,
    /// When, in nanoseconds since 1970.
    pub created: u64,
    /// Whether data in caches was made durable before, with writes held up.
    pub quiesced: bool,
    /// It is on its way out, and not listed any more.
    pub deleted: bool,
    /// Its name, unique among those that are not deleted.
    pub name: String,
    /// Who made it: a schedule's name; empty for people.
    pub maker: String,
    /// Where the source was, for people.
    pub path: String,
}

impl SnapshotRecord {
    /// The record.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.u8(VERSION);
        w.u8(if self.quiesced { QUIESCED } else { 0 } | if self.deleted { DELETED } else { 0 });
        w.u64(self.root);
        w.u64(self.source);
        w.u64(self.created);
        w.text(&self.name);
        w.text(&self.maker);
        w.text(&self.path);
        w.finish()
    }

    /// The record in `bytes`.
    ///
    /// # Errors
    /// When the bytes are not a record that [`SnapshotRecord::encode`] writes.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let version = r.u8()?;
        if version != VERSION {
            return Err(DecodeError::Unsupported(u32::from(version)));
        }
        let flags = r.u8()?;
        if flags & !(QUIESCED | DELETED) != 0 {
            return Err(DecodeError::Invalid("flags"));
        }
        let record = Self {
            root: r.u64()?,
            source: r.u64()?,
            created: r.u64()?,
            quiesced: flags & QUIESCED != 0,
            deleted: flags & DELETED != 0,
            name: r.text()?,
            maker: r.text()?,
            path: r.text()?,
        };
        if r.remaining() > 0 { Err(DecodeError::Invalid("length")) } else { Ok(record) }
    }
}
