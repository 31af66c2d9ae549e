//! Setting the demo's cluster up, by the commands that a person would type.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use control_api::{ClusterStatus, Share, ShareCaching, ShareCreate, ShareKind, SharePermission, ShareRight};

use super::member::Member;
use super::{Args, Cluster, SMB_PORT, TARGET, pool, share};
use crate::demo_share;
use crate::error::{CliError, CliResult};

/// What the cluster is called.
pub(crate) const CLUSTER: &str = "demo";
/// The iSCSI name of the shelf.
const SHELF: &str = "iqn.2026-01.io.holdfast:shelf";
const GROUP: &str = "everyone";
/// Disks of a pool: a mirror of two.
const DISKS: usize = 2;
/// Files that the shelf's pool is made of.
const FILES: usize = 2;
/// Files are sparse: they take what is written.
const FILE_BYTES: u64 = 64 << 30;
/// Nodes that run etcd: the first three.
const ETCD_MEMBERS: usize = 3;
/// From the start of all nodes to pools that are served.
const SERVES: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(200);

/// Starts what there is of the cluster, and makes what there is not.
pub(super) async fn cluster(args: &Args) -> CliResult<Cluster> {
    let first = place(args, 0)?;
    let mut shelf = shelf(args).await?;
    let mut nodes = Vec::new();
    for index in 0..usize::from(args.nodes) {
        let at = place(args, index)?;
        let config = config(args, at)?;
        let mut node = Member::start(&args.dir, &format!("n{}", index + 1), at, &config)?;
        let is_member = node.dir().join("cluster").exists();
        if !is_member {
            progress(&format!("node {} of {}", index + 1, args.nodes));
            node.wait_ready().await?;
            let (address, name) = (at.ip().to_string(), node.name().to_owned());
            match nodes.first() {
                None => {
                    let words =
                        ["cluster", "init", "--name", CLUSTER, "--address", &address, "--node-name", &name];
                    node.ask(&words).await?;
                }
                Some(first) => {
                    let first: &Member = first;
                    let token = first.ask(&["cluster", "token"]).await?;
                    let token = token.lines().next().unwrap_or_default().trim();
                    node.ask(&["cluster", "join", token, "--address", &address, "--node-name", &name])
                        .await?;
                }
            }
        }
        nodes.push(node);
    }
    for node in &mut nodes {
        node.wait_ready().await?;
    }
    wait_for_members(&nodes).await?;
    wait_for_etcd(&nodes).await?;
    let Some(node) = nodes.first() else { return Err(CliError::here("a cluster has a node at least")) };
    let made = args.dir.join("made");
    let password = demo_share::make_user(&node.client(), &args.dir).await?;
    if !made.exists() {
        progress("pools, volumes, LUNs and shares");
        things(args, first, node, &nodes).await?;
        std::fs::write(&made, "").map_err(CliError::here)?;
    }
    wait_for_pools(node).await?;
    // Its disks are in use now, and it is stopped after the nodes.
    shelf.wait_ready().await?;
    let status: ClusterStatus = node.client().get("/cluster").await?;
    let owners = status.pools.into_iter().filter_map(|pool| Some((pool.name, pool.owner?))).collect();
    Ok(Cluster { shelf, nodes, password, owners })
}

fn progress(what: &str) {
    eprintln!("holdfast: {what} …");
}

/// The address of a node, or of the shelf.
fn place(args: &Args, index: usize) -> CliResult<SocketAddr> {
    moved(args.iscsi, i64::try_from(index).unwrap_or(i64::MAX))
}

fn moved(first: SocketAddr, by: i64) -> CliResult<SocketAddr> {
    let none = || {
        CliError::Usage(format!(
            "--iscsi {first}: the nodes' addresses are this one and those after it; they have to be of 127.0.0.0/8."
        ))
    };
    let IpAddr::V4(ip) = first.ip() else { return Err(none()) };
    let number = i64::from(u32::from(ip)).checked_add(by).and_then(|sum| u32::try_from(sum).ok());
    let ip = std::net::Ipv4Addr::from(number.ok_or_else(none)?);
    if ip.is_loopback() && first.port() != 0 {
        Ok(SocketAddr::new(ip.into(), first.port()))
    } else {
        Err(none())
    }
}

/// The id of the n-th disk of the shelf.
fn disk(shelf: SocketAddr, number: usize) -> String {
    format!("iscsi://{shelf}/{SHELF}/{number}")
}

fn disks(args: &Args) -> usize {
    DISKS * usize::from(args.nodes)
}

/// A node's own part of the configuration.
fn config(args: &Args, at: SocketAddr) -> CliResult<String> {
    let shelf = moved(args.iscsi, -1)?;
    let mut text = format!(
        "schema = 1\n\n[[portal]]\naddress = \"{at}\"\ngroup = 1\n\n[smb]\nlisten = [\"{}\"]\n",
        SocketAddr::new(at.ip(), SMB_PORT)
    );
    for number in 0..disks(args) {
        text.push_str(&format!("\n[[disk]]\nid = \"{}\"\n", disk(shelf, number)));
    }
    Ok(text)
}

/// The node whose LUNs are the disks of the cluster.
async fn shelf(args: &Args) -> CliResult<Member> {
    let at = moved(args.iscsi, -1)?;
    let config = format!("schema = 1\n\n[[portal]]\naddress = \"{at}\"\ngroup = 1\n");
    let mut shelf = Member::start(&args.dir, "shelf", at, &config)?;
    progress("the shelf, whose LUNs are the cluster's disks");
    shelf.wait_ready().await?;
    if shelf.dir().join("made").exists() {
        return Ok(shelf);
    }
    let files = files(shelf.dir())?;
    let mut create = vec!["pool", "create", "shelf"];
    create.extend(files.iter().filter_map(|path| path.to_str()));
    shelf.ask(&create).await?;
    shelf
        .ask(&["volume", "create", "disks", "--pool", "shelf", "--size", "100G", "--resiliency", "simple"])
        .await?;
    shelf.ask(&["target", "create", SHELF]).await?;
    shelf.ask(&["initiator-group", "create", GROUP, "--any"]).await?;
    for number in 0..disks(args) {
        let (name, number) = (format!("d{number}"), number.to_string());
        shelf.ask(&["lun", "create", &name, "--volume", "disks", "--size", "10G"]).await?;
        shelf.ask(&["lun", "map", &name, "--target", SHELF, "--group", GROUP, "--number", &number]).await?;
    }
    std::fs::write(shelf.dir().join("made"), "").map_err(CliError::here)?;
    Ok(shelf)
}

fn files(dir: &Path) -> CliResult<Vec<PathBuf>> {
    let paths: Vec<PathBuf> = (1..=FILES).map(|number| dir.join(format!("file{number}.img"))).collect();
    for path in &paths {
        let wrong = |error: std::io::Error| CliError::here(format!("{}: {error}", path.display()));
        let file = std::fs::File::create(path).map_err(wrong)?;
        file.set_len(FILE_BYTES).map_err(wrong)?;
    }
    Ok(paths)
}

/// A pool for each node, with a volume, a LUN and a share.
async fn things(args: &Args, first: SocketAddr, node: &Member, nodes: &[Member]) -> CliResult {
    let shelf = moved(first, -1)?;
    node.ask(&["target", "create", TARGET]).await?;
    node.ask(&["initiator-group", "create", GROUP, "--any"]).await?;
    for index in 0..usize::from(args.nodes) {
        let (pool, number) = (pool(index), index.to_string());
        let (volume, lun) = (format!("vm{}", index + 1), format!("disk{}", index + 1));
        let members: Vec<String> = (0..DISKS).map(|disk_of| disk(shelf, index * DISKS + disk_of)).collect();
        let mut create = vec!["pool", "create", &pool];
        create.extend(members.iter().map(String::as_str));
        node.ask(&create).await?;
        node.ask(&["volume", "create", &volume, "--pool", &pool, "--size", "8G", "--resiliency", "mirror2"])
            .await?;
        node.ask(&["lun", "create", &lun, "--volume", &volume, "--size", "4G"]).await?;
        node.ask(&["lun", "map", &lun, "--target", TARGET, "--group", GROUP, "--number", &number]).await?;
        let request = ShareCreate {
            name: share(index),
            volume: Some(volume),
            folder: None,
            comment: format!("Virtual machines on pool {pool}"),
            kind: ShareKind::ScaleOut,
            encrypt: false,
            caching: ShareCaching::Manual,
            access_based_enumeration: false,
            hidden: false,
            read_only: false,
            permissions: vec![SharePermission { who: demo_share::USER.into(), right: ShareRight::Full }],
            preset_folder: false,
        };
        node.client().post::<Share>("/shares", &request).await?;
        if let Some(to) = nodes.get(index).filter(|to| to.name() != node.name()) {
            node.ask(&["pool", "move", &pool, to.name()]).await?;
        }
    }
    Ok(())
}

async fn wait_for(what: &str, is_so: impl AsyncFn() -> bool) -> CliResult {
    let waiting = async {
        while !is_so().await {
            tokio::time::sleep(PAUSE).await;
        }
    };
    let late = |_| {
        CliError::here(format!(
            "{what}: not within {} s. The logs beside the nodes' folders say why.",
            SERVES.as_secs()
        ))
    };
    tokio::time::timeout(SERVES, waiting).await.map_err(late)
}

async fn seen_by(node: &Member) -> Option<ClusterStatus> {
    node.client().get::<ClusterStatus>("/cluster").await.ok()
}

async fn wait_for_members(nodes: &[Member]) -> CliResult {
    for node in nodes {
        wait_for(&format!("node {} takes part", node.name()), async || {
            seen_by(node)
                .await
                .is_some_and(|cluster| cluster.takes_part && cluster.nodes.len() >= nodes.len())
        })
        .await?;
    }
    Ok(())
}

/// Waits until etcd has its three members, so that one of them may be lost. Nodes keep down where they are.
async fn wait_for_etcd(nodes: &[Member]) -> CliResult {
    if nodes.len() < ETCD_MEMBERS {
        return Ok(());
    }
    for node in nodes {
        let record = node.dir().join("cluster/identity.toml");
        let members = |text: String| {
            let record: toml::Table = toml::from_str(&text).ok()?;
            Some(record.get("etcd")?.get("endpoints")?.as_array()?.len())
        };
        wait_for("etcd has three members", async || {
            std::fs::read_to_string(&record).is_ok_and(|text| members(text) >= Some(ETCD_MEMBERS))
        })
        .await?;
    }
    Ok(())
}

async fn wait_for_pools(node: &Member) -> CliResult {
    wait_for("all pools are served", async || {
        seen_by(node).await.is_some_and(|cluster| {
            !cluster.pools.is_empty()
                && cluster.pools.iter().all(|pool| pool.state == control_api::ClusterPoolState::Online)
        })
    })
    .await
}
