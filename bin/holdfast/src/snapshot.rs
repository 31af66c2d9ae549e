//! `holdfast snapshot …`: what a volume, a directory or a file was at one moment.
//!
//! Files in a snapshot are `VOLUME:@SNAPSHOT/DIR/FILE`, for `file ls`, `file get` and wherever something is only read.

use std::io::IsTerminal;
use std::path::PathBuf;

use clap::Subcommand;
use control_api::{
    Confirm, Done, FileClone, FileEntry, Snapshot, SnapshotCreate, SnapshotSchedule, SpaceUse,
};
use control_client::{Query, segment};

use crate::context::Context;
use crate::error::{CliError, CliResult};
use crate::file::{Place, print as print_files, same_volume};
use crate::output_file;
use crate::pool::usage;
use crate::progress;
use crate::table::{Table, word};
use crate::units::{bytes, time};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Take a snapshot of a volume, a directory or a file: one moment over all files in it.
    Create {
        /// VOLUME: for all of it, VOLUME:/DIR or VOLUME:/FILE
        place: Place,
        /// Its name; made of the time when absent.
        name: Option<String>,
        /// Make data in caches durable first, so that writes are held up for less, and images of LUNs whole, with no log to be replayed.
        #[arg(long)]
        quiesce: bool,
    },
    /// List the snapshots of a volume, the oldest first.
    List {
        /// The volume.
        volume: String,
        /// Leave out what they take, which is counted file by file.
        #[arg(long)]
        no_sizes: bool,
    },
    /// Show a snapshot and what it takes.
    Show {
        /// The volume.
        volume: String,
        /// The snapshot.
        snapshot: String,
    },
    /// Delete a snapshot; its space comes back in the background.
    Delete {
        /// The volume.
        volume: String,
        /// The snapshot.
        snapshot: String,
    },
    /// Write what differs between two snapshots, or a snapshot and now, as a stream.
    Diff {
        /// VOLUME:@SNAPSHOT, or a file or directory in it
        base: Place,
        /// VOLUME:@SNAPSHOT, or VOLUME:/PATH for now
        target: Place,
        /// The local file; standard output when absent.
        #[arg(long, short)]
        output: Option<PathBuf>,
    },
    /// Make a copy of a file or tree with the differences of a stream applied.
    Apply {
        /// The local file with the stream; `-` for standard input.
        stream: PathBuf,
        /// What the stream begins with: VOLUME:/PATH or VOLUME:@SNAPSHOT; it stays as it is.
        #[arg(long, value_name = "PLACE")]
        onto: Place,
        /// VOLUME:/PATH of the copy, which appears when all of it is there.
        #[arg(long, value_name = "PLACE")]
        to: Place,
    },
    /// Make a writable file or tree of a snapshot, or of what is there now, that shares its space.
    Clone {
        /// VOLUME:@SNAPSHOT, VOLUME:@SNAPSHOT/PATH or VOLUME:/PATH
        from: Place,
        /// VOLUME:/PATH
        to: Place,
    },
    /// Show what a file or tree takes: alone, and together with others.
    Space {
        /// VOLUME:/PATH or VOLUME:@SNAPSHOT
        place: Place,
    },
    /// When snapshots are taken by themselves, and how many stay.
    #[command(subcommand)]
    Schedule(Schedule),
}

#[derive(Debug, Subcommand)]
pub(crate) enum Schedule {
    /// List the schedules of a volume.
    List {
        /// The volume.
        volume: String,
    },
    /// Make a schedule, or replace the one of that name. Times are UTC.
    Set {
        /// VOLUME: for all of it, VOLUME:/DIR or VOLUME:/FILE
        place: Place,
        /// Its name.
        name: String,
        /// Keep the first of each of the last so many hours.
        #[arg(long, default_value_t = 0)]
        hourly: u32,
        /// Keep the first of each of the last so many days.
        #[arg(long, default_value_t = 0)]
        daily: u32,
        /// Keep the first of each of the last so many weeks.
        #[arg(long, default_value_t = 0)]
        weekly: u32,
        /// Keep the first of each of the last so many months.
        #[arg(long, default_value_t = 0)]
        monthly: u32,
        /// Make data in caches durable first, and images of LUNs whole.
        #[arg(long)]
        quiesce: bool,
    },
    /// Delete a schedule; its snapshots stay.
    Delete {
        /// The volume.
        volume: String,
        /// The schedule.
        name: String,
    },
}

fn route(volume: &str, rest: &str) -> String {
    format!("/volumes/{}/{rest}", segment(volume))
}

pub(crate) async fn run(command: Command, context: &Context) -> CliResult {
    let client = &context.client;
    let one = |snapshot: &Snapshot| print(std::slice::from_ref(snapshot));
    match command {
        Command::Create { place, name, quiesce } => {
            let request = SnapshotCreate { name, path: place.path().to_owned(), quiesce };
            let snapshot: Snapshot = client.post(&place.route("snapshots"), &request).await?;
            context.show(&snapshot, one)
        }
        Command::List { volume, no_sizes } => {
            let query = Query::new(route(&volume, "snapshots"));
            let query = query.with("space", if no_sizes { "false" } else { "true" });
            context.show_list(query.as_str(), print).await
        }
        Command::Show { volume, snapshot } => {
            let path = route(&volume, &format!("snapshots/{}", segment(&snapshot)));
            let snapshot: Snapshot = client.get(&path).await?;
            context.show(&snapshot, one)
        }
        Command::Delete { volume, snapshot } => {
            let path = route(&volume, &format!("snapshots/{}", segment(&snapshot)));
            let done: Done =
                context.confirmed(async |confirm| client.delete(&path, &Confirm { confirm }).await).await?;
            context.show(&done, |done| outln!("{}", done.message))
        }
        Command::Diff { base, target, output } => diff(&base, &target, output, context).await,
        Command::Apply { stream, onto, to } => apply(stream, &onto, &to, context).await,
        Command::Clone { from, to } => {
            same_volume(&from, &to)?;
            let request = FileClone { from: from.path().to_owned(), to: to.path().to_owned() };
            let entry: FileEntry = client.post(&from.route("tree-clone"), &request).await?;
            context.show(&entry, |entry| print_files(std::slice::from_ref(entry)))
        }
        Command::Space { place } => {
            let space: SpaceUse = client.get(place.query("space").as_str()).await?;
            context.show(&space, print_space)
        }
        Command::Schedule(command) => schedule(command, context).await,
    }
}

async fn diff(base: &Place, target: &Place, output: Option<PathBuf>, context: &Context) -> CliResult {
    same_volume(base, target)?;
    let query =
        Query::new(base.route("snapshot-diff")).with("base", base.path()).with("target", target.path());
    let Some(output) = output.filter(|output| output.as_os_str() != "-") else {
        if std::io::stdout().is_terminal() {
            return usage("a stream is not for a terminal: use `> FILE` or --output FILE.");
        }
        context.client.download(query.as_str(), &mut tokio::io::stdout(), |_| {}).await?;
        return Ok(());
    };
    let done = output_file::download(context, query.as_str(), &output, (target.path(), None)).await?;
    context
        .show(&Done::new(format!("{}: {}", output.display(), bytes(done))), |done| outln!("{}", done.message))
}

async fn apply(stream: PathBuf, onto: &Place, to: &Place, context: &Context) -> CliResult {
    same_volume(onto, to)?;
    let query = Query::new(onto.route("snapshot-diff")).with("onto", onto.path()).with("to", to.path());
    let reading = |error: std::io::Error| CliError::here(format!("{}: {error}", stream.display()));
    let entry: FileEntry = if stream.as_os_str() == "-" {
        context.client.upload(query.as_str(), tokio::io::stdin(), |_| {}).await?
    } else {
        let file = tokio::fs::File::open(&stream).await.map_err(reading)?;
        let total = file.metadata().await.map_err(reading)?.len();
        let bar = progress::bar(total, to.path(), context.json);
        let entry = context.client.upload(query.as_str(), file, |done| bar.set_position(done)).await;
        bar.finish_and_clear();
        entry?
    };
    context.show(&entry, |entry| print_files(std::slice::from_ref(entry)))
}

async fn schedule(command: Schedule, context: &Context) -> CliResult {
    let client = &context.client;
    match command {
        Schedule::List { volume } => {
            context.show_list(&route(&volume, "snapshot-schedules"), print_schedules).await
        }
        Schedule::Set { place, name, hourly, daily, weekly, monthly, quiesce } => {
            let path = place.path().to_owned();
            let request = SnapshotSchedule { name, path, hourly, daily, weekly, monthly, quiesce };
            let set: SnapshotSchedule = client.post(&place.route("snapshot-schedules"), &request).await?;
            context.show(&set, |set| print_schedules(std::slice::from_ref(set)))
        }
        Schedule::Delete { volume, name } => {
            let path = route(&volume, &format!("snapshot-schedules/{}", segment(&name)));
            let done: Done =
                context.confirmed(async |confirm| client.delete(&path, &Confirm { confirm }).await).await?;
            context.show(&done, |done| outln!("{}", done.message))
        }
    }
}

fn print(snapshots: &[Snapshot]) {
    let columns = ["SNAPSHOT", "TAKEN (UTC)", "OF", ">SIZE", ">UNIQUE", ">SHARED", "BY"];
    let mut table = Table::new(&columns, "There are no snapshots.");
    for snapshot in snapshots {
        let size =
            |of: fn(&SpaceUse) -> u64| snapshot.space.as_ref().map_or("-".into(), |space| bytes(of(space)));
        table.row([
            snapshot.name.clone(),
            time(snapshot.created),
            format!("{} {}:{}", word(&snapshot.kind), snapshot.volume, snapshot.path),
            size(|space| space.logical_bytes),
            size(|space| space.unique_bytes),
            size(|space| space.shared_bytes),
            snapshot.schedule.as_ref().map_or("-".into(), |name| format!("schedule {name}")),
        ]);
    }
    table.print();
}

fn print_space(space: &SpaceUse) {
    let mut table = Table::new(&[">FILES", ">SIZE", ">ALLOCATED", ">SHARED", ">UNIQUE"], "");
    table.row([
        space.files.to_string(),
        bytes(space.logical_bytes),
        bytes(space.allocated_bytes),
        bytes(space.shared_bytes),
        bytes(space.unique_bytes),
    ]);
    table.print();
}

fn print_schedules(schedules: &[SnapshotSchedule]) {
    let columns = ["SCHEDULE", "OF", ">HOURLY", ">DAILY", ">WEEKLY", ">MONTHLY"];
    let mut table = Table::new(&columns, "There are no schedules.");
    for schedule in schedules {
        table.row([
            schedule.name.clone(),
            schedule.path.clone(),
            schedule.hourly.to_string(),
            schedule.daily.to_string(),
            schedule.weekly.to_string(),
            schedule.monthly.to_string(),
        ]);
    }
    table.print();
}
