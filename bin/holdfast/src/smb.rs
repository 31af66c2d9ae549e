//! `holdfast smb …`: the SMB server as a whole.

use clap::{Subcommand, ValueEnum};
use control_api::{Demand, SmbDialect, SmbStatus, SmbUpdate};

use crate::context::Context;
use crate::error::CliResult;
use crate::pool::usage;
use crate::share::Switch;
use crate::table::{Table, print_listeners, word};
use crate::units::{many, time};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show the server: where it listens, what it asks of clients, who still spoke SMB 1 to it.
    Status,
    /// Change the server. What asks more of clients counts for new connections.
    Set(Box<Set>),
}

/// Change the server.
#[derive(Debug, clap::Args)]
pub(crate) struct Set {
    /// Address that shares are served on, as 0.0.0.0:445 or [::]:445; may be given several times; replaces those before.
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Vec<String>,
    /// Shares are not served any more.
    #[arg(long, conflicts_with = "listen")]
    no_listen: bool,
    /// NetBIOS name, at most 15 characters; "" for the node's name.
    #[arg(long)]
    name: Option<String>,
    /// Workgroup.
    #[arg(long)]
    domain: Option<String>,
    /// Signatures.
    #[arg(long, value_enum)]
    signing: Option<Asked>,
    /// Encryption.
    #[arg(long, value_enum)]
    encryption: Option<Asked>,
    /// Several connections of a session.
    #[arg(long, value_enum)]
    multichannel: Option<Switch>,
    /// The oldest version that is spoken.
    #[arg(long, value_enum)]
    min_dialect: Option<Dialect>,
    /// The newest version that is spoken.
    #[arg(long, value_enum)]
    max_dialect: Option<Dialect>,
    /// Interface that clients are told of for further connections: name, address or ADDRESS/BITS; may be given several
    /// times; replaces those before.
    #[arg(long = "interface", value_name = "INTERFACE")]
    interfaces: Vec<String>,
    /// Clients are told of all interfaces.
    #[arg(long, conflicts_with = "interfaces")]
    all_interfaces: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Asked {
    /// Used where the client or a share wants it.
    Offered,
    /// Clients without it are refused.
    Required,
}

impl Asked {
    fn value(self) -> Demand {
        match self {
            Self::Offered => Demand::Offered,
            Self::Required => Demand::Required,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Dialect {
    #[value(name = "2.0.2")]
    V202,
    #[value(name = "2.1")]
    V210,
    #[value(name = "3.0")]
    V300,
    #[value(name = "3.0.2")]
    V302,
    #[value(name = "3.1.1")]
    V311,
}

impl Dialect {
    fn value(self) -> SmbDialect {
        match self {
            Self::V202 => SmbDialect::V202,
            Self::V210 => SmbDialect::V210,
            Self::V300 => SmbDialect::V300,
            Self::V302 => SmbDialect::V302,
            Self::V311 => SmbDialect::V311,
        }
    }
}

pub(crate) async fn run(command: Command, context: &Context) -> CliResult {
    match command {
        Command::Status => {
            let status: SmbStatus = context.client.get("/smb").await?;
            context.show(&status, print)
        }
        Command::Set(set) => {
            let update = SmbUpdate {
                listen: (set.no_listen || !set.listen.is_empty()).then_some(set.listen),
                name: set.name,
                domain: set.domain,
                signing: set.signing.map(Asked::value),
                encryption: set.encryption.map(Asked::value),
                multichannel: set.multichannel.map(Switch::is_on),
                min_dialect: set.min_dialect.map(Dialect::value),
                max_dialect: set.max_dialect.map(Dialect::value),
                interfaces: (set.all_interfaces || !set.interfaces.is_empty()).then_some(set.interfaces),
                constraints: None,
            };
            if update == SmbUpdate::default() {
                return usage("say what to change; `holdfast help smb set` lists what can be.");
            }
            let status: SmbStatus = context.client.patch("/smb", &update).await?;
            context.show(&status, print)
        }
    }
}

fn print(status: &SmbStatus) {
    let config = &status.config;
    outln!("SMB server {} in {}, {}", status.netbios_name, config.domain, status.guid);
    outln!(
        "SMB {} to {}, signing {}, encryption {}, multichannel {}",
        word(&config.min_dialect),
        word(&config.max_dialect),
        word(&config.signing),
        word(&config.encryption),
        if config.multichannel { "on" } else { "off" }
    );
    outln!(
        "{}, {}, {}\n",
        many(status.shares, "share"),
        many(status.sessions, "session"),
        many(status.opens, "open")
    );
    print_listeners(
        &status.listeners,
        "It listens nowhere: `holdfast smb set --listen 0.0.0.0:445` changes that.",
    );
    if !status.offered.is_empty() {
        outln!("\nClients are told of");
        let mut table = Table::new(&["INTERFACE", "ADDRESS", ">SPEED", "RSS"], "");
        for each in &status.offered {
            table.row([
                each.name.clone(),
                each.address.clone(),
                format!("{} Mbit/s", each.link_speed / 1_000_000),
                if each.rss { "yes" } else { "no" }.into(),
            ]);
        }
        table.print();
    }
    if status.smb1_count > 0 {
        outln!(
            "\n{} attempts of SMB 1 were refused since the node started; the last ones",
            status.smb1_count
        );
        let mut table = Table::new(&["TIME", "ADDRESS", "DETAIL"], "");
        for attempt in &status.smb1_attempts {
            table.row([time(attempt.time), attempt.address.clone(), attempt.detail.clone()]);
        }
        table.print();
    }
}
