//! `holdfast portal …`.

use clap::Subcommand;
use control_api::{Confirm, Done, PortalConfig, PortalInfo};
use control_client::Query;

use crate::context::Context;
use crate::error::CliResult;
use crate::table::{Table, or_dash};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List addresses that targets are served on.
    List,
    /// Listen on an address.
    Create {
        /// ADDRESS:PORT, as 0.0.0.0:3260 or [2001:db8::1]:3260.
        address: String,
        /// Target portal group tag.
        #[arg(long, default_value = "1")]
        group: u16,
    },
    /// Stop listening on an address.
    Delete {
        /// The address, as it was given.
        address: String,
    },
}

pub(crate) async fn run(command: Command, context: &Context) -> CliResult {
    match command {
        Command::List => context.show_list("/portals", print).await,
        Command::Create { address, group } => {
            let portal: PortalInfo =
                context.client.post("/portals", &PortalConfig { address, group }).await?;
            context.show(&portal, |portal| print(std::slice::from_ref(portal)))
        }
        Command::Delete { address } => {
            let path = Query::new("/portals").with("address", &address);
            let done: Done = context
                .confirmed(async |confirm| context.client.delete(path.as_str(), &Confirm { confirm }).await)
                .await?;
            context.show(&done, |done| outln!("{}", done.message))
        }
    }
}

fn print(portals: &[PortalInfo]) {
    let mut table = Table::new(&["ADDRESS", ">GROUP", "LISTENING", "PROBLEM"], "There are no portals.");
    for portal in portals {
        table.row([
            portal.address.clone(),
            portal.group.to_string(),
            or_dash(portal.listening.as_ref()),
            or_dash(portal.problem.as_ref()),
        ]);
    }
    table.print();
}
