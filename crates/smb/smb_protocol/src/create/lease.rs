//! Leases in CREATE (MS-SMB2 2.2.13.2.8, 2.2.13.2.10).

use crate::wire::{DecodeError, Reader, Reserved, Wire};

bit_flags! {
    /// What a lease allows to cache.
    pub struct LeaseState(u32) {
        READ = 0x0000_0001,
        HANDLE = 0x0000_0002,
        WRITE = 0x0000_0004,
    }
}

bit_flags! {
    /// Flags of a lease.
    pub struct LeaseFlags(u32) {
        /// In responses: the lease is being broken.
        BREAK_IN_PROGRESS = 0x0000_0002,
        /// A parent's key is there (version 2).
        PARENT_LEASE_KEY_SET = 0x0000_0004,
    }
}

/// A client's name for a lease: opens with the same key share it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseKey(pub [u8; 16]);

impl Wire for LeaseKey {
    const SIZE: usize = 16;
    fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.guid().map(Self)
    }
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }
}

/// Bytes of an RqLs context of version 1 and of version 2; the length alone tells them apart.
pub(crate) const V1_BYTES: usize = 32;
pub(crate) const V2_BYTES: usize = 52;

wire_struct! {
    /// RqLs, version 1, in requests and answers.
    pub struct LeaseV1 [32] {
        /// Which lease.
        key: LeaseKey,
        /// What is asked for, or granted.
        state: LeaseState,
        /// Flags.
        flags: LeaseFlags,
        /// Reserved since it was found useless.
        _: Reserved<8>,
    }
}

wire_struct! {
    /// RqLs, version 2 (3.x), in requests and answers.
    pub struct LeaseV2 [52] {
        /// Which lease.
        key: LeaseKey,
        /// What is asked for, or granted.
        state: LeaseState,
        /// Flags.
        flags: LeaseFlags,
        _: Reserved<8>,
        /// The lease of the directory that the file is in, if the flags say so.
        parent_key: LeaseKey,
        /// Counts changes of the lease, so that a client can tell old breaks from new ones.
        epoch: u16,
        _: Reserved<2>,
    }
}
