//! Queues of slots, linked through the slots themselves, and the keys of pages that left not long ago.

use std::collections::VecDeque;

use observe::FastMap;

/// No slot.
pub(crate) const NONE: u32 = u32::MAX;

/// The page of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) device: u32,
    pub(crate) page: u64,
}

/// Links of a slot in its queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Links {
    pub(crate) newer: u32,
    pub(crate) older: u32,
}

/// Something with links, by number.
pub(crate) trait Linked {
    fn links(&mut self, slot: u32) -> &mut Links;
}

/// A queue of slots, newest to oldest.
///
/// Invariant: following `older` from `newest` meets `len` slots and ends at `oldest`, and `newer` is the way back.
#[derive(Debug)]
pub(crate) struct Fifo {
    newest: u32,
    oldest: u32,
    len: usize,
}

impl Default for Fifo {
    fn default() -> Self {
        Self { newest: NONE, oldest: NONE, len: 0 }
    }
}

impl Fifo {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn oldest(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    pub(crate) fn push(&mut self, slots: &mut impl Linked, slot: u32) {
        *slots.links(slot) = Links { newer: NONE, older: self.newest };
        match self.newest {
            NONE => self.oldest = slot,
            newest => slots.links(newest).newer = slot,
        }
        self.newest = slot;
        self.len += 1;
    }

    pub(crate) fn remove(&mut self, slots: &mut impl Linked, slot: u32) {
        let Links { newer, older } = *slots.links(slot);
        match newer {
            NONE => self.newest = older,
            newer => slots.links(newer).older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => slots.links(older).newer = newer,
        }
        self.len -= 1;
    }

    /// `to` takes the place of `from`, whose links it already has.
    pub(crate) fn moved(&mut self, slots: &mut impl Linked, to: u32) {
        let Links { newer, older } = *slots.links(to);
        match newer {
            NONE => self.newest = to,
            newer => slots.links(newer).older = to,
        }
        match older {
            NONE => self.oldest = to,
            older => slots.links(older).newer = to,
        }
    }
}

/// Keys of pages that were evicted from the small queue, the last so many.
#[derive(Default)]
pub(crate) struct Ghosts {
    /// When each came, so that what is forgotten of the queue is not what came again.
    index: FastMap<Key, u64>,
    queue: VecDeque<(Key, u64)>,
    next: u64,
}

impl Ghosts {
    /// Notes a key and keeps at most `room`.
    pub(crate) fn add(&mut self, key: Key, room: usize) {
        self.next += 1;
        self.index.insert(key, self.next);
        self.queue.push_back((key, self.next));
        while self.queue.len() > room {
            let Some((key, number)) = self.queue.pop_front() else { return };
            if self.index.get(&key) == Some(&number) {
                self.index.remove(&key);
            }
        }
    }

    /// Takes a key out; whether it was there.
    pub(crate) fn take(&mut self, key: Key) -> bool {
        // Its place in the queue goes with time.
        self.index.remove(&key).is_some()
    }

    /// Forgets everything and gives the memory back.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}
