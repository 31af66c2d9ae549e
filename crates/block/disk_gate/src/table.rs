//! Who is registered at a disk, and who holds it: pure.

use std::collections::{BTreeMap, BTreeSet};

use block_device::{BlockError, BlockErrorKind, Reservation, ReservationKind};

/// Most registrations of one disk: some per node and session, and those of owners that are no more until the next one takes them away.
pub const MAX_REGISTRATIONS: usize = 1024;
/// Longest name of an initiator's port, in bytes: an iSCSI name of 223, `,i,0x` and an ISID.
pub const MAX_PORT_NAME_BYTES: usize = 240;
/// An initiator and the key that it is registered under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// The initiator's port.
    pub port: String,
    /// Its key, `epoch << 16 | node`.
    pub key: u64,
}

/// What is kept of a disk's reservations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    /// Keys by port.
    pub(crate) registered: BTreeMap<String, u64>,
    /// The port that holds the reservation; it is registered.
    pub(crate) holder: Option<String>,
    /// The highest epoch under which anybody was ever registered.
    pub(crate) epoch: u64,
}

fn fenced(doing: &'static str, why: String) -> BlockError {
    BlockError::new(BlockErrorKind::Fenced, doing).because(why)
}

impl Table {
    /// Whether a port may change the disk.
    pub(crate) fn permits(&self, port: &str) -> bool {
        self.holder.is_none() || self.registered.contains_key(port)
    }

    /// All keys, each once.
    pub(crate) fn keys(&self) -> BTreeSet<u64> {
        self.registered.values().copied().collect()
    }

    /// The reservation, if there is one.
    pub(crate) fn reservation(&self) -> Option<Reservation> {
        let holder = *self.registered.get(self.holder.as_ref()?)?;
        Some(Reservation { holder, kind: ReservationKind::WRITE_EXCLUSIVE_REGISTRANTS_ONLY })
    }

    /// Registers a port under a key; 0 ends its registration.
    pub(crate) fn register(&mut self, port: &str, key: u64) -> Result<(), BlockError> {
        if key == 0 {
            self.registered.remove(port);
            self.holder = self.holder.take().filter(|holder| holder != port);
            return Ok(());
        }
        let epoch = key >> 16;
        if epoch < self.epoch {
            let why =
                format!("the disk has accepted an owner of epoch {}, and this is one of {epoch}", self.epoch);
            return Err(fenced("register", why));
        }
        let full = self.registered.len() >= MAX_REGISTRATIONS && !self.registered.contains_key(port);
        if full || port.len() > MAX_PORT_NAME_BYTES {
            return Err(BlockError::new(BlockErrorKind::NoSpace, "register")
                .because("there are too many registrations, or the initiator's name is too long"));
        }
        self.registered.insert(port.to_owned(), key);
        self.epoch = epoch;
        Ok(())
    }

    fn expect(&self, doing: &'static str, port: &str, key: u64) -> Result<(), BlockError> {
        match self.registered.get(port) {
            Some(own) if *own == key => Ok(()),
            _ => Err(fenced(doing, format!("this initiator is not registered under {key:#018x}"))),
        }
    }

    /// Reserves the disk for a port.
    pub(crate) fn reserve(&mut self, port: &str, key: u64) -> Result<(), BlockError> {
        self.expect("reserve", port, key)?;
        if self.holder.as_ref().is_some_and(|holder| holder != port) {
            return Err(fenced("reserve", "another initiator holds the reservation".into()));
        }
        self.holder = Some(port.to_owned());
        Ok(())
    }

    /// Ends all registrations under a key, and takes the reservation over where one of them holds it.
    pub(crate) fn preempt(&mut self, port: &str, key: u64, victim: u64) -> Result<(), BlockError> {
        self.expect("preempt and abort", port, key)?;
        if !self.registered.values().any(|other| *other == victim) {
            return Err(fenced("preempt and abort", format!("nobody is registered under {victim:#018x}")));
        }
        if let Some(holder) = &self.holder
            && self.registered.get(holder) == Some(&victim)
        {
            self.holder = Some(port.to_owned());
        }
        self.registered.retain(|other, key| *key != victim || other == port);
        Ok(())
    }
}
