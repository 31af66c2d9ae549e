//! `holdfast share …`.

use clap::{Subcommand, ValueEnum};
use control_api::{
    Confirm, Done, OnNode, Share, ShareCaching, ShareCreate, ShareKind, SharePermission, ShareRight,
    ShareUpdate,
};
use control_client::segment;

use crate::context::Context;
use crate::error::CliResult;
use crate::pool::usage;
use crate::table::{Table, word};
use crate::units::{bytes, many};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List shares.
    List,
    /// Show a share: its settings, who may do what, what has passed over it.
    Show {
        /// The share.
        name: String,
    },
    /// Share a folder of a volume; it is made if it isn't there.
    Create {
        /// What clients call it.
        name: String,
        /// The volume; may be left out when the node has one only.
        #[arg(long)]
        volume: Option<String>,
        /// The folder in the volume; /shares/NAME when absent.
        #[arg(long, value_name = "/DIR")]
        folder: Option<String>,
        /// What people read about it.
        #[arg(long, default_value = "")]
        comment: String,
        #[command(flatten)]
        grants: Grants,
        /// What it promises its clients, and what they may cache for it.
        #[arg(long, value_enum, default_value = "scale-out")]
        kind: Kind,
        /// Not continuously available: the same as --kind plain.
        #[arg(long, conflicts_with = "kind")]
        no_ca: bool,
        /// Everything over it must be encrypted.
        #[arg(long)]
        encrypt: bool,
        /// What clients may keep on their own disks.
        #[arg(long, value_enum, default_value = "manual")]
        caching: Caching,
        /// Listings leave out what the user could not open.
        #[arg(long)]
        access_based_enumeration: bool,
        /// Leave it out of listings.
        #[arg(long)]
        hidden: bool,
        /// Nothing may be changed over it.
        #[arg(long)]
        read_only: bool,
        /// Give a folder that is there already permissions like the share's, too.
        #[arg(long)]
        preset_folder: bool,
    },
    /// Change a share. Clients that are connected keep the rights that they have.
    Set(Box<Set>),
    /// Take a share away; its folder stays.
    Delete {
        /// The share.
        name: String,
    },
}

/// Change a share.
#[derive(Debug, clap::Args)]
pub(crate) struct Set {
    /// The share.
    name: String,
    /// What people read about it.
    #[arg(long)]
    comment: Option<String>,
    #[command(flatten)]
    grants: Grants,
    /// This user or group loses its permission; may be given several times.
    #[arg(long, value_name = "WHO")]
    revoke: Vec<String>,
    /// What it promises its clients, and what they may cache for it. What they have open keeps what it was given.
    #[arg(long, value_enum)]
    kind: Option<Kind>,
    /// Everything over it must be encrypted.
    #[arg(long, value_enum)]
    encrypt: Option<Switch>,
    /// What clients may keep on their own disks.
    #[arg(long, value_enum)]
    caching: Option<Caching>,
    /// Listings leave out what the user could not open.
    #[arg(long, value_enum)]
    access_based_enumeration: Option<Switch>,
    /// Leave it out of listings.
    #[arg(long, value_enum)]
    hidden: Option<Switch>,
    /// Nothing may be changed over it.
    #[arg(long, value_enum)]
    read_only: Option<Switch>,
    /// Give the folder permissions like the share's, in place of its own; what lies in it keeps its own.
    #[arg(long)]
    preset_folder: bool,
    /// Show the folder of this volume, which is there already; nothing is copied. Asks while clients use the share: their files
    /// close.
    #[arg(long)]
    volume: Option<String>,
    /// Show this folder, which is there already; that of the same path when absent. Asks as --volume does.
    #[arg(long)]
    folder: Option<String>,
}

/// Users and groups by what they may do.
#[derive(Debug, clap::Args)]
pub(crate) struct Grants {
    /// This user or group may do everything, permissions and owners included; may be given several times.
    #[arg(long, value_name = "WHO")]
    full: Vec<String>,
    /// This user or group may read, make, change and delete; may be given several times.
    #[arg(long, value_name = "WHO")]
    change: Vec<String>,
    /// This user or group may list and read; may be given several times.
    #[arg(long, value_name = "WHO")]
    read: Vec<String>,
}

impl Grants {
    fn list(self) -> Vec<SharePermission> {
        let rows =
            |names: Vec<String>, right| names.into_iter().map(move |who| SharePermission { who, right });
        rows(self.full, ShareRight::Full)
            .chain(rows(self.change, ShareRight::Change))
            .chain(rows(self.read, ShareRight::Read))
            .collect()
    }
}

/// On or off.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

impl Switch {
    pub(crate) fn is_on(self) -> bool {
        matches!(self, Self::On)
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Kind {
    /// Continuously available: what clients have open outlives the server, and each write is durable when it is answered.
    /// Clients cache reads only, so nobody waits for one that is away: for virtual machines.
    ScaleOut,
    /// Continuously available, and clients cache writes and handles, too: who wants a file whose client is away waits until
    /// it comes back or its time is over.
    Clustered,
    /// What clients have open is lost when the node restarts, and writes may wait in memory until the client flushes.
    Plain,
}

impl Kind {
    fn value(self) -> ShareKind {
        match self {
            Self::ScaleOut => ShareKind::ScaleOut,
            Self::Clustered => ShareKind::Clustered,
            Self::Plain => ShareKind::Plain,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Caching {
    /// Nothing.
    None,
    /// What users choose.
    Manual,
    /// What users open.
    Documents,
    /// What users open, and programs run from there.
    Programs,
}

impl Caching {
    fn value(self) -> ShareCaching {
        match self {
            Self::None => ShareCaching::None,
            Self::Manual => ShareCaching::Manual,
            Self::Documents => ShareCaching::Documents,
            Self::Programs => ShareCaching::Programs,
        }
    }
}

fn path(name: &str) -> String {
    format!("/shares/{}", segment(name))
}

pub(crate) async fn run(command: Command, context: &Context) -> CliResult {
    let client = &context.client;
    let one = |share: &Share| print(&[share.clone().into()]);
    match command {
        Command::List => context.show_list_of_pools("/shares", print).await,
        Command::Show { name } => {
            let share: Share = client.get(&path(&name)).await?;
            context.show(&share, detail)
        }
        Command::Create {
            name,
            volume,
            folder,
            comment,
            grants,
            kind,
            no_ca,
            encrypt,
            caching,
            access_based_enumeration,
            hidden,
            read_only,
            preset_folder,
        } => {
            let permissions = grants.list();
            if permissions.is_empty() {
                return usage("say who may use it: --full, --change or --read with a user or group.");
            }
            let request = ShareCreate {
                name,
                volume,
                folder,
                comment,
                kind: if no_ca { ShareKind::Plain } else { kind.value() },
                encrypt,
                caching: caching.value(),
                access_based_enumeration,
                hidden,
                read_only,
                permissions,
                preset_folder,
            };
            let share: Share = client.post("/shares", &request).await?;
            context.show(&share, one)
        }
        Command::Set(set) => {
            let set = *set;
            let Set { name, comment, grants, revoke, preset_folder, .. } = set;
            let update = ShareUpdate {
                comment,
                kind: set.kind.map(Kind::value),
                encrypt: set.encrypt.map(Switch::is_on),
                caching: set.caching.map(Caching::value),
                access_based_enumeration: set.access_based_enumeration.map(Switch::is_on),
                hidden: set.hidden.map(Switch::is_on),
                read_only: set.read_only.map(Switch::is_on),
                grant: grants.list(),
                revoke,
                preset_folder,
                volume: set.volume,
                folder: set.folder,
                confirm: None,
            };
            if update == ShareUpdate::default() {
                return usage("say what to change; `holdfast help share set` lists what can be.");
            }
            let share: Share = context
                .confirmed(async |confirm| {
                    client.patch(&path(&name), &ShareUpdate { confirm, ..update.clone() }).await
                })
                .await?;
            context.show(&share, one)
        }
        Command::Delete { name } => {
            let done: Done = context
                .confirmed(async |confirm| client.delete(&path(&name), &Confirm { confirm }).await)
                .await?;
            context.show(&done, |done| outln!("{}", done.message))
        }
    }
}

/// What is particular about a share, in words.
fn kinds(share: &Share) -> String {
    let config = &share.config;
    let words = [
        (true, config.kind.name()),
        (config.encrypt, "encrypted"),
        (config.read_only, "read-only"),
        (config.hidden, "hidden"),
        (config.access_based_enumeration, "abe"),
    ];
    let set: Vec<&str> = words.iter().filter(|(on, _)| *on).map(|(_, word)| *word).collect();
    set.join(", ")
}

fn permissions(share: &Share) -> String {
    let row = |each: &SharePermission| format!("{} {}", each.who, word(&each.right));
    let rows: Vec<String> = share.config.permissions.iter().map(row).collect();
    if rows.is_empty() { "nobody".into() } else { rows.join(", ") }
}

fn print(shares: &[OnNode<Share>]) {
    let headings = ["SHARE", "STATE", "FOLDER", "KIND", "WHO", ">SESSIONS", ">OPENS", "NOTE"];
    let mut table =
        Table::of(&headings, "There are no shares. Make one with `holdfast share create`.", shares);
    for share in shares {
        let config = &share.config;
        table.row_of(
            share,
            [
                config.name.clone(),
                if share.online { "online" } else { "offline" }.into(),
                format!("{}:{}", config.volume, config.folder),
                kinds(share),
                permissions(share),
                share.sessions.to_string(),
                share.opens.to_string(),
                share.problem.clone().unwrap_or_else(|| config.comment.clone()),
            ],
        );
    }
    table.print();
}

fn detail(share: &Share) {
    let (config, traffic) = (&share.config, &share.traffic);
    outln!("share {}: {}", config.name, if share.online { "online" } else { "offline" });
    if let Some(problem) = &share.problem {
        outln!("  problem   {problem}");
    }
    if !config.comment.is_empty() {
        outln!("  comment   {}", config.comment);
    }
    outln!("  folder    {} of volume {}", config.folder, config.volume);
    outln!("  kind      {}; clients may keep: {}", kinds(share), word(&config.caching));
    outln!("  who       {}", permissions(share));
    outln!("  in use    {}, {}", many(share.sessions, "session"), many(share.opens, "open"));
    outln!(
        "  traffic   {} reads ({}), {} writes ({}), {} other requests, {} opens refused",
        traffic.reads,
        bytes(traffic.read_bytes),
        traffic.writes,
        bytes(traffic.written_bytes),
        traffic.metadata,
        traffic.refused
    );
    if traffic.unsaved > 0 {
        outln!("  unsaved   {} of persistent opens were not made durable", many(traffic.unsaved, "change"));
    }
}
