//! Write caches of LUNs that give up what is written: `lun create --write-cache-in …`, and what `lun show` says of them.

use clap::{Args, ValueEnum};
use control_api::{Lun, LunWriteCache, WriteCacheDiscard, WriteCachePlace};

use crate::file::Place;
use crate::units::{bytes, parse_bytes};

/// Where writes are kept.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum In {
    /// In memory only: when that is full, writes fail.
    #[value(alias = "device-ram")]
    Ram,
    /// In memory; what was used least recently goes to an overflow file.
    #[value(alias = "device-ram-with-overflow", alias = "ram-with-overflow")]
    RamOverflow,
    /// In a file, gathered to large writes.
    #[value(alias = "device-disk")]
    OwnDisk,
}

/// When they are given up.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Until {
    /// When the node that serves the LUN stops, fails, or gives its pool to another one.
    Restart,
}

/// A cache for writes that never reach the LUN's file.
#[derive(Debug, Args)]
pub(crate) struct CacheArgs {
    /// Keep what hosts write here and never in the file or image, which is only read: ALL OF IT IS LOST, flushed or not, when the node stops.
    #[arg(long, value_name = "WHERE", conflicts_with_all = ["write_cache", "reserve"])]
    write_cache_in: Option<In>,
    /// Memory that this cache may have: 16 MiB at least, and with an overflow file 8 MiB and 464 KiB for each GiB of the disk, which it takes to
    /// know where what is; 256 MiB when absent.
    #[arg(long, requires = "write_cache_in", value_parser = parse_bytes)]
    cache_size: Option<u64>,
    /// The folder for the overflow file, in the LUN's volume: VOLUME:/FOLDER.
    #[arg(long, requires = "write_cache_in", value_name = "FOLDER")]
    overflow: Option<Place>,
    /// What the overflow file may take, 16 MiB at least; absent for the size of the disk and a quarter.
    #[arg(long, requires = "overflow", value_parser = parse_bytes)]
    overflow_size: Option<u64>,
    /// When what was written is given up.
    #[arg(long, requires = "write_cache_in", default_value = "restart")]
    discard: Until,
}

impl CacheArgs {
    /// The volume of the LUN, and its cache.
    pub(crate) fn wanted(
        self,
        volume: Option<String>,
    ) -> Result<(Option<String>, Option<LunWriteCache>), String> {
        let Some(place) = self.write_cache_in else { return Ok((volume, None)) };
        let place = match place {
            In::Ram => WriteCachePlace::Ram,
            In::RamOverflow => WriteCachePlace::RamOverflow,
            In::OwnDisk => WriteCachePlace::OwnDisk,
        };
        if place != WriteCachePlace::Ram && self.overflow.is_none() {
            return Err(
                "say which folder of the LUN's volume has the overflow file (--overflow VOLUME:/FOLDER)."
                    .into(),
            );
        }
        let of = self.overflow.as_ref().map(|place| place.volume().to_owned());
        let volume = match (volume, of) {
            (Some(volume), Some(other)) if volume != other => {
                return Err(format!(
                    "the overflow file of a LUN lies in its own volume: --overflow {volume}:/FOLDER, not {other}."
                ));
            }
            (volume, of) => volume.or(of),
        };
        let Until::Restart = self.discard;
        let cache = LunWriteCache {
            place,
            ram_bytes: self.cache_size,
            overflow: self.overflow.map(|place| place.path().to_owned()),
            overflow_bytes: self.overflow_size,
            discard: WriteCacheDiscard::Restart,
        };
        Ok((volume, Some(cache)))
    }
}

/// What a list says of it.
pub(crate) fn place(cache: &LunWriteCache) -> &'static str {
    match cache.place {
        WriteCachePlace::Ram => "in memory, given up at restart",
        WriteCachePlace::RamOverflow => "in memory with overflow, given up at restart",
        WriteCachePlace::OwnDisk => "on disk, given up at restart",
    }
}

/// Says loudly what it means.
pub(crate) fn warn(lun: &Lun) {
    if lun.config.write_cache_in.is_none() {
        return;
    }
    outln!();
    outln!(
        "All that hosts write to LUN {} is LOST when the node that serves it stops, fails, or gives its pool to another node: also what they have flushed. \
         Its file stays as it is.",
        lun.config.name
    );
}

/// What it has, and what it has done.
pub(crate) fn print(lun: &Lun) {
    warn(lun);
    let Some(now) = &lun.write_cache_now else { return };
    outln!();
    outln!(
        "Its write cache has {} of {} of memory ({} at most so far), and {} in its overflow file.",
        bytes(now.ram_bytes),
        bytes(now.ram_limit_bytes),
        bytes(now.ram_high_bytes),
        bytes(now.overflow_bytes)
    );
    outln!(
        "It took {} writes of {}; {} in {} writes went on to a disk.",
        now.absorbed_writes,
        bytes(now.absorbed_bytes),
        bytes(now.overflow_written_bytes),
        now.overflow_writes
    );
    outln!(
        "Read: {} from memory, {} from the overflow file, {} from the LUN's file. Discarded: {}.",
        bytes(now.read_ram_bytes),
        bytes(now.read_overflow_bytes),
        bytes(now.read_base_bytes),
        bytes(now.discarded_bytes)
    );
    if now.waited > 0 {
        outln!("{} writes have waited for room, and {} found none and failed.", now.waited, now.refused);
    }
    if !now.wrote.is_empty() {
        outln!("These hosts have written to it, and lose that: {}.", now.wrote.join(", "));
    }
    if let Some(problem) = &now.problem {
        outln!("Nothing goes to its overflow file: {problem}.");
    }
}
