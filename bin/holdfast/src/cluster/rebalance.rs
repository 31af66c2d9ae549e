//! `holdfast cluster rebalance`: pools go home, and to nodes that have less to do.

use std::time::Duration;

use control_api::{
    BalanceMove, BalanceReason, ClusterBalance, ClusterPool, ClusterPoolState, ClusterStatus, Code, Done,
    PoolMove, Problem, many,
};
use control_client::{ClientError, segment};
use serde::Serialize;

use crate::context::Context;
use crate::error::{CliError, CliResult};
use crate::progress::steps;
use crate::table::{Table, or_dash};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only show what would move.
    #[arg(long)]
    dry_run: bool,
}

/// What came of it.
#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    plan: ClusterBalance,
    /// Pools that have moved.
    moved: Vec<String>,
    /// Those that have not, and why.
    failed: Vec<Failed>,
}

#[derive(Serialize)]
struct Failed {
    pool: String,
    reason: String,
}

impl Args {
    pub(super) async fn run(self, context: &Context) -> CliResult {
        let plan: ClusterBalance = context.client.get("/cluster/balance").await?;
        let mut report = Report { plan, moved: Vec::new(), failed: Vec::new() };
        if !context.json {
            // Who is asked is told then what is lost.
            print(&report.plan, self.dry_run, self.dry_run || context.yes);
        }
        if !self.dry_run {
            report.ask(context)?;
            report.carry_out(context).await?;
        }
        let not_done = report.failed.len() as u64;
        context.show(&report, |report| {
            for failed in &report.failed {
                outln!("Pool {} has not moved: {}", failed.pool, failed.reason);
            }
            if !report.moved.is_empty() {
                outln!("\n{} moved.", many(report.moved.len() as u64, "pool"));
            }
        })?;
        if not_done > 0 {
            return Err(CliError::here(format!("{} not moved", many(not_done, "pool"))));
        }
        Ok(())
    }
}

impl Report {
    /// Asks before anything is moved, where hosts lose something by it.
    fn ask(&self, context: &Context) -> CliResult {
        let lost: Vec<&str> =
            self.plan.moves.iter().flat_map(|step| &step.discards).map(String::as_str).collect();
        if lost.is_empty() { Ok(()) } else { context.agree(&lost.join(" "), "rebalance") }
    }

    /// Moves one after the other, so that only one pool's clients wait at a time.
    async fn carry_out(&mut self, context: &Context) -> CliResult {
        let moves = self.plan.moves.clone();
        let bar = steps(moves.len() as u64, context.json);
        for step in &moves {
            bar.set_message(format!("pool {} to node {}", step.pool, step.to));
            match move_one(context, step).await {
                Ok(()) => self.moved.push(step.pool.clone()),
                Err(ClientError::Problem(problem)) => {
                    self.failed.push(Failed { pool: step.pool.clone(), reason: problem.to_string() });
                }
                Err(other) => return Err(other.into()),
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(())
    }
}

/// A pool that has a new owner is served within so long, or the next one is not moved.
const SERVED_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Moves one pool, unless something has begun to speak against it, and waits until clients have it again.
async fn move_one(context: &Context, step: &BalanceMove) -> Result<(), ClientError> {
    let plan: ClusterBalance = context.client.get("/cluster/balance").await?;
    if let Some(stay) = plan.stay.iter().find(|stay| stay.pool == step.pool) {
        let problem = Problem::new(Code::WrongState, stay.reason.clone())
            .todo("`holdfast cluster rebalance --dry-run` shows how it is now.");
        return Err(ClientError::Problem(Box::new(problem)));
    }
    let path = format!("/pools/{}/move", segment(&step.pool));
    // What was not told of is not agreed to.
    let confirm = (!step.discards.is_empty()).then(|| step.pool.clone());
    let wanted = PoolMove { node: step.to.clone(), confirm };
    let _done: Done = context.client.post(&path, &wanted).await?;
    let served = async {
        loop {
            let status: ClusterStatus = context.client.get("/cluster").await?;
            let pool = status.pools.iter().find(|pool| pool.name == step.pool);
            let is_there = |pool: &ClusterPool| {
                pool.state == ClusterPoolState::Online && pool.owner.as_ref() == Some(&step.to)
            };
            if pool.is_none_or(is_there) {
                return Ok(());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    tokio::time::timeout(SERVED_WITHIN, served).await.unwrap_or_else(|_| {
        let detail = format!("node {} has it, and does not serve it yet.", step.to);
        Err(ClientError::Problem(Box::new(
            Problem::new(Code::Unavailable, detail).todo("`holdfast cluster status` says how far it is."),
        )))
    })
}

fn print(plan: &ClusterBalance, dry_run: bool, with_discards: bool) {
    let headings = ["NODE", ">POOLS", ">THEN", ">LOAD", ">THEN"];
    let mut nodes = Table::new(&headings, "No node takes pools now.");
    for node in &plan.nodes {
        nodes.row([
            node.node.clone(),
            node.pools.to_string(),
            node.pools_then.to_string(),
            node.load.to_string(),
            node.load_then.to_string(),
        ]);
    }
    nodes.print();
    outln!("Load: normalised I/Os (of 8 KiB) a second, averaged over ten minutes.\n");
    let mut moves = Table::new(&["POOL", "FROM", "TO", ">LOAD", "WHY"], "Nothing to move.");
    for step in &plan.moves {
        let why = match step.reason {
            BalanceReason::Home => "its home",
            BalanceReason::Load => "less to do there",
        };
        moves.row([
            step.pool.clone(),
            step.from.clone(),
            step.to.clone(),
            or_dash(step.load.map(|load| load.to_string()).as_ref()),
            why.to_owned(),
        ]);
    }
    moves.print();
    let discards = plan.moves.iter().flat_map(|step| &step.discards);
    for lost in discards.filter(|_| with_discards) {
        outln!("{lost}");
    }
    if !plan.stay.is_empty() {
        outln!();
        let mut stay = Table::new(&["STAYS", "NODE", "WHY"], "");
        for pool in &plan.stay {
            stay.row([pool.pool.clone(), or_dash(pool.node.as_ref()), pool.reason.clone()]);
        }
        stay.print();
    }
    if dry_run && !plan.moves.is_empty() {
        outln!(
            "\nNothing was moved. Without --dry-run each pool is moved, one after the other; its clients wait for a moment."
        );
    }
}
