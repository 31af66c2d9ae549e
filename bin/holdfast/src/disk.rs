//! `holdfast disk …`.

mod fault;

use std::process::ExitCode;

use clap::{Subcommand, ValueEnum};
use control_api::{Disk, DiskSelect, DiskUpdate, List, MediaType, RescanReport, Selector};
use control_client::Query;

use crate::absolute_path::{here_one, here_selected};
use crate::context::Context;
use crate::error::CliResult;
use crate::table::{Table, or_dash, word};
use crate::units::{bytes, many};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List disks, those in trouble first; or those that selectors choose.
    List {
        /// Only what this chooses, as `media=ssd,count=4`: free disks by enclosure and slot. May be given several times.
        ///
        /// Clauses that all hold, separated by commas: `all`; media, model, serial, vendor, bus, enclosure, slot, disk
        /// or state with = or != and patterns separated by |; size with =, !=, >, >=, < or <=; count=N or
        /// per-enclosure=N. Each further selector chooses of what those before it left.
        #[arg(long, value_name = "SELECTOR")]
        select: Vec<Selector>,
    },
    /// Look for new and returned disks now.
    Rescan,
    /// Say what a disk doesn't: media type, place, model, serial number. Empty text removes what was set.
    Set {
        /// Id or path of the disk.
        disk: String,
        /// What it is made of.
        #[arg(long)]
        media: Option<Media>,
        /// The enclosure it is in.
        #[arg(long)]
        enclosure: Option<String>,
        /// Its slot there.
        #[arg(long)]
        slot: Option<String>,
        /// Its model.
        #[arg(long)]
        model: Option<String>,
        /// Its serial number.
        #[arg(long)]
        serial: Option<String>,
    },
    /// Make a disk fail, to see what the node does: for trials and tests, on disks whose data may be lost.
    Fault(fault::Args),
}

/// What a disk is made of.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Media {
    /// Flash.
    Ssd,
    /// Spinning.
    Hdd,
    /// As the disk says.
    Unspecified,
}

pub(crate) async fn run(command: Command, context: &Context) -> CliResult {
    match command {
        Command::List { select } if select.is_empty() => context.show_list("/disks", print).await,
        Command::List { select } => {
            let chosen =
                selected(context, DiskSelect { select: here_selected(select), ..DiskSelect::default() })
                    .await?;
            context.show(&chosen, |chosen| print(&chosen.items))
        }
        Command::Rescan => {
            let report: RescanReport = context.client.post("/disks/rescan", &()).await?;
            context.show(&report, |report| {
                for (what, disks) in
                    [("new", &report.found), ("returned", &report.returned), ("missing", &report.missing)]
                {
                    disks.iter().for_each(|disk| outln!("{what}: {disk}"));
                }
                if *report == RescanReport::default() {
                    outln!("Nothing has changed.");
                }
            })
        }
        Command::Set { disk, media, enclosure, slot, model, serial } => {
            let media = media.map(|media| match media {
                Media::Ssd => MediaType::Ssd,
                Media::Hdd => MediaType::Hdd,
                Media::Unspecified => MediaType::Unspecified,
            });
            let path = Query::new("/disks").with("disk", &here_one(disk));
            let update = DiskUpdate { media, enclosure, slot, model, serial };
            let disk: Disk = context.client.patch(path.as_str(), &update).await?;
            context.show(&disk, |disk| print(std::slice::from_ref(disk)))
        }
        Command::Fault(args) => fault::run(args, context).await,
    }
}

/// Which disks would be chosen; nothing is done with them.
pub(crate) async fn selected(context: &Context, request: DiskSelect) -> CliResult<List<Disk>> {
    Ok(context.client.post("/disks/select", &request).await?)
}

pub(crate) fn print(disks: &[Disk]) {
    let headings = [
        "DISK",
        "STATE",
        "POOL",
        ">SIZE",
        "MEDIA",
        "ENCLOSURE",
        "SLOT",
        "MODEL",
        "SERIAL",
        ">ERRORS",
        "NOTE",
    ];
    let mut table = Table::new(&headings, "There are no disks.");
    for disk in disks {
        let mut notes: Vec<String> = disk.reason.iter().cloned().collect();
        notes.extend(disk.faults.iter().map(|fault| format!("fault: {fault}")));
        table.row([
            disk.id.clone(),
            word(&disk.state),
            or_dash(disk.pool.as_ref()),
            bytes(disk.size_bytes),
            word(&disk.media),
            or_dash(disk.enclosure.as_ref()),
            or_dash(disk.slot.as_ref()),
            or_dash(disk.model.as_ref()),
            or_dash(disk.serial.as_ref()),
            disk.io.as_ref().map(|io| io.errors.to_string()).unwrap_or_default(),
            notes.join("; "),
        ]);
    }
    table.print();
}

/// Shows which disks a command would take.
pub(crate) async fn would_take(context: &Context, request: DiskSelect) -> CliResult<ExitCode> {
    let chosen = selected(context, request).await?;
    context.show(&chosen, |chosen| {
        print(&chosen.items);
        outln!();
        let size: u64 = chosen.items.iter().map(|disk| disk.size_bytes).sum();
        outln!(
            "{} of {} would be taken. Nothing was done.",
            many(chosen.items.len() as u64, "disk"),
            bytes(size)
        );
    })?;
    Ok(ExitCode::SUCCESS)
}
