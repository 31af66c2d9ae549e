//! Which initiators are shown which LUNs (LUN masking), and through which sessions they see them.

use control_api::{Config, GroupConfig, LunConfig, MapConfig, Session};

/// Whether an initiator is shown a LUN by any target.
pub(in crate::node) fn shown(config: &Config, lun: &LunConfig, initiator: &str) -> bool {
    let has_target = |name: &str| config.targets.iter().any(|target| target.name == name);
    lun.map.iter().any(|map| has_target(&map.target) && has(&config.groups, map, initiator))
}

/// Whether the group of a mapping has an initiator in it.
fn has(groups: &[GroupConfig], map: &MapConfig, initiator: &str) -> bool {
    let member = |name: &String| name.eq_ignore_ascii_case(initiator);
    let of = groups.iter().filter(|group| group.name == map.group);
    of.into_iter().any(|group| group.any || group.initiators.iter().any(member))
}

/// The sessions that a LUN is seen through.
pub(super) fn seen_through<'a>(
    lun: &LunConfig,
    groups: &[GroupConfig],
    sessions: &'a [Session],
) -> Vec<&'a Session> {
    let sees = |session: &Session, map: &MapConfig| {
        map.target == session.target && has(groups, map, &session.initiator)
    };
    sessions.iter().filter(|session| lun.map.iter().any(|map| sees(session, map))).collect()
}

/// The sessions that a LUN is seen through, in sentences.
pub(in crate::node) fn connected(
    lun: &LunConfig,
    groups: &[GroupConfig],
    sessions: &[Session],
) -> Vec<String> {
    let seen = seen_through(lun, groups, sessions).into_iter();
    seen.map(|session| {
        format!(
            "{} is connected to it from {}, through {}.",
            session.initiator, session.address, session.target
        )
    })
    .collect()
}

/// Whether a change takes a LUN from any initiator that a target shows it to, connected or not.
pub(super) fn takes(before: &Config, after: &Config, lun: &LunConfig) -> bool {
    let kept = after.luns.iter().find(|there| there.name == lun.name);
    lun.map.iter().any(|map| {
        let of = |config: &Config| -> Vec<GroupConfig> {
            let named = |group: &&GroupConfig| group.name == map.group;
            config.groups.iter().filter(named).cloned().collect()
        };
        let same = kept.into_iter().flat_map(|kept| &kept.map).filter(|other| other.target == map.target);
        let same: Vec<&MapConfig> = same.collect();
        let any = |config: &Config, maps: &[&MapConfig]| {
            let is_any =
                |map: &&MapConfig| config.groups.iter().any(|group| group.name == map.group && group.any);
            maps.iter().any(is_any)
        };
        if any(after, &same) {
            return false;
        }
        let still = |name: &String| same.iter().any(|map| has(&after.groups, map, name));
        any(before, &[map]) || of(before).iter().flat_map(|group| &group.initiators).any(|name| !still(name))
    })
}

/// The sessions through which a LUN is seen before a change and not after it, in sentences.
pub(super) fn lost(
    before: &Config,
    after: &Config,
    sessions: &[Session],
    concerned: impl Fn(&LunConfig) -> bool,
) -> Vec<String> {
    let mut told = Vec::new();
    for lun in before.luns.iter().filter(|lun| concerned(lun)) {
        let kept = after.luns.iter().find(|there| there.name == lun.name);
        let kept = kept.map_or(Vec::new(), |lun| connected(lun, &after.groups, sessions));
        let used = connected(lun, &before.groups, sessions).into_iter().filter(|user| !kept.contains(user));
        told.extend(used.map(|user| format!("LUN {} is taken from a host: {user}", lun.name)));
    }
    told
}

#[cfg(test)]
mod tests {
    use control_api::{AuthConfig, LunMap, TargetConfig};

    use super::super::unmap;
    use super::*;

    #[test]
    fn whose_disk_shrinks() {
        let lun = LunConfig {
            map: vec![MapConfig { target: "t".into(), number: 0, group: "g".into(), read_only: false }],
            ..LunConfig::new("l", "v", "/l")
        };
        let groups = [GroupConfig {
            name: "g".into(),
            initiators: vec!["iqn.2026-01.org.example:A".into()],
            any: false,
        }];
        let session = |initiator: &str, target: &str| Session {
            initiator: initiator.into(),
            target: target.into(),
            address: "192.0.2.1:1000".into(),
            ..Session::default()
        };
        let (a, b) = ("iqn.2026-01.org.example:a", "iqn.2026-01.org.example:b");
        let said = connected(&lun, &groups, &[session(a, "t"), session(a, "u"), session(b, "t")]);
        assert_eq!(said, [format!("{a} is connected to it from 192.0.2.1:1000, through t.")]);
        // What a change takes is what is seen before it and not after it.
        let target = TargetConfig {
            name: "t".into(),
            alias: String::new(),
            portal_groups: vec![],
            auth: AuthConfig::default(),
        };
        let before =
            Config { groups: groups.to_vec(), luns: vec![lun], targets: vec![target], ..Config::default() };
        let sessions = [session(a, "t"), session(b, "t")];
        let told = |after: &Config| lost(&before, after, &sessions, |_| true);
        assert!(told(&before).is_empty());
        assert!(!takes(&before, &before, &before.luns[0]));
        let mut after = before.clone();
        after.groups[0].initiators.clear();
        assert!(takes(&before, &after, &before.luns[0]));
        let said =
            format!("LUN l is taken from a host: {a} is connected to it from 192.0.2.1:1000, through t.");
        assert_eq!(told(&after), std::slice::from_ref(&said));
        let mut after = before.clone();
        let whom = LunMap {
            target: None,
            number: None,
            group: Some("g".into()),
            everyone: false,
            read_only: false,
            confirm: None,
        };
        unmap(&mut after, "l", &whom).expect("unmapped");
        assert_eq!(told(&after), [said]);
    }
}
