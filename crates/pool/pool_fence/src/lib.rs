//! Fencing the disks of a pool: whoever owned it before can no longer write to them.
//!
//! ```text
//!   claim of epoch E ──► fence(disk 1, E) … fence(disk n, E) ──► open the pool on those that were fenced
//!
//!   one disk:  READ KEYS, READ RESERVATION ─ a higher epoch? ─► give up, nothing was changed
//!              PREEMPT AND ABORT of a key that nobody has ─ the disk does not know it? ─► it cannot be fenced, nothing was changed
//!              REGISTER AND IGNORE EXISTING KEY (APTPL), E << 16 | node
//!              ┌► READ KEYS, READ RESERVATION ─ a higher epoch? ─► give up; UNREGISTER, unless we hold it
//!              │                              ─ we are not registered any more? ─► give up
//!              │  nobody holds it ─► RESERVE · somebody holds it ─► PREEMPT AND ABORT its exact key
//!              │  somebody else is registered ─► PREEMPT AND ABORT its key
//!              └─ again, until we hold it and nobody else is registered: the disk is ours
//! ```
//! The reservation is WRITE EXCLUSIVE – REGISTRANTS ONLY. Under it a registration alone permits writing, hence the first look, and
//! hence the second one: of two that register at the same time each sees the other, or the later one sees the earlier.
//!
//! **What the caller sees to.**
//! * The epoch is fresh: it was claimed for this opening, and nobody else has it. An earlier opening's epoch is never used again.
//! * The device was opened for this epoch. What this node has begun through an older one has ended (a session that logs in again
//!   under its name ends the earlier one's commands first): a registration made here permits it to write, too.
//! * A disk that could not be fenced is not used.
//! * An owner that lets go of a pool does *not* unregister: the reservation would end with the holder's registration, and with it the
//!   fence against owners before it. It stays until the next owner takes it.
//!
//! **Why it is enough.** Say owner L was fenced off by a later one, H. When `fence` ended for H, only H was registered, so L was not; L
//! does not register again, since its epoch is used up. An owner of a lower epoch that is late registers while H is registered, sees
//! H's key after that, and never takes the disk for its own. The tests go through the interleavings.

use block_device::{BlockDevice, BlockError, BlockErrorKind, Reservation, ReservationKind, Reservations};

/// Rounds before a disk on which others come and go all the time is given up. Each takes another initiator's registration away; there
/// are as many as nodes have died without being followed, with all their ways.
const ROUNDS: usize = 256;
/// Attempts to take one's own registration back.
const ATTEMPTS: usize = 3;
/// The keys that preempting is tried with: of epoch 0, which no owner has, and two, as no initiator is asked to preempt itself.
const TRIED_AS: u64 = 0xfffe;
const TRIED_ON: u64 = 0xffff;

/// An owner of a pool, as disks know it: the key of its registrations is `epoch << 16 | node`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FenceKey(u64);

impl FenceKey {
    /// The key of a node as the owner of an epoch; `None` for epoch 0, which nobody has, and for those from 2⁴⁸ on.
    #[must_use]
    pub fn new(epoch: u64, node: u16) -> Option<Self> {
        (1..1 << 48).contains(&epoch).then_some(Self(epoch << 16 | u64::from(node)))
    }

    /// The owner that a disk's key stands for. Keys of other software are numbers, too.
    #[must_use]
    pub fn of(key: u64) -> Self {
        Self(key)
    }

    /// The number as the disk has it.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }

    /// The epoch.
    #[must_use]
    pub fn epoch(self) -> u64 {
        self.0 >> 16
    }

    /// The node.
    #[must_use]
    pub fn node(self) -> u16 {
        self.0 as u16
    }

    /// Whether its owner goes before `other`: then `other` must not write. Two of one epoch should not be, and neither may.
    fn bars(self, other: Self) -> bool {
        self != other && self.epoch() >= other.epoch()
    }
}

impl std::fmt::Display for FenceKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "epoch {} of node {} (key {:#018x})", self.epoch(), self.node(), self.0)
    }
}

/// Why a disk is not ours.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FenceError {
    /// There is an owner of a higher epoch: this claim is over, on all disks.
    #[error(
        "the disk belongs to a later owner: {0}; if this pool never had that epoch, other software has registered the key: release it there"
    )]
    Superseded(FenceKey),
    /// Our registration was taken away while we looked: this claim is over, on all disks.
    #[error("a later owner has taken the disk meanwhile")]
    Preempted,
    /// The disk carries no reservations, or does not do all that is needed of them: nothing keeps another node from writing to it.
    #[error(
        "the disk has no persistent reservations, or cannot preempt them (PREEMPT AND ABORT), so nothing keeps another node from writing to it"
    )]
    Unsupported,
    /// We hold a reservation that is not the one that is needed.
    #[error(
        "this node holds a reservation of type {0} on the disk already: release it with the program that made it"
    )]
    Foreign(u8),
    /// Others change it all the time.
    #[error(
        "the disk's reservation does not come to rest: {ROUNDS} registrations of others were taken away, and there are more"
    )]
    Restless,
    /// The disk failed. Whether it has our registration is unknown; it permits nobody else anything.
    #[error("the disk's reservation cannot be changed: {0}")]
    Disk(#[from] BlockError),
}

impl FenceError {
    /// Whether the claim is over, whatever other disks say.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self, Self::Superseded(_) | Self::Preempted)
    }
}

/// Looks whether a disk has what [`fence`] needs, before it is needed.
///
/// # Errors
/// [`FenceError::Unsupported`] when it does not; what the disk says otherwise.
pub async fn can_fence(disk: &dyn BlockDevice) -> Result<(), FenceError> {
    let disk = disk.reservations().ok_or(FenceError::Unsupported)?;
    Seen::read(disk).await.map_err(unsupported)?;
    try_preempting(disk).await
}

/// Has a disk refuse to preempt. Who is the first owner of a disk has nobody to preempt, and would take one that cannot do it for fenced;
/// whoever follows could then never take it over, or worse, believe that it has.
async fn try_preempting(disk: &dyn Reservations) -> Result<(), FenceError> {
    match disk.preempt_and_abort(TRIED_AS, TRIED_ON).await {
        // It knows what it was asked, and that nobody is registered under these keys.
        Err(error) if error.kind() == BlockErrorKind::Fenced => Ok(()),
        other => other.map_err(unsupported),
    }
}

/// What a disk lacks is told apart from its failures.
fn unsupported(error: BlockError) -> FenceError {
    match error.kind() {
        BlockErrorKind::Unsupported => FenceError::Unsupported,
        _ => FenceError::Disk(error),
    }
}

/// Takes a disk for an owner whose epoch is fresh: when this has succeeded, no owner of a lower epoch writes to it any more, and what
/// they had under way has ended. It may be dropped at any moment, and be tried again for the same owner.
///
/// # Errors
/// When a later owner has the disk, or the disk fails. The disk must not be used then.
pub async fn fence(disk: &dyn BlockDevice, mine: FenceKey) -> Result<(), FenceError> {
    let disk = disk.reservations().ok_or(FenceError::Unsupported)?;
    // Registering alone permits writing: who is late must not even begin.
    if let Some(later) = Seen::read(disk).await.map_err(unsupported)?.later_than(mine) {
        return Err(FenceError::Superseded(later));
    }
    try_preempting(disk).await?;
    match disk.register(mine.get()).await {
        // One that remembers the highest epoch that it has accepted: that owner has taken it since, or is not there any more.
        Err(error) if error.kind() == BlockErrorKind::Fenced => return Err(FenceError::Preempted),
        registered => registered?,
    }
    take(disk, mine).await
}

/// What a disk says of its reservation. The two answers are of two moments: whatever happens between them is seen, or of no concern,
/// as those who come later look for themselves.
struct Seen {
    keys: Vec<FenceKey>,
    reservation: Option<Reservation>,
}

impl Seen {
    async fn read(disk: &dyn Reservations) -> Result<Self, BlockError> {
        let keys = disk.keys().await?.into_iter().map(FenceKey::of).collect();
        Ok(Self { keys, reservation: disk.reservation().await? })
    }

    fn later_than(&self, mine: FenceKey) -> Option<FenceKey> {
        let holder = self.reservation.iter().map(|reservation| FenceKey::of(reservation.holder));
        self.keys.iter().copied().chain(holder).filter(|key| key.bars(mine)).max()
    }
}

/// Makes a registered owner the only one.
async fn take(disk: &dyn Reservations, mine: FenceKey) -> Result<(), FenceError> {
    let wanted = Reservation { holder: mine.get(), kind: ReservationKind::WRITE_EXCLUSIVE_REGISTRANTS_ONLY };
    for _ in 0..ROUNDS {
        let seen = Seen::read(disk).await?;
        if let Some(later) = seen.later_than(mine) {
            if seen.reservation.is_none_or(|held| held.holder != mine.get()) {
                give_up(disk).await;
            }
            return Err(FenceError::Superseded(later));
        }
        if !seen.keys.contains(&mine) {
            return Err(FenceError::Preempted);
        }
        let step = match seen.reservation {
            None => disk.reserve(mine.get()).await,
            Some(held) if held == wanted => match seen.keys.iter().find(|key| **key != mine) {
                None => return Ok(()),
                Some(other) => disk.preempt_and_abort(mine.get(), other.get()).await,
            },
            Some(held) if held.holder == mine.get() => return Err(FenceError::Foreign(held.kind.0)),
            // A compare-and-set: nothing happens when the holder is another one by now.
            Some(held) => disk.preempt_and_abort(mine.get(), held.holder).await,
        };
        match step {
            Err(error) if error.kind() != BlockErrorKind::Fenced => return Err(error.into()),
            // Whether it was our step or another's, the next look says.
            _ => {}
        }
    }
    Err(FenceError::Restless)
}

/// Takes the registration of one who does not hold the reservation back. Nobody uses the disk on the strength of it, so one that stays
/// does no harm, and a later owner takes it away; but a disk should not have more of them than owners.
///
/// Who holds the reservation must not: it would end, and everybody could write, those who were fenced off long ago as well. The later
/// owner that we have seen takes it from us.
async fn give_up(disk: &dyn Reservations) {
    for _ in 0..ATTEMPTS {
        if disk.unregister().await.is_ok() {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
