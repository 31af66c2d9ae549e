//! The profile itself; names and defaults are DiskSpd's.

use crate::trace::Replay;

/// How the result is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResultFormat {
    /// The text report.
    #[default]
    Text,
    /// The XML report.
    Xml,
}

/// What is cached where (`-S`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheMode {
    /// The page cache is used.
    #[default]
    Cached,
    /// The client's cache is not used, the server's is (`-Sr`); remote targets only.
    DisableLocalCache,
    /// Unbuffered: O_DIRECT (`-Su`).
    DisableOsCache,
}

/// What writes write (`-Z`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum WriteContent {
    /// 0, 1, 2, ... 255 again and again.
    #[default]
    Sequential,
    /// Zeros (`-Z`).
    Zero,
    /// Data from a buffer of this many bytes, filled with random bytes or a file's (`-Z<size>[,<file>]`).
    Source {
        /// Bytes of the buffer.
        size: u64,
        /// Where its content comes from; random when there is none.
        file: Option<String>,
    },
}

/// Priority of a target's I/O (`-I`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoPriority {
    /// The idle class.
    VeryLow,
    /// The lowest of the best-effort class.
    Low,
    /// Whatever the process has.
    #[default]
    Normal,
}

/// A limit on throughput per thread and target (`-g`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Throughput {
    /// Bytes in a millisecond.
    BytesPerMillisecond(u32),
    /// Operations of the block size in a second.
    Iops(u32),
}

/// The unit in which the spans of a distribution are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DistributionUnit {
    /// Percent of the target.
    Percent,
    /// Bytes.
    Absolute,
}

/// One part of a distribution: so much of the I/O goes to so much of the target. Parts follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Percent of the I/O; 0 is a gap.
    pub io_percent: u32,
    /// Percent or bytes of the target; 0 (last part, bytes) is the rest.
    pub span: u64,
}

/// A non-uniform distribution of random offsets (`-rd`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Distribution {
    /// Unit of the spans.
    pub unit: DistributionUnit,
    /// The parts, from the target's beginning on.
    pub ranges: Vec<Range>,
}

/// Hints given when a file is opened (`-f<rst>`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// `-fr`: POSIX_FADV_RANDOM.
    pub random: bool,
    /// `-fs`: POSIX_FADV_SEQUENTIAL.
    pub sequential: bool,
    /// `-ft`: a temporary file, which Linux does not have.
    pub temporary: bool,
}

/// One block size of a mix (`--mix`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MixPart {
    /// Bytes of one I/O.
    pub block: u32,
    /// Percent of the I/O.
    pub percent: u32,
    /// Percent of writes among these.
    pub write_percent: u32,
}

/// What is done to one file, device or remote file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its path as given, or `*1` for a template.
    pub path: String,
    /// Bytes of one I/O (`-b`); with a mix, of the largest.
    pub block: u32,
    /// Block sizes of a mix, ours and not DiskSpd's; empty: all are `block`.
    pub mix: Vec<MixPart>,
    /// Distance between offsets in bytes (`-r`, `-s`); the block when absent.
    pub alignment: Option<u64>,
    /// Percent of random I/O: 0 sequential, 100 random, between mixed (`-rs`).
    pub random_percent: u32,
    /// Threads share one sequential offset (`-si`).
    pub interlocked: bool,
    /// Where random offsets fall (`-rd`).
    pub distribution: Option<Distribution>,
    /// First byte that is touched (`-B`).
    pub base: u64,
    /// End of what is touched, exclusive (`-f`); 0 is the target's end.
    pub max: u64,
    /// Distance between the starting offsets of threads (`-T`).
    pub thread_stride: u64,
    /// The size to create the file with (`-c`).
    pub create: Option<u64>,
    /// Threads of this target (`-t`).
    pub threads: u32,
    /// Requests outstanding per thread (`-o`).
    pub requests: u32,
    /// Each request runs through the target by itself (`-p`).
    pub parallel: bool,
    /// Percent of writes (`-w`).
    pub write_percent: u32,
    /// Caching (`-S`).
    pub cache: CacheMode,
    /// Writes reach stable storage before they end (`-Sw`).
    pub write_through: bool,
    /// Memory-mapped I/O (`-Sm`), which is refused.
    pub memory_mapped: bool,
    /// Flush mode of memory-mapped I/O (`-N`): ViewOfFile, NonVolatileMemory, NonVolatileMemoryNoDrain.
    pub flush: Option<&'static str>,
    /// What is written.
    pub content: WriteContent,
    /// Operations of a burst (`-i`).
    pub burst: Option<u32>,
    /// Milliseconds between bursts (`-j`).
    pub think_ms: Option<u32>,
    /// Limit on throughput (`-g`).
    pub throughput: Option<Throughput>,
    /// Hints (`-f<rst>`).
    pub hints: Hints,
    /// Large pages for buffers (`-l`), which is refused.
    pub large_pages: bool,
    /// Priority (`-I`).
    pub priority: IoPriority,
    /// Share of a thread's requests when they are given per thread (`-O`).
    pub weight: u32,
    /// Threads that use this target, with their weights (0: the target's); all when empty. XML only.
    pub thread_targets: Vec<(u32, u32)>,
}

impl Target {
    /// A target with DiskSpd's defaults.
    #[must_use]
    pub fn new(path: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            block: 64 << 10,
            mix: Vec::new(),
            alignment: None,
            random_percent: 0,
            interlocked: false,
            distribution: None,
            base: 0,
            max: 0,
            thread_stride: 0,
            create: None,
            threads: 1,
            requests: 2,
            parallel: false,
            write_percent: 0,
            cache: CacheMode::default(),
            write_through: false,
            memory_mapped: false,
            flush: None,
            content: WriteContent::default(),
            burst: None,
            think_ms: None,
            throughput: None,
            hints: Hints::default(),
            large_pages: false,
            priority: IoPriority::default(),
            weight: 1,
            thread_targets: Vec::new(),
        }
    }

    /// Distance between offsets in bytes.
    #[must_use]
    pub fn step(&self) -> u64 {
        self.alignment.unwrap_or(u64::from(self.smallest_block()))
    }

    /// All sizes of I/O.
    pub fn blocks(&self) -> impl Iterator<Item = u32> + '_ {
        let only = self.mix.is_empty().then_some(self.block);
        self.mix.iter().map(|part| part.block).chain(only)
    }

    /// Bytes of the smallest I/O.
    #[must_use]
    pub fn smallest_block(&self) -> u32 {
        self.blocks().min().unwrap_or(self.block)
    }

    /// Takes a mix of block sizes: the block becomes the largest, the percent of writes that of all together.
    pub fn set_mix(&mut self, mix: Vec<MixPart>) {
        self.block = mix.iter().map(|part| part.block).max().unwrap_or(self.block);
        let (some, all) =
            (mix.iter().any(|part| part.write_percent > 0), mix.iter().all(|part| part.write_percent >= 100));
        let sum =
            mix.iter().fold(0u64, |sum, part| sum + u64::from(part.percent) * u64::from(part.write_percent));
        // Rounded, but 0 and 100 mean none and all.
        self.write_percent = match (some, all) {
            (false, _) => 0,
            (_, true) => 100,
            _ => (sum.div_ceil(100) as u32).clamp(1, 99),
        };
        self.mix = mix;
    }

    /// Whether the path stands for one that is given on the command line (`*1`).
    #[must_use]
    pub fn is_template(&self) -> bool {
        self.path.starts_with('*')
    }
}

/// A processor that a thread is bound to (`-a`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Affinity {
    /// Windows' processor group; Linux has one, number 0.
    pub group: u16,
    /// The processor.
    pub cpu: u16,
}

/// When operations of an open loop begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arrival {
    /// At even distances.
    #[default]
    Even,
    /// At random, independent of each other (a Poisson process).
    Poisson,
}

/// What runs together.
#[derive(Clone, Debug, PartialEq)]
pub struct TimeSpan {
    /// Seconds that are measured (`-d`).
    pub duration: u32,
    /// Seconds before (`-W`).
    pub warm_up: u32,
    /// Seconds after (`-C`).
    pub cool_down: u32,
    /// Seed of everything random (`-z`).
    pub seed: u32,
    /// Random content for each write (`-Zr`).
    pub random_writes: bool,
    /// Threads for all targets together (`-F`); 0: each target has its own.
    pub threads: u32,
    /// Requests outstanding per thread, over all targets (`-O`); 0: per target.
    pub requests: u32,
    /// Threads are bound to no processor (`-n`).
    pub no_affinity: bool,
    /// Processors that threads are bound to in turn (`-a`); all when empty.
    pub affinity: Vec<Affinity>,
    /// Windows' completion routines (`-x`), which are refused.
    pub completion_routines: bool,
    /// Latencies are reported (`-L`).
    pub latency: bool,
    /// IOPS per interval are reported (`-D`).
    pub iops_intervals: bool,
    /// The interval in milliseconds.
    pub interval_ms: u32,
    /// Open loop: operations in a second over all threads and targets, and how they are spread. Ours, not DiskSpd's.
    pub rate: Option<(f64, Arrival)>,
    /// The first target is copied over the second, once. Ours, not DiskSpd's.
    pub copy: bool,
    /// A trace that is replayed instead of a pattern. Ours, not DiskSpd's.
    pub replay: Option<Replay>,
    /// The targets.
    pub targets: Vec<Target>,
}

impl Default for TimeSpan {
    fn default() -> Self {
        Self {
            duration: 10,
            warm_up: 5,
            cool_down: 0,
            seed: 0,
            random_writes: false,
            threads: 0,
            requests: 0,
            no_affinity: false,
            affinity: Vec::new(),
            completion_routines: false,
            latency: false,
            iops_intervals: false,
            interval_ms: 1000,
            rate: None,
            copy: false,
            replay: None,
            targets: Vec::new(),
        }
    }
}

impl TimeSpan {
    /// Threads that run.
    #[must_use]
    pub fn thread_count(&self) -> u64 {
        if self.threads > 0 {
            u64::from(self.threads)
        } else {
            self.targets.iter().map(|target| u64::from(target.threads)).sum()
        }
    }

    /// Whether requests are given per thread and shared by targets by weight (`-F` with `-O`).
    #[must_use]
    pub fn is_weighted(&self) -> bool {
        self.threads > 0 && self.requests > 0
    }
}

/// All that is to be done.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// The command line, for the report.
    pub command_line: String,
    /// A dot for so many operations of a thread (`-P`); 0: none.
    pub progress: u32,
    /// `-v`.
    pub verbose: bool,
    /// `-vs`: how threads waited.
    pub verbose_stats: bool,
    /// Experiments (`-:`); 1 allows long sleeps of throttled threads, which ours always makes.
    pub experiments: u32,
    /// How the result is printed.
    pub format: ResultFormat,
    /// Event tracing was asked for (`-e`), which is refused.
    pub etw: bool,
    /// The spans, in order.
    pub spans: Vec<TimeSpan>,
}
