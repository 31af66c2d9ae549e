//! No initiator has two LUNs under one number of a target: which of them it got would hang on what happens to be there, and when one
//! goes the other would take its place under a host that goes on writing.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Code, Config, GroupConfig, LunConfig, MAX_LUN_NUMBER, MapConfig, Problem};

/// LUNs that an initiator would get under one number of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedNumber {
    /// The target.
    pub target: String,
    /// The number.
    pub number: u16,
    /// Who gets them; `None` for every initiator that is in no other group.
    pub initiator: Option<String>,
    /// Each LUN with a group that shows it. Initiators see the first: groups that name them come before those of all.
    pub luns: Vec<(String, String)>,
}

/// Who gets LUNs under which number of which target.
type Place<'a> = (&'a str, u16, Option<String>);
/// LUNs with a group that shows each.
type Shown<'a> = Vec<(&'a LunConfig, &'a GroupConfig)>;
/// The same, each with the place of its group among all.
type Placed<'a> = Vec<(usize, &'a LunConfig, &'a GroupConfig)>;

fn distinct(shown: &Shown<'_>) -> bool {
    shown.iter().any(|(lun, _)| lun.name != shown[0].0.name)
}

/// Where somebody gets more than one LUN.
fn shared(config: &Config) -> BTreeMap<Place<'_>, Shown<'_>> {
    let groups: BTreeMap<&str, (usize, &GroupConfig)> =
        config.groups.iter().enumerate().map(|(n, group)| (group.name.as_str(), (n, group))).collect();
    let mut by_number: BTreeMap<(&str, u16), Placed<'_>> = BTreeMap::new();
    for lun in &config.luns {
        for map in &lun.map {
            let Some((n, group)) = groups.get(map.group.as_str()) else { continue };
            by_number.entry((&map.target, map.number)).or_default().push((*n, lun, group));
        }
    }
    let mut found = BTreeMap::new();
    for ((target, number), mut maps) in by_number {
        // In the order in which initiators are shown them.
        maps.sort_by_key(|(n, ..)| *n);
        let maps: Shown<'_> = maps.into_iter().map(|(_, lun, group)| (lun, group)).collect();
        if !distinct(&maps) {
            continue;
        }
        let (open, named): (Shown<'_>, Shown<'_>) = maps.into_iter().partition(|(_, group)| group.any);
        let mut of: BTreeMap<String, Shown<'_>> = BTreeMap::new();
        for (lun, group) in named {
            for initiator in &group.initiators {
                of.entry(initiator.to_lowercase()).or_default().push((lun, group));
            }
        }
        let each = of.into_iter().map(|(initiator, mut shown)| {
            shown.extend(open.iter().copied());
            (Some(initiator), shown)
        });
        let each: Vec<_> = each.collect();
        for (initiator, shown) in each.into_iter().chain([(None, open)]) {
            if !shown.is_empty() && distinct(&shown) {
                found.insert((target, number, initiator), shown);
            }
        }
    }
    found
}

impl Config {
    /// Numbers under which somebody gets more than one LUN, as a configuration of an earlier release may have them.
    #[must_use]
    pub fn shared_numbers(&self) -> Vec<SharedNumber> {
        let one = |((target, number, initiator), shown): (Place<'_>, Shown<'_>)| {
            let mut known = BTreeSet::new();
            let luns = shown.into_iter().filter(|(lun, _)| known.insert(lun.name.as_str()));
            SharedNumber {
                target: target.to_owned(),
                number,
                initiator,
                luns: luns.map(|(lun, group)| (lun.name.clone(), group.name.clone())).collect(),
            }
        };
        shared(self).into_iter().map(one).collect()
    }

    /// The lowest number of a target that is free for the members of a group; `own` are mappings of a LUN that is not there yet.
    #[must_use]
    pub fn free_number(&self, target: &str, group: &str, own: &[MapConfig]) -> Option<u16> {
        let find = |name: &str| self.groups.iter().find(|group| group.name == name);
        let meant = find(group);
        // Names are the same in any case, as in `shared`.
        let members: BTreeSet<String> =
            meant.iter().flat_map(|group| &group.initiators).map(|name| name.to_lowercase()).collect();
        let both = |other: &GroupConfig| {
            other.any
                || meant.is_some_and(|group| group.any)
                || other.initiators.iter().any(|name| members.contains(&name.to_lowercase()))
        };
        let concerned: BTreeSet<&str> =
            self.groups.iter().filter(|other| both(other)).map(|other| other.name.as_str()).collect();
        let taken: BTreeSet<u16> = self
            .luns
            .iter()
            .flat_map(|lun| &lun.map)
            .chain(own)
            .filter(|map| map.target == target)
            .filter(|map| map.group == group || concerned.contains(map.group.as_str()))
            .map(|map| map.number)
            .collect();
        (0..=MAX_LUN_NUMBER).find(|number| !taken.contains(number))
    }
}

/// Refuses what gives somebody a LUN under a number of another one. What was so before is no reason: it may be mended step by step.
pub(crate) fn check_changed(before: &Config, after: &Config) -> Result<(), Problem> {
    let (had, has) = (shared(before), shared(after));
    for ((target, number, initiator), shown) in &has {
        let known = had.get(&(*target, *number, initiator.clone())).or_else(|| {
            // Nobody had named it: it got what every initiator gets.
            had.get(&(*target, *number, None))
        });
        let known: BTreeSet<&str> = known.into_iter().flatten().map(|(lun, _)| lun.name.as_str()).collect();
        let Some((lun, group)) = shown.iter().find(|(lun, _)| !known.contains(lun.name.as_str())) else {
            continue;
        };
        // The one that was there already is the one to be named as such, as far as there is one.
        let was = |other: &&(&LunConfig, &GroupConfig)| {
            let before = before.luns.iter().find(|there| there.name == other.0.name);
            before.is_some_and(|there| {
                there.map.iter().any(|map| map.target == *target && map.number == *number)
            })
        };
        let mut others: Vec<_> = shown.iter().filter(|(other, _)| other.name != lun.name).collect();
        others.sort_by_key(|other| !was(other));
        let Some((other, through)) = others.first().copied() else { continue };
        let new = |lun: &LunConfig, group: &GroupConfig| {
            let map = |lun: &LunConfig| {
                lun.map
                    .iter()
                    .any(|map| map.target == *target && map.number == *number && map.group == group.name)
            };
            !before.luns.iter().any(|there| there.name == lun.name && map(there))
        };
        // The mapping that is new comes first in the sentence.
        let ((lun, group), (other, through)) = match !new(lun, group) && new(other, through) {
            true => ((other, through), (lun, group)),
            false => ((lun, group), (other, through)),
        };
        let who = match initiator {
            Some(name) => format!("Initiator {name}"),
            None => "Every initiator".to_owned(),
        };
        return Err(Problem::new(
            Code::AlreadyExists,
            format!(
                "{who} would get two LUNs as number {number} of target {target}: {}, by initiator group {}, and {}, by initiator group {}.",
                lun.name, group.name, other.name, through.name
            ),
        )
        .todo(format!(
            "Choose another number, or take the other LUN away first: `holdfast lun unmap {} --target {target} --group {}`.",
            other.name, through.name
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "iqn.2026-01.org.example:a";
    const B: &str = "iqn.2026-01.org.example:b";

    fn group(name: &str, initiators: &[&str], any: bool) -> GroupConfig {
        GroupConfig { name: name.into(), initiators: initiators.iter().map(|n| (*n).into()).collect(), any }
    }

    fn lun(name: &str, maps: &[(u16, &str)]) -> LunConfig {
        LunConfig {
            map: maps
                .iter()
                .map(|(number, group)| MapConfig {
                    target: "t".into(),
                    number: *number,
                    group: (*group).into(),
                    read_only: false,
                })
                .collect(),
            ..LunConfig::new(name, "v", format!("/{name}"))
        }
    }

    fn config(groups: Vec<GroupConfig>, luns: Vec<LunConfig>) -> Config {
        Config { groups, luns, ..Config::default() }
    }

    #[test]
    fn a_second_lun_under_a_number_is_refused_whichever_way_it_comes() {
        let groups = || vec![group("ga", &[A], false), group("gx", &[A], false), group("gb", &[B], false)];
        let before = config(groups(), vec![lun("la", &[(0, "ga")]), lun("lb", &[])]);
        let refused = |after: &Config, words: &[&str]| {
            let problem = after.check_changed(&before).expect_err("two LUNs under one number").to_string();
            assert!(words.iter().all(|word| problem.contains(word)), "{problem}");
        };
        // By another group of the host.
        let after = config(groups(), vec![lun("la", &[(0, "ga")]), lun("lb", &[(0, "gx")])]);
        refused(
            &after,
            &[A, "number 0", "lb, by initiator group gx, and la, by initiator group ga", "lun unmap la"],
        );
        // By everyone's.
        let mut all = groups();
        all.push(group("everyone", &[], true));
        let after = config(all.clone(), vec![lun("la", &[(0, "ga")]), lun("lb", &[(0, "everyone")])]);
        refused(&after, &[A, "lb, by initiator group everyone", "la, by initiator group ga"]);
        // Another number, another host.
        for map in [(1, "gx"), (1, "everyone"), (0, "gb")] {
            let after = config(all.clone(), vec![lun("la", &[(0, "ga")]), lun("lb", &[map])]);
            after.check_changed(&before).expect("nobody gets two");
        }
        // The same LUN twice is one.
        let after = config(groups(), vec![lun("la", &[(0, "ga"), (0, "gx")])]);
        after.check_changed(&before).expect("one LUN");
        // By a host that joins a group.
        let apart = config(groups(), vec![lun("la", &[(0, "ga")]), lun("lb", &[(0, "gb")])]);
        let mut joined = apart.clone();
        joined.groups[2].initiators.push(A.into());
        let problem = joined.check_changed(&apart).expect_err("it would have two").to_string();
        assert!(problem.contains(A) && problem.contains("lb") && problem.contains("la"), "{problem}");
        // By a group that becomes everyone's.
        let mut opened = apart.clone();
        opened.groups[2].any = true;
        assert!(opened.check_changed(&apart).is_err());
        // By two groups of all.
        let mut two = all;
        two.push(group("all", &[], true));
        let after = config(two, vec![lun("la", &[(0, "everyone")]), lun("lb", &[(0, "all")])]);
        let problem = after.check_changed(&Config::default()).expect_err("everybody").to_string();
        assert!(problem.contains("Every initiator"), "{problem}");
    }

    #[test]
    fn what_was_so_before_is_named_and_may_be_mended() {
        let groups = vec![group("ga", &[A], false), group("gx", &[A, B], false), group("all", &[], true)];
        let luns = |third: &[(u16, &str)]| {
            vec![lun("lc", third), lun("lb", &[(0, "gx")]), lun("la", &[(0, "ga"), (0, "gx")])]
        };
        let old = config(groups.clone(), luns(&[(0, "all")]));
        let first = |config: &Config| config.shared_numbers().into_iter().next();
        let found = first(&old).expect("found");
        assert_eq!((found.initiator.as_deref(), found.number), (Some(A), 0));
        let named: Vec<&str> = found.luns.iter().map(|(lun, _)| lun.as_str()).collect();
        assert_eq!(named, ["la", "lb", "lc"], "in the order in which it is shown them");
        old.check_changed(&old).expect("something else may be changed");
        let less = config(groups, luns(&[]));
        less.check_changed(&old).expect("it gets better");
        assert!(old.check_changed(&less).is_err(), "and not worse again");
    }

    #[test]
    fn a_number_that_is_chosen_is_free_for_each_member() {
        let upper = A.to_uppercase();
        let groups =
            vec![group("ga", &[&upper], false), group("gx", &[A, B], false), group("gb", &[B], false)];
        let config = config(groups, vec![lun("la", &[(0, "ga"), (1, "ga")]), lun("lb", &[(2, "gb")])]);
        assert_eq!(config.free_number("t", "gx", &[]), Some(3));
        assert_eq!(config.free_number("t", "gb", &[]), Some(0));
        assert_eq!(config.free_number("u", "gx", &[]), Some(0));
    }
}
