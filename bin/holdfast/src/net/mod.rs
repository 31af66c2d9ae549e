//! `holdfast net`: the network of this machine, and ways to others.
//!
//! ```text
//!   network_facts ─► interfaces, routes, connections ─┐
//!   the node ──────► sessions, nodes of the cluster ──┼─► findings, worst first
//!   network_paths ─► ways to nodes and to TARGETs ────┘
//! ```
//! Nothing is changed. The node is asked when it answers; what the machine knows is told without it, too.

mod clients;
mod report;
mod target;
mod ways;

use clap::Subcommand;

use crate::context::Context;
use crate::error::CliResult;
use target::Target;

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Look at the way to other machines: name, latency, loss, the longest packet that passes, and connections to a port.
    ///
    /// Exit code: 0 when every way works, 1 when one does not.
    Test {
        /// A name or an address, with a port to connect to or without one: `host-1`, `host-1:3260`, `[fd00::1]:445`.
        #[arg(value_name = "HOST[:PORT]", required = true)]
        targets: Vec<Target>,
        /// How many requests of each kind are made.
        #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=i64::from(network_paths::MOST_TRIES)))]
        count: u32,
    },
}

pub(crate) async fn run(args: Args, context: &Context) -> CliResult<std::process::ExitCode> {
    match args.command {
        None => report::show(context).await.map(|()| std::process::ExitCode::SUCCESS),
        Some(Command::Test { targets, count }) => ways::test(&targets, count, context).await,
    }
}

/// The network of this machine, with its addresses.
async fn network() -> network_facts::Network {
    let mut network = network_facts::Network::here();
    if let Ok(machine) = service_address::Machine::open()
        && let Ok(addresses) = machine.addresses().await
    {
        for each in addresses {
            network.add_address(&each.interface.name, each.address, each.prefix);
        }
    }
    network
}
