//! `holdfast volume …`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use control_api::{
    CheckRequest, Confirm, Done, Provisioning, Resiliency, Volume, VolumeCreate, VolumeUpdate,
};
use control_client::segment;

use crate::context::Context;
use crate::error::CliResult;
use crate::offline;
use crate::pool::show_report;
use crate::table::{Table, or_dash, word};
use crate::units::{bytes, parse_bytes};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List volumes, those in trouble first.
    List,
    /// Show a volume.
    Show {
        /// The volume.
        volume: String,
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
    /// Destroy a volume and everything in it.
    Delete {
        /// The volume.
        volume: String,
    },
}

pub(crate) async fn run(command: Command, context: &Context) -> CliResult<ExitCode> {
    let client = &context.client;
    let one = |volume: &Volume| print(std::slice::from_ref(volume));
    match command {
        Command::List => context.show_list("/volumes", print).await?,
        Command::Show { volume } => {
            let volume: Volume = client.get(&format!("/volumes/{}", segment(&volume))).await?;
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
            };
            let volume: Volume = client.post("/volumes", &request).await?;
            context.show(&volume, one)?;
        }
        Command::Resize { volume, size } => {
            let path = format!("/volumes/{}", segment(&volume));
            let volume: Volume = client.patch(&path, &VolumeUpdate { size_bytes: Some(size) }).await?;
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
        Command::Delete { volume } => {
            let path = format!("/volumes/{}", segment(&volume));
            let done: Done =
                context.confirmed(async |confirm| client.delete(&path, &Confirm { confirm }).await).await?;
            context.show(&done, |done| outln!("{}", done.message))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn print(volumes: &[Volume]) {
    let headings = [
        "VOLUME",
        "POOL",
        "STATE",
        "RESILIENCY",
        "REDUNDANCY",
        ">SIZE",
        ">USED",
        ">IN POOL",
        ">COLUMNS",
        ">INTERLEAVE",
        "TYPE",
        "NOTE",
    ];
    let mut table = Table::new(&headings, "There are no volumes. Make one with `holdfast volume create`.");
    for volume in volumes {
        table.row([
            volume.name.clone(),
            volume.pool.clone(),
            if volume.online { "online" } else { "offline" }.into(),
            word(&volume.resiliency),
            word(&volume.redundancy),
            bytes(volume.size_bytes),
            bytes(volume.used_bytes),
            bytes(volume.allocated_bytes),
            volume.columns.to_string(),
            bytes(volume.interleave_bytes),
            word(&volume.provisioning),
            or_dash(volume.reason.as_ref()),
        ]);
    }
    table.print();
}
