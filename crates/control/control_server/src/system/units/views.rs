//! What targets show to whom.
//!
//! While a configuration takes the place of another, that is what both show: nobody sees what is new before those who are not to see it any
//! more, or would not be let in any more, are gone.

use std::collections::{BTreeMap, BTreeSet};

use control_api::{Config, GroupConfig, LunConfig, MapConfig};
use scsi_disk::{Group, MappedUnit};

use super::Entry;

/// What a group sees of a target; `None` for nothing.
pub(super) fn view(
    units: &BTreeMap<String, Entry>,
    config: &Config,
    target: &str,
    group: &GroupConfig,
) -> Option<Group> {
    let (mut luns, mut reserved) = (BTreeMap::new(), BTreeSet::new());
    for lun in &config.luns {
        for map in lun.map.iter().filter(|map| map.target == target && map.group == group.name) {
            match units.get(&lun.name) {
                Some(Entry { unit, .. }) => {
                    let mapped = MappedUnit { unit: unit.clone(), read_only: map.read_only };
                    luns.insert(map.number, mapped);
                }
                // What another group has under this number must not stand in for it.
                None => drop(reserved.insert(map.number)),
            }
        }
    }
    let initiators = members(group);
    // Nobody's group must not become everybody's.
    let sees = !(luns.is_empty() && reserved.is_empty()) && (group.any || !initiators.is_empty());
    sees.then_some(Group { initiators, luns, reserved, held: BTreeSet::new() })
}

/// The initiators of a group as units know it: none for everybody.
fn members(group: &GroupConfig) -> BTreeSet<String> {
    match group.any {
        true => BTreeSet::new(),
        false => group.initiators.iter().map(|name| name.to_lowercase()).collect(),
    }
}

/// The groups and LUNs of `new` with the members and mappings that they have in `old`, too.
pub(super) fn narrowed(old: &Config, new: &Config) -> Config {
    let groups: BTreeMap<&str, &GroupConfig> =
        old.groups.iter().map(|group| (group.name.as_str(), group)).collect();
    let luns: BTreeMap<&str, &LunConfig> = old.luns.iter().map(|lun| (lun.name.as_str(), lun)).collect();
    let of_group = |group: &GroupConfig| {
        let before = groups.get(group.name.as_str())?;
        Some(match (before.any, group.any) {
            (true, _) => group.clone(),
            (false, true) => GroupConfig { any: false, ..(*before).clone() },
            (false, false) => {
                let known = members(before);
                let stays = |name: &&String| known.contains(&name.to_lowercase());
                let initiators = group.initiators.iter().filter(stays).cloned().collect();
                GroupConfig { initiators, ..group.clone() }
            }
        })
    };
    let of_lun = |lun: &LunConfig| {
        let before = luns.get(lun.name.as_str()).filter(|before| before.guid == lun.guid)?;
        let both = |map: &MapConfig| {
            let same = |there: &&MapConfig| {
                (&there.target, there.number, &there.group) == (&map.target, map.number, &map.group)
            };
            let there = before.map.iter().find(same)?;
            Some(MapConfig { read_only: map.read_only || there.read_only, ..map.clone() })
        };
        Some(LunConfig { map: lun.map.iter().filter_map(both).collect(), ..lun.clone() })
    };
    Config {
        groups: new.groups.iter().filter_map(of_group).collect(),
        luns: new.luns.iter().filter_map(of_lun).collect(),
        ..Config::default()
    }
}

/// The numbers that the groups of a configuration have units under.
pub(super) fn held(config: &Config, target: &str) -> Vec<Group> {
    let mut numbers: BTreeMap<&str, BTreeSet<u16>> = BTreeMap::new();
    for map in config.luns.iter().flat_map(|lun| &lun.map).filter(|map| map.target == target) {
        numbers.entry(&map.group).or_default().insert(map.number);
    }
    let of = |group: &GroupConfig| {
        let held = numbers.remove(group.name.as_str())?;
        // Nobody's group must not become everybody's.
        let somebody = group.any || !group.initiators.is_empty();
        somebody.then(|| Group { initiators: members(group), held, ..Group::default() })
    };
    config.groups.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::lun;
    use super::*;

    fn group(name: &str, initiators: &[&str], any: bool) -> GroupConfig {
        GroupConfig { name: name.into(), initiators: initiators.iter().map(|n| (*n).into()).collect(), any }
    }

    fn map(number: u16, group: &str, read_only: bool) -> MapConfig {
        MapConfig { target: "t".into(), number, group: group.into(), read_only }
    }

    #[test]
    fn between_two_configurations_only_what_both_show_is_seen() {
        let of = |groups: &[GroupConfig], map: &[MapConfig], guid: u128| Config {
            groups: groups.to_vec(),
            luns: vec![LunConfig { map: map.to_vec(), ..lun(uuid::Uuid::from_u128(guid)) }],
            ..Config::default()
        };
        let old = [group("g", &["A", "b"], false), group("h", &["c"], false), group("k", &["d"], true)];
        let new = [group("g", &["a", "n"], false), group("h", &["c"], true), group("k", &["d"], false)];
        let (was, is) = ([map(0, "g", true), map(1, "h", false)], [map(0, "g", false), map(2, "h", false)]);
        let between = narrowed(&of(&old, &was, 1), &of(&new, &is, 1));
        assert_eq!(between.groups[0], group("g", &["a"], false), "who is in both");
        assert_eq!(between.groups[1], group("h", &["c"], false), "not everybody yet");
        assert_eq!(between.groups[2], group("k", &["d"], false), "not everybody any more");
        assert_eq!(between.luns[0].map, [map(0, "g", true)], "and not written to yet");
        let other = narrowed(&of(&old, &was, 1), &of(&new, &was, 2));
        assert!(other.luns.is_empty(), "another disk of that name");
        // What comes holds its number, so that this does not come to mean another disk to anybody.
        let held = held(&of(&new, &is, 1), "t");
        let numbers: Vec<_> = held.iter().map(|group| (group.initiators.len(), group.held.first())).collect();
        assert_eq!(numbers, [(2, Some(&0)), (0, Some(&2))]);
    }
}
