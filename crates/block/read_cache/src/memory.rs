//! The memory that the cache has, how short of memory the machine is, and what the cache gives back for it.

/// Memory that is always left to others: a sixteenth of the machine's.
const KEEP_PART: u64 = 16;
/// The least of the configured limit that stays in force, as a divisor: a cache that is needed again fills faster from it.
const FLOOR_PART: u64 = 16;
/// How fast the limit rises again at each look, as a divisor of the configured one.
const RISE_PART: u64 = 32;
/// Share of the last ten seconds, in hundredths, that some task waited for memory, from which on memory is short whatever
/// seems available.
const STALLED: f64 = 10.0;

/// What a node's cache is doing, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheUse {
    /// The limit that was configured.
    pub limit: u64,
    /// The limit in force: less than the configured one while the machine is short of memory.
    pub in_force: u64,
    /// Memory held for pages now.
    pub held: u64,
}

/// What the system says about memory at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemorySample {
    /// Bytes of the machine.
    pub total: u64,
    /// Bytes that can be had without swapping (`MemAvailable`).
    pub available: u64,
    /// Share of the last ten seconds, in hundredths, in which some task waited for memory (`some avg10` of PSI); 0 where
    /// the kernel does not say.
    pub stalled: f64,
}

impl MemorySample {
    /// Reads what the kernel says; `None` when it says nothing usable. Blocks for microseconds: not for shards.
    #[must_use]
    pub fn now() -> Option<Self> {
        let memory = std::fs::read_to_string("/proc/meminfo").ok()?;
        let pressure = std::fs::read_to_string("/proc/pressure/memory").unwrap_or_default();
        Self::parse(&memory, &pressure)
    }

    /// Reads the text of `/proc/meminfo` and `/proc/pressure/memory`.
    #[must_use]
    pub fn parse(memory: &str, pressure: &str) -> Option<Self> {
        let kibibytes = |name: &str| {
            let line = memory.lines().find_map(|line| line.strip_prefix(name))?;
            let number: u64 = line.trim_start_matches(':').split_whitespace().next()?.parse().ok()?;
            number.checked_mul(1024)
        };
        let some = pressure.lines().find(|line| line.starts_with("some "));
        let stalled =
            some.and_then(|line| line.split_whitespace().find_map(|word| word.strip_prefix("avg10=")));
        Some(Self {
            total: kibibytes("MemTotal")?,
            available: kibibytes("MemAvailable")?,
            stalled: stalled.and_then(|number| number.parse().ok()).unwrap_or(0.0),
        })
    }
}

/// The limit that is in force from now on.
pub(crate) fn next_limit(now: CacheUse, sample: MemorySample) -> u64 {
    let keep = sample.total / KEEP_PART;
    let floor = (now.limit / FLOOR_PART).min(now.in_force);
    let missing = keep.saturating_sub(sample.available);
    if missing > 0 || sample.stalled >= STALLED {
        // What is held counts, not what might be: the next look must not give back for nothing.
        let held = now.held.min(now.in_force);
        return held.saturating_sub(missing.max(held / 10)).max(floor);
    }
    // Twice what must be left: between the two the limit stands still, so that it does not swing.
    if sample.available >= keep * 2 {
        now.limit.min(now.in_force + now.limit / RISE_PART + 1)
    } else {
        now.in_force
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn the_kernels_words_are_understood() {
        let memory = "MemTotal:       16384 kB\nMemFree:  1 kB\nMemAvailable:    8192 kB\n";
        let pressure = "some avg10=12.50 avg60=1.00 avg300=0.00 total=9\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";
        let sample = MemorySample::parse(memory, pressure).expect("sample");
        assert_eq!(sample, MemorySample { total: 16 << 20, available: 8 << 20, stalled: 12.5 });
        assert_eq!(MemorySample::parse(memory, "").expect("sample").stalled, 0.0);
        for bad in [
            "",
            "MemTotal: x kB\nMemAvailable: 1 kB",
            "MemTotal: 18446744073709551615 kB\nMemAvailable: 1 kB",
        ] {
            assert_eq!(MemorySample::parse(bad, pressure), None, "{bad}");
        }
    }

    #[test]
    fn memory_is_given_back_when_short_and_taken_again_slowly() {
        let full = CacheUse { limit: 8 * GIB, in_force: 8 * GIB, held: 8 * GIB };
        let sample = |available, stalled| MemorySample { total: 32 * GIB, available, stalled };
        assert_eq!(next_limit(full, sample(10 * GIB, 0.0)), 8 * GIB);
        assert_eq!(next_limit(full, sample(GIB / 2, 0.0)), 13 * GIB / 2, "what is missing to 2 GiB");
        assert!(next_limit(full, sample(10 * GIB, 30.0)) < 8 * GIB, "tasks wait for memory");
        let little = CacheUse { limit: 8 * GIB, in_force: GIB / 2, held: GIB / 2 };
        assert_eq!(next_limit(little, sample(0, 90.0)), GIB / 2, "the floor");
        assert_eq!(next_limit(little, sample(3 * GIB, 0.0)), GIB / 2, "neither short nor ample");
        let more = next_limit(little, sample(10 * GIB, 0.0));
        assert!(more > GIB / 2 && more < GIB, "{more}");
        let none = CacheUse { limit: 0, in_force: 0, held: 0 };
        assert_eq!(next_limit(none, sample(0, 90.0)), 0);
    }
}
