//! A machine made of files, and one rule after the other.

use super::*;

fn machine(files: &[(&str, &str)]) -> Network {
    let root = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let path = root.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    Network::of(root.path())
}

fn port(name: &str) -> Interface {
    Interface {
        name: name.into(),
        kind: Kind::Physical,
        state: "up".into(),
        speed_mbit: Some(25_000),
        mtu: 9_000,
        receive_queues: 8,
        ..Interface::default()
    }
}

fn network(interfaces: Vec<Interface>) -> Network {
    Network { processors: 8, interfaces, name_servers: vec!["192.0.2.1".into()], ..Network::default() }
}

/// What is said, one line for each.
fn told(network: &Network) -> Vec<String> {
    network.advice().iter().map(|advice| format!("{}: {}", advice.subject, advice.detail)).collect()
}

#[track_caller]
fn says(network: &Network, words: &str) {
    let told = told(network);
    assert!(told.iter().any(|line| line.contains(words)), "{words:?} is missing: {told:#?}");
}

#[test]
fn facts_are_read_from_files_of_the_kernel() {
    let network = machine(&[
        ("sys/class/net/eth0/mtu", "1500\n"),
        ("sys/class/net/eth0/type", "1\n"),
        ("sys/class/net/eth0/operstate", "up\n"),
        ("sys/class/net/eth0/speed", "10000\n"),
        ("sys/class/net/eth0/duplex", "full\n"),
        ("sys/class/net/eth0/queues/rx-0/rps_cpus", "00000000,00000000\n"),
        ("sys/class/net/eth0/queues/rx-1/rps_cpus", "00000000,00000003\n"),
        ("sys/class/net/eth0/queues/tx-0/xps_cpus", "0\n"),
        ("sys/class/net/eth0/device/infiniband/mlx5_0/fw_ver", "16.35.1012\n"),
        ("sys/class/net/eth0/statistics/rx_packets", "70\n"),
        ("sys/class/net/eth0/statistics/tx_packets", "30\n"),
        ("sys/class/net/eth0/statistics/rx_dropped", "4\n"),
        ("sys/class/net/lo/mtu", "65536\n"),
        ("sys/class/net/lo/type", "772\n"),
        ("sys/class/net/bond0/mtu", "1500\n"),
        ("sys/class/net/bond0/speed", "-1\n"),
        ("sys/class/net/bond0/bonding/mode", "802.3ad 4\n"),
        ("sys/class/net/bond0/bonding/slaves", "eth1 eth2\n"),
        ("sys/class/net/v7/mtu", "1500\n"),
        ("sys/class/net/v7/uevent", "DEVTYPE=vlan\nINTERFACE=v7\n"),
        ("sys/class/net/bonding_masters", "bond0\n"),
        ("etc/resolv.conf", "# of the machine\nsearch example.org\nnameserver 192.0.2.53\nnameserver\n"),
        ("proc/sys/kernel/hostname", "store-1\n"),
        ("proc/cpuinfo", "processor : 0\nmodel name : x\nprocessor : 1\n"),
    ]);
    let names: Vec<_> = network.interfaces.iter().map(|each| (each.name.as_str(), each.kind)).collect();
    assert_eq!(
        names,
        [("bond0", Kind::Bond), ("eth0", Kind::Physical), ("lo", Kind::Loopback), ("v7", Kind::Vlan)]
    );
    let eth0 = &network.interfaces[1];
    assert_eq!((eth0.receive_queues, eth0.transmit_queues, eth0.spread_by_kernel), (2, 1, true));
    assert_eq!((eth0.packets, eth0.errors, eth0.speed_mbit), (100, 4, Some(10_000)));
    assert_eq!(eth0.rdma.as_ref().unwrap().firmware, "16.35.1012");
    assert_eq!(network.interfaces[0].bond.as_ref().unwrap().members, ["eth1", "eth2"]);
    assert_eq!((network.host.as_str(), network.processors), ("store-1", 2));
    assert_eq!(network.name_servers, ["192.0.2.53"]);
}

#[test]
fn nothing_is_said_of_a_network_that_is_well() {
    let mut one = port("eth0");
    one.addresses = vec!["192.0.2.1/24".into(), "fe80::1/64".into()];
    let mut other = port("eth1");
    other.addresses = vec!["198.51.100.1/24".into(), "fe80::2/64".into()];
    assert_eq!(told(&network(vec![one, other])), [""; 0]);
}

#[test]
fn each_rule_speaks() {
    let with = |change: &dyn Fn(&mut Interface)| {
        let mut first = port("eth0");
        change(&mut first);
        network(vec![first, port("eth1")])
    };
    says(&with(&|eth| (eth.state, eth.addresses) = ("down".into(), vec!["192.0.2.1/24".into()])), "is down");
    says(&with(&|eth| eth.half_duplex = true), "half duplex");
    says(&with(&|eth| eth.speed_mbit = Some(100)), "12 MB/s");
    says(&with(&|eth| eth.mtu = 1500), "takes packets of 1500 bytes");
    says(&with(&|eth| eth.receive_queues = 1), "one receive queue");
    says(&with(&|eth| (eth.packets, eth.errors) = (1_000, 11)), "11 of 1000 packets");
    says(&with(&|eth| eth.rdma = Some(Rdma { device: "mlx5_0".into(), ..Rdma::default() })), "RDMA (mlx5_0)");
    says(&network(vec![port("eth0")]), "the only way");
    says(&Network { name_servers: Vec::new(), ..with(&|_| ()) }, "no name server");
    let tcp = TcpCounters { sent: 1_000_000, sent_again: 20_000, not_taken: 1, ..TcpCounters::default() };
    says(&Network { tcp, ..with(&|_| ()) }, "2.0 % of the segments");
    says(&Network { tcp, ..with(&|_| ()) }, "1 connection was dropped");
}

#[test]
fn two_interfaces_in_one_network_are_told() {
    let mut both = vec![port("eth0"), port("eth1")];
    both[0].addresses = vec!["10.1.2.3/16".into()];
    both[1].addresses = vec!["10.1.200.3/16".into()];
    says(&network(both.clone()), "are in one network (10.1.0.0/16)");
    both[1].addresses = vec!["10.2.200.3/16".into(), "no address".into(), "10.0.0.1/99".into()];
    assert_eq!(told(&network(both)), [""; 0]);
}

#[test]
fn a_bond_of_unequal_members_is_told() {
    let mut bond = Interface { kind: Kind::Bond, ..port("bond0") };
    bond.bond = Some(Bond { mode: "802.3ad".into(), members: vec!["eth0".into(), "eth1".into()] });
    let member = |name: &str, change: &dyn Fn(&mut Interface)| {
        let mut port = port(name);
        port.part_of = Some("bond0".into());
        change(&mut port);
        port
    };
    let of = |change: &dyn Fn(&mut Interface)| {
        network(vec![bond.clone(), member("eth0", &|_| ()), member("eth1", change)])
    };
    assert_eq!(told(&of(&|_| ())), [""; 0]);
    says(&of(&|eth| eth.mtu = 1500), "different MTU: eth0 9000, eth1 1500");
    says(&of(&|eth| eth.speed_mbit = None), "different speed: eth0 25000 Mbit/s, eth1 ?");
    says(&of(&|eth| eth.state = "down".into()), "has lost eth1; 1 of 2 are left");
    says(&network(vec![bond.clone(), member("eth0", &|_| ())]), "a bond of one interface");
}

#[test]
fn facts_of_an_older_release_are_read() {
    let network: Network =
        serde_json::from_str(r#"{"interfaces": [{"name": "eth0", "state": "up", "mtu": 1500}]}"#).unwrap();
    assert_eq!(network.interfaces[0].mtu, 1500);
}

#[test]
fn this_machine_has_a_loopback() {
    let mut network = Network::here();
    network.add_address("lo", "127.0.0.1".parse().unwrap(), 8);
    let found = network.interface_of("127.0.0.1".parse().unwrap()).unwrap();
    assert_eq!((found.name.as_str(), found.kind), ("lo", Kind::Loopback));
}
