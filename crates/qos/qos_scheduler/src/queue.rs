//! Requests that wait: one slab for all flows, a linked list for each, so that any of them can be taken out at once.

use crate::Kind;

/// No request.
pub(crate) const NONE: u32 = u32::MAX;

/// A request that waits. It is nobody's any more once the request has been dispatched or cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId {
    index: u32,
    generation: u32,
}

/// A request in the slab.
#[derive(Debug)]
pub(crate) struct Waiting<T> {
    pub(crate) payload: T,
    pub(crate) flow: u32,
    pub(crate) kind: Kind,
    pub(crate) bytes: u64,
    pub(crate) since: u64,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    before: u32,
    /// The request behind it in its flow, or the next free slot.
    after: u32,
    waiting: Option<Waiting<T>>,
}

/// The ends of a flow's queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queue {
    head: u32,
    tail: u32,
    pub(crate) len: u32,
}

impl Default for Queue {
    fn default() -> Self {
        Self { head: NONE, tail: NONE, len: 0 }
    }
}

#[derive(Debug)]
pub(crate) struct Requests<T> {
    slots: Vec<Slot<T>>,
    free: u32,
    len: u32,
}

impl<T> Default for Requests<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: NONE, len: 0 }
    }
}

impl<T> Requests<T> {
    /// Requests that wait.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn push(&mut self, queue: &mut Queue, waiting: Waiting<T>) -> RequestId {
        let (before, after) = (queue.tail, NONE);
        let index = if self.free == NONE {
            self.slots.push(Slot { generation: 0, before, after, waiting: Some(waiting) });
            self.slots.len() as u32 - 1
        } else {
            let index = self.free;
            let slot = &mut self.slots[index as usize];
            self.free = slot.after;
            *slot = Slot { generation: slot.generation, before, after, waiting: Some(waiting) };
            index
        };
        if before == NONE {
            queue.head = index;
        } else {
            self.slots[before as usize].after = index;
        }
        queue.tail = index;
        queue.len += 1;
        self.len += 1;
        RequestId { index, generation: self.slots[index as usize].generation }
    }

    /// The flow of a request that still waits.
    pub(crate) fn flow_of(&self, id: RequestId) -> Option<u32> {
        let slot = self.slots.get(id.index as usize).filter(|slot| slot.generation == id.generation)?;
        slot.waiting.as_ref().map(|waiting| waiting.flow)
    }

    /// Takes out the first of a queue.
    pub(crate) fn pop(&mut self, queue: &mut Queue) -> Option<(RequestId, Waiting<T>)> {
        let index = queue.head;
        let generation = self.slots.get(index as usize)?.generation;
        Some((RequestId { index, generation }, self.unlink(queue, index)?))
    }

    /// Takes out a request that waits in `queue`.
    pub(crate) fn take(&mut self, queue: &mut Queue, id: RequestId) -> Option<Waiting<T>> {
        self.flow_of(id)?;
        self.unlink(queue, id.index)
    }

    fn unlink(&mut self, queue: &mut Queue, index: u32) -> Option<Waiting<T>> {
        let slot = self.slots.get_mut(index as usize)?;
        let waiting = slot.waiting.take()?;
        let (before, after) = (slot.before, slot.after);
        // A number that went round would take 2^32 requests in this very slot while somebody still holds its old name.
        slot.generation = slot.generation.wrapping_add(1);
        slot.after = self.free;
        self.free = index;
        match before {
            NONE => queue.head = after,
            before => self.slots[before as usize].after = after,
        }
        match after {
            NONE => queue.tail = before,
            after => self.slots[after as usize].before = before,
        }
        queue.len -= 1;
        self.len -= 1;
        Some(waiting)
    }
}
