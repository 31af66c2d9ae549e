//! `holdfast cluster …`.

use clap::Subcommand;
use control_api::{ClusterMember, ClusterStatus};

use crate::context::Context;
use crate::error::CliResult;
use crate::table::{Table, or_dash, word};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Who owns which pool, who is away, and what a further loss would do.
    Status,
}

pub(crate) async fn run(command: Command, context: &Context) -> CliResult {
    match command {
        Command::Status => {
            let status: ClusterStatus = context.client.get("/cluster").await?;
            context.show(&status, |status| {
                print_summary(status);
                outln!();
                print_pools(status);
                outln!();
                print_nodes(&status.nodes);
            })
        }
    }
}

/// The cluster in sentences.
pub(crate) fn print_summary(status: &ClusterStatus) {
    outln!("Cluster {}, seen from node {}:", status.cluster, status.node);
    status.summary.iter().for_each(|told| outln!("  {told}"));
    if let Some(trouble) = &status.trouble {
        outln!("  This node does not take part: {trouble}.");
    }
}

fn print_pools(status: &ClusterStatus) {
    let mut table = Table::new(&["POOL", "OWNER", ">EPOCH", "STATE", "REASON"], "There are no pools.");
    for pool in &status.pools {
        table.row([
            pool.name.clone(),
            or_dash(pool.owner.as_ref()),
            pool.epoch.to_string(),
            word(&pool.state),
            or_dash(pool.reason.as_ref()),
        ]);
    }
    table.print();
}

/// The nodes of a cluster as a table.
pub(crate) fn print_nodes(nodes: &[ClusterMember]) {
    let headings = ["NODE", ">NUMBER", "STATE", ">BEAT", ">POOLS", "ADDRESS", "RELEASE", "PROBLEM"];
    let mut table = Table::new(&headings, "There are no nodes.");
    for node in nodes {
        table.row([
            node.name.clone(),
            node.number.to_string(),
            word(&node.state),
            or_dash(node.beat_age_ms.map(|age| format!("{age} ms ago")).as_ref()),
            node.pools.to_string(),
            or_dash(node.addresses.first()),
            or_dash(Some(&node.release).filter(|release| !release.is_empty())),
            or_dash(node.trouble.as_ref()),
        ]);
    }
    table.print();
}
