//! Tests of policies: what is refused and why, the names of older systems, and states.

use super::*;

fn policy() -> Policy {
    Policy {
        guid: Uuid::from_u128(7),
        name: "gold".into(),
        kind: PolicyKind::Dedicated,
        min_iops: Some(250),
        max_iops: Some(500),
        max_bandwidth: Some(100 << 20),
    }
}

fn refused(change: impl FnOnce(&mut Policy)) -> String {
    let mut changed = policy();
    change(&mut changed);
    changed.check().expect_err("it is wrong").to_string()
}

#[test]
fn a_policy_that_makes_sense_is_taken_with_any_of_its_numbers() {
    assert_eq!(policy().check(), Ok(()));
    let none = Policy { min_iops: None, max_iops: None, max_bandwidth: None, ..policy() };
    assert_eq!(none.check(), Ok(()));
    assert_eq!(
        Policy { min_iops: Some(1), max_iops: Some(1), max_bandwidth: None, ..policy() }.check(),
        Ok(())
    );
    let most = Policy {
        min_iops: Some(MAX_IOPS),
        max_iops: Some(MAX_IOPS),
        max_bandwidth: Some(MAX_BANDWIDTH),
        ..policy()
    };
    assert_eq!(most.check(), Ok(()));
    let terms = policy().terms();
    assert_eq!(
        (terms.min_iops, terms.max_iops, terms.max_bandwidth),
        (Some(250), Some(500), Some(100 << 20))
    );
}

#[test]
fn what_makes_no_sense_is_refused_in_words() {
    for (said, expected) in [
        (refused(|p| p.min_iops = Some(501)), "minimum of 501 IOPS is above its maximum of 500"),
        (refused(|p| p.min_iops = Some(0)), "a minimum of 0"),
        (refused(|p| p.max_iops = Some(0)), "a maximum of 0"),
        (refused(|p| p.max_bandwidth = Some(0)), "a maximum bandwidth of 0"),
        (refused(|p| p.max_iops = Some(MAX_IOPS + 1)), "above the highest there is, 1000000000"),
        (refused(|p| (p.min_iops, p.max_iops) = (Some(u64::MAX), None)), "above the highest"),
        (refused(|p| p.max_bandwidth = Some(u64::MAX)), "above the highest"),
        (refused(|p| p.max_bandwidth = Some(MIN_BANDWIDTH - 1)), "answers later than any system waits"),
        (refused(|p| p.max_bandwidth = Some(MIN_BANDWIDTH)), "can't be met with 65536 bytes per second"),
        (refused(|p| p.guid = Uuid::nil()), "GUID of zeros"),
        (refused(|p| p.name = String::new()), "can't be the name"),
        (refused(|p| p.name = "a b".into()), "can't be the name"),
        (refused(|p| p.name = "-x".into()), "can't be the name"),
        (refused(|p| p.name = "x".repeat(65)), "can't be the name"),
    ] {
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn names_and_guids_are_unique_and_a_disk_has_one_policy() {
    let other = Policy { guid: Uuid::from_u128(8), name: "Gold".into(), ..policy() };
    let twice = check_policies(&[policy(), other.clone()]);
    assert_eq!(twice, Err(PolicyError::NameTwice("Gold".into())), "names differ by more than their case");
    let other = Policy { name: "silver".into(), ..other };
    assert_eq!(check_policies(&[policy(), other.clone()]), Ok(()));
    let twin = Policy { guid: policy().guid, ..other };
    assert!(matches!(check_policies(&[policy(), twin]), Err(PolicyError::GuidTwice(..))));
    let many: Vec<Policy> = (1..=MAX_POLICIES as u128 + 1)
        .map(|n| Policy { guid: Uuid::from_u128(n), name: format!("p{n}"), ..policy() })
        .collect();
    assert_eq!(check_policies(&many), Err(PolicyError::TooMany(MAX_POLICIES, "policies")));
    assert_eq!(check_policies(&many[1..]), Ok(()), "ten thousand are allowed");
    let row = |lun: &str, policy| Assignment { lun: lun.into(), policy: Uuid::from_u128(policy) };
    assert_eq!(check_assignments(&[row("a", 7), row("b", 99)]), Ok(()), "a policy need not be there");
    assert_eq!(check_assignments(&[row("a", 7), row("a", 7)]), Err(PolicyError::TwoPolicies("a".into())));
}

#[test]
fn settings_have_bounds() {
    let settings = QosSettings::default();
    assert_eq!(check_settings(&settings), Ok(()));
    for unit_bytes in [0, 1023, (4 << 20) + 1, u32::MAX] {
        assert_eq!(
            check_settings(&QosSettings { unit_bytes, ..settings }),
            Err(PolicyError::Unit(unit_bytes))
        );
    }
    for volume_depth in [0, 65_537] {
        let wrong = check_settings(&QosSettings { volume_depth, ..settings });
        assert_eq!(wrong, Err(PolicyError::Depth(volume_depth)));
    }
    for latency_target_us in [1, 19, 10_000_001, u32::MAX] {
        let wrong = check_settings(&QosSettings { latency_target_us, ..settings });
        assert_eq!(wrong, Err(PolicyError::LatencyTarget(latency_target_us)));
    }
    assert_eq!(check_settings(&QosSettings { latency_target_us: 20, ..settings }), Ok(()));
}

#[test]
fn names_of_older_systems_mean_the_same() {
    for (word, kind) in [
        ("dedicated", PolicyKind::Dedicated),
        ("MultiInstance", PolicyKind::Dedicated),
        ("Aggregated", PolicyKind::Aggregated),
        ("SingleInstance", PolicyKind::Aggregated),
    ] {
        assert_eq!(word.parse(), Ok(kind));
        assert_eq!(serde_json::from_value::<PolicyKind>(word.into()).unwrap(), kind);
        assert_eq!(serde_json::to_value(kind).unwrap(), kind.to_string());
    }
    assert!("both".parse::<PolicyKind>().unwrap_err().to_string().contains("dedicated"));
}

#[test]
fn a_row_keeps_what_it_says_and_refuses_what_it_does_not_know() {
    let text = serde_json::to_string(&policy()).unwrap();
    assert_eq!(serde_json::from_str::<Policy>(&text).unwrap(), policy());
    let short = r#"{"guid":"00000000-0000-0000-0000-000000000007","name":"x"}"#;
    let read: Policy = serde_json::from_str(short).unwrap();
    assert_eq!((read.kind, read.min_iops, read.max_iops), (PolicyKind::Dedicated, None, None));
    for wrong in [r#""min_iops":-1"#, r#""max_iops":1.5"#, r#""max_iop":1"#] {
        let text = short.replace("\"name\"", &format!("{wrong},\"name\""));
        assert!(serde_json::from_str::<Policy>(&text).is_err(), "{wrong}");
    }
}

#[test]
fn policies_are_found_by_name_and_guid_and_missed_by_name() {
    let policies = [policy()];
    for word in
        ["gold", "GOLD", "00000000-0000-0000-0000-000000000007", "{00000000-0000-0000-0000-000000000007}"]
    {
        assert_eq!(Policies::find(&policies, word), Some(&policies[0]), "{word}");
    }
    assert_eq!(Policies::find(&policies, "silver"), None);
    let rows = [
        Assignment { lun: "a".into(), policy: Uuid::from_u128(7) },
        Assignment { lun: "b".into(), policy: Uuid::from_u128(8) },
    ];
    let table = Policies::new(&policies, &rows, &[]);
    assert_eq!(table.of_lun("a"), Effective::Policy(&policies[0]));
    assert_eq!(table.of_lun("b"), Effective::Unknown(Uuid::from_u128(8)));
    assert_eq!(table.of_lun("c"), Effective::None);
}

#[test]
fn insufficient_is_who_asks_for_its_minimum_and_does_not_get_it() {
    let of =
        |asked, got, waited_permille| FlowStatus::of(Some(1000), Measured { asked, got, waited_permille });
    assert_eq!(of(2000, 900, 40_000), FlowStatus::InsufficientThroughput);
    assert_eq!(of(2000, 985, 40_000), FlowStatus::Ok, "a window has ragged ends");
    assert_eq!(of(500, 500, 0), FlowStatus::Ok, "it asks for less");
    assert_eq!(of(500, 500, 400), FlowStatus::Ok, "without waiting it would ask for 833");
    assert_eq!(of(500, 500, 600), FlowStatus::InsufficientThroughput, "it would ask for 1250");
    assert_eq!(of(0, 0, 1000), FlowStatus::InsufficientThroughput, "it gets nothing at all");
    assert_eq!(of(0, 0, 0), FlowStatus::Ok, "it is idle");
    let none = Measured { asked: 9, got: 0, waited_permille: 1000 };
    assert_eq!(FlowStatus::of(None, none), FlowStatus::Ok);
    assert!(FlowStatus::InsufficientThroughput > FlowStatus::UnknownPolicyId);
    assert!(FlowStatus::UnknownPolicyId > FlowStatus::LostCommunication);
    assert!(FlowStatus::UnknownPolicyId > FlowStatus::Ok);
    assert_eq!(FlowStatus::UnknownPolicyId.to_string(), "UnknownPolicyId");
}

fn changed(before: &[Policy], after: &[Policy], unit_bytes: [u32; 2]) -> Result<(), PolicyError> {
    let [had, has] = unit_bytes.map(|unit_bytes| QosSettings { unit_bytes, ..QosSettings::default() });
    check_changed((before, &had), (after, &has))
}

/// A disk with fewer is taken for dead by any system that uses it, as with a bandwidth that is too low.
#[test]
fn a_new_maximum_of_iops_is_no_lower_than_the_least_bandwidth_in_units() {
    let with =
        |max_iops| [Policy { min_iops: None, max_iops: Some(max_iops), max_bandwidth: None, ..policy() }];
    let new = |max_iops, unit| changed(&[], &with(max_iops), [8192, unit]);
    assert_eq!(new(8, 8192), Ok(()));
    let refused = new(7, 8192).expect_err("too few").to_string();
    assert!(
        refused.contains("7 IOPS is below 8, which is 65536 bytes per second in units of 8192"),
        "{refused}"
    );
    assert!(new(63, 1024).is_err() && new(64, 1024).is_ok());
    assert_eq!(new(1, 4 << 20), Ok(()));
    // An old one stays as it is, whatever else of it changes; it is not lowered, nor does the unit make one crawl that did not.
    let old = with(5);
    let renamed = [Policy { name: "other".into(), ..old[0].clone() }];
    assert_eq!((check_policies(&old), changed(&old, &old, [8192; 2])), (Ok(()), Ok(())));
    assert_eq!(changed(&old, &renamed, [8192; 2]), Ok(()));
    assert!(changed(&old, &with(4), [8192; 2]).is_err() && changed(&old, &with(6), [8192; 2]).is_err());
    assert!(changed(&with(8), &with(8), [8192, 4096]).is_err());
    assert_eq!(changed(&with(8), &with(16), [8192, 4096]), Ok(()));
}

#[test]
fn a_new_name_does_not_read_as_a_guid() {
    let named = |name: String| [Policy { name, ..policy() }];
    for name in [Uuid::from_u128(8).to_string(), Uuid::from_u128(8).simple().to_string()] {
        let said = changed(&[], &named(name.clone()), [8192; 2]).expect_err("new").to_string();
        assert!(said.contains("reads as a GUID"), "{said}");
        assert!(changed(&[policy()], &named(name.clone()), [8192; 2]).is_err(), "renamed");
        let old = named(name);
        let altered = [Policy { min_iops: None, ..old[0].clone() }];
        assert_eq!((check_policies(&old), changed(&old, &altered, [8192; 2])), (Ok(()), Ok(())));
    }
}

fn place(kind: PlaceKind, path: &str, policy: u128) -> Place {
    let policy = Uuid::from_u128(policy);
    Place { volume: "vm".into(), volume_guid: None, path: path.into(), kind, policy }
}

#[test]
fn the_nearest_place_counts_and_for_a_lun_its_own_policy_first() {
    use PlaceKind::{File, Folder};
    let places = [
        place(Folder, "/", 1),
        place(Folder, "/vms/web", 2),
        place(File, "/vms/web/boot.vhdx", 3),
        place(File, "/vms", 4),
    ];
    assert_eq!(check_places(&places), Ok(()));
    let luns = [Assignment { lun: "own".into(), policy: Uuid::from_u128(9) }];
    let table = Policies::new(&[], &luns, &places);
    let of = |path: &str| table.of_file((None, "vm"), path);
    for (path, policy) in [
        ("/x", 1),
        ("/vms/web", 1),
        ("/vms/webs/x", 1),
        ("/VMS/Web/data.vhdx", 2),
        ("/vms/web/a/b/c", 2),
        ("/vms/WEB/boot.VHDX", 3),
        ("/vms/web/boot.vhdx/x", 2),
    ] {
        assert_eq!(of(path), Effective::Unknown(Uuid::from_u128(policy)), "{path}");
    }
    assert_eq!(table.of_file((None, "other"), "/x"), Effective::None);
    assert_eq!(table.of_file((Some(Uuid::from_u128(5)), "vm"), "/x"), Effective::None, "another of the name");
    let lun = |name: &str| table.of_lun_at(name, (None, "vm"), "/vms/web/boot.vhdx");
    assert_eq!(lun("own"), Effective::Unknown(Uuid::from_u128(9)));
    assert_eq!(lun("another"), Effective::Unknown(Uuid::from_u128(3)));
    let only = Policies::new(&[], &[], &places[1..2]);
    assert_eq!(only.of_file((None, "vm"), "/x"), Effective::None);
    assert_eq!(only.of_file((None, "vm"), ""), Effective::None);
}

#[test]
fn paths_of_places_are_paths_and_each_has_one_policy() {
    use PlaceKind::{File, Folder};
    for (kind, path) in [
        (File, "/"),
        (File, ""),
        (Folder, "a"),
        (Folder, "/a//b"),
        (Folder, "/a/"),
        (File, "/a/../b"),
        (File, "/a\\b"),
    ] {
        let wrong = check_places(&[place(kind, path, 1)]);
        assert_eq!(wrong, Err(PolicyError::Path(path.into())), "{kind:?} {path}");
    }
    let twice = check_places(&[place(File, "/a", 1), place(File, "/A", 2)]);
    assert_eq!(twice, Err(PolicyError::PlaceTwice("file vm:/A".into())));
    assert_eq!(check_places(&[place(File, "/a", 1), place(Folder, "/a", 1)]), Ok(()));
}
