//! Three nodes of a cluster in network namespaces, as three machines on one switch: an address can move between them. Their disks are LUNs
//! of a node on its own, and etcd runs beside it, where the clients are, too.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use cluster_identity::{Authority, CLUSTER_DIR};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;
use test_etcd::Etcd;

use super::Context;
use super::cluster::{access, failed, identity, now};
use super::multipath::{Net, admin};
use super::shared_units::unit;
use crate::node::{Node, Options, binary};
use crate::process::{Deadline, Running, command, need, need_root, pause, run, run_with};
use crate::{Outcome, Result, ensure};

/// The share, on the one volume of the one pool.
pub(super) const SHARE: &str = "vms";
/// Its user.
pub(super) const USER: &str = "vm";
pub(super) const PASSWORD: &str = "a password of 23 bytes";
/// The service address of the pool.
pub(super) const ADDRESS: &str = "10.99.0.50";
pub(super) const POOL: &str = "p";

const NODES: u16 = 3;
const UNITS: usize = 3;
/// Where etcd, the disks and clients are.
const BESIDE: &str = "10.99.0.200";
const VERB: Duration = Duration::from_secs(90);
/// A takeover, on a machine that does much else.
const TAKEOVER: Duration = Duration::from_secs(120);

/// Does something on a thread that is in a network namespace; what it starts is there, too, and stays.
pub(super) fn inside<T: Send>(namespace: &str, work: impl FnOnce() -> T + Send) -> Result<T> {
    let place = std::fs::File::open(format!("/run/netns/{namespace}"))?;
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || -> Result<T> {
            move_into_link_name_space(std::os::fd::AsFd::as_fd(&place), Some(LinkNameSpaceType::Network))
                .map_err(std::io::Error::from)?;
            Ok(work())
        });
        thread.join().map_err(|_| failed("a thread in a namespace", namespace))?
    })
}

/// The namespace in which clients of these nodes are, with an address of its own.
pub(super) fn clients(net: &Net) -> Result<String> {
    let namespace = format!("{}-sw", net.0);
    let mut address = command("ip");
    address.args(["-n", &namespace, "address", "add", &format!("{BESIDE}/24"), "dev", "br0"]);
    run(VERB, &address)?.ok("ip address add")?;
    Ok(namespace)
}

/// What the thread is to do with its etcd.
type Work = Box<dyn FnOnce(&mut Etcd) + Send>;

/// An etcd in a namespace. Its processes end with the thread that has started them, so that one has it, and waits for orders.
struct EtcdBeside(Sender<Work>);

impl EtcdBeside {
    fn start(namespace: String, address: IpAddr, members: usize) -> Self {
        let (orders, receive) = channel::<Work>();
        std::thread::spawn(move || {
            let started = inside(&namespace, move || {
                let mut etcd = Etcd::start_at(address, members, &[]);
                receive.iter().for_each(|order| order(&mut etcd));
            });
            drop(started);
        });
        Self(orders)
    }

    /// Does something with it, and waits for that.
    fn with<T: Send + 'static>(&self, work: impl FnOnce(&mut Etcd) -> T + Send + 'static) -> Result<T> {
        let (send, receive) = channel();
        let order: Work = Box::new(move |etcd| drop(send.send(work(etcd))));
        self.0.send(order).map_err(|_| failed("etcd", "its thread has ended"))?;
        receive.recv().map_err(|_| failed("etcd", "its thread has ended"))
    }
}

/// A node of the cluster.
pub(super) struct Member {
    binary: PathBuf,
    dir: PathBuf,
    pub(super) name: String,
    namespace: String,
    process: Option<Running>,
}

/// A command for a node, whoever carries it out, and when.
pub(super) struct Order {
    /// What it orders: its first two words.
    what: String,
    command: Command,
}

impl Order {
    /// What it orders, and whether that was done within 20 s.
    pub(super) fn carry_out(&self) -> (String, bool) {
        let done = run(Duration::from_secs(20), &self.command).is_ok_and(|done| done.status.success());
        (self.what.clone(), done)
    }
}

/// What a cluster in trouble may refuse: how often each was tried, and was done.
#[derive(Default)]
pub(super) struct Effects(BTreeMap<String, (u32, u32)>);

impl Effects {
    /// Tries by which one of a kind has to have been done.
    const ENOUGH: u32 = 6;

    pub(super) fn count(&mut self, what: &str, done: bool) {
        let (tried, was_done) = self.0.entry(what.to_owned()).or_default();
        (*tried, *was_done) = (*tried + 1, *was_done + u32::from(done));
    }

    pub(super) fn each_has_happened(&self) -> Result {
        let never: Vec<&String> = self
            .0
            .iter()
            .filter(|(_, (tried, done))| *tried >= Self::ENOUGH && *done == 0)
            .map(|(what, _)| what)
            .collect();
        ensure(never.is_empty(), || format!("tried, and never done: {never:?}"))
    }
}

impl std::fmt::Display for Effects {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let told: Vec<String> =
            self.0.iter().map(|(what, (tried, done))| format!("{what} {done} of {tried}")).collect();
        to.write_str(&told.join(", "))
    }
}

/// All of it. Fields end in this order.
pub(super) struct World {
    pub(super) effects: Effects,
    pub(super) nodes: Vec<Member>,
    shelf: Node,
    etcd: EtcdBeside,
    pub(super) net: Net,
}

impl Member {
    /// A node with an empty data directory, on the machine of this number, that is down.
    pub(super) fn new(folder: &Path, net: &Net, number: u16) -> Result<Self> {
        let name = format!("n{number}");
        let dir = folder.join(&name);
        std::fs::create_dir_all(&dir)?;
        let namespace = format!("{}-{name}", net.0);
        Ok(Self { binary: binary()?, dir, name, namespace, process: None })
    }

    fn start(&mut self, supervised: bool) -> Result {
        let mut serve = command("ip");
        serve.args(["netns", "exec", &self.namespace]).arg(&self.binary);
        serve.args(["serve", "--shards", "1", "--data-dir"]).arg(&self.dir);
        serve.args(supervised.then_some("--supervise"));
        self.process = Some(Running::start("holdfast", serve, &self.dir.with_extension("log"))?);
        Ok(())
    }

    pub(super) fn ask(&self, arguments: &[&str]) -> Result<String> {
        self.ask_with(arguments, "")
    }

    fn ask_with(&self, arguments: &[&str], input: &str) -> Result<String> {
        let mut asked = command(&self.binary);
        asked.arg("--node").arg(&self.dir).args(arguments);
        run_with(VERB, &asked, input)?.ok(&arguments.join(" "))
    }

    fn cluster(&self) -> Result<Value> {
        serde_json::from_str(&self.ask(&["cluster", "status", "--json"])?).map_err(|why| failed("JSON", why))
    }

    /// The owner of the pool as this node sees it, when that serves it.
    pub(super) fn owner(&self) -> Result<Option<String>> {
        let Ok(cluster) = self.cluster() else { return Ok(None) };
        let pools = cluster["pools"].as_array().cloned().unwrap_or_default();
        let pool = pools.into_iter().find(|pool| pool["name"] == POOL).unwrap_or_default();
        ensure(pool["address"] == format!("{ADDRESS}/24"), || format!("another address: {pool}"))?;
        Ok(pool["owner"].as_str().filter(|_| pool["state"] == "online").map(str::to_owned))
    }

    pub(super) fn wait_for_nodes(&self, count: usize) -> Result {
        Deadline::after(TAKEOVER).poll(&format!("{count} nodes"), || {
            let Ok(cluster) = self.cluster() else { return Ok(None) };
            let nodes = cluster["nodes"].as_array().cloned().unwrap_or_default();
            let up = nodes.iter().filter(|node| node["state"] == "up").count();
            Ok((cluster["takes_part"] == true && up == count).then_some(()))
        })
    }

    /// Whether its machine has the address of the pool.
    pub(super) fn has_address(&self) -> Result<bool> {
        let mut shown = command("ip");
        shown.args(["-n", &self.namespace, "-o", "address", "show", "dev", "eth0"]);
        Ok(run(VERB, &shown)?.ok("ip address")?.contains(&format!("{ADDRESS}/24")))
    }

    /// The process, and its child where it is a supervisor.
    fn processes(&self) -> Result<Vec<String>> {
        let Some(process) = &self.process else { return Ok(Vec::new()) };
        let first = process.id();
        let children = std::fs::read_to_string(format!("/proc/{first}/task/{first}/children"))?;
        let mut all = vec![first.to_string()];
        all.extend(children.split_whitespace().map(str::to_owned));
        Ok(all)
    }

    /// Signals all of its processes, or only the one that serves.
    pub(super) fn signal(&self, signal: &str, only_child: bool) -> Result {
        let mut processes = self.processes()?;
        if only_child {
            processes.drain(..processes.len() - 1);
        }
        let mut kill = command("kill");
        kill.arg(signal).args(processes);
        run(VERB, &kill)?.ok("kill").map(drop)
    }

    /// As `kill -9` of all of its processes.
    pub(super) fn kill(&mut self) -> Result {
        if self.process.is_some() {
            // The child would notice that its supervisor is gone, and stop cleanly.
            self.signal("-KILL", false)?;
        }
        self.process.take().map_or(Ok(()), |mut process| process.kill())
    }

    /// Signals it as [`Member::signal`] does, unless it is down.
    pub(super) fn signal_if_up(&self, signal: &str, only_child: bool) -> Result {
        if self.process.is_none() || (only_child && self.processes()?.len() < 2) {
            return Ok(());
        }
        // A process may end between the look and the signal.
        let _ = self.signal(signal, only_child);
        Ok(())
    }

    /// Starts it with a supervisor, unless it is up.
    pub(super) fn start_if_down(&mut self) -> Result {
        if self.process.is_none() { self.start(true) } else { Ok(()) }
    }

    /// Asks, and gives up after so many seconds.
    pub(super) fn ask_within(&self, seconds: u64, arguments: &[&str]) -> Result<String> {
        run(Duration::from_secs(seconds), &self.order(arguments).command)?.ok(&arguments.join(" "))
    }

    /// A command for it.
    pub(super) fn order(&self, arguments: &[&str]) -> Order {
        let mut asked = command(&self.binary);
        asked.arg("--node").arg(&self.dir).args(arguments);
        Order { what: arguments.iter().take(2).copied().collect::<Vec<_>>().join(" "), command: asked }
    }

    pub(super) fn wait_until_it_answers(&self) -> Result {
        Deadline::after(TAKEOVER)
            .poll("a node that answers", || Ok(self.ask_within(20, &["cluster", "status"]).ok().map(drop)))
    }

    /// The file of one of its own disks.
    pub(super) fn own_disk(&self, number: usize) -> PathBuf {
        self.dir.join(format!("disk{number}"))
    }

    /// What it has written to its log.
    pub(super) fn log(&self) -> Result<String> {
        Ok(String::from_utf8_lossy(&std::fs::read(self.dir.with_extension("log"))?).into_owned())
    }

    pub(super) fn stop(&mut self) -> Result {
        let Some(mut process) = self.process.take() else { return Ok(()) };
        process.signal("TERM")?;
        let status = process.wait(Deadline::after(VERB))?;
        ensure(status.success(), || format!("{} ended with {status}", self.name))
    }
}

impl World {
    /// Starts all of it: the first node has the pool and its address.
    pub(super) fn start(context: &Context, supervised: bool) -> Result<Self> {
        Self::with_stores(context, supervised, 1)
    }

    /// The same with so many members of etcd, which all run beside the nodes.
    pub(super) fn with_stores(context: &Context, supervised: bool, stores: usize) -> Result<Self> {
        if context.peer || context.url.is_some() {
            return Err(Outcome::Skip("needs nodes of its own".into()));
        }
        need("etcd", "etcd-server")?;
        need("ip", "iproute2")?;
        need("smbclient", "smbclient")?;
        need_root("network namespaces")?;
        let net = Net::of(&NODES.to_string(), "1")?;
        let beside = clients(&net)?;
        let ip: IpAddr = BESIDE.parse().map_err(|why| failed("address", why))?;
        let etcd = EtcdBeside::start(beside.clone(), ip, stores);
        let folder = context.folder.join("shelf");
        std::fs::create_dir_all(&folder)?;
        let options = Options { iscsi: format!("{BESIDE}:3260"), netns: Some(beside), ..Options::default() };
        let mut shelf = Node::start(&folder, options)?;
        // Nodes that are killed leave sessions.
        for text in ["session", "connection", "reservation"] {
            shelf.expect_log(text);
        }
        let units = (0..UNITS).map(|number| unit(&shelf, number)).collect::<Result<Vec<_>>>()?;
        let authority = Authority::new(now()).map_err(|why| failed("authority", why))?;
        let mut world = Self { effects: Effects::default(), nodes: Vec::new(), shelf, etcd, net };
        for number in 1..=NODES {
            world.add(context, &authority, number, &units, supervised)?;
            world.nodes[0].wait_for_nodes(usize::from(number))?;
        }
        world.make(&units)?;
        Ok(world)
    }

    fn add(
        &mut self,
        context: &Context,
        authority: &Authority,
        number: u16,
        units: &[String],
        supervised: bool,
    ) -> Result {
        let mut member = Member::new(&context.folder, &self.net, number)?;
        let dir = &member.dir;
        let ip = format!("10.99.0.{}", 10 + number);
        let access = self.etcd.with(|etcd| access(etcd))?;
        let (link, api) = (format!("{ip}:7400"), format!("{ip}:7401"));
        let identity = identity(authority, access, number, &link, &api)?;
        identity.create(&dir.join(CLUSTER_DIR)).map_err(|why| failed("identity", why))?;
        let mut config = format!(
            "schema = 1\n\n[smb]\nlisten = [\"0.0.0.0:445\"]\n\n[[portal]]\naddress = \"{ip}:3260\"\ngroup = 1\n"
        );
        for unit in units {
            config.push_str(&format!("\n[[disk]]\nid = \"{unit}\"\n"));
        }
        std::fs::write(dir.join("config.toml"), config)?;
        member.start(supervised)?;
        self.nodes.push(member);
        Ok(())
    }

    fn make(&self, units: &[String]) -> Result {
        let first = &self.nodes[0];
        let mut create = vec!["pool", "create", POOL, "--yes"];
        create.extend(units.iter().map(String::as_str));
        first.ask(&create)?;
        first.ask(&["volume", "create", "v", "--pool", POOL, "--size", "2G", "--resiliency", "mirror2"])?;
        first.ask_with(&["user", "create", USER, "--password-stdin"], PASSWORD)?;
        first.ask(&["share", "create", SHARE, "--volume", "v", "--full", USER])?;
        // An address that a machine has is refused, whichever it is.
        for taken in ["10.99.0.11/24", "10.99.0.12/24"] {
            let refused = first.ask(&["pool", "set", POOL, "--address", taken]);
            ensure(refused.is_err(), || format!("{taken} is some machine's"))?;
        }
        first.ask(&["pool", "set", POOL, "--address", &format!("{ADDRESS}/24")])?;
        ensure(first.has_address()?, || "the address is not there when it was given".into())
    }

    /// Their store does not answer for so long.
    pub(super) fn store_stalls(&self, time: Duration) -> Result {
        self.store(move |etcd| {
            etcd.freeze(0);
            pause(time);
            etcd.thaw(0);
        })
    }

    /// Does something with their store.
    pub(super) fn store<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Etcd) -> T + Send + 'static,
    ) -> Result<T> {
        self.etcd.with(work)
    }

    /// Where clients are.
    pub(super) fn clients(&self) -> String {
        format!("{}-sw", self.net.0)
    }

    /// The node of this name.
    pub(super) fn named(&mut self, name: &str) -> Result<&mut Member> {
        self.nodes.iter_mut().find(|node| node.name == name).ok_or_else(|| failed("node", name))
    }

    /// The owner, as a node sees it that runs: one that is not `not`.
    pub(super) fn owner(&self, not: &str) -> Result<String> {
        let sees = self.nodes.iter().find(|node| node.name != not && node.process.is_some());
        let sees = sees.ok_or_else(|| failed("owner", "no node runs"))?;
        let found =
            Deadline::after(TAKEOVER).poll("an owner", || Ok(sees.owner()?.filter(|owner| owner != not)))?;
        Deadline::after(TAKEOVER).poll("the address at its owner", || {
            let owner = self.nodes.iter().find(|node| node.name == found);
            Ok(owner.is_some_and(|owner| owner.has_address().unwrap_or(false)).then_some(()))
        })?;
        Ok(found)
    }

    /// Pulls a node's cable, or puts it back.
    pub(super) fn cable(&self, node: usize, what: &str) -> Result {
        admin(&[what, &self.net.0, &(node + 1).to_string()])
    }

    fn on(&self, node: usize, words: &[&str]) -> Result {
        let mut there = command("ip");
        there.args(["netns", "exec", &format!("{}-n{}", self.net.0, node + 1)]).args(words);
        run(VERB, &there)?.ok(&words.join(" ")).map(drop)
    }

    /// A node's machine drops what a rule of iptables says.
    pub(super) fn filter(&self, node: usize, rule: &[&str]) -> Result {
        self.on(node, &[&["iptables", "-w"], rule, &["-j", "DROP"]].concat())
    }

    /// It drops nothing any more.
    pub(super) fn unfilter(&self, node: usize) -> Result {
        self.on(node, &["iptables", "-w", "-F"])
    }

    /// It does not reach etcd.
    pub(super) fn without_store(&self, node: usize) -> Result {
        self.filter(node, &["-A", "OUTPUT", "-d", BESIDE, "-p", "tcp", "--dport", "20000:29999"])
    }

    /// It does not reach the shared disks.
    pub(super) fn without_disks(&self, node: usize) -> Result {
        self.filter(node, &["-A", "OUTPUT", "-d", BESIDE, "-p", "tcp", "--dport", "3260"])
    }

    /// Two nodes do not reach each other.
    pub(super) fn apart(&self, one: usize, other: usize) -> Result {
        for (here, there) in [(one, other), (other, one)] {
            self.filter(here, &["-A", "OUTPUT", "-d", &format!("10.99.0.{}", 11 + there)])?;
        }
        Ok(())
    }

    /// A fifth of what the machine sends is lost.
    pub(super) fn bad_line(&self, node: usize) -> Result {
        let chance = ["-m", "statistic", "--mode", "random", "--probability", "0.2"];
        self.filter(node, &[&["-A", "OUTPUT", "-o", "eth0"], &chance[..]].concat())
    }

    /// A fault of a node's own disk.
    pub(super) fn own_disk(&self, node: usize, kind: &str) -> Result<String> {
        let node = &self.nodes[node];
        node.ask_within(20, &["disk", "fault", &node.own_disk(0).display().to_string(), kind])
    }

    /// Waits until all nodes take part again, and nobody but the owner has the address.
    pub(super) fn settled(&self) -> Result {
        let up = self.nodes.iter().filter(|node| node.process.is_some()).count();
        for node in self.nodes.iter().filter(|node| node.process.is_some()) {
            node.wait_for_nodes(up)?;
        }
        Deadline::after(TAKEOVER).poll("one node with the address", || {
            let mut with = 0;
            for node in &self.nodes {
                with += usize::from(node.has_address()?);
            }
            Ok((with == 1).then_some(()))
        })
    }

    /// The cable of a node's machine is pulled.
    pub(super) fn cut(&self, name: &str) -> Result {
        admin(&["cut", &self.net.0, name.trim_start_matches('n')])
    }

    /// smbclient, as a client of the address.
    pub(super) fn smbclient(&self, commands: &str) -> Result<String> {
        let mut client = command("ip");
        client.args(["netns", "exec", &self.clients(), "smbclient"]);
        client.args(["-U", &format!("{USER}%{PASSWORD}"), &format!("//{ADDRESS}/{SHARE}"), "-c", commands]);
        run(VERB, &client)?.ok("smbclient")
    }

    pub(super) fn finish(mut self) -> Result {
        self.nodes.iter_mut().try_for_each(Member::stop)?;
        self.shelf.finish()
    }
}
