//! Quotas: how much of a store the files of one owner may take.
//!
//! Space is charged to the *owner* of a file, which its security descriptor names, by what its streams have allocated: clusters,
//! not bytes written, and a shared cluster wholly to each owner that has it. Snapshots are nobody's.

use std::fmt;

use crate::StoreFuture;

/// A warning or limit that nothing passes.
pub const NO_LIMIT: u64 = u64::MAX;
/// Most owners with limits of their own: all of them are in memory.
pub const QUOTAS_MAX: usize = 65_536;
/// Bytes of the longest SID: 8, and 15 sub-authorities.
const SID_MAX: usize = 68;
/// Where the head of a self-relative descriptor has the offset of its owner (MS-DTYP 2.4.6).
const OWNER_AT: usize = 4;

/// The owner of files: a SID in its bytes (MS-DTYP 2.4.2.2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    len: u8,
    bytes: [u8; SID_MAX],
}

impl Owner {
    /// The administrators: what nobody else owns is theirs, and nothing limits them.
    pub const ADMINISTRATORS: Self = Self::known([1, 2, 0, 0, 0, 0, 0, 5, 32, 0, 0, 0, 0x20, 2, 0, 0]);
    /// The machine itself. Nothing limits it.
    pub const SYSTEM: Self = Self::known([1, 1, 0, 0, 0, 0, 0, 5, 18, 0, 0, 0]);

    const fn known<const N: usize>(sid: [u8; N]) -> Self {
        let mut bytes = [0; SID_MAX];
        let mut at = 0;
        // In a constant there are no iterators, and the lists above are short.
        while at < N {
            bytes[at] = sid[at];
            at += 1;
        }
        Self { len: N as u8, bytes }
    }

    /// The SID at the beginning of `bytes`; `None` where there is none.
    #[must_use]
    pub fn at(bytes: &[u8]) -> Option<Self> {
        let (revision, count) = (*bytes.first()?, usize::from(*bytes.get(1)?));
        let sid = bytes.get(..8 + 4 * count).filter(|sid| revision == 1 && sid.len() <= SID_MAX)?;
        let mut bytes = [0; SID_MAX];
        bytes.get_mut(..sid.len())?.copy_from_slice(sid);
        Some(Self { len: sid.len() as u8, bytes })
    }

    /// The one whose whole SID `bytes` are.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Self::at(bytes).filter(|owner| owner.bytes().len() == bytes.len())
    }

    /// Whose a file with this descriptor is. The administrators', where it names nobody or cannot be read.
    #[must_use]
    pub fn of(descriptor: &[u8]) -> Self {
        let offset = descriptor.get(OWNER_AT..).and_then(|rest| rest.first_chunk::<4>());
        let offset = offset.map_or(0, |offset| u32::from_le_bytes(*offset)) as usize;
        let named = if offset == 0 { None } else { descriptor.get(offset..).and_then(Self::at) };
        named.unwrap_or(Self::ADMINISTRATORS)
    }

    /// Its SID.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// Whether limits can hold for it.
    #[must_use]
    pub fn can_be_limited(&self) -> bool {
        *self != Self::ADMINISTRATORS && *self != Self::SYSTEM
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (head, subs) = self.bytes().split_at_checked(8).unwrap_or_default();
        let authority = head.iter().skip(2).fold(0u64, |sum, byte| (sum << 8) | u64::from(*byte));
        write!(f, "S-1-{authority}")?;
        let (subs, _) = subs.as_chunks::<4>();
        subs.iter().try_for_each(|sub| write!(f, "-{}", u32::from_le_bytes(*sub)))
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What quotas do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QuotaMode {
    /// Nothing is counted.
    #[default]
    Off,
    /// It is counted, and nothing is refused.
    Track,
    /// What would pass a limit is refused.
    Enforce,
}

/// Bytes at which a warning is due, and bytes that may be taken; [`NO_LIMIT`] where there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaLimits {
    /// A warning is due.
    pub warning: u64,
    /// Nothing more is given.
    pub limit: u64,
}

impl QuotaLimits {
    /// Neither.
    pub const NONE: Self = Self { warning: NO_LIMIT, limit: NO_LIMIT };
}

impl Default for QuotaLimits {
    fn default() -> Self {
        Self::NONE
    }
}

/// What holds for a store as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaSettings {
    /// What quotas do.
    pub mode: QuotaMode,
    /// What holds for owners that have no limits of their own.
    pub default: QuotaLimits,
}

/// One owner's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaEntry {
    /// Whose.
    pub owner: Owner,
    /// Bytes that are charged to it, as far as they have been counted.
    pub used: u64,
    /// What holds for it.
    pub limits: QuotaLimits,
    /// These limits are its own, and not those of everybody.
    pub own: bool,
    /// When they were set, in nanoseconds since 1970-01-01 00:00 UTC; 0 where they are those of everybody.
    pub changed: u64,
}

impl QuotaEntry {
    /// Bytes that it may still take.
    #[must_use]
    pub fn left(&self) -> u64 {
        if self.limits.limit == NO_LIMIT { NO_LIMIT } else { self.limits.limit.saturating_sub(self.used) }
    }
}

/// What is known of the quotas of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuotaReport {
    /// What holds for the store.
    pub settings: QuotaSettings,
    /// What was there when counting began is still being counted: the figures are too low, and nothing is refused.
    pub counting: bool,
    /// Those with limits of their own, and those to whom space is charged, by their SIDs.
    pub owners: Vec<QuotaEntry>,
}

/// What of its quota an owner has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum QuotaLevel {
    /// The warning is due.
    Warning,
    /// Something was refused.
    Limit,
}

/// An owner has come to its warning or limit. Told once, and again only after it has had clearly less meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaEvent {
    /// Who, and what it had then.
    pub entry: QuotaEntry,
    /// To which of the two.
    pub level: QuotaLevel,
}

/// Quotas of a store.
///
/// # Contract
///
/// **Charges** are exact at every moment, once all has been counted: a cluster that a file gets or gives up is charged or given back
/// in the same step. Files that were removed are charged as long as they are open, and until their space has been given up.
///
/// **Refusals** end with [`crate::StoreErrorKind::QuotaExceeded`], and nothing has changed, as where the store is full. What is refused is to
/// give a file of the owner more clusters, by whomever, or to give the owner a file. No number of writers takes more than the limit.
///
/// **Limits and mode** are durable when they are set. The figures are not: they are counted again when the store is opened.
pub trait QuotaStore: Send + Sync {
    /// What quotas do now; costs nothing.
    fn quota_mode(&self) -> QuotaMode;

    /// All there is to know.
    fn quotas(&self) -> StoreFuture<'_, QuotaReport>;

    /// The same with one owner's part alone.
    fn quota_of(&self, owner: Owner) -> StoreFuture<'_, QuotaReport>;

    /// Changes what holds for the store. [`crate::StoreErrorKind::InvalidArgument`] where a warning is above its limit.
    fn set_quotas(&self, settings: QuotaSettings) -> StoreFuture<'_, ()>;

    /// Gives an owner limits of its own, or takes them away. [`crate::StoreErrorKind::InvalidArgument`] where a warning is above its
    /// limit, nothing can limit the owner, or there are [`QUOTAS_MAX`] others.
    fn set_quota(&self, owner: Owner, limits: Option<QuotaLimits>) -> StoreFuture<'_, ()>;

    /// What has happened since this was asked last; of much, the latest.
    fn quota_events(&self) -> StoreFuture<'_, Vec<QuotaEvent>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A descriptor with an owner behind its head.
    fn descriptor(sid: &[u8]) -> Vec<u8> {
        let mut bytes = vec![1, 0, 0, 0x80, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        bytes.extend(sid);
        bytes
    }

    #[test]
    fn owners_of_descriptors() {
        let sid = [1, 2, 0, 0, 0, 0, 0, 5, 21, 0, 0, 0, 7, 0, 0, 0];
        let owner = Owner::of(&descriptor(&sid));
        assert_eq!((owner.bytes(), owner.to_string().as_str()), (&sid[..], "S-1-5-21-7"));
        assert_eq!(Owner::from_bytes(&sid), Some(owner));
        assert_eq!(Owner::from_bytes(&descriptor(&sid)), None);
        assert!(owner.can_be_limited() && !Owner::SYSTEM.can_be_limited());
        assert_eq!(Owner::ADMINISTRATORS.to_string(), "S-1-5-32-544");
        for cut in 0..descriptor(&sid).len() {
            assert_eq!(Owner::of(&descriptor(&sid)[..cut]), Owner::ADMINISTRATORS, "{cut}");
        }
        for bad in [&[2, 0, 0, 0, 0, 0, 0, 5][..], &[1, 16, 0, 0, 0, 0, 0, 5][..], &[1; 80][..4]] {
            assert_eq!(Owner::of(&descriptor(bad)), Owner::ADMINISTRATORS);
        }
        let mut far = descriptor(&sid);
        far[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(Owner::of(&far), Owner::ADMINISTRATORS);
    }
}
