//! Three `holdfast serve` with a real etcd own pools on disks that all of them reach: the pool is made on one, its owner is killed, another one
//! serves it with all its data; moved by hand it goes on; a node that comes back takes part again.
//!
//! The disks are files of this machine, which a node opens for itself alone: whoever is killed lets go of them.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cluster_identity::{
    Authority, CLUSTER_DIR, CertificateRequest, ClusterIdentity, EtcdAccess, EtcdPem, NodeName, NodePem,
    NodeRecord, new_key,
};
use cluster_store::keys::{ClusterName, NodeId};
use serde_json::Value;
use test_etcd::Etcd;

use super::Context;
use super::restart::qemu_io;
use crate::node::binary;
use crate::process::{Deadline, Running, command, need, run};
use crate::{Outcome, Result, ensure};

pub(super) const NODES: u16 = 3;
const DISKS: usize = 3;
const DISK: u64 = 4 << 30;
pub(super) const TARGET: &str = "iqn.2026-11.test.holdfast:cluster";
/// A command of the CLI.
const VERB: Duration = Duration::from_secs(90);
/// A maximum of IOPS that the LUN has.
const LIMIT: u64 = 400;
/// A takeover, on a machine that does much else.
const TAKEOVER: Duration = Duration::from_secs(90);

/// A node of the cluster.
pub(super) struct Member {
    binary: PathBuf,
    pub(super) dir: PathBuf,
    pub(super) name: String,
    pub(super) portal: String,
    process: Option<Running>,
}

/// The time that certificates are made at.
#[expect(clippy::disallowed_methods, reason = "a real authority's certificates, for a real etcd")]
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

pub(super) fn failed(what: &str, why: impl std::fmt::Display) -> Outcome {
    Outcome::Fail(format!("{what}: {why}"))
}

fn free_address() -> Result<String> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}

/// Where an etcd is reached, and what lets one node in.
pub(super) fn access(etcd: &Etcd) -> (Vec<String>, EtcdPem) {
    let shown = etcd.authority().issue(&["holdfast"]);
    let ca = etcd.authority().pem().clone();
    (etcd.endpoints(), EtcdPem { ca, certificate: shown.certificate, key: shown.key.into() })
}

/// What makes a node one of the cluster: it is reached at these addresses.
pub(super) fn identity(
    authority: &Authority,
    (endpoints, etcd): (Vec<String>, EtcdPem),
    number: u16,
    link: &str,
    api: &str,
) -> Result<ClusterIdentity> {
    let (node, name) = (NodeId::new(number), NodeName::new(&format!("n{number}")));
    let (Some(node), Ok(name)) = (node, name) else { return Err(failed("node", number)) };
    let now = now();
    let (node_key, request) = new_key().map_err(|why| failed("key", why))?;
    let request = CertificateRequest::from_pem(&request).map_err(|why| failed("request", why))?;
    let certificate =
        authority.issue(&request, node, &name, &[], now).map_err(|why| failed("certificate", why))?;
    let parse = |text: &str| text.parse().map_err(|why| failed("address", why));
    let cluster = ClusterName::new("test").ok_or_else(|| failed("cluster", "no name"))?;
    let record = NodeRecord {
        cluster,
        node,
        name,
        link_listen: parse(link)?,
        link_addresses: vec![link.to_owned()],
        api_address: parse(api)?,
        etcd: EtcdAccess { endpoints, id: None, own_certificates: true, managed: None },
    };
    let pem = NodePem {
        ca: authority.pem().into(),
        ca_key: authority.key_pem(),
        node: certificate,
        node_key,
        etcd: Some(etcd),
    };
    Ok(ClusterIdentity { record, pem })
}

impl Member {
    /// Gives a node its place in the cluster, the disks, and a portal.
    fn new(
        context: &Context,
        authority: &Authority,
        etcd: &Etcd,
        number: u16,
        disks: &[PathBuf],
    ) -> Result<Self> {
        let dir = context.folder.join(format!("n{number}"));
        std::fs::create_dir_all(&dir)?;
        let identity = identity(authority, access(etcd), number, &free_address()?, &free_address()?)?;
        identity.create(&dir.join(CLUSTER_DIR)).map_err(|why| failed("identity", why))?;
        let portal = free_address()?;
        let mut config = format!("schema = 1\n\n[[portal]]\naddress = \"{portal}\"\ngroup = 1\n");
        for disk in disks {
            config.push_str(&format!("\n[[disk]]\nid = \"{}\"\n", disk.display()));
        }
        std::fs::write(dir.join("config.toml"), config)?;
        let mut member = Self { binary: binary()?, dir, name: format!("n{number}"), portal, process: None };
        member.start()?;
        Ok(member)
    }

    pub(super) fn start(&mut self) -> Result {
        let mut serve = command(&self.binary);
        serve.args(["serve", "--shards", "1", "--data-dir"]).arg(&self.dir);
        let log = self.dir.with_extension("log");
        self.process = Some(Running::start("holdfast", serve, &log)?);
        Ok(())
    }

    pub(super) fn ask(&self, arguments: &[&str]) -> Result<String> {
        let mut asked = command(&self.binary);
        asked.arg("--node").arg(&self.dir).args(arguments);
        run(VERB, &asked)?.ok(&arguments.join(" "))
    }

    fn cluster(&self) -> Result<Value> {
        serde_json::from_str(&self.ask(&["cluster", "status", "--json"])?).map_err(|why| failed("JSON", why))
    }

    /// Owner and state of a pool, as this node sees it.
    pub(super) fn pool(&self, name: &str) -> Result<(String, String)> {
        let cluster = self.cluster()?;
        let pools = cluster["pools"].as_array().cloned().unwrap_or_default();
        let found = pools.into_iter().find(|pool| pool["name"] == name).unwrap_or_default();
        let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
        Ok((text("owner"), text("state")))
    }

    /// Waits until so many nodes take part, and this is one of them.
    pub(super) fn wait_for_nodes(&self, count: usize) -> Result {
        Deadline::after(TAKEOVER).poll(&format!("{count} nodes"), || {
            // Its socket may not be there yet.
            let Ok(cluster) = self.cluster() else { return Ok(None) };
            let nodes = cluster["nodes"].as_array().cloned().unwrap_or_default();
            let up = nodes.iter().filter(|node| node["state"] == "up").count();
            Ok((cluster["takes_part"] == true && up == count).then_some(()))
        })
    }

    pub(super) fn wait_for_owner(&self, pool: &str, is: impl Fn(&str) -> bool) -> Result<String> {
        Deadline::after(TAKEOVER).poll(&format!("an owner of pool {pool}"), || {
            let (owner, state) = self.pool(pool)?;
            Ok((state == "online" && is(&owner)).then_some(owner))
        })
    }

    pub(super) fn portal(&self) -> &str {
        &self.portal
    }

    pub(super) fn url(&self) -> String {
        format!("iscsi://{}/{TARGET}/0", self.portal)
    }

    pub(super) fn kill(&mut self) -> Result {
        match self.process.take() {
            Some(mut process) => process.kill(),
            None => Ok(()),
        }
    }

    pub(super) fn stop(&mut self) -> Result {
        let Some(mut process) = self.process.take() else { return Ok(()) };
        process.signal("TERM")?;
        let status = process.wait(Deadline::after(VERB))?;
        ensure(status.success(), || format!("{} ended with {status}", self.name))
    }
}

fn make(first: &Member, disks: &[PathBuf]) -> Result {
    let disks: Vec<String> = disks.iter().map(|disk| disk.display().to_string()).collect();
    let mut create = vec!["pool", "create", "p", "--yes"];
    create.extend(disks.iter().map(String::as_str));
    first.ask(&create)?;
    make_lun(first)
}

/// A volume in the pool `p`, and a LUN for everybody.
pub(super) fn make_lun(first: &Member) -> Result {
    first.ask(&["volume", "create", "v", "--pool", "p", "--size", "2G", "--resiliency", "mirror2"])?;
    map_lun(first)
}

/// A LUN of the volume `v`, for everybody.
pub(super) fn map_lun(first: &Member) -> Result {
    first.ask(&["target", "create", TARGET])?;
    first.ask(&["lun", "create", "l", "--volume", "v", "--size", "256M"])?;
    first.ask(&["initiator-group", "create", "all", "--any"])?;
    first.ask(&["lun", "map", "l", "--target", TARGET, "--group", "all", "--number", "0"])?;
    Ok(())
}

pub(super) fn owner_of<'a>(nodes: &'a mut [Member], name: &str) -> Result<&'a mut Member> {
    nodes.iter_mut().find(|node| node.name == name).ok_or_else(|| failed("owner", name))
}

fn disks(folder: &Path) -> Result<Vec<PathBuf>> {
    let all: Vec<PathBuf> = (0..DISKS).map(|number| folder.join(format!("shared{number}"))).collect();
    for path in &all {
        std::fs::File::create(path)?.set_len(DISK)?;
    }
    Ok(all)
}

/// An etcd, and the nodes of a cluster, each of which takes part.
pub(super) fn start(context: &Context, disks: &[PathBuf]) -> Result<(Etcd, Vec<Member>)> {
    let etcd = Etcd::start(1, &[]);
    let authority = Authority::new(now()).map_err(|why| failed("authority", why))?;
    let mut nodes = Vec::new();
    for number in 1..=NODES {
        nodes.push(Member::new(context, &authority, &etcd, number, disks)?);
        nodes[0].wait_for_nodes(usize::from(number))?;
    }
    Ok((etcd, nodes))
}

/// Three nodes; the first has made a pool with a LUN, and owns it.
pub(super) fn up(context: &Context) -> Result<(Etcd, Vec<Member>)> {
    let disks = disks(&context.folder)?;
    let (etcd, nodes) = start(context, &disks)?;
    make(&nodes[0], &disks)?;
    ensure(nodes[0].pool("p")? == ("n1".into(), "online".into()), || "who made it has it".into())?;
    Ok((etcd, nodes))
}

pub(super) fn takes_over(context: &Context) -> Result {
    if context.peer || context.url.is_some() {
        return Err(Outcome::Skip("needs nodes of its own".into()));
    }
    need("etcd", "etcd-server")?;
    need("qemu-io", "qemu-utils")?;
    let (_etcd, mut nodes) = up(context)?;
    qemu_io(&nodes[0].url(), &["write -P 0x5a 1M 8M", "write -P 0x17 60M 64k", "flush"])?;
    qemu_io(&nodes[1].url(), &["read -P 0x5a 1M 8M"])?;
    let limit = LIMIT.to_string();
    nodes[1].ask(&["qos", "policy", "create", "slow", "--max-iops", &limit])?;
    nodes[1].ask(&["qos", "assign", "slow", "--lun", "l"])?;
    is_limited(&nodes[0].url(), "before the takeover")?;

    nodes[0].kill()?;
    let taken = nodes[1].wait_for_owner("p", |owner| owner != "n1" && !owner.is_empty())?;
    let seen = nodes[2].wait_for_owner("p", |owner| owner == taken)?;
    ensure(seen == taken, || format!("{taken} and {seen} both have it"))?;
    let url = owner_of(&mut nodes, &taken)?.url();
    is_limited(&url, "by the node that took over")?;
    qemu_io(&url, &["read -P 0x5a 1M 8M", "read -P 0x17 60M 64k", "write -P 0x33 4M 1M", "flush"])?;

    // Back, it takes part and serves nothing; then it gets the pool by hand.
    nodes[0].start()?;
    nodes[0].wait_for_nodes(usize::from(NODES))?;
    ensure(nodes[0].wait_for_owner("p", |_| true)? == taken, || "it took the pool back by itself".into())?;
    owner_of(&mut nodes, &taken)?.ask(&["pool", "move", "p", "n1"])?;
    nodes[0].wait_for_owner("p", |owner| owner == "n1")?;
    is_limited(&nodes[0].url(), "after the move")?;
    qemu_io(&nodes[0].url(), &["read -P 0x5a 1M 3M", "read -P 0x33 4M 1M", "read -P 0x17 60M 64k"])?;
    nodes.iter_mut().try_for_each(Member::stop)
}

/// Reads of a LUN with a maximum come no faster than that, from the first moment on: there is no burst but the one that the guide names.
fn is_limited(url: &str, when: &str) -> Result {
    let mut load = command(&binary()?);
    let words = "spd --json --quiet -d2 -W0 -t1 -o32 -b4K -r -D250".split(' ');
    load.args(words).arg(url);
    let told: Value = serde_json::from_str(&run(VERB, &load)?.ok("holdfast spd")?)
        .map_err(|why| failed("holdfast spd", why))?;
    let intervals = &told["spans"][0]["intervals"]["read"];
    let counts: Vec<u64> = intervals.as_array().into_iter().flatten().filter_map(Value::as_u64).collect();
    ensure(counts.iter().sum::<u64>() > 0, || format!("{when} nothing is read: {intervals}"))?;
    // What a quarter of a second gives, 20 ms of it after a pause, one request, and what a busy machine counts in the next interval.
    let most = LIMIT / 4 + LIMIT / 50 + 1 + LIMIT / 20;
    let mut before = 0;
    for count in counts {
        // What was counted late is missing in the interval before.
        ensure(before + count <= 2 * most, || {
            format!("{when} a maximum of {LIMIT} let through {intervals}")
        })?;
        before = count;
    }
    Ok(())
}
