//! Identifiers and counters, each with a type of its own so that they cannot be mixed up.

use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

number! {
    /// A disk within its pool; never reused.
    DiskId(u32)
}
number! {
    /// A space within its pool; never reused.
    SpaceId(u32)
}
number! {
    /// The fencing generation: rises at every opening of the pool.
    Epoch(u64)
}
number! {
    /// Number of a metadata change, from 1, without gaps.
    Seq(u64)
}

/// A moment in the life of a pool: a change of its metadata, in the epoch that made it. A disk's superblock carries the
/// last one at which the disk was known to have all that it should; the metadata remembers it for each disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    /// The epoch.
    pub epoch: Epoch,
    /// The change.
    pub seq: Seq,
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epoch {} change {}", self.epoch, self.seq)
    }
}

/// A globally unique identity of a pool, disk or space.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Guid(pub [u8; 16]);

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
