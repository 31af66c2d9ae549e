//! `holdfast pool import`.

use control_api::{PoolDetail, PoolImport};

use super::print_detail;
use crate::absolute_path::here;
use crate::context::Context;
use crate::error::CliResult;

/// What the verb takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name or GUID.
    pool: String,
    /// What this node calls it, where it has a pool of its name already; the volumes in it keep their names.
    #[arg(long, value_name = "NEW")]
    name: Option<String>,
    /// Path of a file disk to look at too; may be given several times.
    #[arg(long = "disk", value_name = "PATH")]
    disks: Vec<String>,
    /// Open it although newer changes may be on disks that are not there.
    #[arg(long)]
    accept_loss: bool,
}

pub(super) async fn run(args: Args, context: &Context) -> CliResult {
    let Args { pool, name, disks, accept_loss } = args;
    let disks = here(disks);
    let pool: PoolDetail = context
        .confirmed(async |confirm| {
            let (pool, name, disks) = (pool.clone(), name.clone(), disks.clone());
            let request = PoolImport { pool, name, disks, accept_loss, confirm };
            context.client.post("/pools/import", &request).await
        })
        .await?;
    context.show(&pool, print_detail)
}
