//! `holdfast node …`: the nodes of a cluster.

use clap::Subcommand;
use control_api::{ClusterStatus, Confirm, Done, List, NodePause};
use control_client::segment;

use crate::cluster::print_nodes;
use crate::context::Context;
use crate::error::CliResult;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the nodes of the cluster.
    List,
    /// Let a node take no pools. Any node is asked.
    Pause {
        /// Its name or number.
        #[arg(value_name = "NODE")]
        name: String,
        /// Give away the pools that it has, too. Asks where hosts lose by that what they have written to LUNs with `--write-cache-in`.
        #[arg(long)]
        drain: bool,
    },
    /// Take another node out of the cluster, which is gone for good; one that is up leaves by `cluster leave`.
    Remove {
        /// Its name or number.
        #[arg(value_name = "NODE")]
        name: String,
    },
    /// Let a node take pools again. Any node is asked.
    Resume {
        /// Its name or number.
        #[arg(value_name = "NODE")]
        name: String,
    },
}

pub(crate) async fn run(command: Command, context: &Context) -> CliResult {
    let done: Done = match command {
        Command::List => {
            let status: ClusterStatus = context.client.get("/cluster").await?;
            return context.show(&List::from(status.nodes), |nodes| print_nodes(&nodes.items));
        }
        Command::Pause { name, drain } => {
            let path = format!("/cluster/nodes/{}/pause", segment(&name));
            context
                .confirmed(async |confirm| context.client.post(&path, &NodePause { drain, confirm }).await)
                .await?
        }
        Command::Resume { name } => {
            let path = format!("/cluster/nodes/{}/resume", segment(&name));
            context.client.post(&path, &()).await?
        }
        Command::Remove { name } => {
            let path = format!("/cluster/nodes/{}", segment(&name));
            context
                .confirmed(async |confirm| context.client.delete(&path, &Confirm { confirm }).await)
                .await?
        }
    };
    context.show(&done, |done| outln!("{}", done.message))
}
