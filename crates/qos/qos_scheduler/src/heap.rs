//! A heap of ids by tag, from which any id can be taken, and whose tags can change.

/// Where an id is not in the heap.
const ABSENT: u32 = u32::MAX;
/// Children of each entry: four are in one or two cache lines, and halve the levels.
const ARITY: usize = 4;

/// Ids (small numbers, each at most once) by tag, the smallest first; ids with equal tags by number, so that the order
/// depends on nothing else. Every change is O(log n).
#[derive(Debug, Default)]
pub(crate) struct TagHeap {
    entries: Vec<(u64, u32)>,
    places: Vec<u32>,
}

impl TagHeap {
    /// The smallest tag and its id.
    pub(crate) fn first(&self) -> Option<(u64, u32)> {
        self.entries.first().copied()
    }

    /// The smallest tag and its id but for the first.
    pub(crate) fn second(&self) -> Option<(u64, u32)> {
        self.entries.iter().skip(1).take(ARITY).min().copied()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn contains(&self, id: u32) -> bool {
        self.place(id).is_some()
    }

    fn place(&self, id: u32) -> Option<usize> {
        self.places.get(id as usize).copied().filter(|place| *place != ABSENT).map(|place| place as usize)
    }

    /// Puts an id in, or changes its tag.
    pub(crate) fn set(&mut self, id: u32, tag: u64) {
        if let Some(place) = self.place(id) {
            self.entries[place].0 = tag;
            self.settle(place);
            return;
        }
        if self.places.len() <= id as usize {
            self.places.resize(id as usize + 1, ABSENT);
        }
        self.entries.push((tag, id));
        self.rise(self.entries.len() - 1);
    }

    /// Takes an id out, if it is in.
    pub(crate) fn remove(&mut self, id: u32) {
        let Some(place) = self.place(id) else { return };
        self.places[id as usize] = ABSENT;
        let Some(last) = self.entries.pop() else { return };
        if place < self.entries.len() {
            self.entries[place] = last;
            self.settle(place);
        }
    }

    /// Lowers all tags by `by`, those below it to zero. Tags that become equal keep an order by number, so the heap is built anew.
    pub(crate) fn lower(&mut self, by: u64) {
        self.entries.iter_mut().for_each(|entry| entry.0 = entry.0.saturating_sub(by));
        self.entries.sort_unstable();
        for (place, entry) in self.entries.iter().enumerate() {
            self.places[entry.1 as usize] = place as u32;
        }
    }

    fn settle(&mut self, place: usize) {
        let place = self.rise(place);
        self.sink(place);
    }

    fn rise(&mut self, mut place: usize) -> usize {
        let entry = self.entries[place];
        while place > 0 {
            let parent = (place - 1) / ARITY;
            if self.entries[parent] <= entry {
                break;
            }
            self.put(place, self.entries[parent]);
            place = parent;
        }
        self.put(place, entry);
        place
    }

    fn sink(&mut self, mut place: usize) {
        let entry = self.entries[place];
        loop {
            let first = ARITY * place + 1;
            let last = (first + ARITY).min(self.entries.len());
            let Some(children) = self.entries.get(first..last) else { break };
            let Some((child, least)) = children.iter().copied().enumerate().min_by_key(|(_, child)| *child)
            else {
                break;
            };
            if entry <= least {
                break;
            }
            self.put(place, least);
            place = first + child;
        }
        self.put(place, entry);
    }

    fn put(&mut self, place: usize, entry: (u64, u32)) {
        self.entries[place] = entry;
        self.places[entry.1 as usize] = place as u32;
    }
}
