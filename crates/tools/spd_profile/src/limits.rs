//! Limits on what a profile may ask for: they bound memory before it is taken.

/// Most threads of a time span, over all targets.
pub const THREADS: u32 = 4096;
/// Most requests outstanding of one thread, over all its targets: the completion queue of a ring holds them.
pub const REQUESTS_PER_THREAD: u32 = 4096;
/// Largest block in bytes: a quarter of what the kernel takes in one request.
pub const BLOCK_BYTES: u32 = 256 << 20;
/// Most bytes of I/O buffers of one time span.
pub const BUFFER_BYTES: u64 = 16 << 30;
/// Most targets of a time span.
pub const TARGETS: usize = 1024;
/// Most time spans of a profile.
pub const TIME_SPANS: usize = 256;
/// Longest duration, warm-up or cool-down in seconds: a year.
pub const SECONDS: u32 = 366 * 86_400;
/// Longest XML profile in bytes.
pub const XML_BYTES: usize = 4 << 20;
/// Deepest nesting of an XML profile; DiskSpd's own has eight levels.
pub const XML_DEPTH: usize = 32;
/// Most elements of an XML profile.
pub const XML_ELEMENTS: usize = 100_000;
/// Most block sizes of a mix.
pub const MIX: usize = 64;
/// Most ranges of a distribution.
pub const RANGES: usize = 1024;
/// Most intervals of an IOPS series (`-D`): a day of seconds, over which deviations are still kept per thread.
pub const INTERVALS: u64 = 1 << 17;
