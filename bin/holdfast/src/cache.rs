//! `holdfast cache …`.

use clap::Subcommand;
use control_api::{CacheStatus, CacheUpdate};

use crate::context::Context;
use crate::error::CliResult;
use crate::units::{bytes, parse_bytes};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show how large the read cache is and what it did.
    Show,
    /// Change how much memory it may take, at once.
    Set {
        /// How much, as 4G; 0 for none, `auto` for an eighth of the machine's memory.
        #[arg(long, value_parser = parse_size)]
        size: Size,
    },
}

/// A size, or what the node finds right.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size(Option<u64>);

fn parse_size(text: &str) -> Result<Size, String> {
    if text == "auto" { Ok(Size(None)) } else { parse_bytes(text).map(|size| Size(Some(size))) }
}

pub(crate) async fn run(command: Command, context: &Context) -> CliResult {
    let status: CacheStatus = match command {
        Command::Show => context.client.get("/cache").await?,
        Command::Set { size } => context.client.patch("/cache", &CacheUpdate { read_bytes: size.0 }).await?,
    };
    context.show(&status, print)
}

fn print(status: &CacheStatus) {
    let counters = &status.counters;
    outln!("read cache: {} of {} held", bytes(status.held_bytes), bytes(status.limit_bytes));
    if status.limit_in_force_bytes < status.limit_bytes {
        outln!("short of memory: at most {} for now", bytes(status.limit_in_force_bytes));
    }
    outln!(
        "hits:       {} reads, {}; misses: {} reads, {}",
        counters.hits,
        bytes(counters.hit_bytes),
        counters.misses,
        bytes(counters.miss_bytes)
    );
    outln!(
        "read ahead: {}, {} of it used, {} given up unread",
        bytes(counters.ahead_bytes),
        bytes(counters.ahead_used_bytes),
        bytes(counters.ahead_wasted_bytes)
    );
}
