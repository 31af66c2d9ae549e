//! `holdfast pool set`: the address of a pool, and its home.

use control_api::{Pool, PoolDetail, PoolUpdate};
use control_client::{Client, segment};

use crate::error::CliResult;

/// What is to become of it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The pool.
    pool: String,
    /// The address with the bits of its network, as 192.0.2.50/24: one that no machine has.
    #[arg(long, value_name = "ADDRESS/BITS", required_unless_present_any = ["no_address", "interface", "home", "no_home"])]
    address: Option<String>,
    /// The interface that gets it on each node; else it is the one that has another address of the network.
    #[arg(long, value_name = "NAME", conflicts_with = "no_address")]
    interface: Option<String>,
    /// Take its address away.
    #[arg(long, conflicts_with = "address")]
    no_address: bool,
    /// Nodes of the cluster where it should be, the preferred one first: it goes to the first of them that takes pools.
    #[arg(long, value_name = "NODE", value_delimiter = ',')]
    home: Vec<String>,
    /// Let it be anywhere.
    #[arg(long, conflicts_with = "home")]
    no_home: bool,
}

impl Args {
    /// Asks for it; the pool as it is then.
    pub(super) async fn run(self, client: &Client) -> CliResult<PoolDetail> {
        let address = if self.no_address { Some(String::new()) } else { self.address };
        let home = (self.no_home || !self.home.is_empty()).then_some(self.home);
        let update = PoolUpdate { address, interface: self.interface, home };
        Ok(client.patch(&format!("/pools/{}", segment(&self.pool)), &update).await?)
    }
}

/// Prints where a pool is found, and where it should be.
pub(super) fn print(pool: &Pool) {
    if let Some(of) = &pool.address {
        let on = of.interface.as_ref().map(|name| format!(" on {name}")).unwrap_or_default();
        let why = of.problem.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        outln!(
            "Address {}{on}, {}{why}.\n",
            of.address,
            if of.here { "which this node has" } else { "not here" }
        );
    }
    if !pool.home.is_empty() {
        outln!("Home: node {}.\n", pool.home.join(", then "));
    }
    if let Some(why) = &pool.stays {
        outln!("It stays with its node: {why}\n");
    }
    if !pool.discards.is_empty() {
        outln!("It does not move by itself, and when it is moved:");
        pool.discards.iter().for_each(|lost| outln!("  {lost}"));
        outln!();
    }
}
