//! Records: what a stream says, one step each.

use byte_codec::{DecodeError, Reader, Writer};

use crate::DATA_MAX;

/// Longest path, and longest name of a stream, in bytes.
const TEXT_MAX: usize = u16::MAX as usize;
/// Longest security descriptor, in bytes, as stores have it.
const SECURITY_MAX: usize = 64 << 10;
/// Longest payload: data with its offset, or a path and a descriptor.
pub(crate) const PAYLOAD_MAX: usize = DATA_MAX + TEXT_MAX + SECURITY_MAX + 64;
/// Largest size of a stream, as stores have it.
const SIZE_MAX: u64 = i64::MAX as u64 / 2;

/// What a file or directory has beside its data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// FILE_ATTRIBUTE_* bits.
    pub attributes: u32,
    /// Created, accessed, written, changed: nanoseconds since 1970.
    pub times: [u64; 4],
    /// The security descriptor; empty for none.
    pub security: Vec<u8>,
}

/// One step. Paths are names with `/` between them, below what the stream is about; the empty one is that itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// What the stream is about: the first record.
    Begin {
        /// The volume it comes from.
        volume: [u8; 16],
        /// What it begins with, for people.
        base: String,
        /// When that was taken, in nanoseconds since 1970; 0 for what is not a snapshot.
        base_time: u64,
        /// What it leads to, for people.
        target: String,
        /// When that was taken.
        target_time: u64,
        /// Whether it is about a tree.
        directory: bool,
    },
    /// The file or tree of this path goes.
    Remove {
        /// Where.
        path: String,
    },
    /// A directory is there and has this.
    Directory {
        /// Where.
        path: String,
        /// What it has.
        meta: Meta,
    },
    /// A file is there and has this, once what follows up to the next file is done.
    File {
        /// Where.
        path: String,
        /// What it has.
        meta: Meta,
    },
    /// A stream of the last file or directory is there, with this size.
    Stream {
        /// Its name; empty for the unnamed one.
        name: String,
        /// The size that it had before, in bytes; `None` where there was none.
        base_size: Option<u64>,
        /// Its size, in bytes.
        size: u64,
    },
    /// The stream holds these bytes.
    Data {
        /// From here on.
        offset: u64,
        /// At most [`DATA_MAX`] of them.
        bytes: Vec<u8>,
    },
    /// The stream has no space there, and reads as zeros.
    Hole {
        /// From here on.
        offset: u64,
        /// So many bytes.
        len: u64,
    },
    /// A named stream of the last file or directory goes.
    RemoveStream {
        /// Its name.
        name: String,
    },
    /// A name of a file that the stream has told of, or that was there: one more name, which nothing has now.
    Link {
        /// Where.
        path: String,
        /// The name that the file has.
        to: String,
    },
    /// That was all.
    End {
        /// Records before this one.
        records: u64,
        /// Bytes of data in them.
        data: u64,
    },
}

fn put_meta(w: &mut Writer, meta: &Meta) {
    w.u32(meta.attributes);
    meta.times.iter().for_each(|time| w.u64(*time));
    w.u32(meta.security.len() as u32);
    w.raw(&meta.security);
}

fn meta(r: &mut Reader<'_>) -> Result<Meta, DecodeError> {
    let (attributes, times) = (r.u32()?, [r.u64()?, r.u64()?, r.u64()?, r.u64()?]);
    let len = r.u32()? as usize;
    if len > SECURITY_MAX {
        return Err(DecodeError::Invalid("the length of a security descriptor"));
    }
    Ok(Meta { attributes, times, security: r.raw(len)?.to_vec() })
}

/// A path that leads downwards.
fn path(r: &mut Reader<'_>) -> Result<String, DecodeError> {
    let path = r.text()?;
    let wrong =
        |name: &str| name.is_empty() || name == "." || name == ".." || name.contains(['\\', '\0', ':']);
    if !path.is_empty() && path.split('/').any(wrong) {
        return Err(DecodeError::Invalid("a path"));
    }
    Ok(path)
}

fn stream_name(r: &mut Reader<'_>) -> Result<String, DecodeError> {
    let name = r.text()?;
    if name.contains(['/', '\\', '\0', ':']) {
        return Err(DecodeError::Invalid("the name of a stream"));
    }
    Ok(name)
}

fn size(value: u64) -> Result<u64, DecodeError> {
    if value > SIZE_MAX { Err(DecodeError::Invalid("a size")) } else { Ok(value) }
}

impl Record {
    pub(crate) fn kind(&self) -> u8 {
        match self {
            Self::Begin { .. } => 1,
            Self::Remove { .. } => 2,
            Self::Directory { .. } => 3,
            Self::File { .. } => 4,
            Self::Stream { .. } => 5,
            Self::Data { .. } => 6,
            Self::Hole { .. } => 7,
            Self::RemoveStream { .. } => 8,
            Self::End { .. } => 9,
            Self::Link { .. } => 10,
        }
    }

    /// The payload; `None` when a text or the data is longer than a record takes.
    pub(crate) fn payload(&self) -> Option<Vec<u8>> {
        let mut w = Writer::default();
        match self {
            Self::Begin { volume, base, base_time, target, target_time, directory } => {
                if base.len() > TEXT_MAX || target.len() > TEXT_MAX {
                    return None;
                }
                w.raw(volume);
                w.text(base);
                w.u64(*base_time);
                w.text(target);
                w.u64(*target_time);
                w.u8(u8::from(*directory));
            }
            Self::Remove { path } => {
                if path.len() > TEXT_MAX {
                    return None;
                }
                w.text(path);
            }
            Self::Directory { path, meta } | Self::File { path, meta } => {
                if path.len() > TEXT_MAX || meta.security.len() > SECURITY_MAX {
                    return None;
                }
                w.text(path);
                put_meta(&mut w, meta);
            }
            Self::Stream { name, base_size, size } => {
                w.text(name);
                w.u64(base_size.unwrap_or(u64::MAX));
                w.u64(*size);
            }
            Self::Data { offset, bytes } => {
                if bytes.len() > DATA_MAX {
                    return None;
                }
                w.u64(*offset);
                w.raw(bytes);
            }
            Self::Hole { offset, len } => {
                w.u64(*offset);
                w.u64(*len);
            }
            Self::RemoveStream { name } => w.text(name),
            Self::End { records, data } => {
                w.u64(*records);
                w.u64(*data);
            }
            Self::Link { path, to } => {
                if path.len() > TEXT_MAX || to.len() > TEXT_MAX {
                    return None;
                }
                w.text(path);
                w.text(to);
            }
        }
        Some(w.finish())
    }

    pub(crate) fn decode(kind: u8, payload: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(payload);
        let record = match kind {
            1 => Self::Begin {
                volume: r.guid()?,
                base: r.text()?,
                base_time: r.u64()?,
                target: r.text()?,
                target_time: r.u64()?,
                directory: r.u8()? != 0,
            },
            2 => Self::Remove { path: path(&mut r)? },
            3 => Self::Directory { path: path(&mut r)?, meta: meta(&mut r)? },
            4 => Self::File { path: path(&mut r)?, meta: meta(&mut r)? },
            5 => {
                let (name, base_size) = (stream_name(&mut r)?, r.u64()?);
                let base_size = if base_size == u64::MAX { None } else { Some(size(base_size)?) };
                Self::Stream { name, base_size, size: size(r.u64()?)? }
            }
            6 => {
                let offset = r.u64()?;
                let left = r.remaining();
                if left > DATA_MAX || left == 0 {
                    return Err(DecodeError::Invalid("the length of data"));
                }
                Self::Data { offset, bytes: r.raw(left)?.to_vec() }
            }
            7 => Self::Hole { offset: r.u64()?, len: r.u64()? },
            8 => Self::RemoveStream { name: stream_name(&mut r)? },
            9 => Self::End { records: r.u64()?, data: r.u64()? },
            10 => Self::Link { path: path(&mut r)?, to: path(&mut r)? },
            _ => return Err(DecodeError::Invalid("the type of a record")),
        };
        if r.remaining() > 0 { Err(DecodeError::Invalid("its length")) } else { Ok(record) }
    }
}
