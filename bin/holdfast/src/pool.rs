//! `holdfast pool …`.

mod address;
mod import;
mod upkeep;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use control_api::{
    AddDisk, CheckReport, CheckRequest, Confirm, DiskSelect, Done, OnNode, Pool, PoolCreate, PoolDetail,
    PoolMove, Rebalance, RebalanceReport, RemoveDisk, ReplaceDisk, Selector, check_slab_bytes, numbered,
};
use control_client::{Query, segment};

use crate::absolute_path::{here, here_one, here_selected};
use crate::context::Context;
use crate::error::{CliError, CliResult};
use crate::table::{Table, or_dash, word};
use crate::units::{bytes, parse_bytes};
use crate::{disk, job, offline, progress};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List pools, those in trouble first.
    List,
    /// Move a pool to another node of the cluster. The node that has it is asked. Asks where hosts lose by that what they have written to LUNs with
    /// `--write-cache-in`.
    Move {
        /// The pool.
        pool: String,
        /// The node that is to have it.
        #[arg(value_name = "NODE")]
        to: String,
    },
    /// Give a pool an address that moves with it, at which clients reach what is on it whichever node has it; or a home among the nodes.
    Set(address::Args),
    /// Show a pool with its disks and volumes.
    Show {
        /// The pool.
        pool: String,
    },
    /// Make a pool. Takes the disks over entirely.
    Create {
        /// Its name.
        name: String,
        /// Ids or paths of disks.
        #[arg(required_unless_present = "select")]
        disks: Vec<String>,
        #[command(flatten)]
        selection: Selection,
        /// Disk that waits to replace another one; may be given several times.
        #[arg(long = "spare", value_name = "DISK")]
        spares: Vec<String>,
        /// Size of a slab, the unit of allocation: a power of two from 256 KiB to 64 GiB.
        #[arg(long, value_parser = parse_slab, value_name = "SIZE")]
        slab: Option<u64>,
        /// Destroy data of others that is on the disks that are named.
        #[arg(long)]
        overwrite_foreign: bool,
    },
    /// Take over a pool that is on disks of this machine.
    Import(import::Args),
    /// Close a pool and let go of its disks, for another machine to import it.
    Export {
        /// Name or GUID.
        pool: String,
    },
    /// Take a pool that is not open out of this node's configuration, with the LUNs and shares on its volumes: its disks are lost
    /// for good.
    Forget {
        /// Name or GUID.
        pool: String,
    },
    /// Add a disk, or those that selectors choose.
    AddDisk {
        /// The pool.
        pool: String,
        /// Id or path.
        #[arg(required_unless_present = "select")]
        disk: Option<String>,
        #[command(flatten)]
        selection: Selection,
        /// Keep what is added to replace others.
        #[arg(long)]
        spare: bool,
        /// Destroy data of others that is on the disk that is named.
        #[arg(long)]
        overwrite_foreign: bool,
    },
    /// Empty a disk and take it out.
    RemoveDisk {
        /// The pool.
        pool: String,
        /// Id, path or GUID of the disk.
        disk: String,
        /// Don't wait until it is empty.
        #[arg(long)]
        no_wait: bool,
    },
    /// Give what a lost disk held to another one.
    Replace {
        /// The pool.
        pool: String,
        /// Id or GUID of the lost disk.
        disk: String,
        /// The new disk; without it, a spare or the free space of the others is used.
        #[arg(long, value_name = "DISK")]
        with: Option<String>,
        /// Destroy data of others that is on the new disk.
        #[arg(long)]
        overwrite_foreign: bool,
        /// Don't wait until all copies are restored.
        #[arg(long)]
        no_wait: bool,
    },
    /// Put nothing new on a disk, and move away what is on it.
    Retire {
        /// The pool.
        pool: String,
        /// Id, path or GUID of the disk.
        disk: String,
    },
    /// Take back that a disk is to leave: after remove-disk, retire, or a retirement by itself.
    KeepDisk {
        /// The pool.
        pool: String,
        /// Id, path or GUID of the disk.
        disk: String,
    },
    /// Read everything, compare it with its checksums and heal what is damaged, in the background.
    Scrub {
        /// The pool.
        pool: String,
    },
    /// Make the disks equally full and use their enclosures, in the background; it goes on by itself after disks have joined.
    Rebalance {
        /// The pool.
        pool: String,
        /// Only say what would be moved.
        #[arg(long)]
        dry_run: bool,
        /// Don't wait until everything is moved.
        #[arg(long)]
        no_wait: bool,
    },
    /// Restore redundancy now.
    Repair {
        /// The pool.
        pool: String,
        /// Don't wait until all copies are restored.
        #[arg(long)]
        no_wait: bool,
    },
    /// Verify all structures of a pool.
    Check {
        /// The pool.
        #[arg(required_unless_present = "offline")]
        pool: Option<String>,
        /// Read and compare data too.
        #[arg(long)]
        deep: bool,
        /// Without a node: open the disks read-only here.
        #[arg(long, requires = "disks")]
        offline: bool,
        /// With --offline: a disk of the pool; may be given several times.
        #[arg(long = "disk", value_name = "PATH", requires = "offline")]
        disks: Vec<PathBuf>,
    },
    /// Destroy a pool and everything in it.
    Delete {
        /// The pool.
        pool: String,
    },
}

/// Disks that nobody names.
#[derive(Debug, clap::Args)]
pub(crate) struct Selection {
    /// Free disks by what they are, as `media=hdd,per-enclosure=16`; may be given several times.
    ///
    /// Clauses that all hold, separated by commas: `all`; media, model, serial, vendor, bus, enclosure, slot or disk
    /// with = or != and patterns separated by |; size with =, !=, >, >=, < or <=; count=N or per-enclosure=N. Disks are
    /// taken by enclosure and slot; each further selector chooses of what those before it left.
    #[arg(long, value_name = "SELECTOR", value_parser = Selector::for_pool)]
    select: Vec<Selector>,
    /// Only show which disks would be taken.
    #[arg(long)]
    dry_run: bool,
}

pub(crate) async fn run(command: Command, context: &Context) -> CliResult<ExitCode> {
    let client = &context.client;
    match command {
        Command::List => context.show_list_of_pools("/pools", print).await?,
        Command::Show { pool } => {
            let pool: PoolDetail = client.get(&format!("/pools/{}", segment(&pool))).await?;
            context.show(&pool, print_detail)?;
        }
        Command::Set(args) => context.show(&args.run(client).await?, print_detail)?,
        Command::Create { name, disks, selection, spares, slab, overwrite_foreign } => {
            let Selection { select, dry_run } = selection;
            let select = here_selected(select);
            let disks = here(disks);
            let spares = here(spares);
            if dry_run {
                let (new_pool, slab_bytes) = (Some(name), slab);
                let request = DiskSelect {
                    select,
                    disks,
                    except: spares,
                    new_pool,
                    slab_bytes,
                    overwrite_foreign,
                    pool: None,
                };
                return disk::would_take(context, request).await;
            }
            let pool: PoolDetail = context
                .confirmed(async |confirm| {
                    let request = PoolCreate {
                        name: name.clone(),
                        disks: disks.clone(),
                        select: select.clone(),
                        spares: spares.clone(),
                        slab_bytes: slab,
                        overwrite_foreign,
                        confirm,
                    };
                    client.post("/pools", &request).await
                })
                .await?;
            context.show(&pool, print_detail)?;
        }
        Command::Import(args) => import::run(args, context).await?,
        Command::Export { pool } => let_go(context, &pool, "export").await?,
        Command::Move { pool, to } => {
            let path = format!("/pools/{}/move", segment(&pool));
            let done: Done = context
                .confirmed(async |confirm| {
                    context.client.post(&path, &PoolMove { node: to.clone(), confirm }).await
                })
                .await?;
            context.show(&done, |done| outln!("{}", done.message))?;
        }
        Command::Forget { pool } => let_go(context, &pool, "forget").await?,
        Command::AddDisk { pool, disk, selection, spare, overwrite_foreign } => {
            let Selection { select, dry_run } = selection;
            let select = here_selected(select);
            let path = format!("/pools/{}/disks", segment(&pool));
            let disk = disk.map(here_one);
            if dry_run {
                let disks = disk.into_iter().collect();
                let pool = Some(pool);
                let request = DiskSelect { select, disks, pool, overwrite_foreign, ..DiskSelect::default() };
                return disk::would_take(context, request).await;
            }
            let pool: PoolDetail = context
                .confirmed(async |confirm| {
                    let (disk, select) = (disk.clone(), select.clone());
                    let request = AddDisk { disk, select, spare, overwrite_foreign, confirm };
                    client.post(&path, &request).await
                })
                .await?;
            context.show(&pool, print_detail)?;
        }
        Command::RemoveDisk { pool, disk, no_wait } => {
            let path = on_disk(&pool, "remove", &disk);
            let done: Done = context
                .confirmed(async |confirm| client.post(path.as_str(), &RemoveDisk { confirm }).await)
                .await?;
            finish(context, &done, no_wait).await?;
        }
        Command::Replace { pool, disk, with, overwrite_foreign, no_wait } => {
            let path = on_disk(&pool, "replace", &disk);
            let with = with.map(here_one);
            let done: Done = context
                .confirmed(async |confirm| {
                    let request = ReplaceDisk { with: with.clone(), overwrite_foreign, confirm };
                    client.post(path.as_str(), &request).await
                })
                .await?;
            finish(context, &done, no_wait).await?;
        }
        Command::Retire { pool, disk } => {
            let pool: PoolDetail = client.post(on_disk(&pool, "retire", &disk).as_str(), &()).await?;
            context.show(&pool, print_detail)?;
        }
        Command::KeepDisk { pool, disk } => {
            let pool: PoolDetail = client.post(on_disk(&pool, "keep", &disk).as_str(), &()).await?;
            context.show(&pool, print_detail)?;
        }
        Command::Scrub { pool } => {
            let done: Done = client.post(&format!("/pools/{}/scrub", segment(&pool)), &()).await?;
            finish(context, &done, true).await?;
        }
        Command::Rebalance { pool, dry_run, no_wait } => {
            let path = format!("/pools/{}/rebalance", segment(&pool));
            let report: RebalanceReport = client.post(&path, &Rebalance { dry_run }).await?;
            let job = report.job.filter(|_| !no_wait);
            // One document: with a job that is waited for, how it ends.
            if job.is_none() || !context.json {
                context.show(&report, upkeep::print_rebalance)?;
            }
            if job.is_some() {
                let done =
                    Done { message: format!("Pool {pool} is being rebalanced."), job, node: report.node };
                finish(context, &done, false).await?;
            }
        }
        Command::Repair { pool, no_wait } => {
            let done: Done = client.post(&format!("/pools/{}/repair", segment(&pool)), &()).await?;
            finish(context, &done, no_wait).await?;
        }
        Command::Check { pool, deep, offline, disks } => {
            let report = match pool {
                Some(pool) if !offline => {
                    let request = CheckRequest { deep, ..CheckRequest::default() };
                    client.post(&format!("/pools/{}/check", segment(&pool)), &request).await?
                }
                _ => offline::check_pool(&disks, deep)?,
            };
            return show_report(context, &report);
        }
        Command::Delete { pool } => {
            let path = format!("/pools/{}", segment(&pool));
            let done: Done =
                context.confirmed(async |confirm| client.delete(&path, &Confirm { confirm }).await).await?;
            context.show(&done, |done| outln!("{}", done.message))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints what a check found; the exit code says whether it was clean.
pub(crate) fn show_report(context: &Context, report: &CheckReport) -> CliResult<ExitCode> {
    context.show(report, |report| {
        outln!("{}", report.summary);
        for finding in &report.items {
            outln!(
                "{:>9}  {} at {}: {}",
                word(&finding.severity),
                finding.structure,
                finding.place,
                finding.detail
            );
            if let Some(action) = &finding.action {
                outln!("           -> {action}");
            }
        }
    })?;
    Ok(if report.clean { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Follows the job that an answer names, unless told not to.
async fn finish(context: &Context, done: &Done, no_wait: bool) -> CliResult {
    let Some(id) = done.job.filter(|_| !no_wait).map(|job| numbered(done.node.as_deref(), job)) else {
        return context.show(done, |done| outln!("{}", done.message));
    };
    if !context.json {
        outln!("{}", done.message);
    }
    let job = progress::follow(&context.client, &id, context.json).await?;
    context.show(&job, |job| outln!("{}", job::line(job)))
}

/// Lets go of a pool, one way or the other, once that is confirmed.
async fn let_go(context: &Context, pool: &str, how: &str) -> CliResult {
    let path = format!("/pools/{}/{how}", segment(pool));
    let post = async |confirm| context.client.post(path.as_str(), &Confirm { confirm }).await;
    let done: Done = context.confirmed(post).await?;
    context.show(&done, |done| outln!("{}", done.message))
}

fn on_disk(pool: &str, verb: &str, disk: &str) -> Query {
    Query::new(format!("/pools/{}/{verb}", segment(pool))).with("disk", &here_one(disk.to_owned()))
}

fn print(pools: &[OnNode<Pool>]) {
    let headings =
        ["POOL", "STATE", "REDUNDANCY", ">CAPACITY", ">FREE", ">DISKS", ">VOLUMES", ">TO REPAIR", "NOTE"];
    let mut table = Table::of(&headings, "There are no pools. Make one with `holdfast pool create`.", pools);
    for pool in pools {
        let disks = match pool.disks_missing {
            0 => pool.disks.to_string(),
            missing => format!("{} ({missing} missing)", pool.disks),
        };
        table.row_of(
            pool,
            [
                pool.name.clone(),
                word(&pool.state),
                word(&pool.redundancy),
                bytes(pool.capacity_bytes),
                bytes(pool.free_bytes),
                disks,
                pool.volumes.to_string(),
                bytes(pool.repair_bytes),
                or_dash(pool.reason.as_ref()),
            ],
        );
    }
    table.print();
}

fn print_detail(detail: &PoolDetail) {
    print(&[OnNode { node: detail.node.clone(), known_at: None, item: detail.pool.clone() }]);
    outln!();
    address::print(&detail.pool);
    let headings = [
        "MEMBER",
        "STATE",
        ">SIZE",
        ">ALLOCATED",
        ">ERRORS",
        ">DAMAGED",
        ">HEALED",
        "MEDIA",
        "ENCLOSURE",
        "SLOT",
        "NOTE",
    ];
    let mut table = Table::new(&headings, "It has no disks.");
    for member in &detail.members {
        table.row([
            member.disk.clone().unwrap_or_else(|| member.guid.to_string()),
            word(&member.state),
            bytes(member.size_bytes),
            bytes(member.allocated_bytes),
            member.io_errors.to_string(),
            member.checksum_errors.to_string(),
            member.healed_blocks.to_string(),
            word(&member.media),
            or_dash(member.enclosure.as_ref()),
            or_dash(member.slot.as_ref()),
            or_dash(member.reason.as_ref()),
        ]);
    }
    table.print();
    outln!();
    let mut table =
        Table::new(&["VOLUME", "PROMISED", "REDUNDANCY", ">TO REPAIR", "NOTE"], "It has no volumes.");
    for space in &detail.spaces {
        table.row([
            space.name.clone(),
            word(&space.resiliency),
            word(&space.redundancy),
            bytes(space.repair_bytes),
            or_dash(space.reason.as_ref()),
        ]);
    }
    table.print();
    outln!();
    outln!(
        "Slabs have {}; CAPACITY and FREE count whole ones: what volumes can take.",
        bytes(detail.pool.slab_bytes)
    );
    outln!("Copied since the pool was opened, to restore copies: {}.", bytes(detail.pool.copied_bytes));
    if detail.pool.reserved_bytes > 0 {
        outln!("Kept from new data, for what a lost disk holds: {}.", bytes(detail.pool.reserved_bytes));
    }
    upkeep::print_forecast(detail.pool.forecast.as_ref());
    upkeep::print_scrub(&detail.scrub);
    upkeep::print_balance(&detail.balance);
}

/// What a command needs from its caller.
pub(crate) fn usage<T>(what: &str) -> CliResult<T> {
    Err(CliError::Usage(what.into()))
}

/// Reads the size of a slab.
fn parse_slab(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text)?;
    check_slab_bytes(bytes).map(|()| bytes)
}
