//! Free clusters, in memory.
//!
//! **Invariant (zero):** a free cluster reads as zeros and no request can reach it any more. Clusters that lose
//! their user are first *freed* in the database, then zeroed, and only then free again.
//!
//! ```text
//!   chunk of 8192 clusters (512 MiB)          memory
//!   all free, or none: a number               16 bytes
//!   some: a bit for each                      1 KiB more
//! ```
//! So an empty volume of 64 TiB costs 2 MiB, and the same one with all its space in pieces 128 MiB more; time to find
//! a run grows with the number of chunks, not with the number of pieces.

/// A run of clusters of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) start: u64,
    pub(crate) count: u64,
}

impl Run {
    /// Behind its last cluster. Runs from the disk may claim to reach beyond all numbers.
    pub(crate) fn end(&self) -> u64 {
        self.start.saturating_add(self.count)
    }
}

/// Clusters in a chunk.
const CHUNK: u64 = 8192;
/// Words of a chunk's bits.
const WORDS: usize = (CHUNK / 64) as usize;
/// Chunks there may be: 4 EiB of data.
const CHUNKS_MAX: u64 = 1 << 33;
/// When no run is long enough, pieces at least this long are gathered, then shorter ones.
const PIECES: [u64; 4] = [64, 16, 4, 1];

/// The free ones of 8192 clusters.
#[derive(Clone, Default)]
struct Chunk {
    free: u32,
    /// No run within the chunk is longer; when it turns out to be less, it is corrected.
    longest: u32,
    /// A set bit is a free cluster. `None` when all or none are free.
    bits: Option<Box<[u64; WORDS]>>,
}

impl Chunk {
    fn is_whole(&self) -> bool {
        u64::from(self.free) == CHUNK
    }

    /// The first free cluster at `from` or after it, and the first one after that is not free.
    fn next_run(&self, from: u64) -> Option<(u64, u64)> {
        if from >= CHUNK || self.free == 0 {
            return None;
        }
        let Some(bits) = &self.bits else { return Some((from, CHUNK)) };
        let start = next(bits, from, false)?;
        Some((start, next(bits, start, true).unwrap_or(CHUNK)))
    }

    /// How many of `from..to` are free.
    fn count(&self, from: u64, to: u64) -> u64 {
        match &self.bits {
            None => {
                if self.free > 0 {
                    to - from
                } else {
                    0
                }
            }
            Some(bits) => {
                words(from, to).map(|(word, mask)| u64::from((bits[word] & mask).count_ones())).sum()
            }
        }
    }

    /// Sets or clears `from..to`, of which `count` were the other way.
    fn change(&mut self, from: u64, to: u64, free: bool, count: u64) {
        let empty = self.free == 0;
        let bits = self.bits.get_or_insert_with(|| Box::new([if empty { 0 } else { u64::MAX }; WORDS]));
        for (word, mask) in words(from, to) {
            bits[word] = if free { bits[word] | mask } else { bits[word] & !mask };
        }
        let count = count as u32;
        self.free = if free { self.free + count } else { self.free - count };
        if self.free == 0 || self.is_whole() {
            self.bits = None;
        }
        // A run that grew may have joined others; one that was cut is found out when it is looked for.
        self.longest = if free { CHUNK as u32 } else { self.longest.min(self.free) };
    }
}

/// The first bit from `from` on that is set, or clear if `inverted`.
fn next(bits: &[u64; WORDS], from: u64, inverted: bool) -> Option<u64> {
    let mut word = (from / 64) as usize;
    let mut mask = u64::MAX << (from % 64);
    while word < WORDS {
        let value = if inverted { !bits[word] } else { bits[word] } & mask;
        if value != 0 {
            return Some(word as u64 * 64 + u64::from(value.trailing_zeros()));
        }
        word += 1;
        mask = u64::MAX;
    }
    None
}

/// The words that `from..to` meets, and its bits in each.
fn words(from: u64, to: u64) -> impl Iterator<Item = (usize, u64)> {
    (from / 64..to.div_ceil(64)).map(move |word| {
        let low = from.saturating_sub(word * 64);
        let high = (to - word * 64).min(64);
        let mask = (u64::MAX >> (64 - (high - low))) << low;
        (word as usize, mask)
    })
}

/// Free clusters.
#[derive(Clone, Default)]
pub(crate) struct Free {
    chunks: Vec<Chunk>,
    total: u64,
    /// Where the next search begins, so that files written side by side do not fight for the same run.
    hint: u64,
}

impl Free {
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// The parts of a run in each chunk: chunk, from, to.
    fn parts(run: Run) -> impl Iterator<Item = (usize, u64, u64)> {
        let (start, end) = (run.start, run.end().min(CHUNKS_MAX * CHUNK));
        let chunks = start / CHUNK..if start < end { end.div_ceil(CHUNK) } else { 0 };
        chunks.map(move |chunk| {
            let first = chunk * CHUNK;
            (chunk as usize, start.saturating_sub(first), (end - first).min(CHUNK))
        })
    }

    /// Makes a run free; parts of it may be so already.
    pub(crate) fn add(&mut self, run: Run) {
        for (chunk, from, to) in Self::parts(run) {
            if chunk >= self.chunks.len() {
                self.chunks.resize(chunk + 1, Chunk::default());
            }
            let there = self.chunks[chunk].count(from, to);
            self.chunks[chunk].change(from, to, true, to - from - there);
            self.total += to - from - there;
        }
    }

    /// Whether all of a run is free.
    pub(crate) fn contains(&self, run: Run) -> bool {
        run.start.checked_add(run.count).is_some_and(|end| end <= CHUNKS_MAX * CHUNK)
            && Self::parts(run).all(|(chunk, from, to)| {
                self.chunks.get(chunk).is_some_and(|chunk| chunk.count(from, to) == to - from)
            })
    }

    /// Takes a run out of the free ones; `false`, and nothing taken, when some of it is not free.
    pub(crate) fn remove(&mut self, run: Run) -> bool {
        let all = self.contains(run);
        if all {
            for (chunk, from, to) in Self::parts(run) {
                self.chunks[chunk].change(from, to, false, to - from);
            }
            self.total -= run.count;
        }
        all
    }

    /// Takes out what of a run is free.
    pub(crate) fn remove_any(&mut self, run: Run) {
        for free in self.runs_in(run).collect::<Vec<_>>() {
            self.remove(free);
        }
    }

    /// All free runs, in order, cut at the edges of chunks.
    pub(crate) fn runs(&self) -> impl Iterator<Item = Run> {
        self.runs_in(Run { start: 0, count: u64::MAX })
    }

    fn runs_in(&self, run: Run) -> impl Iterator<Item = Run> {
        let there = Run { start: run.start, count: run.count.min(self.chunks.len() as u64 * CHUNK) };
        let there = Run {
            count: there.end().min(self.chunks.len() as u64 * CHUNK).saturating_sub(run.start),
            ..there
        };
        Self::parts(there).flat_map(move |(number, from, to)| {
            let chunk = &self.chunks[number];
            let mut at = from;
            std::iter::from_fn(move || {
                let (start, end) = chunk.next_run(at).filter(|(start, _)| *start < to)?;
                let end = end.min(to);
                at = end;
                Some(Run { start: number as u64 * CHUNK + start, count: end - start })
            })
        })
    }

    /// Runs that are free in one only; true for those that are free here.
    pub(crate) fn differences(&self, other: &Self) -> Vec<(Run, bool)> {
        let minus = |one: &Self, two: &Self| {
            let mut left = one.clone();
            two.runs().for_each(|run| left.remove_any(run));
            left
        };
        let (here, there) = (minus(self, other), minus(other, self));
        here.runs().map(|run| (run, true)).chain(there.runs().map(|run| (run, false))).collect()
    }

    /// Takes `count` clusters, in as few runs as the search finds; `None`, and nothing taken, when there are
    /// not enough.
    pub(crate) fn take(&mut self, count: u64) -> Option<Vec<Run>> {
        if count > self.total {
            return None;
        }
        let mut taken: Vec<Run> = Vec::new();
        let mut left = count;
        for least in std::iter::once(count).chain(PIECES.into_iter().filter(|least| *least < count)) {
            while left > 0
                && let Some(run) = self.find(least.min(left))
            {
                let run = Run { start: run.start, count: run.count.min(left) };
                self.remove(run);
                self.hint = run.end();
                left -= run.count;
                match taken.last_mut() {
                    Some(last) if last.end() == run.start => last.count += run.count,
                    _ => taken.push(run),
                }
            }
        }
        Some(taken)
    }

    /// A free run of at least `least` clusters, at the hint or after it if there is one, else before it.
    fn find(&mut self, least: u64) -> Option<Run> {
        let chunks = self.chunks.len();
        let first = ((self.hint / CHUNK) as usize).min(chunks.saturating_sub(1));
        // The hint's own chunk comes twice: from the hint on, and at the end as a whole.
        for (turn, number) in
            (0..=chunks).map(|n| (n, (first + n) % chunks.max(1))).take_while(|_| chunks > 0)
        {
            let from = if turn == 0 { self.hint % CHUNK } else { 0 };
            if let Some(run) = self.find_in(number, from, least) {
                return Some(run);
            }
        }
        None
    }

    /// A run that begins in a chunk, and may go on in the next ones.
    fn find_in(&mut self, number: usize, from: u64, least: u64) -> Option<Run> {
        let chunk = &self.chunks[number];
        if chunk.free == 0 {
            return None;
        }
        let spans = self.chunks.get(number + 1).is_some_and(|next| next.count(0, 1) == 1);
        if u64::from(chunk.longest) < least && !spans {
            return None;
        }
        let (mut at, mut longest) = (from, 0);
        while let Some((start, end)) = self.chunks[number].next_run(at) {
            let mut count = end - start;
            let mut after = number + 1;
            while count < least
                && (number as u64 * CHUNK + start + count).is_multiple_of(CHUNK)
                && let Some((0, more)) = self.chunks.get(after).and_then(|chunk| chunk.next_run(0))
            {
                count += more;
                after += 1;
            }
            if count >= least {
                return Some(Run { start: number as u64 * CHUNK + start, count });
            }
            longest = longest.max(end - start);
            at = end;
        }
        if from == 0 {
            self.chunks[number].longest = longest as u32;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use block_conformance::Rng;

    use super::*;

    fn run(start: u64, count: u64) -> Run {
        Run { start, count }
    }

    #[test]
    fn runs_join_split_and_run_out() {
        let mut free = Free::default();
        free.add(run(10, 5));
        free.add(run(0, 10));
        free.add(run(20, 4));
        assert_eq!(free.total(), 19);
        assert!(!free.remove(run(14, 2)));
        assert_eq!(free.take(15), Some(vec![run(0, 15)]));
        assert_eq!(free.take(5), None);
        assert_eq!(free.take(4), Some(vec![run(20, 4)]));
        assert_eq!(free.total(), 0);
        assert_eq!(free.take(0), Some(Vec::new()));
    }

    #[test]
    fn long_runs_go_over_chunks() {
        let mut free = Free::default();
        free.add(run(100, 5 * CHUNK));
        assert_eq!(free.take(3 * CHUNK), Some(vec![run(100, 3 * CHUNK)]));
        assert_eq!(free.take(2 * CHUNK), Some(vec![run(100 + 3 * CHUNK, 2 * CHUNK)]));
        assert_eq!(free.take(1), None);
    }

    #[test]
    fn numbers_from_a_hostile_disk_do_no_harm() {
        let mut free = Free::default();
        free.add(run(0, 100));
        for hostile in
            [run(0, u64::MAX), run(u64::MAX, u64::MAX), run(99, 2), run(1 << 60, 1), run(50, u64::MAX - 50)]
        {
            assert!(!free.remove(hostile), "{hostile:?}");
            assert!(!free.contains(hostile), "{hostile:?}");
        }
        assert!(free.contains(run(5, 0)));
        free.remove_any(run(90, u64::MAX));
        assert_eq!(free.total(), 90);
        free.add(run(80, 20));
        assert_eq!(free.total(), 100);
    }

    #[test]
    fn agrees_with_a_set_of_numbers() {
        for seed in 0..20 {
            let mut rng = Rng::new(seed);
            let size = 2 * CHUNK + 500;
            let (mut free, mut model) = (Free::default(), BTreeSet::new());
            for step in 0..600 {
                let start = rng.below(size);
                let reach = if rng.one_in(4) { size - start } else { 80.min(size - start) };
                let some = run(start, 1 + rng.below(reach));
                match rng.below(4) {
                    0 => {
                        let missing: Vec<u64> =
                            (some.start..some.end()).filter(|n| !model.contains(n)).collect();
                        if missing.len() as u64 == some.count {
                            free.add(some);
                            model.extend(missing);
                        }
                    }
                    1 => {
                        let all = (some.start..some.end()).all(|n| model.contains(&n));
                        assert_eq!(free.contains(some), all, "seed {seed} step {step}");
                        assert_eq!(free.remove(some), all, "seed {seed} step {step}");
                        if all {
                            (some.start..some.end()).for_each(|n| assert!(model.remove(&n)));
                        }
                    }
                    2 if step % 5 == 0 => {
                        free.remove_any(some);
                        model.retain(|n| !(some.start..some.end()).contains(n));
                    }
                    _ => {
                        let wanted = some.count.min(300);
                        let taken = free.take(wanted);
                        assert_eq!(taken.is_some(), model.len() as u64 >= wanted, "seed {seed} step {step}");
                        let taken = taken.unwrap_or_default();
                        let longest = runs_of(&model).map(|run| run.count).max().unwrap_or(0);
                        assert!(taken.len() < 2 || longest < wanted, "seed {seed} step {step}: {taken:?}");
                        for n in taken.iter().flat_map(|run| run.start..run.end()) {
                            assert!(model.remove(&n), "seed {seed} step {step}: {n} was not free");
                        }
                    }
                }
                assert_eq!(free.total(), model.len() as u64, "seed {seed} step {step}");
            }
            let numbers: Vec<u64> = free.runs().flat_map(|run| run.start..run.end()).collect();
            assert_eq!(numbers, model.iter().copied().collect::<Vec<_>>(), "seed {seed}");
            let mut other = free.clone();
            let taken = other.take(other.total().min(7)).unwrap_or_default();
            let differences: u64 =
                free.differences(&other).iter().map(|(run, here)| if *here { run.count } else { 0 }).sum();
            assert_eq!(differences, taken.iter().map(|run| run.count).sum::<u64>());
        }
    }

    fn runs_of(numbers: &BTreeSet<u64>) -> impl Iterator<Item = Run> {
        let mut runs: Vec<Run> = Vec::new();
        for number in numbers {
            match runs.last_mut() {
                Some(last) if last.end() == *number => last.count += 1,
                _ => runs.push(run(*number, 1)),
            }
        }
        runs.into_iter()
    }
}
