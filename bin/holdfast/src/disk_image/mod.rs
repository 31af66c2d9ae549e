//! `holdfast disk-image …`: virtual disks in files of this machine. No node is asked.

mod convert;
mod create;
mod files;
mod foreign;
mod format;
mod merge;
mod show;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use control_api::Done;
use shard_runtime::Shards;
use vhdx::Mode;

use self::format::Format;
use crate::context::{confirm, print_json};
use crate::error::{CliError, CliResult};
use crate::interrupt::Interrupts;
use crate::progress;
use crate::units::{bytes, parse_bytes};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a VHDX image.
    Create(CreateArgs),
    /// Show what an image is.
    Info {
        /// The image.
        image: PathBuf,
        /// Its parents too, and whether each is the one that it should be.
        #[arg(long)]
        chain: bool,
        #[command(flatten)]
        parents: Parents,
    },
    /// Check an image's structures; exit code 1 when something is damaged. Nothing is changed.
    Check {
        /// The image.
        image: PathBuf,
        #[command(flatten)]
        parents: Parents,
    },
    /// Copy an image into a new one of another kind.
    Convert(ConvertArgs),
    /// Give the disk in an image another size. Children of the image become useless.
    Resize {
        /// The image.
        image: PathBuf,
        /// The new size.
        #[arg(value_parser = parse_bytes)]
        size: u64,
        /// Make it smaller: what lies behind the new end is lost.
        #[arg(long)]
        shrink: bool,
        #[command(flatten)]
        parents: Parents,
    },
    /// Bring what a differencing image has into its parent, and remove it: the parent is that disk then. Other children of the parent
    /// become useless.
    Merge {
        /// The image.
        image: PathBuf,
        /// Its parent; refused if that is another one.
        #[arg(long)]
        into: Option<PathBuf>,
        /// Leave the file of the image.
        #[arg(long)]
        keep: bool,
        #[command(flatten)]
        parents: Parents,
    },
    /// Say where the parent of a differencing image is now.
    Reparent {
        /// The image.
        image: PathBuf,
        /// The parent.
        #[arg(long)]
        parent: PathBuf,
        /// Take one whose data is not what the image was made from, because it holds the same. Children of the image become useless.
        #[arg(long)]
        other_data: bool,
        #[command(flatten)]
        parents: Parents,
    },
    /// Make the file of an image as small as what is in it; of a fixed one, as small as its blocks.
    Compact {
        /// The image.
        image: PathBuf,
        #[command(flatten)]
        parents: Parents,
    },
}

/// Which parents are opened.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Parents {
    /// Open parents wherever the image says that they are; else only in the image's folder and those in it.
    #[arg(long)]
    parents_anywhere: bool,
}

/// How the blocks of an image get their space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// All space from the beginning.
    Fixed,
    /// With the first write to each block.
    Dynamic,
    /// As dynamic, and what was not written is that of a parent.
    Differencing,
}

#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// The file to make; there must be none of that name.
    image: PathBuf,
    /// Size of the disk; a differencing one has its parent's when absent. Behind the end of a smaller parent are zeros.
    #[arg(long, value_parser = parse_bytes)]
    size: Option<u64>,
    /// Which kind of image; differencing when a parent is given, else dynamic.
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<Kind>,
    /// The image whose content a differencing one begins with. It may not change from now on.
    #[arg(long)]
    parent: Option<PathBuf>,
    #[command(flatten)]
    parents: Parents,
    #[command(flatten)]
    shape: Shape,
}

/// What a VHDX image is like.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Shape {
    /// Size of a block, a power of two from 1M to 256M; 32M when absent, 2M for a differencing image.
    #[arg(long, value_parser = parse_bytes)]
    block_size: Option<u64>,
    /// Bytes of a logical sector: 512 or 4096. A differencing image has its parent's.
    #[arg(long)]
    logical_sector: Option<u32>,
    /// Bytes of a physical sector: 512 or 4096.
    #[arg(long, default_value = "4096")]
    physical_sector: u32,
}

#[derive(Debug, Args)]
pub(crate) struct ConvertArgs {
    /// The image to read.
    from: PathBuf,
    /// The file to make.
    to: PathBuf,
    /// What the first one is; by its name when absent (.vhdx and .avhdx, else raw).
    #[arg(long)]
    from_format: Option<Format>,
    /// What the second one becomes; by its name when absent.
    #[arg(long)]
    format: Option<Format>,
    /// For VHDX: fixed or dynamic.
    #[arg(long = "type", value_name = "TYPE", default_value = "dynamic")]
    kind: Kind,
    #[command(flatten)]
    parents: Parents,
    #[command(flatten)]
    shape: Shape,
    /// Replace the file that is there.
    #[arg(long)]
    replace: bool,
}

/// Does it.
///
/// # Errors
/// When it could not be done.
pub(crate) fn run(command: Command, json: bool, yes: bool) -> CliResult<ExitCode> {
    if let Command::Resize { image, .. } = &command {
        // Before the image is opened: nobody else waits for it meanwhile.
        let image = image.display();
        let warning = format!(
            "{image}: if other images have it for their parent, their disks cannot be read any more. An image does not know its children."
        );
        confirm(&warning, &image.to_string(), json, yes)?;
    }
    if let Command::Merge { image, .. } = &command {
        let image = image.display();
        let warning = format!(
            "{image}: its parent becomes the disk that this image is. If other images have the same parent, their disks cannot be read any more; a parent does not know its children."
        );
        confirm(&warning, &image.to_string(), json, yes)?;
    }
    if let Command::Reparent { image, other_data: true, .. } = &command {
        let image = image.display();
        let warning =
            format!("{image}: if the new parent holds anything else than the former, its disk is damaged.");
        confirm(&warning, &image.to_string(), json, yes)?;
    }
    let shards = Shards::start(1).map_err(CliError::here)?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CliError::here)?;
    let ended = runtime.block_on(async {
        let mut interrupts = Interrupts::new().map_err(CliError::here)?;
        tokio::select! {
            ended = shards.next().run(move || ask(command, json)) => ended.map_err(CliError::here)?,
            () = interrupts.wait() => Err(CliError::here("interrupted.")),
        }
    });
    // What was not complete goes with its task.
    shards.stop();
    ended
}

async fn ask(command: Command, json: bool) -> CliResult<ExitCode> {
    match command {
        Command::Create(args) => create::run(args, json).await?,
        Command::Info { image, chain, parents } => show::info(&image, chain, parents, json).await?,
        Command::Check { image, parents } => return show::check(&image, parents, json).await,
        Command::Convert(args) => convert::run(args, json).await?,
        Command::Resize { image, size, shrink, parents } => {
            let disk = files::open(&image, Mode::Write, parents).await?;
            let before = block_device::BlockDevice::size(&disk);
            if size < before && !shrink {
                return Err(CliError::here(format!(
                    "{}: the disk has {}; what lies behind {} would be lost: --shrink if you want this.",
                    image.display(),
                    bytes(before),
                    bytes(size)
                )));
            }
            let failed = |error| files::failed(&image, error);
            disk.resize(size).await.map_err(failed)?;
            disk.close().await.map_err(failed)?;
            done(json, format!("{}: the disk has {} now", image.display(), bytes(size)))?;
        }
        Command::Merge { image, into, keep, parents } => {
            merge::merge(&image, into.as_deref(), keep, parents, json).await?;
        }
        Command::Reparent { image, parent, other_data, parents } => {
            merge::reparent(&image, &parent, other_data, parents, json).await?;
        }
        Command::Compact { image, parents } => {
            let disk = files::open(&image, Mode::Write, parents).await?;
            let bar = progress::bar(0, &image.display().to_string(), json);
            let shown = bar.clone();
            let progress = move |done, total| {
                shown.set_length(total);
                shown.set_position(done);
            };
            let failed = |error| files::failed(&image, error);
            let compacted = disk.compact(Box::new(progress)).await;
            bar.finish_and_clear();
            let compacted = compacted.map_err(failed)?;
            disk.close().await.map_err(failed)?;
            let (before, after) = (bytes(compacted.before), bytes(compacted.after));
            done(json, format!("{}: {before} before, {after} now", image.display()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn done(json: bool, message: String) -> CliResult {
    if json {
        return print_json(&Done::new(message));
    }
    outln!("{message}");
    Ok(())
}
