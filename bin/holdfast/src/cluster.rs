//! `holdfast cluster …`: how it is; making a cluster, joining and leaving one.

mod rebalance;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Subcommand;
use control_api::{
    ClusterInit, ClusterJoin, ClusterMember, ClusterMemberState, ClusterPlace, ClusterStatus, ClusterToken,
    EtcdMemberState, EtcdMemberStatus, GivenEtcd, human_bytes,
};

use crate::context::Context;
use crate::error::{CliError, CliResult};
use crate::table::{Table, or_dash, word};
use crate::units::time;

/// The node stops and starts again within a second or two; with many pools it takes longer.
const PATIENCE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Who owns which pool, who is away, and what a further loss would do.
    Status,
    /// Whether this node belongs to a cluster, and which one.
    Place,
    /// Make this node the first one of a cluster. Nothing moves: its pools, shares and users are the cluster's from then on.
    Init(Box<Init>),
    /// Make a token with which one other node can join, within 24 hours.
    Token,
    /// Let this node, which has no pools yet, join a cluster.
    Join {
        /// The line that `holdfast cluster token` has printed on a node of the cluster. Others on this machine see it in the list of processes:
        /// --token-file hides it.
        #[arg(required_unless_present = "token_file", conflicts_with = "token_file")]
        token: Option<String>,
        /// File with that line; `-` for standard input.
        #[arg(long, value_name = "FILE")]
        token_file: Option<PathBuf>,
        #[command(flatten)]
        here: Here,
    },
    /// Move pools home, and from nodes with more to do to nodes with less, with the fewest moves. Any node is asked.
    Rebalance(rebalance::Args),
    /// Take this node out of its cluster; it is one on its own again, without the cluster's pools.
    Leave,
}

/// What this node is in its cluster.
#[derive(Debug, clap::Args)]
pub(crate) struct Here {
    /// Where the other nodes reach this one; six ports from PORT on are used, 7400 without one.
    /// Needed where the machine has several addresses.
    #[arg(long, value_name = "IP[:PORT]")]
    address: Option<String>,
    /// What this node is called in the cluster; the machine's name when absent.
    #[arg(long, value_name = "NAME")]
    node_name: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Init {
    /// The cluster's name.
    #[arg(long, value_name = "NAME")]
    name: String,
    #[command(flatten)]
    here: Here,
    /// An etcd that is there already, instead of one that the nodes run themselves: its endpoints, as https://HOST:2379,https://…
    #[arg(long, value_name = "URL", value_delimiter = ',')]
    etcd: Vec<String>,
    /// File with the authority of that etcd's certificate, in PEM.
    #[arg(long, value_name = "FILE", requires = "etcd")]
    etcd_ca: Option<PathBuf>,
    /// File with the certificate that nodes show to it, in PEM.
    #[arg(long, value_name = "FILE", requires = "etcd")]
    etcd_cert: Option<PathBuf>,
    /// File with its key, in PEM.
    #[arg(long, value_name = "FILE", requires = "etcd")]
    etcd_key: Option<PathBuf>,
}

pub(crate) async fn run(command: Command, context: &Context) -> CliResult {
    let client = &context.client;
    match command {
        Command::Status => {
            let status: ClusterStatus = client.get("/cluster").await?;
            context.show(&status, |status| {
                print_summary(status);
                // One that was removed sees nothing of it.
                if status.removed {
                    return;
                }
                outln!();
                print_pools(status);
                outln!();
                print_nodes(&status.nodes);
                if !status.etcd.is_empty() {
                    outln!();
                    print_etcd(&status.etcd);
                }
            })
        }
        Command::Init(init) => {
            let Init { name, here, etcd, etcd_ca, etcd_cert, etcd_key } = *init;
            let etcd = match etcd.is_empty() {
                true => None,
                false => Some(GivenEtcd {
                    endpoints: etcd,
                    ca: text_of(etcd_ca.as_deref())?,
                    certificate: text_of(etcd_cert.as_deref())?,
                    key: text_of(etcd_key.as_deref())?,
                }),
            };
            let Here { address, node_name } = here;
            let request = ClusterInit { name, address, node_name, etcd };
            let ordered: ClusterPlace = client.post("/cluster/init", &request).await?;
            show(context, &changed(context, &ordered).await?)
        }
        Command::Place => {
            let place: ClusterPlace = client.get("/cluster/place").await?;
            show(context, &place)
        }
        Command::Token => {
            let token: ClusterToken = client.post("/cluster/tokens", &()).await?;
            context.show(&token, |token| {
                outln!("{}", token.token);
                // The line above is for a variable or a pipe.
                eprintln!(
                    "It lets one node in, until {}: `holdfast cluster join --token-file FILE` there, with FILE - for standard input. Whoever has it gets in: keep it secret.",
                    time(token.expires)
                );
            })
        }
        Command::Join { token, token_file, here: Here { address, node_name } } => {
            let token = token_from(token, token_file.as_deref())?;
            let ordered: ClusterPlace =
                client.post("/cluster/join", &ClusterJoin { token, address, node_name }).await?;
            show(context, &changed(context, &ordered).await?)
        }
        Command::Rebalance(args) => args.run(context).await,
        Command::Leave => {
            let ordered: ClusterPlace = client.post("/cluster/leave", &()).await?;
            show(context, &changed(context, &ordered).await?)
        }
    }
}

/// The longest file with a token: it is one line of some 120 characters.
const MAX_TOKEN_FILE: u64 = 4096;

/// The token, from wherever it is.
fn token_from(given: Option<String>, file: Option<&Path>) -> CliResult<String> {
    use std::io::Read as _;
    let Some(path) = file else { return Ok(given.unwrap_or_default()) };
    let failed = |error: std::io::Error| CliError::here(format!("{}: {error}", path.display()));
    let mut text = String::new();
    if path == Path::new("-") {
        std::io::stdin().lock().take(MAX_TOKEN_FILE).read_to_string(&mut text).map_err(failed)?;
    } else {
        let file = std::fs::File::open(path).map_err(failed)?;
        file.take(MAX_TOKEN_FILE).read_to_string(&mut text).map_err(failed)?;
    }
    let token = text.trim();
    if token.is_empty() {
        return Err(CliError::here(format!("{}: there is no token in it", path.display())));
    }
    Ok(token.to_owned())
}

fn text_of(file: Option<&Path>) -> CliResult<String> {
    let Some(path) = file else { return Ok(String::new()) };
    std::fs::read_to_string(path).map_err(|error| CliError::here(format!("{}: {error}", path.display())))
}

/// Waits until the node has stopped and started again; its place then.
async fn changed(context: &Context, ordered: &ClusterPlace) -> CliResult<ClusterPlace> {
    let waiting = async {
        loop {
            // It does not answer for a moment in between.
            if let Ok(place) = context.client.get::<ClusterPlace>("/cluster/place").await
                && !place.changing
            {
                return place;
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    let late = |_| {
        let what = format!("The node has not come back within {} s.", PATIENCE.as_secs());
        CliError::here(format!("{what}\nLook into its log; `holdfast status` says when it is there."))
    };
    let place = tokio::time::timeout(PATIENCE, waiting).await.map_err(late)?;
    if place.cluster == ordered.cluster {
        return Ok(place);
    }
    let why = place.failed.unwrap_or_else(|| "it was stopped in between".into());
    Err(CliError::here(format!("The node is what it was before: {why}")))
}

fn show(context: &Context, place: &ClusterPlace) -> CliResult {
    context.show(place, |place| match (&place.cluster, &place.node) {
        (Some(cluster), Some(node)) => {
            outln!(
                "This node is {node}, number {} of the cluster {cluster}.",
                place.number.unwrap_or_default()
            );
        }
        _ => outln!("This node is on its own."),
    })
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
    let mut table =
        Table::new(&["POOL", "OWNER", ">EPOCH", "STATE", "ADDRESS", "REASON"], "There are no pools.");
    for pool in &status.pools {
        table.row([
            pool.name.clone(),
            or_dash(pool.owner.as_ref()),
            pool.epoch.to_string(),
            word(&pool.state),
            or_dash(pool.address.as_ref()),
            or_dash(pool.reason.as_ref()),
        ]);
    }
    table.print();
}

/// The members of a cluster's etcd as a table.
fn print_etcd(members: &[EtcdMemberStatus]) {
    let mut table = Table::new(&["ETCD", "STATE", ">DATABASE", ">QUOTA", "PROBLEM"], "");
    for member in members {
        let state = match member.state {
            EtcdMemberState::Away => "no answer",
            EtcdMemberState::Damaged => "damaged",
            EtcdMemberState::NoLeader => "no leader",
            EtcdMemberState::Full => "full",
            EtcdMemberState::Serving => "answers",
        };
        table.row([
            member.url.clone(),
            state.to_owned(),
            or_dash(member.bytes.map(human_bytes).as_ref()),
            or_dash(member.quota_bytes.map(human_bytes).as_ref()),
            or_dash(member.trouble.as_ref()),
        ]);
    }
    table.print();
}

/// How a node is, in a word. Who has given all its pools away drains no more: it waits for whoever works at it.
fn state_of(node: &ClusterMember) -> String {
    match node.state {
        ClusterMemberState::Draining if node.pools == 0 => "drained".to_owned(),
        state => word(&state),
    }
}

/// The nodes of a cluster as a table.
pub(crate) fn print_nodes(nodes: &[ClusterMember]) {
    let headings = ["NODE", ">NUMBER", "STATE", ">BEAT", ">POOLS", "ADDRESS", "RELEASE", "PROBLEM"];
    let mut table = Table::new(&headings, "There are no nodes.");
    for node in nodes {
        table.row([
            node.name.clone(),
            node.number.to_string(),
            state_of(node),
            or_dash(node.beat_age_ms.map(|age| format!("{age} ms ago")).as_ref()),
            node.pools.to_string(),
            or_dash(node.addresses.first()),
            or_dash(Some(&node.release).filter(|release| !release.is_empty())),
            or_dash(node.trouble.as_ref()),
        ]);
    }
    table.print();
}
