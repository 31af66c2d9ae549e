//! `holdfast lun …`.

use clap::Subcommand;
use control_api::{
    Confirm, Done, Lun, LunCreate, LunForget, LunFormat, LunMap, LunReservations, LunState, LunUpdate,
    MAX_LUN_NUMBER, OnNode,
};
use control_client::{Query, segment};

use crate::context::Context;
use crate::error::CliResult;
use crate::file::Place;
use crate::lun_cache::{self, CacheArgs};
use crate::pool::usage;
use crate::share::Switch;
use crate::table::{Table, or_dash, word};
use crate::units::{bytes, parse_bytes};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List LUNs, those in trouble first.
    List,
    /// Show a LUN, and what initiators have reserved of it.
    Show {
        /// Its name.
        name: String,
    },
    /// Make a LUN: a file of a volume, served as a disk.
    Create {
        /// Its name.
        name: String,
        /// The volume; needed when there are several.
        #[arg(long)]
        volume: Option<String>,
        /// Its size; without it, the file must be there.
        #[arg(long, value_parser = parse_bytes)]
        size: Option<u64>,
        /// The file; /luns/NAME when absent.
        #[arg(long)]
        path: Option<String>,
        /// The disk in this VHDX image, VOLUME:/DIR/FILE, which is there; nobody else opens the file while it is a LUN.
        #[arg(long, value_name = "IMAGE", conflicts_with_all = ["volume", "path", "size", "reserve"])]
        image: Option<Place>,
        /// Open the parents of the image wherever in the volume it says; else only in its folder and those in it.
        #[arg(long, requires = "image")]
        parents_anywhere: bool,
        /// Bytes in a logical block: 512 or 4096.
        #[arg(long)]
        block_size: Option<u32>,
        /// Reserve the space now, in the volume and in its pool, also of a file that is there.
        #[arg(long)]
        reserve: bool,
        /// Acknowledge writes before they are durable, until the initiator flushes.
        #[arg(long)]
        write_cache: bool,
        #[command(flatten)]
        cache: Box<CacheArgs>,
        /// Show it at once to this initiator group.
        #[arg(long, group = "whom")]
        group: Option<String>,
        /// Show it at once to every initiator.
        #[arg(long, group = "whom")]
        everyone: bool,
        /// The target it is shown under; needed when there are several.
        #[arg(long, requires = "whom")]
        target: Option<String>,
        /// Its number there, 0 to 16383; the lowest free one when absent.
        #[arg(long, requires = "whom", value_parser = number)]
        number: Option<u16>,
    },
    /// Show a LUN to an initiator group, or to every initiator.
    Map {
        /// The LUN.
        lun: String,
        #[command(flatten)]
        whom: Whom,
        /// The target; needed when there are several.
        #[arg(long)]
        target: Option<String>,
        /// Its number there, 0 to 16383; the lowest free one when absent.
        #[arg(long, value_parser = number)]
        number: Option<u16>,
        /// This group may only read.
        #[arg(long)]
        read_only: bool,
    },
    /// Hide a LUN from an initiator group, or from every initiator.
    Unmap {
        /// The LUN.
        lun: String,
        #[command(flatten)]
        whom: Whom,
        /// The target; needed when it is mapped under several.
        #[arg(long)]
        target: Option<String>,
        /// The number; needed when it is mapped under several.
        #[arg(long, value_parser = number)]
        number: Option<u16>,
    },
    /// Change the size of a LUN; initiators are told.
    Resize {
        /// The LUN.
        lun: String,
        /// Its new size.
        #[arg(value_parser = parse_bytes)]
        size: u64,
        /// Reserve all of it that is not, in the volume and in its pool; the size may be what it is.
        #[arg(long)]
        reserve: bool,
    },
    /// Make a LUN of another file, which is there already; nothing is copied, and its mappings stay.
    ///
    /// Initiators see a new disk under the same number: another identity (NAA, serial number), so that a host that looks for the
    /// former disk does not take this one for it. With --keep-identity it stays the disk that they know, which is right only where
    /// the file has the same bytes: a copy of the former one, made while no host wrote. Either way hosts let go of the disk before, and
    /// look for it again: one that still uses it goes on writing to what is under its number. Asks while initiators are connected.
    /// Reservations and registrations stay behind.
    #[command(group(clap::ArgGroup::new("where").required(true).multiple(true).args(["volume", "path"])))]
    Set {
        /// The LUN.
        lun: String,
        /// The volume that has the file; the one that it is on when absent.
        #[arg(long)]
        volume: Option<String>,
        /// The file; that of the same path when absent.
        #[arg(long, visible_alias = "file")]
        path: Option<String>,
        /// It stays the disk that initiators know: the bytes are the same.
        #[arg(long)]
        keep_identity: bool,
    },
    /// Serve a LUN again.
    Online {
        /// The LUN.
        lun: String,
        /// Why.
        #[arg(long, default_value = "")]
        reason: String,
    },
    /// Stop serving a LUN.
    Offline {
        /// The LUN.
        lun: String,
        /// Why; shown wherever the LUN is.
        #[arg(long)]
        reason: String,
    },
    /// Serve a LUN for reading only.
    ReadOnly {
        /// The LUN.
        lun: String,
        /// Why; shown wherever the LUN is.
        #[arg(long)]
        reason: String,
    },
    /// Change whether writes may be acknowledged before they are durable.
    WriteCache {
        /// The LUN.
        lun: String,
        /// Whether it is on.
        state: Switch,
        /// Initiators may turn it on and off too, for all, from now on.
        #[arg(long)]
        initiators_may_change: bool,
        /// They may not any more.
        #[arg(long, conflicts_with = "initiators_may_change")]
        initiators_may_not_change: bool,
    },
    /// End what initiators have reserved of a LUN, and all their registrations.
    ///
    /// For what a host holds that does not come back, or does not see the LUN any more: it keeps others off until somebody ends it. The
    /// question says who holds what, and who is fenced off by it. Initiators that were registered are told, as a CLEAR of one of them
    /// would tell them.
    ClearReservations {
        /// The LUN.
        lun: String,
    },
    /// Forget hosts that were to be told of lost writes, and do not come back.
    ///
    /// Writes that a host had cached may be lost when the LUN's storage or its node fails. It is told once, with its next flush, and
    /// `holdfast status` names it until then. This is for hosts that are gone for good; one that is connected is not forgotten.
    ForgetLostWrites {
        /// The LUN.
        lun: String,
        /// Only this host, by its initiator name; otherwise all that are not connected.
        #[arg(long)]
        host: Option<String>,
    },
    /// Take a LUN away, and its file.
    Delete {
        /// The LUN.
        lun: String,
        /// Keep the file.
        #[arg(long)]
        keep_file: bool,
    },
}

/// The number of a LUN under a target.
fn number(text: &str) -> Result<u16, String> {
    let number = text.parse().ok().filter(|number| *number <= MAX_LUN_NUMBER);
    number.ok_or_else(|| format!("a LUN has a number from 0 to {MAX_LUN_NUMBER}"))
}

/// Who sees a LUN.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Whom {
    /// The members of this initiator group.
    #[arg(long)]
    group: Option<String>,
    /// Every initiator.
    #[arg(long)]
    everyone: bool,
}

pub(crate) async fn run(command: Command, context: &Context) -> CliResult {
    let client = &context.client;
    let one = |lun: &Lun| print(&[lun.clone().into()]);
    let update = async |lun: &str, update: LunUpdate| -> CliResult {
        let path = format!("/luns/{}", segment(lun));
        let lun: Lun = context
            .confirmed(async |confirm| client.patch(&path, &LunUpdate { confirm, ..update.clone() }).await)
            .await?;
        context.show(&lun, one)
    };
    let state = async |lun: &str, state: LunState, reason: String| -> CliResult {
        update(lun, LunUpdate { state: Some(state), reason: Some(reason), ..LunUpdate::default() }).await
    };
    match command {
        Command::List => context.show_list_of_pools("/luns", print).await,
        Command::Show { name } => {
            let lun: Lun = client.get(&format!("/luns/{}", segment(&name))).await?;
            context.show(&lun, |lun| {
                one(lun);
                lun_cache::print(lun);
                lun.reservations.iter().for_each(print_reservations);
            })
        }
        Command::Create {
            name,
            volume,
            size,
            path,
            image,
            parents_anywhere,
            block_size,
            reserve,
            write_cache,
            cache,
            group,
            everyone,
            target,
            number,
        } => {
            let format = if image.is_some() { LunFormat::Vhdx } else { LunFormat::Raw };
            let (volume, path) = match image {
                Some(image) => (Some(image.volume().to_owned()), Some(image.path().to_owned())),
                None => (volume, path),
            };
            let (volume, write_cache_in) = match cache.wanted(volume) {
                Ok(wanted) => wanted,
                Err(why) => return usage(&why),
            };
            if size.is_none() && path.is_none() {
                return usage(
                    "say how large the LUN is (--size), or which file it is (--path), or which image (--image).",
                );
            }
            let shown = group.is_some() || everyone;
            let map =
                shown.then_some(LunMap { target, number, group, everyone, read_only: false, confirm: None });
            let map = map.into_iter().collect();
            let request = LunCreate {
                name,
                volume,
                path,
                format,
                parents_anywhere,
                size_bytes: size,
                block_size,
                reserve,
                write_cache,
                write_cache_in,
                map,
            };
            let lun: Lun = client.post("/luns", &request).await?;
            context.show(&lun, |lun| {
                one(lun);
                lun_cache::warn(lun);
            })
        }
        Command::Map { lun, whom: Whom { group, everyone }, target, number, read_only } => {
            let path = format!("/luns/{}/map", segment(&lun));
            let map = LunMap { target, number, group, everyone, read_only, confirm: None };
            let lun: Lun = client.post(&path, &map).await?;
            context.show(&lun, one)
        }
        Command::Unmap { lun, whom: Whom { group, everyone }, target, number } => {
            let path = format!("/luns/{}/unmap", segment(&lun));
            let map = LunMap { target, number, group, everyone, read_only: false, confirm: None };
            let lun: Lun = context
                .confirmed(async |confirm| client.post(&path, &LunMap { confirm, ..map.clone() }).await)
                .await?;
            context.show(&lun, one)
        }
        Command::Resize { lun, size, reserve } => {
            update(&lun, LunUpdate { size_bytes: Some(size), reserve, ..LunUpdate::default() }).await
        }
        Command::Set { lun, volume, path, keep_identity } => {
            update(&lun, LunUpdate { volume, path, keep_identity, ..LunUpdate::default() }).await
        }
        Command::Online { lun, reason } => state(&lun, LunState::Online, reason).await,
        Command::Offline { lun, reason } => state(&lun, LunState::Offline, reason).await,
        Command::ReadOnly { lun, reason } => state(&lun, LunState::ReadOnly, reason).await,
        Command::WriteCache { lun, state, initiators_may_change, initiators_may_not_change } => {
            let said = initiators_may_change || initiators_may_not_change;
            let change = LunUpdate {
                write_cache: Some(state.is_on()),
                initiator_write_cache: said.then_some(initiators_may_change),
                ..LunUpdate::default()
            };
            update(&lun, change).await
        }
        Command::ClearReservations { lun } => {
            let path = format!("/luns/{}/clear-reservations", segment(&lun));
            let done: Done =
                context.confirmed(async |confirm| client.post(&path, &Confirm { confirm }).await).await?;
            context.show(&done, |done| outln!("{}", done.message))
        }
        Command::ForgetLostWrites { lun, host } => {
            let path = format!("/luns/{}/forget-lost-writes", segment(&lun));
            let ask = async |confirm| client.post(&path, &LunForget { host: host.clone(), confirm }).await;
            let done: Done = context.confirmed(ask).await?;
            context.show(&done, |done| outln!("{}", done.message))
        }
        Command::Delete { lun, keep_file } => {
            let path = Query::new(format!("/luns/{}", segment(&lun)));
            let path = if keep_file { path.with("keep_file", "true") } else { path };
            let done: Done = context
                .confirmed(async |confirm| client.delete(path.as_str(), &Confirm { confirm }).await)
                .await?;
            context.show(&done, |done| outln!("{}", done.message))
        }
    }
}

fn print(luns: &[OnNode<Lun>]) {
    let headings = ["LUN", "STATE", ">SIZE", ">ALLOCATED", "WRITE CACHE", "FILE", "MAPPED", "NOTE"];
    let mut table = Table::of(&headings, "There are no LUNs. Make one with `holdfast lun create`.", luns);
    for lun in luns {
        let config = &lun.config;
        let maps: Vec<String> = config
            .map
            .iter()
            .map(|map| {
                let read_only = if map.read_only { " (read-only)" } else { "" };
                format!("{} #{} for {}{read_only}", map.target, map.number, map.group)
            })
            .collect();
        let reason = (!config.reason.is_empty()).then(|| config.reason.clone());
        let held = lun.reservations.as_ref().and_then(LunReservations::held);
        table.row_of(
            lun,
            [
                config.name.clone(),
                word(&lun.serving),
                bytes(lun.size_bytes),
                bytes(lun.allocated_bytes),
                cached(lun),
                format!(
                    "{}:{}{}",
                    config.volume,
                    config.path,
                    if config.format.is_raw() { "" } else { " (VHDX)" }
                ),
                if maps.is_empty() { "nowhere".into() } else { maps.join(", ") },
                or_dash(lun.problem.as_ref().or(reason.as_ref()).or(held.as_ref())),
            ],
        );
    }
    table.print();
}

/// Who holds what, and who is registered.
fn print_reservations(held: &LunReservations) {
    outln!();
    let lasting = if held.aptpl { "kept over a loss of power" } else { "not kept over a loss of power" };
    let what = held.held().unwrap_or_else(|| "not reserved".to_owned());
    outln!("It is {what}; generation {}, {lasting}.", held.generation);
    if held.registrants.is_empty() {
        return;
    }
    outln!();
    let mut table = Table::new(&["REGISTERED", "KEY", "HOLDS", "CONNECTED", "THROUGH"], "");
    for registrant in &held.registrants {
        let said = |is| if is { "yes" } else { "no" }.to_owned();
        table.row([
            registrant.port.clone(),
            registrant.key.clone(),
            said(registrant.holds),
            said(registrant.connected),
            format!("{} port {}", registrant.target, registrant.target_port),
        ]);
    }
    table.print();
}

/// Whether writes are cached, and who may say so.
fn cached(lun: &Lun) -> String {
    if let Some(cache) = &lun.config.write_cache_in {
        return lun_cache::place(cache).to_owned();
    }
    let state = match (lun.caching, lun.config.write_cache) {
        (true, true) => "on",
        (true, false) => "on, by an initiator",
        (false, true) => "off now",
        (false, false) => "off",
    };
    let whose = if lun.config.initiator_write_cache { " (initiators may change it)" } else { "" };
    format!("{state}{whose}")
}
