//! `holdfast disk …`.

use clap::{Subcommand, ValueEnum};
use control_api::{Disk, DiskUpdate, MediaType, RescanReport};
use control_client::Query;

use crate::context::Context;
use crate::error::CliResult;
use crate::fault;
use crate::table::{Table, or_dash, word};
use crate::units::bytes;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List disks, those in trouble first.
    List,
    /// Look for new and returned disks now.
    Rescan,
    /// Say what a disk doesn't: media type, enclosure, slot. Empty text removes what was set.
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
    },
    /// Switch a fault on, for tests.
    #[command(hide = true)]
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
        Command::List => context.show_list("/disks", print).await,
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
        Command::Set { disk, media, enclosure, slot } => {
            let media = media.map(|media| match media {
                Media::Ssd => MediaType::Ssd,
                Media::Hdd => MediaType::Hdd,
                Media::Unspecified => MediaType::Unspecified,
            });
            let path = Query::new("/disks").with("disk", &disk);
            let disk: Disk =
                context.client.patch(path.as_str(), &DiskUpdate { media, enclosure, slot }).await?;
            context.show(&disk, |disk| print(std::slice::from_ref(disk)))
        }
        Command::Fault(args) => fault::run(args, context).await,
    }
}

pub(crate) fn print(disks: &[Disk]) {
    let headings =
        ["DISK", "STATE", "POOL", ">SIZE", "MEDIA", "ENCLOSURE", "SLOT", "MODEL", ">ERRORS", "NOTE"];
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
            disk.io.as_ref().map(|io| io.errors.to_string()).unwrap_or_default(),
            notes.join("; "),
        ]);
    }
    table.print();
}
