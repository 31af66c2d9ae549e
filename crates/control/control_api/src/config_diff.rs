//! What differs between two configurations, in words.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::{Config, ConfigChange};

/// What stands in for a secret in what people see.
pub const REDACTED: &str = "(secret)";
/// What stands in for one that is another one now.
const OLD: &str = "(old secret)";

impl Config {
    /// The changes that lead from `self` to `wanted`, removals first, then changes, then additions.
    /// Secrets that differ are said to differ, not shown.
    #[must_use]
    pub fn diff(&self, wanted: &Self) -> Vec<ConfigChange> {
        let mut changes = Vec::new();
        let (have, want) = (self.redacted_marks(wanted), wanted);
        let (have, want_shown) = (have, want.redacted());
        one("node", &have.node, &want_shown.node, &mut changes);
        one("policy", &have.policy, &want_shown.policy, &mut changes);
        one("cache", &have.cache, &want_shown.cache, &mut changes);
        many("disk", &have.disks, &want_shown.disks, |disk| disk.id.clone(), &mut changes);
        many("pool", &have.pools, &want_shown.pools, |pool| pool.guid.to_string(), &mut changes);
        let named = |name: &str| {
            let count = |config: &Self| config.volumes.iter().filter(|volume| volume.name == name).count();
            count(&have).max(count(&want_shown))
        };
        let volume = |volume: &crate::VolumeConfig| match volume.volume_guid {
            Some(guid) if named(&volume.name) > 1 => format!("{} ({guid})", volume.name),
            _ => volume.name.clone(),
        };
        many("volume-policy", &have.volumes, &want_shown.volumes, volume, &mut changes);
        one("iscsi", &have.iscsi, &want_shown.iscsi, &mut changes);
        many("portal", &have.portals, &want_shown.portals, |portal| portal.address.clone(), &mut changes);
        many("initiator-group", &have.groups, &want_shown.groups, |group| group.name.clone(), &mut changes);
        many("target", &have.targets, &want_shown.targets, |target| target.name.clone(), &mut changes);
        one("qos", &have.qos, &want_shown.qos, &mut changes);
        many(
            "qos-policy",
            &have.qos_policies,
            &want_shown.qos_policies,
            |policy| policy.name.clone(),
            &mut changes,
        );
        let disk = |row: &crate::Assignment| row.lun.clone();
        many("qos-assignment", &have.qos_assignments, &want_shown.qos_assignments, disk, &mut changes);
        many("qos-place", &have.qos_places, &want_shown.qos_places, ToString::to_string, &mut changes);
        one("http", &have.http, &want_shown.http, &mut changes);
        one("smb", &have.smb, &want_shown.smb, &mut changes);
        many("share", &have.shares, &want_shown.shares, |share| share.name.clone(), &mut changes);
        many("lun", &have.luns, &want_shown.luns, |lun| lun.name.clone(), &mut changes);
        changes.sort_by_key(|change| match change.sign {
            '-' => 0,
            '~' => 1,
            _ => 2,
        });
        changes
    }

    /// The same without secrets.
    #[must_use]
    pub fn redacted(&self) -> Self {
        let mut shown = self.clone();
        for target in &mut shown.targets {
            for user in target.auth.chap.iter_mut().chain(&mut target.auth.mutual) {
                user.secret = REDACTED.into();
            }
        }
        for login in shown.disks.iter_mut().filter_map(|disk| disk.login.as_mut()) {
            login.secret = REDACTED.into();
            login.target_secret = login.target_secret.take().map(|_| REDACTED.into());
        }
        shown
    }

    /// Whether it holds secrets.
    #[must_use]
    pub fn has_secrets(&self) -> bool {
        self.targets.iter().any(|target| !target.auth.is_open())
            || self.disks.iter().any(|disk| disk.login.is_some())
    }

    /// `self` without secrets, where secrets that differ from those of `wanted` are marked as old ones.
    fn redacted_marks(&self, wanted: &Self) -> Self {
        let mut shown = self.redacted();
        for (target, real) in shown.targets.iter_mut().zip(&self.targets) {
            let Some(want) = wanted.targets.iter().find(|want| want.name == real.name) else { continue };
            let known: Vec<_> = want.auth.chap.iter().chain(&want.auth.mutual).collect();
            let users = target.auth.chap.iter_mut().chain(&mut target.auth.mutual);
            for (user, real) in users.zip(real.auth.chap.iter().chain(&real.auth.mutual)) {
                if known.iter().any(|want| want.user == real.user) && !known.contains(&real) {
                    user.secret = OLD.into();
                }
            }
        }
        for (disk, real) in shown.disks.iter_mut().zip(&self.disks) {
            let want = wanted.disks.iter().find(|want| want.id == real.id);
            let (Some(login), Some(want)) = (&mut disk.login, want.and_then(|want| want.login.as_ref()))
            else {
                continue;
            };
            if real.login.as_ref() != Some(want) {
                login.secret = OLD.into();
            }
        }
        shown
    }
}

fn one<T: Serialize + PartialEq>(subject: &str, have: &T, want: &T, changes: &mut Vec<ConfigChange>) {
    if have != want {
        changes.push(ConfigChange { sign: '~', subject: subject.into(), detail: fields(have, want) });
    }
}

fn many<T: Serialize + PartialEq>(
    kind: &str,
    have: &[T],
    want: &[T],
    key: impl Fn(&T) -> String,
    changes: &mut Vec<ConfigChange>,
) {
    let have: BTreeMap<String, &T> = have.iter().map(|item| (key(item), item)).collect();
    let want: BTreeMap<String, &T> = want.iter().map(|item| (key(item), item)).collect();
    for (name, old) in &have {
        let subject = format!("{kind} {name}");
        match want.get(name) {
            None => changes.push(ConfigChange { sign: '-', subject, detail: String::new() }),
            Some(new) if new != old => {
                changes.push(ConfigChange { sign: '~', subject, detail: fields(old, new) });
            }
            Some(_) => {}
        }
    }
    for name in want.keys().filter(|name| !have.contains_key(*name)) {
        changes.push(ConfigChange { sign: '+', subject: format!("{kind} {name}"), detail: String::new() });
    }
}

/// "field old → new" for each field that differs.
fn fields<T: Serialize>(have: &T, want: &T) -> String {
    let object = |item: &T| match serde_json::to_value(item) {
        Ok(Value::Object(fields)) => fields,
        _ => serde_json::Map::new(),
    };
    let (have, want) = (object(have), object(want));
    let show = |value: Option<&Value>| match value {
        None => "(default)".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    let mut names: Vec<&String> = have.keys().chain(want.keys()).collect();
    names.sort();
    names.dedup();
    names
        .into_iter()
        .filter(|name| have.get(*name) != want.get(*name))
        .map(|name| format!("{name} {} → {}", show(have.get(name)), show(want.get(name))))
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AuthConfig, ChapUser, DiskConfig, DiskLogin, LunConfig, LunState, TargetConfig};

    fn target(secret: &str) -> TargetConfig {
        TargetConfig {
            name: "iqn.2026-01.io.holdfast:a".into(),
            alias: String::new(),
            portal_groups: vec![],
            auth: AuthConfig {
                chap: vec![ChapUser { user: "u".into(), secret: secret.into(), groups: vec![] }],
                mutual: None,
                chap_off: false,
            },
        }
    }

    #[test]
    fn secrets_of_disks_are_not_shown() {
        let login = |secret: &str| DiskLogin {
            user: "u".into(),
            secret: secret.into(),
            target_user: Some("t".into()),
            target_secret: Some(format!("{secret} of the target")),
        };
        let with = |secret: &str| {
            let id = "iscsi://h:3260/iqn.2026-01.org.example:d/0";
            let disk = DiskConfig { login: Some(login(secret)), ..DiskConfig::new(id) };
            Config { disks: vec![disk], ..Config::default() }
        };
        let (have, want) = (with("first hunter2 secret"), with("second hunter2 secret"));
        assert!(have.has_secrets() && have.check().is_ok());
        let shown = format!("{:?}{:?}{:?}", have, have.redacted(), have.diff(&want));
        assert!(!shown.contains("hunter2"), "{shown}");
        assert_eq!(have.diff(&want).len(), 1, "that it differs is said");
        assert!(have.redacted().check().is_err(), "a file without its secrets is not taken");
        let mut local = with("first hunter2 secret");
        local.disks[0].id = "/srv/disk".into();
        assert!(local.check().is_err(), "a file is not logged in to");
        assert!(with("short").check().is_err());
    }

    fn lun(name: &str, state: LunState) -> LunConfig {
        LunConfig { state, ..LunConfig::new(name, "v", format!("/luns/{name}")) }
    }

    #[test]
    fn equal_configurations_do_not_differ() {
        let config = Config { targets: vec![target("secret-secret-1")], ..Config::default() };
        assert_eq!(config.diff(&config), vec![]);
    }

    #[test]
    fn each_kind_of_change_is_said() {
        let have = Config {
            luns: vec![lun("a", LunState::Online), lun("b", LunState::Online)],
            ..Config::default()
        };
        let want = Config {
            luns: vec![lun("b", LunState::Offline), lun("c", LunState::Online)],
            ..Config::default()
        };
        let said: Vec<_> =
            have.diff(&want).into_iter().map(|c| format!("{} {} {}", c.sign, c.subject, c.detail)).collect();
        assert_eq!(said, ["- lun a ", "~ lun b state (default) → offline", "+ lun c "]);
    }

    #[test]
    fn a_changed_secret_is_said_but_not_shown() {
        let have = Config { targets: vec![target("secret-secret-1")], ..Config::default() };
        let want = Config { targets: vec![target("secret-secret-2")], ..Config::default() };
        let changes = have.diff(&want);
        assert_eq!(changes.len(), 1);
        assert!(!changes[0].detail.contains("secret-secret"), "{}", changes[0].detail);
    }
}
