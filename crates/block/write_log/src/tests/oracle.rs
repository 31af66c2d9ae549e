//! What each sector may show: after a cut, and while nothing went wrong.

use block_conformance::pattern::{Found, SECTOR, fill, identify};

/// The name under which patterns are written.
const DEVICE: u64 = 77;

/// A change of a sector. Its generation is 0 for zeros.
#[derive(Clone, Copy, Debug)]
struct Version {
    generation: u64,
    begun: u64,
    /// When it was acknowledged.
    ended: Option<u64>,
    /// Whether it is known to be durable.
    durable: bool,
}

/// A change under way.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) offset: u64,
    pub(crate) len: u64,
    begun: u64,
}

/// The histories of all sectors.
pub(crate) struct Oracle {
    sectors: Vec<Vec<Version>>,
    now: u64,
    generation: u64,
}

impl Oracle {
    /// All zeros, durably.
    pub(crate) fn new(size: u64) -> Self {
        let first = Version { generation: 0, begun: 0, ended: Some(0), durable: true };
        Self { sectors: vec![vec![first]; size as usize / SECTOR], now: 0, generation: 0 }
    }

    fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    fn range(offset: u64, len: u64) -> std::ops::Range<usize> {
        offset as usize / SECTOR..(offset + len) as usize / SECTOR
    }

    /// A change is asked for; its data unless it zeroes.
    pub(crate) fn ask(&mut self, offset: u64, len: u64, zero: bool) -> (Asked, Vec<u8>) {
        let begun = self.tick();
        let mut data = vec![0; len as usize];
        let generation = if zero {
            0
        } else {
            self.generation += 1;
            fill(&mut data, DEVICE, offset, self.generation);
            self.generation
        };
        for sector in &mut self.sectors[Self::range(offset, len)] {
            sector.push(Version { generation, begun, ended: None, durable: false });
        }
        (Asked { offset, len, begun }, data)
    }

    /// It was acknowledged.
    pub(crate) fn acknowledged(&mut self, asked: Asked, durable: bool) {
        let now = self.tick();
        for sector in &mut self.sectors[Self::range(asked.offset, asked.len)] {
            if let Some(version) = sector.iter_mut().find(|version| version.begun == asked.begun) {
                version.ended = Some(now);
                version.durable |= durable;
            }
        }
    }

    /// A flush is about to begin.
    pub(crate) fn flush(&mut self) -> u64 {
        self.tick()
    }

    /// It succeeded.
    pub(crate) fn flushed(&mut self, begun: u64) {
        for version in self.sectors.iter_mut().flatten() {
            version.durable |= version.ended.is_some_and(|ended| ended < begun);
        }
    }

    /// Compares what is there. `cut`: only what is durable counts as being there. What is found is where the next life begins,
    /// durable or not as the caller knows.
    pub(crate) fn compare(&mut self, content: &[u8], cut: bool) -> Result<(), String> {
        let now = self.tick();
        for (number, (sector, bytes)) in self.sectors.iter_mut().zip(content.chunks(SECTOR)).enumerate() {
            let place = (number * SECTOR) as u64;
            let generation = match identify(bytes) {
                Found::Zero => 0,
                Found::Written { device: DEVICE, offset, generation } if offset == place => generation,
                other => return Err(format!("sector at {place} holds {other:?}")),
            };
            let possible = |version: &Version| {
                let superseded = |other: &Version| {
                    version.ended.is_some_and(|ended| other.begun > ended)
                        && other.ended.is_some()
                        && (other.durable || !cut)
                };
                version.generation == generation && !sector.iter().any(superseded)
            };
            if !sector.iter().any(possible) {
                return Err(format!("sector at {place} holds generation {generation} of {sector:?}"));
            }
            let durable = cut;
            let known = Version { generation, begun: now, ended: Some(now), durable };
            if cut {
                *sector = vec![known];
            }
        }
        Ok(())
    }
}
