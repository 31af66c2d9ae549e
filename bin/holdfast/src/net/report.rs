//! The network of this machine in one report.

use control_api::{ClusterStatus, Session};
use network_facts::{Interface, Kind, Network};

use super::clients;
use super::target::{Target, addresses_of};
use super::ways::{self, Ways};
use crate::context::{Context, print_json};
use crate::error::CliResult;
use crate::finding::Finding;
use crate::table::{Table, word};

/// Requests of each kind to a node of the cluster.
const TRIES: u32 = 5;
/// Ports and routes that are printed at most; `--json` has them all.
const ROWS: usize = 25;

/// What a node knows of its network.
struct Asked {
    sessions: Vec<Session>,
    /// Why the node knows nothing.
    silent: Option<String>,
    /// Ways to the other nodes of its cluster.
    nodes: Vec<Ways>,
}

async fn ask(context: &Context, network: &Network) -> Asked {
    let (sessions, silent) = match context.client.list::<Session>("/sessions").await {
        Ok(sessions) => (sessions, None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    // A node that belongs to no cluster has none.
    let cluster = context.client.get::<ClusterStatus>("/cluster").await.ok();
    let others = cluster.iter().flat_map(|cluster| {
        cluster.nodes.iter().filter(|node| node.name != cluster.node).flat_map(|node| &node.addresses)
    });
    let targets: Vec<Target> = others.filter_map(|address| address.parse().ok()).collect();
    let mut nodes = Vec::new();
    for target in &targets {
        nodes.push(ways::look(target, TRIES, network).await);
    }
    Asked { sessions, silent, nodes }
}

pub(super) async fn show(context: &Context) -> CliResult {
    let network = super::network().await;
    let asked = ask(context, &network).await;
    let own_name = addresses_of(&network.host).await;
    let mut findings: Vec<Finding> = network.advice().into_iter().map(Finding::from).collect();
    findings.extend(clients::findings(&network, &asked.sessions));
    findings.extend(asked.nodes.iter().flat_map(Ways::findings));
    if let Err(why) = &own_name {
        findings.push(Finding {
            severity: control_api::Severity::Info,
            subject: network.host.clone(),
            detail: format!("this machine's own name has no address: {why}"),
            todo: "Give it one in /etc/hosts or at the name server, so that clients and logs can use it."
                .into(),
        });
    }
    findings.sort_by_key(|finding| finding.severity);
    if context.json {
        return print_json(&serde_json::json!({
            "findings": findings,
            "network": network,
            "own_addresses": own_name.unwrap_or_default(),
            "nodes": asked.nodes,
            "node_silent": asked.silent,
        }));
    }
    print(&network, &asked, &findings);
    Ok(())
}

fn print(network: &Network, asked: &Asked, findings: &[Finding]) {
    match findings {
        [] => outln!("The network of {}: nothing to change.", network.host),
        _ => outln!("The network of {}: what could be better, the worst first.", network.host),
    }
    findings.iter().for_each(Finding::print);
    outln!();
    print_interfaces(&network.interfaces);
    print_routes(network);
    let servers = network.name_servers.join(", ");
    outln!("\nName servers: {}", if servers.is_empty() { "none" } else { &servers });
    print_ports(network);
    if !asked.nodes.is_empty() {
        outln!("\nOther nodes of the cluster:");
        ways::print(&asked.nodes);
    }
    if let Some(why) = &asked.silent {
        outln!("\nThe node was not asked about its clients: {why}");
    }
}

fn print_interfaces(interfaces: &[Interface]) {
    let headings = [
        "INTERFACE",
        "KIND",
        "STATE",
        "SPEED",
        ">MTU",
        "ADDRESSES",
        ">QUEUES rx/tx",
        "DRIVER",
        "FIRMWARE",
        "PART OF",
        ">ERRORS, DROPS",
    ];
    let mut table = Table::new(&headings, "There are no interfaces.");
    for interface in interfaces.iter().filter(|each| each.kind != Kind::Loopback) {
        let kind = match &interface.bond {
            Some(bond) => format!("bond {}", bond.mode),
            None => word(&interface.kind),
        };
        let addresses: Vec<&str> =
            interface.addresses.iter().map(String::as_str).filter(|each| !each.starts_with("fe80")).collect();
        table.row([
            interface.name.clone(),
            kind,
            interface.state.clone(),
            interface.speed_mbit.map(|speed| format!("{speed} Mbit/s")).unwrap_or_default(),
            interface.mtu.to_string(),
            addresses.join(" "),
            format!("{}/{}", interface.receive_queues, interface.transmit_queues),
            interface.driver.clone(),
            interface.firmware.clone(),
            interface.part_of.clone().unwrap_or_default(),
            interface.errors.to_string(),
        ]);
    }
    table.print();
}

fn print_routes(network: &Network) {
    outln!();
    let mut table = Table::new(&["ROUTE TO", "BY", "INTERFACE", ">METRIC"], "There are no routes.");
    // Every interface has one to its own link.
    let routes = network.routes.iter().filter(|route| !route.destination.to_string().starts_with("fe80"));
    for route in routes.take(ROWS) {
        table.row([
            if route.prefix == 0 {
                "everything else".into()
            } else {
                format!("{}/{}", route.destination, route.prefix)
            },
            route.gateway.map(|gateway| gateway.to_string()).unwrap_or_default(),
            route.interface.clone(),
            route.metric.to_string(),
        ]);
    }
    table.print();
}

fn print_ports(network: &Network) {
    outln!();
    let headings = ["PORT", "WHOSE", ">PEERS", ">ESTABLISHED", ">OPENING", ">CLOSE WAIT", ">CLOSING"];
    let mut table = Table::new(&headings, "There are no TCP connections.");
    for port in network.ports.iter().take(ROWS) {
        table.row([
            port.port.to_string(),
            if port.listening { "this machine".into() } else { "others".into() },
            port.peers.to_string(),
            port.established.to_string(),
            port.opening.to_string(),
            port.close_wait.to_string(),
            port.closing.to_string(),
        ]);
    }
    table.print();
    let left = network.ports.len().saturating_sub(ROWS);
    if left > 0 {
        outln!("… and {}; --json has them", crate::units::many(left as u64, "more port"));
    }
}
