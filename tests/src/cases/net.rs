//! `holdfast net`: three machines in namespaces, the one in the middle a router. Packets longer than its far link are lost without a
//! word, as behind a firewall that drops ICMP; a port refuses; a network has no route; an initiator has one way of two.
//!
//! ```text
//!   node 10.98.1.1 ── 10.98.1.2 router 10.98.2.2 ──(MTU 1400)── 10.98.2.1 far
//!        10.98.3.1 ── 10.98.3.2 router
//! ```

use std::time::Duration;

use serde_json::Value;

use super::Context;
use crate::node::{Node, Options};
use crate::process::{Running, command, need, need_root, run as run_program};
use crate::{Outcome, Result, ensure};

const SHORT: Duration = Duration::from_secs(10);
const PORT: u16 = 3260;

/// The namespaces; they go with it.
struct Machines(String);

impl Machines {
    fn make(prefix: &str) -> Result<Self> {
        let machines = Self(prefix.to_owned());
        let script = "set -e
            for m in node router far; do ip netns add $0-$m; ip -n $0-$m link set lo up; done
            wire() { # one end's machine, its interface and address; the other's
                ip -n $0-$1 link add $2 type veth peer name $5 netns $0-$4
                ip -n $0-$1 address add $3/24 dev $2; ip -n $0-$4 address add $6/24 dev $5
                ip -n $0-$1 link set $2 up; ip -n $0-$4 link set $5 up
            }
            wire node a0 10.98.1.1 router r0 10.98.1.2
            wire node a1 10.98.3.1 router r2 10.98.3.2
            wire router r1 10.98.2.2 far f0 10.98.2.1
            ip -n $0-router link set r1 mtu 1400
            ip -n $0-node route add 10.98.2.0/24 via 10.98.1.2
            ip -n $0-far route add 10.98.1.0/24 via 10.98.2.2
            ip netns exec $0-router sysctl -qw net.ipv4.ip_forward=1
            ip netns exec $0-router iptables -A OUTPUT -p icmp --icmp-type fragmentation-needed -j DROP";
        run_program(SHORT, command("sh").args(["-c", script, prefix]))?.ok("namespaces")?;
        Ok(machines)
    }

    fn inside(&self, machine: &str, program: &str) -> std::process::Command {
        let mut inside = command("ip");
        inside.args(["netns", "exec", &format!("{}-{machine}", self.0), program]);
        inside
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        for machine in ["node", "router", "far"] {
            let _ = command("ip").args(["netns", "del", &format!("{}-{machine}", self.0)]).output();
        }
    }
}

/// What `holdfast net test` says of a target, seen from the node, and its exit code.
fn test(machines: &Machines, binary: &std::path::Path, target: &str) -> Result<(Value, Option<i32>)> {
    let mut test = machines.inside("node", &binary.display().to_string());
    let said =
        run_program(Duration::from_secs(60), test.args(["--json", "net", "test", target, "--count", "3"]))?;
    let answer = serde_json::from_str(&said.output)
        .map_err(|error| Outcome::Fail(format!("{error}: {}", said.errors)))?;
    Ok((answer, said.status.code()))
}

pub(super) fn run(context: &Context) -> Result {
    if context.peer || context.url.is_some() {
        return Err(Outcome::Skip("needs a node of its own".into()));
    }
    need_root("makes network namespaces")?;
    for (program, package) in [("ip", "iproute2"), ("iptables", "iptables"), ("python3", "python3")] {
        need(program, package)?;
    }
    need("qemu-io", "qemu-utils")?;
    let machines = Machines::make(&format!("hfnet{}", std::process::id()))?;
    let node = Node::start(
        &context.folder,
        Options {
            iscsi: format!("0.0.0.0:{PORT}"),
            netns: Some(format!("{}-node", machines.0)),
            ..Options::default()
        },
    )?;
    let binary = node.binary().to_owned();
    let listens = "import socket\ns = socket.create_server(('', 445))\nprint('ready', flush=True)\nwhile True: s.accept()";
    let mut python = machines.inside("far", "python3");
    python.args(["-c", listens]);
    let mut far = Running::start("listener", python, &context.folder.join("listener.log"))?;
    far.line(crate::process::Deadline::after(SHORT))?;

    // Connections are made, and long packets are lost on the way.
    let (said, code) = test(&machines, &binary, "10.98.2.1:445")?;
    let way = &said["targets"][0]["ways"][0];
    ensure(code == Some(1) && way["passes"] == 1280 && way["mtu"] == 1500, || said.to_string())?;
    ensure(way["connect"]["answered"] == 3 && way["echo"]["answered"] == 3, || said.to_string())?;
    ensure(said["findings"][0]["detail"].to_string().contains("packets of 1500 bytes"), || said.to_string())?;
    // With one MTU on the whole way there is nothing to say.
    run_program(
        SHORT,
        command("ip").args(["-n", &format!("{}-router", machines.0), "link", "set", "r1", "mtu", "1500"]),
    )?
    .ok("mtu")?;
    let (said, code) = test(&machines, &binary, "10.98.2.1:445")?;
    ensure(code == Some(0) && said["findings"].as_array().is_some_and(Vec::is_empty), || said.to_string())?;
    let (said, code) = test(&machines, &binary, "10.98.2.1:446")?;
    ensure(code == Some(1) && said.to_string().contains("refused"), || said.to_string())?;
    let (said, code) = test(&machines, &binary, "203.0.113.1")?;
    ensure(code == Some(1) && said.to_string().contains("no route"), || said.to_string())?;

    // One session over one of two ways.
    let url = node.ready().url.replace("0.0.0.0", "10.98.1.1");
    let reads = std::thread::spawn({
        let prefix = format!("{}-router", machines.0);
        move || {
            let mut inside = command("ip");
            inside.args(["netns", "exec", &prefix, "qemu-io", "-f", "raw", "-c", "sleep 8000", &url]);
            run_program(Duration::from_secs(30), &inside)
        }
    });
    // The connections are counted and the sessions are asked for at two moments: a login between them is in one of the two only.
    let listens =
        |port: &Value| port["port"] == PORT && port["listening"] == true && port["established"] == 1;
    crate::process::Deadline::after(SHORT).poll("one session over one connection is told", || {
        let mut net = machines.inside("node", &binary.display().to_string());
        net.args(["--json", "--node", &node.data_dir().display().to_string(), "net"]);
        let said = run_program(SHORT, &net)?.ok("net")?;
        let told: Value = serde_json::from_str(&said).map_err(|error| Outcome::Fail(error.to_string()))?;
        let counted = told["network"]["ports"].as_array().is_some_and(|ports| ports.iter().any(listens));
        Ok((counted && said.contains("has one connection to")).then_some(()))
    })?;
    reads.join().map_err(|_| Outcome::Fail("the initiator ended badly".into()))??.ok("qemu-io")?;
    far.kill()?;
    node.finish()
}
