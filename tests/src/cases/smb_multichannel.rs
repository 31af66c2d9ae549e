//! The kernel's client with several channels over two networks: each of them is cut under load and put back, nobody sees an
//! error, and all data is there.

use std::collections::BTreeSet;
use std::time::Duration;

use super::Context;
use super::multipath::{Net, admin};
use crate::guest::{Guest, Setup};
use crate::node::{Node, Options};
use crate::process::{Deadline, need, need_root, pause};
use crate::{Outcome, Result, ensure};

/// Boot, write and verify under emulation on two busy cores.
const LIMIT: Duration = Duration::from_secs(900);
/// How long a cable is out: longer than the client waits for an answer before it gives a connection up.
const CUT: Duration = Duration::from_secs(15);
/// Until the client has its channels again: it looks for interfaces every ten minutes at the latest, and at once when a
/// connection comes back.
const BACK: Duration = Duration::from_secs(120);
/// The client's addresses.
const GUEST: [&str; 2] = ["10.99.0.100", "10.99.1.100"];

pub(super) fn run(context: &Context) -> Result {
    if context.peer || context.url.is_some() {
        return Err(Outcome::Skip("needs a node of its own".into()));
    }
    need("ip", "iproute2")?;
    need_root("network namespaces")?;
    let net = Net::up()?;
    let options = Options {
        iscsi: "10.99.0.11:3260".into(),
        smb: Some("0.0.0.0:445".into()),
        netns: Some(format!("{}-n1", net.0)),
        ..Options::default()
    };
    let node = Node::start(&context.folder, options)?;
    let env = vec![
        ("SRV", "10.99.0.11".to_string()),
        ("PORT", "445".to_string()),
        ("SHARE", node.told("smb_share")),
        ("SMB_USER", node.told("smb_user")),
        ("SMB_PASS", node.told("smb_password")),
        // One channel for each network. The client counts its channel sequence up for each channel that it connects again, and
        // takes a write that is refused because a newer number has overtaken it (MS-SMB2 3.3.5.2.10) for an I/O error; two
        // channels that come back with one cable make that happen on a busy machine.
        ("OPTS", "multichannel,max_channels=2,persistenthandles,hard,echo_interval=3".to_string()),
        ("WORK", "steady".to_string()),
        // Longer than both cuts take, with what the client needs to come back.
        ("LOAD_SECONDS", if context.full { "240" } else { "75" }.to_string()),
        ("SIZE_MIB", if context.full { "512" } else { "160" }.to_string()),
    ];
    let setup = Setup { script: "smb.sh", env, net: Some(&net.0), limit: LIMIT, ..Setup::default() };
    let mut guest = Guest::start(&context.folder, setup)?;
    guest.wait_for("READY")?;
    channels(&node, 2)?;
    for cable in ["1", "0"] {
        admin(&["cut", &net.0, "1", cable])?;
        pause(CUT);
        admin(&["mend", &net.0, "1", cable])?;
        channels(&node, 2)?;
        crate::note!("     network {cable} was cut for {} s and is back", CUT.as_secs());
    }
    guest.tell("hurt")?;
    let said = guest.finish()?;
    ensure(said.contains("DONE"), || format!("the guest did not come to its end:\n{said}"))?;
    node.finish()
}

/// Waits until a session has so many connections, from both networks, as `holdfast session list` shows them.
fn channels(node: &Node, least: usize) -> Result {
    let mut last = String::new();
    let waited = Deadline::after(BACK).poll("channels over both networks", || {
        let list = node.json(&["session", "list"])?;
        last = list.to_string();
        let sessions = list.get("items").and_then(|items| items.as_array()).cloned().unwrap_or_default();
        let enough = sessions.iter().any(|session| {
            let of = session.pointer("/smb/addresses").and_then(|all| all.as_array());
            let from: Vec<&str> = of.into_iter().flatten().filter_map(|each| each.as_str()).collect();
            let hosts: BTreeSet<&str> =
                from.iter().filter_map(|each| each.rsplit_once(':')).map(|at| at.0).collect();
            from.len() >= least && GUEST.iter().all(|guest| hosts.contains(guest))
        });
        Ok(enough.then_some(()))
    });
    waited.map_err(|why| Outcome::Fail(format!("{why}: not {least} from both networks:\n{last}")))
}
