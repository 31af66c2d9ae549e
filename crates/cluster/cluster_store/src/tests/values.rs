//! Keys and values: they come back, and nothing else gets through.

use proptest::prelude::*;
use uuid::Uuid;

use crate::keys::{ClusterName, DiskId, Key, NodeId, PoolId};
use crate::values::{
    Beat, Clients, ConfigHead, DiskPlace, Group, Holder, Home, Incarnation, Job, MAX_EPOCH, MAX_JSON, Member,
    Named, NodeEntry, NodePaths, NodePortal, NodeSees, Owner, PoolDisks, PoolVolumes, PoolVoter, Seats,
    TokenEntry, Value, ValueError, Vote,
};

fn node(number: u16) -> NodeId {
    NodeId::new(number).expect("a node")
}

fn back<T: Value + PartialEq + std::fmt::Debug>(value: &T) {
    let bytes = value.encode().expect("encodes");
    assert!(String::from_utf8_lossy(&bytes).contains("\"version\":1"));
    assert_eq!(T::decode(&bytes).as_ref(), Ok(value));
}

#[test]
fn keys_come_back_and_other_spellings_do_not() {
    let cluster = ClusterName::new("c1").expect("a name");
    let (pool, disk) = (PoolId(Uuid::from_u128(7)), DiskId(Uuid::from_u128(8)));
    let keys = [
        Key::ConfigHead,
        Key::ConfigChunk(12, 3),
        Key::User("ann".into()),
        Key::Member(node(1)),
        Key::Beat(node(65535)),
        Key::Owner(pool),
        Key::Witness(pool),
        Key::Home(pool),
        Key::Group(pool),
        Key::PoolDisks(pool),
        Key::NodeSees(node(3)),
        Key::Disk(disk),
        Key::SmbWitness("host-1".into()),
        Key::Balancer,
        Key::Node(node(7)),
        Key::NodeName("alpha".into()),
        Key::Token("0123abcd".into()),
        Key::EtcdSeats,
        Key::Known(uuid::Uuid::from_u128(7)),
        Key::Order(node(3), uuid::Uuid::from_u128(7)),
        Key::Volume("vm-1".into()),
        Key::NodePaths(node(3)),
        Key::PoolVolumes(pool),
        Key::WentBack,
    ];
    for key in keys {
        assert_eq!(Key::parse(&cluster, &key.path(&cluster)), Some(key));
    }
    let other = ClusterName::new("c2").expect("a name");
    assert_eq!(Key::parse(&other, &Key::Balancer.path(&cluster)), None, "another cluster's key");
    let tails = [
        "",
        "members/0",
        "members/00000",
        "members/1",
        "members/65536",
        "members/00001/x",
        "members/+0001",
        "pools/x/owner",
        "pools/00000000-0000-0000-0000-000000000007/",
        "pools/00000000000000000000000000000007/owner",
        "users/",
        "users/../x",
        "users/a b",
        "config/1/1",
        "jobs/other",
        "config/head/",
        "paths/nodes/1",
        "paths/pools/x",
    ];
    for tail in tails {
        assert_eq!(Key::parse(&cluster, &format!("/holdfast/c1/{tail}")), None, "{tail}");
    }
    for name in ["", "a/b", ".", "..", "-a", "a\n", &"x".repeat(65)] {
        assert_eq!(ClusterName::new(name), None, "{name:?}");
    }
}

#[test]
fn values_come_back() {
    let holder = Some(Holder { node: node(2), incarnation: Incarnation(u64::MAX) });
    back(&Member {
        incarnation: Incarnation(1),
        addresses: vec!["[::1]:1".into()],
        paused: true,
        draining: false,
        release: "0.1.0".into(),
        name: String::new(),
        api: String::new(),
        bus: String::new(),
    });
    back(&Beat { incarnation: Incarnation(1), counter: u64::MAX, membership: 7 });
    back(&Owner { epoch: MAX_EPOCH, holder });
    back(&Owner { epoch: 0, holder: None });
    back(&Vote { epoch: 3, sequence: u64::MAX });
    back(&Home { nodes: vec![node(1), node(2)] });
    back(&Group { pools: vec![PoolId(Uuid::from_u128(1))] });
    let disk = Uuid::from_u128(9);
    let voters = vec![PoolVoter { disk, name: "n1:/dev/sdb".into() }];
    back(&PoolDisks { voters, needed: 1 });
    back(&NodeSees {
        incarnation: Incarnation(3),
        disks: vec![disk],
        failed: vec![PoolId(Uuid::from_u128(1))],
    });
    back(&DiskPlace { node: None, lun: "iqn.x:1".into(), pool: None });
    back(&Job { holder });
    back(&ConfigHead { revision: 1, chunks: 2, length: 3, checksum: u64::MAX });
    back(&NodeEntry {
        name: "alpha".into(),
        api: "10.0.0.1:7401".into(),
        release: "0.1.0".into(),
        joined: 1,
        removed: true,
        token: "ab".into(),
        key: "cd".into(),
    });
    back(&Named { node: node(1) });
    back(&TokenEntry { expires: u64::MAX, made_by: node(1) });
    back(&Seats { seats: vec![(node(1), "https://10.0.0.1:7403".into())] });
    let portal = NodePortal { address: "[fd00::1]:3260".into(), group: 2 };
    back(&NodePaths { portals: vec![portal], forward: "10.0.0.1:7404".into() });
    back(&PoolVolumes { volumes: vec![Uuid::from_u128(5); 1500] });
}

#[test]
fn of_more_clients_than_there_is_room_for_the_first_are_kept() {
    for (local, remote) in
        [("10.0.0.50:445", "10.0.0.99"), ("[fd00::50]:445", "[2001:db8:1234:5678:9abc:def0:1234:5678]")]
    {
        let one = |port: u16| {
            (local.parse().expect("an address"), format!("{remote}:{port}").parse().expect("an address"))
        };
        let all: Vec<_> = (10_000..12_000).map(one).collect();
        assert!(Clients { connections: all.clone() }.encode().is_err(), "there is no room for all");
        let kept = Clients::that_fit(&all);
        let count = kept.connections.len();
        assert_eq!(kept.connections, all[..count]);
        back(&kept);
        let more = Clients { connections: all[..count + 2].to_vec() };
        assert!(matches!(more.encode(), Err(ValueError::TooLong(_))), "there is room for no more");
        assert_eq!(Clients::that_fit(&all[..700]).connections, all[..700]);
    }
}

#[test]
fn what_nobody_writes_is_refused() {
    let owner = |text: &str| Owner::decode(text.as_bytes());
    assert!(owner(r#"{"version":1,"epoch":3,"holder":null}"#).is_ok());
    assert!(
        owner(r#"{"version":1,"epoch":3,"holder":null,"later":1}"#).is_ok(),
        "a later release's field is left alone"
    );
    assert_eq!(owner(r#"{"version":2,"epoch":3,"holder":null}"#), Err(ValueError::Newer(2)));
    assert_eq!(owner(r#"{"epoch":3,"holder":null}"#), Err(ValueError::Invalid("version")));
    assert_eq!(owner(r#"{"version":0,"epoch":3,"holder":null}"#), Err(ValueError::Invalid("version")));
    assert_eq!(
        owner(r#"{"version":1,"epoch":281474976710656,"holder":null}"#),
        Err(ValueError::Invalid("epoch"))
    );
    for text in [
        "",
        "null",
        "[]",
        "{",
        "3",
        r#"{"version":1}"#,
        r#"{"version":1,"epoch":-1,"holder":null}"#,
        r#"{"version":1,"epoch":1.5,"holder":null}"#,
        r#"{"version":"1","epoch":1,"holder":null}"#,
        r#"{"version":1,"epoch":1,"holder":{"node":0,"incarnation":1}}"#,
        r#"{"version":1,"epoch":1,"holder":{"node":65536,"incarnation":1}}"#,
    ] {
        assert!(owner(text).is_err(), "{text}");
    }
    let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
    assert!(owner(&deep).is_err(), "depth is bounded");
    assert!(matches!(owner(&" ".repeat(MAX_JSON + 1)), Err(ValueError::TooLong(_))));
    let many = Home { nodes: vec![node(1); 257] };
    assert_eq!(many.encode(), Err(ValueError::Invalid("list of nodes")));
    let head = br#"{"version":1,"revision":1,"chunks":4000000000,"length":1,"checksum":1}"#;
    assert_eq!(ConfigHead::decode(head), Err(ValueError::Invalid("length")));
    let portals = |count, group| {
        let portal = NodePortal { address: "10.0.0.1:3260".into(), group };
        NodePaths { portals: vec![portal; count], forward: String::new() }.encode()
    };
    assert!(portals(64, 1).is_ok());
    assert_eq!(portals(65, 1), Err(ValueError::Invalid("list of portals")));
    assert_eq!(portals(1, 0), Err(ValueError::Invalid("portal group")));
    let long = DiskPlace { node: None, lun: "x".repeat(257), pool: None };
    assert_eq!(long.encode(), Err(ValueError::Invalid("LUN")));
}

proptest! {
    #[test]
    fn any_bytes_are_stood(bytes in proptest::collection::vec(any::<u8>(), 0..300), text in "\\PC{0,80}") {
        let cluster = ClusterName::new("c").expect("a name");
        let _ = Key::parse(&cluster, &format!("/holdfast/c/{text}"));
        let _ = (Owner::decode(&bytes), Member::decode(&bytes), Beat::decode(text.as_bytes()));
        let _ = crate::local::decode(&bytes);
    }
}

/// A majority of the votes opens a pool, whichever disks have them.
#[test]
fn a_pool_opens_with_as_many_voters_as_it_needs() {
    let voters: Vec<PoolVoter> =
        (0..3).map(|disk| PoolVoter { disk: Uuid::from_u128(disk), name: String::new() }).collect();
    let disks = PoolDisks { voters, needed: 2 };
    assert!(!disks.can_be_opened(|disk| *disk == Uuid::from_u128(1)));
    assert!(disks.can_be_opened(|disk| *disk != Uuid::from_u128(1)));
    assert_eq!(disks.seen(|disk| *disk == Uuid::from_u128(7)), 0);
    // However many a node sees, what it says of them fits.
    let many = (0..100_000).map(Uuid::from_u128);
    let sees =
        NodeSees::that_fits(Incarnation(u64::MAX), many, (0..1000).map(|pool| PoolId(Uuid::from_u128(pool))));
    back(&sees);
}
