//! `holdfast volume …`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use control_api::{
    CachePolicyUpdate, CheckRequest, Confirm, Done, LogCreate, OnNode, Provisioning, ReadAhead, Resiliency,
    Volume, VolumeCache, VolumeCreate, VolumeRename, VolumeUpdate,
};
use control_client::{Query, segment};

use crate::context::Context;
use crate::error::CliResult;
use crate::offline;
use crate::pool::show_report;
use crate::quota;
use crate::table::{Table, or_dash, word};
use crate::units::{bytes, parse_bytes};

/// How reads of a volume are cached.
#[derive(Debug, clap::Args)]
pub(crate) struct CacheArgs {
    /// Keep reads in the node's read cache: on or off.
    #[arg(long, value_parser = on_or_off, value_name = "on|off")]
    read_cache: Option<bool>,
    /// Read ahead of sequential readers of a cached volume: none, adaptive or fixed:SIZE, as fixed:1M.
    #[arg(long, value_parser = parse_read_ahead, value_name = "HOW")]
    read_ahead: Option<ReadAhead>,
}

impl CacheArgs {
    fn update(&self) -> CachePolicyUpdate {
        CachePolicyUpdate { read_cache: self.read_cache, read_ahead: self.read_ahead }
    }
}

fn on_or_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        other => Err(format!("{other:?} is neither on nor off")),
    }
}

fn parse_read_ahead(text: &str) -> Result<ReadAhead, String> {
    match text.strip_prefix("fixed:") {
        Some(size) => format!("fixed:{}", parse_bytes(size)?).parse(),
        None => text.parse(),
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List volumes, those in trouble first.
    List,
    /// Show a volume.
    Show {
        /// The volume.
        volume: String,
        /// Its pool, where several pools have a volume of this name; the one that is served when absent.
        #[arg(long)]
        pool: Option<String>,
    },
    /// Make a volume.
    Create {
        /// Its name.
        name: String,
        /// Its size; thin volumes take space as they are written.
        #[arg(long, value_parser = parse_bytes)]
        size: u64,
        /// The pool; needed when there are several.
        #[arg(long)]
        pool: Option<String>,
        /// How data survives lost disks: simple, mirror2, mirror3, parity1 or parity2.
        #[arg(long, default_value = "mirror2")]
        resiliency: Resiliency,
        /// Take space as it is written (the default).
        #[arg(long, conflicts_with = "fixed")]
        thin: bool,
        /// Take all space now.
        #[arg(long)]
        fixed: bool,
        /// Disks that data is striped over; as many as the pool allows when absent.
        #[arg(long)]
        columns: Option<u16>,
        /// Bytes on one column before the next.
        #[arg(long, value_parser = parse_bytes, value_name = "SIZE")]
        interleave: Option<u64>,
        /// Do without checksums: damage is noticed only when a disk reports it.
        #[arg(long)]
        no_integrity: bool,
        #[command(flatten)]
        cache: CacheArgs,
        /// Put a log of this size before it: small writes are durable there first.
        #[arg(long, value_parser = parse_bytes, value_name = "SIZE")]
        log_size: Option<u64>,
        /// The pool of the log, of faster disks; the volume's when absent.
        #[arg(long, requires = "log_size", value_name = "POOL")]
        log_pool: Option<String>,
    },
    /// Change how a volume is cached on this node.
    #[command(group(clap::ArgGroup::new("what").required(true).multiple(true).args(["read_cache", "read_ahead"])))]
    Set {
        /// The volume.
        volume: String,
        #[command(flatten)]
        cache: CacheArgs,
    },
    /// Give a volume another name. LUNs, shares and snapshots on it go on, and so do their clients.
    Rename {
        /// The volume.
        volume: String,
        /// Its new name.
        name: String,
        /// Its pool; needed where several pools have a volume of this name.
        #[arg(long)]
        pool: Option<String>,
    },
    /// Grow a volume.
    Resize {
        /// The volume.
        volume: String,
        /// Its new size.
        #[arg(value_parser = parse_bytes)]
        size: u64,
    },
    /// Verify all structures of a volume.
    Check {
        /// The volume.
        volume: String,
        /// Read data too.
        #[arg(long)]
        deep: bool,
        /// Repair what can be repaired.
        #[arg(long, conflicts_with = "offline")]
        repair: bool,
        /// Without a node: open the disks of its pool read-only here.
        #[arg(long, requires = "disks")]
        offline: bool,
        /// With --offline: a disk of the pool; may be given several times.
        #[arg(long = "disk", value_name = "PATH", requires = "offline")]
        disks: Vec<PathBuf>,
    },
    /// Open a volume again that has stopped or could not be opened; the node does so by itself when all its data is there.
    Reopen {
        /// The volume.
        volume: String,
    },
    /// Add a log to a volume, or remove it, while the volume is in use.
    #[command(subcommand)]
    Log(LogCommand),
    /// How much of a volume each user may have: quotas as NTFS has them, by who owns files.
    Quota(quota::Quota),
    /// Open a volume whose log is lost, without what was only there.
    GiveUpLog {
        /// The volume.
        volume: String,
    },
    /// Destroy a volume and everything in it.
    Delete {
        /// The volume.
        volume: String,
        /// Its pool; needed where several pools have a volume of this name.
        #[arg(long)]
        pool: Option<String>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum LogCommand {
    /// Put a log before a volume: small writes are durable there first.
    Add {
        /// The volume.
        volume: String,
        /// The log's size.
        #[arg(long, value_parser = parse_bytes)]
        size: u64,
        /// The pool of the log, of faster disks; the volume's when absent.
        #[arg(long)]
        pool: Option<String>,
    },
    /// Bring what is in the log of a volume to the volume, and take the log away.
    Remove {
        /// The volume.
        volume: String,
    },
}

pub(crate) async fn run(command: Command, context: &Context) -> CliResult<ExitCode> {
    let client = &context.client;
    let one = |volume: &Volume| print(&[volume.clone().into()]);
    match command {
        Command::List => context.show_list_of_pools("/volumes", print).await?,
        Command::Show { volume, pool } => {
            let volume: Volume = client.get(in_pool(&volume, "", pool.as_deref()).as_str()).await?;
            context.show(&volume, one)?;
        }
        Command::Create {
            name,
            size,
            pool,
            resiliency,
            thin: _,
            fixed,
            columns,
            interleave,
            no_integrity,
            cache,
            log_size,
            log_pool,
        } => {
            let request = VolumeCreate {
                name,
                pool,
                size_bytes: size,
                resiliency,
                provisioning: if fixed { Provisioning::Fixed } else { Provisioning::Thin },
                columns,
                interleave_bytes: interleave,
                integrity: no_integrity.then_some(false),
                cache: cache.update(),
                log: log_size.map(|size_bytes| LogCreate { size_bytes, pool: log_pool }),
            };
            let volume: Volume = client.post("/volumes", &request).await?;
            context.show(&volume, one)?;
        }
        Command::Rename { volume, name, pool } => {
            let path = in_pool(&volume, "/name", pool.as_deref());
            let volume: Volume = client.put(path.as_str(), &VolumeRename { name }).await?;
            context.show(&volume, one)?;
        }
        Command::Resize { volume, size } => {
            let path = format!("/volumes/{}", segment(&volume));
            let volume: Volume = client
                .patch(&path, &VolumeUpdate { size_bytes: Some(size), ..VolumeUpdate::default() })
                .await?;
            context.show(&volume, one)?;
        }
        Command::Set { volume, cache } => {
            let path = format!("/volumes/{}", segment(&volume));
            let update = VolumeUpdate { cache: cache.update(), ..VolumeUpdate::default() };
            let volume: Volume = client.patch(&path, &update).await?;
            context.show(&volume, one)?;
        }
        Command::Check { volume, deep, repair, offline, disks } => {
            let report = if offline {
                offline::check_volume(&volume, &disks, deep)?
            } else {
                let path = format!("/volumes/{}/check", segment(&volume));
                context
                    .confirmed(async |confirm| {
                        client.post(&path, &CheckRequest { deep, repair, confirm }).await
                    })
                    .await?
            };
            return show_report(context, &report);
        }
        Command::Reopen { volume } => {
            let path = format!("/volumes/{}/reopen", segment(&volume));
            let done: Done =
                context.confirmed(async |confirm| client.post(&path, &Confirm { confirm }).await).await?;
            context.show(&done, |done| outln!("{}", done.message))?;
        }
        Command::Log(LogCommand::Add { volume, size, pool }) => {
            let path = format!("/volumes/{}/log", segment(&volume));
            let volume: Volume = client.post(&path, &LogCreate { size_bytes: size, pool }).await?;
            context.show(&volume, one)?;
        }
        Command::Log(LogCommand::Remove { volume }) => {
            let path = format!("/volumes/{}/log", segment(&volume));
            let volume: Volume = client.delete(&path, &()).await?;
            context.show(&volume, one)?;
        }
        Command::Quota(quota) => quota::run(quota, context).await?,
        Command::GiveUpLog { volume } => {
            let path = format!("/volumes/{}/give-up-log", segment(&volume));
            let done: Done =
                context.confirmed(async |confirm| client.post(&path, &Confirm { confirm }).await).await?;
            context.show(&done, |done| outln!("{}", done.message))?;
        }
        Command::Delete { volume, pool } => {
            let path = in_pool(&volume, "", pool.as_deref());
            let deleted = async |confirm| client.delete(path.as_str(), &Confirm { confirm }).await;
            let done: Done = context.confirmed(deleted).await?;
            context.show(&done, |done| outln!("{}", done.message))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Something of a volume, or of the one of its name in a pool.
fn in_pool(volume: &str, what: &str, pool: Option<&str>) -> Query {
    let path = Query::new(format!("/volumes/{}{what}", segment(volume)));
    match pool {
        Some(pool) => path.with("pool", pool),
        None => path,
    }
}

fn print(volumes: &[OnNode<Volume>]) {
    let headings = [
        "VOLUME",
        "POOL",
        "STATE",
        "RESILIENCY",
        "REDUNDANCY",
        ">SIZE",
        ">USED",
        ">FREE",
        ">IN POOL",
        ">COLUMNS",
        ">INTERLEAVE",
        "READ CACHE",
        "LOG",
        "TYPE",
        "NOTE",
    ];
    let mut table =
        Table::of(&headings, "There are no volumes. Make one with `holdfast volume create`.", volumes);
    for volume in volumes {
        table.row_of(
            volume,
            [
                volume.name.clone(),
                volume.pool.clone(),
                if volume.online { "online" } else { "offline" }.into(),
                word(&volume.resiliency),
                word(&volume.redundancy),
                bytes(volume.size_bytes),
                bytes(volume.used_bytes),
                bytes(volume.free_bytes),
                bytes(volume.allocated_bytes),
                volume.columns.to_string(),
                bytes(volume.interleave_bytes),
                cached(&volume.cache),
                logged(volume),
                word(&volume.provisioning),
                or_dash(volume.reason.as_ref()),
            ],
        );
    }
    table.print();
}

/// "off", or how full and how good: "12 MiB, 97 % hits, read-ahead adaptive".
fn cached(cache: &VolumeCache) -> String {
    if !cache.read_cache {
        return "off".into();
    }
    let mut text = String::from("on");
    if let Some(counters) = &cache.counters {
        text = bytes(counters.resident_bytes);
        let reads = counters.hits + counters.misses;
        if let Some(share) = (counters.hits * 100).checked_div(reads) {
            text += &format!(", {share} % hits");
        }
    }
    if cache.read_ahead == ReadAhead::None {
        text
    } else {
        format!("{text}, read-ahead {}", cache.read_ahead)
    }
}

/// Where the log of a volume lies, what it does, and how much waits in it: "64.0 GiB in ssd: logging, 0 B waiting".
fn logged(volume: &Volume) -> String {
    let Some(place) = &volume.log_place else { return "-".into() };
    let mut text = match (&place.pool, place.size_bytes) {
        (Some(pool), Some(size)) => format!("{} in {pool}: ", bytes(size)),
        (Some(pool), None) => format!("in {pool}: "),
        (None, _) => String::new(),
    };
    match &volume.log {
        None if place.there => text += "not open",
        None => text += "missing",
        Some(log) => {
            text += &format!("{}, {} waiting", word(&log.mode), bytes(log.waiting_bytes));
            if !place.there {
                text += ", its disks are missing";
            }
            for why in log.reason.iter().chain(&log.back_error) {
                text += &format!(": {why}");
            }
        }
    }
    text
}
