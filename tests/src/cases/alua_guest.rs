//! dm-multipath in the guest over two of three nodes, which asks by ALUA which way is the good one: under load and a reservation the pool is
//! moved by hand, its owner is killed, and its owner stands still. No request of the map fails, and all data is verified.

use std::time::Duration;

use super::Context;
use super::cluster_demo::Demo;
use crate::guest::{Guest, Setup, cache};
use crate::process::need;
use crate::{Outcome, Result, ensure};

/// First of the addresses of this case: no other one's.
const FIRST: &str = "127.0.78.11:3260";
/// What happens to nodes, in this order.
const EVENTS: [&str; 3] = ["moved", "killed", "silent"];

pub(super) fn run(context: &Context) -> Result {
    if context.peer || context.url.is_some() {
        return Err(Outcome::Skip("needs nodes of its own".into()));
    }
    need("etcd", "etcd-server")?;
    let demo = Demo::start(context, FIRST)?;
    let owner = demo.owner(0, None)?;
    ensure(owner == 0, || format!("{} has the first node's pool", demo.nodes[owner].name))?;
    // The guest reaches addresses of this machine's loopback by a program that QEMU starts for each connection.
    let portals = ["10.0.2.101:3260", "10.0.2.102:3260"];
    let busybox = cache().join("busybox");
    let forwards: String = portals
        .iter()
        .zip(&demo.nodes)
        .map(|(portal, node)| {
            let (ip, port) = node.iscsi.split_once(':').unwrap_or_default();
            format!(",guestfwd=tcp:{portal}-cmd:{} nc {ip} {port}", busybox.display())
        })
        .collect();
    let setup = Setup {
        script: "alua.sh",
        env: vec![("IQN", demo.target.clone()), ("PORTALS", portals.join(" ")), ("EVENTS", EVENTS.join(" "))],
        options: vec!["--net".into(), format!("user{forwards}")],
        net: None,
        limit: Duration::from_secs(1200),
    };
    let mut guest = Guest::start(&context.folder, setup)?;
    guest.wait_for("READY")?;

    let to = demo.nodes[1].name.clone();
    demo.ask(0, &["pool", "move", "p1", &to])?;
    let owner = demo.owner(0, Some(0))?;
    guest.tell(EVENTS[0])?;
    guest.wait_for("THROUGH-moved")?;

    let child = demo.processes(owner)?.split_off(1);
    demo.signal("-9", &child)?;
    guest.tell(EVENTS[1])?;
    guest.wait_for("THROUGH-killed")?;

    let owner = demo.owner(2, None)?;
    let frozen = demo.processes(owner)?;
    demo.signal("-STOP", &frozen)?;
    let other = (owner + 1) % demo.nodes.len();
    let taken = demo.owner(other, Some(owner));
    guest.tell(EVENTS[2])?;
    let through = guest.wait_for("THROUGH-silent");
    demo.signal("-CONT", &frozen)?;
    taken?;
    through?;
    let said = guest.finish()?;
    ensure(said.contains("ALUA "), || format!("the guest did not come to its end:\n{said}"))?;
    demo.stop()
}
