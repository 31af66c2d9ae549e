//! Tests of queues, rules and of what is divided.

use control_api::{Assignment, LunConfig, Policy};

use super::*;

thread_local! {
    /// How many rules were made of policies by this thread.
    pub(super) static RULES_MADE: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

fn lun(name: &str, volume: &str) -> LunConfig {
    LunConfig::new(name, volume, format!("/{name}"))
}

fn config(kind: PolicyKind) -> Config {
    let guid = Uuid::from_u128(1);
    let row = |lun: &str| Assignment { lun: lun.into(), policy: guid };
    Config {
        luns: vec![lun("a", "v"), lun("b", "v"), lun("c", "w"), lun("d", "w")],
        qos_policies: vec![Policy {
            guid,
            name: "gold".into(),
            kind,
            min_iops: Some(100),
            max_iops: Some(1001),
            max_bandwidth: None,
        }],
        qos_assignments: vec![
            row("a"),
            row("b"),
            row("c"),
            Assignment { lun: "d".into(), policy: Uuid::from_u128(2) },
        ],
        ..Config::default()
    }
}

type Rules = BTreeMap<String, BTreeMap<String, Rule>>;

/// The rules by the names of volumes, and what is shared.
fn rules_after(config: &Config, former: &BTreeMap<Uuid, Spanning>) -> (Rules, BTreeMap<Uuid, Spanning>) {
    let (rules, spanning) = rules(config, &config.policies(), former, 0);
    (rules.into_values().map(|of| (of.name, of.rules.luns)).collect(), spanning)
}

fn rules_of(config: &Config) -> (Rules, BTreeMap<Uuid, Spanning>) {
    rules_after(config, &BTreeMap::new())
}

#[test]
fn each_disk_of_a_dedicated_policy_has_all_of_it() {
    let config = config(PolicyKind::Dedicated);
    let (rules, spanning) = rules_of(&config);
    let whole = Rule::Alone(config.qos_policies[0].terms());
    assert_eq!([rules["v"]["a"], rules["v"]["b"], rules["w"]["c"]], [whole; 3]);
    assert_eq!(rules["w"]["d"], Rule::Free, "a policy that is not there limits nothing");
    assert!(spanning.is_empty());
}

#[test]
fn volumes_share_an_aggregated_policy_and_its_parts_add_up() {
    let (rules, spanning) = rules_of(&config(PolicyKind::Aggregated));
    let (v, w) = (rules["v"]["a"].terms(), rules["w"]["c"].terms());
    assert_eq!(rules["v"]["a"], rules["v"]["b"]);
    assert_eq!(v.max_iops.unwrap() + w.max_iops.unwrap(), 1001);
    assert_eq!((v.min_iops, w.min_iops), (Some(50), Some(50)));
    assert_eq!(spanning.len(), 1);
    // On one volume there is nothing to divide.
    let mut config = config(PolicyKind::Aggregated);
    config.luns[2].volume = "v".into();
    let (rules, spanning) = rules_of(&config);
    assert_eq!(rules["v"]["c"].terms().max_iops, Some(1001));
    assert!(spanning.is_empty());
}

#[test]
fn a_volume_that_waits_gets_what_others_leave() {
    assert_eq!(wanted(5, 0, 1, 1), u64::MAX);
    assert_eq!(wanted(150, 50, 0, 1_000_000_000), 125);
    assert_eq!(wanted(150, 50, 0, 100_000_000), 1250);
    assert_eq!(wanted(0, 50, 0, 1), 0, "a flow that ended takes its count along");
    let terms = Terms { min_iops: Some(160), max_iops: Some(1600), max_bandwidth: None, ..Terms::default() };
    let divided = parts(terms, &[u64::MAX, 0], &[0, 0]);
    assert_eq!((divided[0].max_iops, divided[1].max_iops), (Some(1550), Some(50)));
    assert_eq!((divided[0].min_iops, divided[1].min_iops), (Some(155), Some(5)));
    assert_eq!(divided[0].max_bandwidth, None);
}

#[test]
fn what_is_shared_as_before_stays_divided_as_it_is() {
    let mut config = config(PolicyKind::Aggregated);
    let guid = config.qos_policies[0].guid;
    let (_, mut spanning) = rules_of(&config);
    let divided = spanning.get_mut(&guid).expect("it is shared");
    divided.parts = parts(divided.terms, &[u64::MAX, 0], &[0, 0]);
    let busy = divided.parts[0].max_iops;
    // Another LUN comes, or anything else is changed.
    config.luns.push(lun("e", "v"));
    let (rules, after) = rules_after(&config, &spanning);
    assert_eq!(rules["v"]["a"].terms().max_iops, busy);
    assert_eq!(after[&guid].parts[0].max_iops, busy);
    config.qos_policies[0].max_iops = Some(501);
    let (rules, _) = rules_after(&config, &spanning);
    let (v, w) = (rules["v"]["a"].terms().max_iops, rules["w"]["c"].terms().max_iops);
    assert_eq!(v.zip(w).map(|(v, w)| v + w), Some(501), "the policy itself was changed");
}

fn gates() -> Gates {
    let shards = SystemShards::start(Some(1)).expect("a shard");
    Gates::new(shards, Arc::new(shard_runtime::SystemClock::new()), Arc::default())
}

/// A flow of LUN `a`, which has a limit of so many, and what of it goes at once and what waits.
fn waiting(gates: &Gates, max_iops: u64) -> (Config, Vec<qos_gate::Turn>) {
    let mut config = config(PolicyKind::Dedicated);
    (config.qos_policies[0].min_iops, config.qos_policies[0].max_iops) = (None, Some(max_iops));
    gates.apply(&config);
    let flow = gates.disk(&config.luns[0]).expect("it has a queue").flow("i").expect("it is there");
    let turns = (0..30).filter_map(|_| match flow.enter(qos_gate::Kind::Write, 1 << 20) {
        Ok(qos_gate::Entry::Later(turn)) => Some(turn),
        _ => None,
    });
    let turns = turns.collect();
    (config, turns)
}

#[tokio::test]
async fn each_queue_has_its_timer() {
    let gates = gates();
    // 128 normalised I/Os each: one in a hundredth of a second.
    let (_config, turns) = waiting(&gates, 12_800);
    assert!(turns.len() > 20, "most wait");
    for turn in turns {
        let permit = tokio::time::timeout(Duration::from_secs(60), turn).await;
        drop(permit.expect("its time comes").expect("its flow is there"));
    }
}

#[tokio::test]
async fn what_waits_at_the_queue_of_a_volume_that_loses_its_last_lun_goes_on() {
    let gates = gates();
    let (_config, turns) = waiting(&gates, 1);
    assert_eq!(turns.len(), 29);
    gates.apply(&Config::default());
    for turn in turns {
        let permit = futures_util::FutureExt::now_or_never(turn);
        drop(permit.expect("nothing limits it").expect("its flow is there"));
    }
}

#[test]
fn volumes_of_one_name_have_queues_of_their_own() {
    let gates = gates();
    let mut config = config(PolicyKind::Dedicated);
    for (lun, guid) in config.luns.iter_mut().zip([1, 1, 2, 2]) {
        (lun.volume, lun.volume_guid) = ("v".into(), Some(Uuid::from_u128(guid)));
    }
    gates.apply(&config);
    assert_eq!(gates.shared.lock().by_volume.len(), 2);
    let disks: Vec<_> = config.luns.iter().filter_map(|lun| gates.disk(lun)).collect();
    let _flows: Vec<_> = disks.iter().filter_map(|disk| disk.flow("i")).collect();
    let flows = gates.flows();
    assert!(flows.len() == 4 && flows.iter().all(|flow| flow.volume == "v"));
    assert_eq!(flows.iter().filter(|flow| flow.report.disk == "a".into()).count(), 1);
}

/// A client that calls its flows by many names does not get what was assigned to the file for each of them.
#[test]
fn what_was_assigned_to_a_file_holds_for_all_flows_of_it_together() {
    let gates = gates();
    let mut config = config(PolicyKind::Dedicated);
    let guid = config.qos_policies[0].guid;
    config.shares = vec![
        serde_json::from_value(serde_json::json!({ "name": "s", "volume": "v", "folder": "/" }))
            .expect("a share"),
    ];
    config.qos_places = vec![
        serde_json::from_value(
            serde_json::json!({ "volume": "v", "kind": "folder", "path": "/limited", "policy": guid }),
        )
        .expect("a place"),
    ];
    gates.apply(&config);
    let opened = |path: &str, flow: u64| {
        let wanted = Wanted { flow: Uuid::from_u128(flow.into()), asked: qos_gate::Asked::Nothing };
        gates.file("s", path, Some(&wanted)).expect("a queue")
    };
    assert!(Arc::ptr_eq(&opened("/limited/a.vhdx", 1), &opened("/limited/a.vhdx", 2)));
    assert!(!Arc::ptr_eq(&opened("/limited/a.vhdx", 1), &opened("/limited/b.vhdx", 1)));
    assert!(
        !Arc::ptr_eq(&opened("/free/a.vhdx", 1), &opened("/free/a.vhdx", 2)),
        "nothing was assigned there"
    );
}

/// The node stops: no error of the queues keeps units from what is to become of them.
#[tokio::test]
async fn queues_are_made_without_a_shard() {
    let gates = gates();
    crate::backend::ShardBackend::stop(&*gates.shards).await.expect("stopped");
    let config = config(PolicyKind::Aggregated);
    gates.apply(&config);
    assert!(gates.disk(&config.luns[0]).is_some());
}

/// Volumes with GUIDs, as a cluster's are: `v` has 1, `w` has 2.
fn of_cluster() -> Config {
    let mut config = config(PolicyKind::Aggregated);
    for lun in &mut config.luns {
        lun.volume_guid = Some(Uuid::from_u128(if lun.volume == "v" { 1 } else { 2 }));
    }
    config
}

#[tokio::test]
async fn two_nodes_divide_a_policy_as_one_would() {
    let (one, two) = (gates(), gates());
    let guid = Uuid::from_u128(1);
    let mut held = Vec::new();
    // Both have the configuration; `v` is served by the one, `w` by the other, and both volumes have more waiting than they may do.
    for (gates, lun) in [(&one, 0), (&two, 2)] {
        let config = of_cluster();
        gates.apply(&config);
        let flow = gates.disk(&config.luns[lun]).expect("it has a queue").flow("i").expect("it is there");
        held.push((0..30).map(|_| flow.enter(qos_gate::Kind::Write, 1 << 20)).collect::<Vec<_>>());
    }
    let part = |gates: &Gates, volume: usize| gates.shared.lock().spanning[&guid].parts[volume].max_iops;
    let tell = |from: &Gates, node, to: &Gates| {
        from.exchange.says().borrow().iter().for_each(|message| to.exchange.hear(node, message));
    };
    let divide = || {
        for (gates, number, other) in [(&one, 1, &two), (&two, 2, &one)] {
            assert!(divide_now(&gates.shared, &gates.exchange, gates.clock.now().0));
            tell(gates, number, other);
        }
    };
    divide();
    divide();
    assert_eq!([part(&one, 0), part(&one, 1)], [part(&two, 0), part(&two, 1)], "both come to the same");
    let (v, w) = (part(&one, 0).expect("a part"), part(&two, 1).expect("a part"));
    assert_eq!(v + w, 1001, "each uses its own part, which add up to the policy's number");
    assert!(v.abs_diff(w) <= 1, "{v} and {w}");
    // The other's flows end: the first has all but what is kept.
    held.pop();
    divide();
    divide();
    assert!(part(&one, 0).expect("a part") > 960, "{:?}", part(&one, 0));
    // They were served when the other node was heard last; now it is gone.
    one.exchange.hear(2, two.exchange.says().borrow().first().expect("said"));
    one.exchange.keep(|_| false);
    assert!(divide_now(&one.shared, &one.exchange, one.clock.now().0));
    assert!(part(&one, 0).expect("a part") > 960);
}

/// Ten thousand policies on a hundred volumes: what is looked at is their sum, and not their product.
#[test]
fn ten_thousand_policies_on_many_volumes_cost_their_sum() {
    const POLICIES: usize = 10_000;
    const VOLUMES: usize = 100;
    let guid = |number: usize| Uuid::from_u128(number as u128 + 1);
    let mut config = Config::default();
    for number in 0..POLICIES {
        config.qos_policies.push(Policy {
            guid: guid(number),
            name: format!("p{number}"),
            kind: PolicyKind::Aggregated,
            min_iops: None,
            max_iops: Some(1000),
            max_bandwidth: None,
        });
        // Each has LUNs on two volumes, and is divided.
        for (half, place) in [number, number + 1].into_iter().enumerate() {
            let name = format!("l{number}-{half}");
            config.luns.push(lun(&name, &format!("v{}", place % VOLUMES)));
            config.qos_assignments.push(Assignment { lun: name, policy: guid(number) });
        }
    }
    RULES_MADE.set(0);
    let (rules, spanning) = rules(&config, &config.policies(), &BTreeMap::new(), 0);
    assert_eq!((rules.len(), spanning.len()), (VOLUMES, POLICIES));
    let made = RULES_MADE.get();
    assert!(made <= POLICIES + config.luns.len(), "{made} rules were made");
    let mut tables = rules.values().map(|of| &of.rules.policies);
    let first = tables.next().expect("a volume");
    assert_eq!(first.len(), POLICIES);
    assert!(tables.all(|table| Arc::ptr_eq(table, first)), "all volumes have one table");
    // Each volume has its part, and both are the whole.
    let part = |volume: usize, lun: &str| {
        rules[&VolumeKey::Name(format!("v{volume}"))].rules.luns[lun].terms().max_iops.expect("a limit")
    };
    assert_eq!(part(7, "l7-0") + part(8, "l7-1"), 1000);
    assert!(part(7, "l7-0") < 1000);
}
