//! Asymmetric logical unit access: what initiators are told of the ways to a unit, and of their changes.

use super::*;
use crate::port_groups::report;

fn groups(states: &[(u16, AccessState)]) -> Vec<PortGroup> {
    states.iter().map(|(tag, access)| PortGroup { tag: *tag, access: *access }).collect()
}

const RTPG: [u8; 12] = [0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0];

#[test]
fn groups_of_several_nodes_say_which_way_is_good() {
    let all = [(17, AccessState::Optimized), (33, AccessState::NonOptimized), (49, AccessState::Unavailable)];
    let data = report(&groups(&all), false);
    assert_eq!(data[..4], 36u32.to_be_bytes());
    let each: Vec<_> = data[4..].chunks(12).map(|d| (d[0], d[1], d[3], d[7], d[11])).collect();
    assert_eq!(each, [(0x80, 0x0b, 17, 1, 17), (1, 0x0b, 33, 1, 33), (3, 0x0b, 49, 1, 49)]);
    let alone = report(&groups(&all[..1]), true);
    assert_eq!(alone, [0, 0, 0, 16, 0x10, 0, 0, 0, 0x80, 1, 0, 17, 0, 0, 0, 1, 0, 0, 0, 17]);
}

#[test]
fn a_change_of_the_ways_is_told_once() {
    run(async {
        let rig = Rig::new().await;
        let one = groups(&[(1, AccessState::Optimized), (17, AccessState::NonOptimized)]);
        rig.unit.set_port_groups(one.clone());
        assert_eq!(rig.sense(0, &[0; 6], &[]).await, (6, 0x2a06));
        assert_eq!(rig.sense(0, &[0; 6], &[]).await, (6, 0x3f03), "there is a new port");
        assert_eq!(rig.sense(0, &[0; 6], &[]).await, (0, 0));
        rig.unit.set_port_groups(one);
        assert_eq!(rig.sense(0, &[0; 6], &[]).await, (0, 0), "it is no change");
        rig.unit.set_port_groups(groups(&[(1, AccessState::NonOptimized), (17, AccessState::Optimized)]));
        assert_eq!(rig.sense(0, &[0; 6], &[]).await, (6, 0x2a06));
        let told = rig.good(0, &RTPG, &[]).await;
        assert_eq!((told[4], told[16]), (1, 0x80));
    });
}

/// The unit is made anew as its pool goes to another node: who sees the same units as before is told of a reset, after which it looks at
/// the ways, and not of other LUNs.
#[test]
fn a_unit_that_has_moved_is_no_other_lun() {
    run(async {
        let rig = Rig::new().await;
        let anew = open(rig.rows.clone()).await;
        anew.set_port_groups(groups(&[(1, AccessState::NonOptimized)]));
        let mapped = MappedUnit { unit: anew, read_only: false };
        rig.device.configure(vec![Group { luns: BTreeMap::from([(1, mapped)]), ..Group::default() }]);
        assert_eq!(rig.sense(0, &[0; 6], &[]).await, (6, 0x2900), "that tells of the ways, too");
        assert_eq!(rig.sense(0, &[0; 6], &[]).await, (0, 0));
    });
}

#[test]
fn registrations_for_all_ports_are_for_those_of_all_nodes() {
    run(async {
        let rig = Rig::new().await;
        rig.unit.set_port_groups(groups(&[(1, AccessState::Optimized), (17, AccessState::NonOptimized)]));
        assert_eq!(rig.sense(0, &[0; 6], &[]).await, (6, 0x2a06));
        assert_eq!(rig.sense(0, &[0; 6], &[]).await, (6, 0x3f03));
        let mut list = [0; 24];
        (list[15], list[20]) = (7, 4); // the new key; ALL_TG_PT
        rig.good(0, &[0x5f, 0, 0, 0, 0, 0, 0, 0, 24, 0], &list).await;
        let ports: Vec<u16> = rig.unit.reservations().registrations.iter().map(|r| r.port.target).collect();
        assert_eq!(ports, [1, 17]);
    });
}
