//! dm-multipath in the guest over two portals in two networks; one cable is pulled under load and put back. Then the same guest
//! is two hosts at one target.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::{Context, two_hosts};
use crate::guest::{Guest, Setup, home};
use crate::node::{Node, Options};
use crate::process::{self, command, need, need_root};
use crate::{Outcome, Result, ensure};

/// The network of namespaces, removed on drop.
pub(super) struct Net(pub(super) String);

impl Net {
    /// One node in two networks.
    pub(super) fn up() -> Result<Self> {
        Self::of("1", "2")
    }

    /// So many nodes, each in so many networks. Cases that run at the same time have one each.
    pub(super) fn of(nodes: &str, networks: &str) -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("hf{}x{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        admin(&["up", &name, nodes, networks])?;
        Ok(Self(name))
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        let _ = admin(&["down", &self.0]);
    }
}

/// The tool that makes it, and cuts and mends cables.
pub(super) fn admin(arguments: &[&str]) -> Result {
    let mut tool = command(home().join("tools/guest/guest-net.sh"));
    tool.args(arguments);
    process::run(Duration::from_secs(30), &tool)?.ok("guest-net.sh")?;
    Ok(())
}

pub(super) fn run(context: &Context) -> Result {
    if context.peer || context.url.is_some() {
        return Err(Outcome::Skip("needs a node of its own".into()));
    }
    need("ip", "iproute2")?;
    need_root("network namespaces")?;
    let net = Net::up()?;
    let options = Options {
        iscsi: "10.99.0.11:3260".into(),
        netns: Some(format!("{}-n1", net.0)),
        chap: false,
        ..Options::default()
    };
    let mut node = Node::start(&context.folder, options)?;
    node.cli(&["portal", "create", "10.99.1.11:3260"])?;
    two_hosts::set_up(context, &node)?;
    let mut env = vec![
        ("IQN", node.ready().iqn.clone()),
        ("PORTALS", "10.99.0.11:3260 10.99.1.11:3260".into()),
        ("SIZE_MIB", if context.full { "1024" } else { "128" }.into()),
    ];
    env.extend(two_hosts::guest_env());
    let part = home().join("guest/two_hosts.sh").to_string_lossy().into_owned();
    let setup = Setup {
        script: "multipath.sh",
        env,
        options: vec!["--add".into(), part],
        net: Some(&net.0),
        limit: Duration::from_secs(900),
    };
    let mut guest = Guest::start(&context.folder, setup)?;
    guest.wait_for("READY")?;
    // The node sees connections die.
    node.expect_log("connection");
    node.expect_log("session");
    admin(&["cut", &net.0, "1", "0"])?;
    guest.tell("cut")?;
    guest.wait_for("ONE-PATH")?;
    admin(&["mend", &net.0, "1", "0"])?;
    guest.tell("mended")?;
    let said = guest.finish()?;
    ensure(said.contains("TWO-PATHS"), || format!("the second path did not come back:\n{said}"))?;
    ensure(said.contains("TWO-HOSTS"), || format!("two hosts did not come to their end:\n{said}"))?;
    node.finish()
}
