//! The one supply of all disks.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::{Dice, Survival};

/// What has its power from a supply.
pub(crate) trait Supplied: Send + Sync {
    /// The power has gone: what was not durable survives as `survival` says.
    fn lose_power(&self, survival: Survival);
}

/// The power supply of some disks. It counts events, and can be told to fail at one.
pub struct Power {
    inner: Mutex<Inner>,
}

struct Inner {
    on: bool,
    events: u64,
    /// Events until the cut.
    left: Option<u64>,
    survival: Survival,
    cuts: u64,
    disks: Vec<Weak<dyn Supplied>>,
    dice: Dice,
}

impl Power {
    /// A supply that is on.
    #[must_use]
    pub fn new(dice: Dice) -> Arc<Self> {
        let inner = Inner {
            on: true,
            events: 0,
            left: None,
            survival: Survival::Sectors(50),
            cuts: 0,
            disks: Vec::new(),
            dice,
        };
        Arc::new(Self { inner: Mutex::new(inner) })
    }

    /// Takes a disk on, and gives it dice of its own.
    pub(crate) fn supply(&self, disk: Weak<dyn Supplied>) -> Dice {
        let mut inner = self.inner.lock();
        inner.disks.push(disk);
        inner.dice.fork()
    }

    /// Cuts the power `events` events from now, at the next one for 0.
    pub fn cut_after(&self, events: u64, survival: Survival) {
        let mut inner = self.inner.lock();
        inner.left = Some(events);
        inner.survival = survival;
    }

    /// Cuts the power now.
    pub fn cut(&self, survival: Survival) {
        let disks = {
            let mut inner = self.inner.lock();
            if !inner.on {
                return;
            }
            inner.on = false;
            inner.left = None;
            inner.survival = survival;
            inner.cuts += 1;
            inner.disks.clone()
        };
        for disk in disks.iter().filter_map(Weak::upgrade) {
            disk.lose_power(survival);
        }
    }

    /// Power is back. Devices attached before stay dead.
    pub fn restore(&self) {
        let mut inner = self.inner.lock();
        inner.on = true;
        inner.left = None;
    }

    /// Whether there is power.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.inner.lock().on
    }

    /// Events so far, over all disks.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.inner.lock().events
    }

    /// Cuts so far.
    #[must_use]
    pub fn cuts(&self) -> u64 {
        self.inner.lock().cuts
    }

    /// Counts an event; false when there is no power (any more).
    pub(crate) fn event(&self) -> bool {
        let survival = {
            let mut inner = self.inner.lock();
            if !inner.on {
                return false;
            }
            inner.events += 1;
            match &mut inner.left {
                None => return true,
                Some(0) => {}
                Some(left) => {
                    *left -= 1;
                    return true;
                }
            }
            inner.survival
        };
        self.cut(survival);
        false
    }
}
