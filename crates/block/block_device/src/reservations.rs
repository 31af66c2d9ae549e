//! Disks that several nodes reach: who may write is kept by the disk itself.

use std::collections::{BTreeMap, BTreeSet};

use crate::{BlockError, BlockErrorKind, BlockFuture};

/// What a disk's reservation permits to whom (SPC-4 table 65): the code is the one on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservationKind(pub u8);

impl ReservationKind {
    /// Who is registered may write; everybody may read. The only kind that [`Reservations`] makes.
    pub const WRITE_EXCLUSIVE_REGISTRANTS_ONLY: Self = Self(5);
}

/// A reservation as a disk tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// The key of the initiator that holds it; 0 for the kinds that all registrants hold together.
    pub holder: u64,
    /// What it permits.
    pub kind: ReservationKind,
}

/// Persistent reservations of a disk (SPC-4 5.13), of the one kind that fencing needs: WRITE EXCLUSIVE – REGISTRANTS ONLY.
///
/// # Contract
///
/// **Initiators.** Each device that is opened is an initiator of its own towards the disk, with all the ways that it has there.
/// A *key* is what an initiator is registered under; several may have the same one, and a
/// device may end an earlier initiator's registration when another registers under its key. 0 is no key.
///
/// **Who may write.** While the disk is reserved, a write, `write_zeroes` or `unmap` of an initiator that is not registered ends
/// with [`BlockErrorKind::Fenced`] and changes nothing; one that was under way when its initiator lost its registration ends so, too, and
/// may have been carried out, in part or whole. Reads are permitted to all. Without a reservation everybody writes. A
/// device may let the holder alone write, and one at a time where there is none: nobody relies on more.
///
/// **Compare and set.** [`Reservations::reserve`] and [`Reservations::preempt_and_abort`] end with [`BlockErrorKind::Fenced`], and have
/// changed nothing, when their condition does not hold. Each is one step for all initiators: of two that preempt the same key, one
/// does.
///
/// **No ghosts.** When `preempt_and_abort` has ended with success, no write of a preempted initiator changes anything any more,
/// also none that was under way.
///
/// **Lasting.** Registrations and the reservation outlive the initiator's connections, and a loss of power as far as the disk can
/// promise it (APTPL).
///
/// **Answers that get lost.** An operation that ends with another error than `Fenced`, or that is dropped, may have taken effect. Who
/// goes on reads the state first.
pub trait Reservations: Send + Sync {
    /// Registers this initiator under `key`, in place of the key that it had (REGISTER AND IGNORE EXISTING KEY, with APTPL). A disk
    /// that knows what keys mean (`epoch << 16 | node`) may refuse one below the highest epoch that it has accepted
    /// ([`BlockErrorKind::Fenced`]).
    fn register(&self, key: u64) -> BlockFuture<'_, ()>;

    /// Ends this initiator's registration, and the reservation if it holds it. Nothing happens when it has none.
    fn unregister(&self) -> BlockFuture<'_, ()>;

    /// The keys of all registrations, each once.
    fn keys(&self) -> BlockFuture<'_, BTreeSet<u64>>;

    /// The reservation, if there is one.
    fn reservation(&self) -> BlockFuture<'_, Option<Reservation>>;

    /// Reserves the disk. Fails when this initiator is not registered under `key`, or somebody else holds a reservation.
    fn reserve(&self, key: u64) -> BlockFuture<'_, ()>;

    /// Ends every registration under `victim`, and everything that these initiators have under way; where one of them holds the
    /// reservation, this initiator holds it afterwards. Fails when this initiator is not registered under `key`, or nobody is under
    /// `victim`.
    fn preempt_and_abort(&self, key: u64, victim: u64) -> BlockFuture<'_, ()>;
}

/// The registrations and the reservation of one disk in memory, for disks of tests and simulations.
#[derive(Clone, Debug, Default)]
pub struct ReservationTable {
    /// Keys by initiator.
    registered: BTreeMap<u64, u64>,
    /// The initiator that holds the reservation.
    holder: Option<u64>,
}

impl ReservationTable {
    /// Whether an initiator may write.
    #[must_use]
    pub fn permits(&self, initiator: u64) -> bool {
        self.holder.is_none() || self.registered.contains_key(&initiator)
    }

    /// [`Reservations::register`].
    pub fn register(&mut self, initiator: u64, key: u64) {
        if key == 0 {
            self.unregister(initiator);
        } else {
            self.registered.insert(initiator, key);
        }
    }

    /// [`Reservations::unregister`].
    pub fn unregister(&mut self, initiator: u64) {
        self.registered.remove(&initiator);
        self.holder = self.holder.filter(|holder| *holder != initiator);
    }

    /// [`Reservations::keys`].
    #[must_use]
    pub fn keys(&self) -> BTreeSet<u64> {
        self.registered.values().copied().collect()
    }

    /// [`Reservations::reservation`].
    #[must_use]
    pub fn reservation(&self) -> Option<Reservation> {
        let holder = *self.registered.get(&self.holder?)?;
        Some(Reservation { holder, kind: ReservationKind::WRITE_EXCLUSIVE_REGISTRANTS_ONLY })
    }

    /// [`Reservations::reserve`].
    ///
    /// # Errors
    /// [`BlockErrorKind::Fenced`] as said there.
    pub fn reserve(&mut self, initiator: u64, key: u64) -> Result<(), BlockError> {
        let free = self.holder.is_none_or(|holder| holder == initiator);
        if !free || self.registered.get(&initiator) != Some(&key) {
            return Err(BlockError::new(BlockErrorKind::Fenced, "reserve"));
        }
        self.holder = Some(initiator);
        Ok(())
    }

    /// [`Reservations::preempt_and_abort`].
    ///
    /// # Errors
    /// [`BlockErrorKind::Fenced`] as said there.
    pub fn preempt(&mut self, initiator: u64, key: u64, victim: u64) -> Result<(), BlockError> {
        let present = self.registered.values().any(|other| *other == victim);
        if !present || self.registered.get(&initiator) != Some(&key) {
            return Err(BlockError::new(BlockErrorKind::Fenced, "preempt and abort"));
        }
        if let Some(holder) = self.holder
            && self.registered.get(&holder) == Some(&victim)
        {
            self.holder = Some(initiator);
        }
        // An initiator that preempts its own key keeps its registration (SPC-4 5.13.11.2.3).
        self.registered.retain(|other, key| *key != victim || *other == initiator);
        Ok(())
    }
}
