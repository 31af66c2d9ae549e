//! Whether a configuration makes sense by itself, without looking at the machine.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use crate::smb_check::check_shares;
use crate::{
    AuthConfig, CONFIG_SCHEMA, Code, Config, DiskConfig, ISCSI_DISK, LunConfig, PolicyConfig, PoolConfig,
    Problem, ServiceAddress, with_article,
};

/// Longest name of a pool, volume, LUN or group, in bytes. What fits a table and a path component.
pub const MAX_NAME_BYTES: usize = 64;

/// Longest iSCSI name, in bytes (RFC 7143 4.2.7.1).
pub const MAX_ISCSI_NAME_BYTES: usize = 223;

/// Highest LUN number (SAM-5 flat addressing).
pub const MAX_LUN_NUMBER: u16 = 16383;

/// Lengths of a CHAP secret, in bytes: below 12 it can be guessed (RFC 7143 12.1.3), above 255 it doesn't fit a
/// text value of every initiator.
pub const CHAP_SECRET_BYTES: std::ops::RangeInclusive<usize> = 12..=255;

/// Most things of one kind in a configuration: well above what one node serves, low enough to hold in memory.
pub const MAX_ITEMS: usize = 65_536;

fn wrong(detail: impl Into<String>) -> Problem {
    Problem::new(Code::InvalidRequest, detail)
}

/// Checks a name that people give: letters, digits, `-`, `_`, `.`, not starting with a dot or dash.
///
/// # Errors
/// Says what is wrong with it.
pub fn check_name(what: &str, name: &str) -> Result<(), Problem> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty()
        || name.len() > MAX_NAME_BYTES
        || !name.chars().all(plain)
        || name.starts_with(['.', '-'])
    {
        return Err(wrong(format!("{name:?} can't be the name of {}.", with_article(what))).todo(format!(
            "Use 1 to {MAX_NAME_BYTES} letters, digits, '-', '_' or '.', starting with a letter or digit."
        )));
    }
    Ok(())
}

/// Checks an iSCSI name (RFC 7143 4.2.7): `iqn.YYYY-MM.reversed.domain[:any]`, `eui.` and 16 hexadecimal
/// digits, `naa.` and 16 or 32.
///
/// # Errors
/// Says what is wrong with it.
pub fn check_iscsi_name(name: &str) -> Result<(), Problem> {
    let bad = |why: &str| {
        Err(wrong(format!("{name:?} is not an iSCSI name: {why}."))
            .todo("Use a name like iqn.2026-01.com.example:storage1, in lower case."))
    };
    if name.len() > MAX_ISCSI_NAME_BYTES {
        return bad("it is longer than 223 bytes");
    }
    if let Some(hex) = name.strip_prefix("eui.") {
        let right = hex.len() == 16 && hex.bytes().all(|b| b.is_ascii_hexdigit());
        return if right { Ok(()) } else { bad("eui. is followed by 16 hexadecimal digits") };
    }
    if let Some(hex) = name.strip_prefix("naa.") {
        let right = matches!(hex.len(), 16 | 32) && hex.bytes().all(|b| b.is_ascii_hexdigit());
        return if right { Ok(()) } else { bad("naa. is followed by 16 or 32 hexadecimal digits") };
    }
    let Some(rest) = name.strip_prefix("iqn.") else { return bad("it starts with iqn., eui. or naa.") };
    let date = rest.as_bytes();
    let dated = date.len() > 8
        && date[..4].iter().all(u8::is_ascii_digit)
        && date[4] == b'-'
        && date[5..7].iter().all(u8::is_ascii_digit)
        && date[7] == b'.';
    if !dated {
        return bad("iqn. is followed by a year and month and a dot");
    }
    if !rest
        .bytes()
        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'.' | b':' | b'_'))
    {
        return bad("it holds characters other than a-z, 0-9, '-', '.', ':' and '_'");
    }
    Ok(())
}

fn check_auth(auth: &AuthConfig, target: &str, groups: &BTreeSet<&str>) -> Result<(), Problem> {
    for user in auth.chap.iter().chain(&auth.mutual) {
        if user.user.is_empty() || user.user.len() > 255 {
            return Err(wrong(format!("target {target}: a CHAP user name has 1 to 255 bytes.")));
        }
        if user.secret == crate::config_diff::REDACTED {
            return Err(wrong(format!(
                "target {target}: the secret of CHAP user {} was left out of this file.",
                user.user
            ))
            .todo("Fill it in, or make the file with `holdfast config show` without --redact."));
        }
        if !CHAP_SECRET_BYTES.contains(&user.secret.len()) {
            return Err(wrong(format!(
                "target {target}: the secret of CHAP user {} has {} bytes; 12 to 255 are needed.",
                user.user,
                user.secret.len()
            )));
        }
    }
    for (user, group) in auth.chap.iter().flat_map(|user| user.groups.iter().map(move |group| (user, group)))
    {
        if !groups.contains(group.as_str()) {
            return Err(wrong(format!(
                "target {target}: there is no initiator group {group} for CHAP user {}.",
                user.user
            ))
            .todo(format!(
                "Make it with `holdfast initiator-group create {group}`, or have the user bound to others: \
                 `holdfast target set-user {target} {} --group GROUP`.",
                user.user
            )));
        }
    }
    if let Some(mutual) = &auth.mutual {
        if !mutual.groups.is_empty() {
            return Err(wrong(format!(
                "target {target}: mutual CHAP is what the target proves to be; it has no initiator groups."
            )));
        }
        if auth.chap.is_empty() {
            return Err(wrong(format!("target {target}: mutual CHAP needs CHAP users too.")));
        }
        if auth.chap.iter().any(|user| user.secret == mutual.secret) {
            return Err(wrong(format!(
                "target {target}: the secret of mutual CHAP must differ from that of user(s) (RFC 7143 12.1.3)."
            )));
        }
    }
    Ok(())
}

fn unique<'a>(what: &str, names: impl Iterator<Item = &'a str>) -> Result<BTreeSet<&'a str>, Problem> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(wrong(format!("{what} {name} is there twice.")));
        }
        if seen.len() > MAX_ITEMS {
            return Err(wrong(format!("There are more than {MAX_ITEMS} {what}s.")));
        }
    }
    Ok(seen)
}

fn check_addresses(pools: &[PoolConfig]) -> Result<(), Problem> {
    let mut known: BTreeMap<IpAddr, &str> = BTreeMap::new();
    for pool in pools {
        let Some(text) = &pool.address else {
            if pool.interface.is_some() {
                return Err(wrong(format!("pool {}: an interface comes with an address.", pool.name)));
            }
            continue;
        };
        let address = ServiceAddress::parse(text, pool.interface.as_deref())?;
        if let Some(other) = known.insert(address.ip, &pool.name) {
            let detail =
                format!("pools {other} and {} can't both have the address {}.", pool.name, address.ip);
            return Err(wrong(detail).todo("Each pool moves by itself: give each an address of its own."));
        }
    }
    Ok(())
}

fn check_login(disk: &DiskConfig) -> Result<(), Problem> {
    let (id, Some(login)) = (&disk.id, &disk.login) else { return Ok(()) };
    if !id.starts_with(ISCSI_DISK) {
        return Err(wrong(format!("disk {id}: only a unit of an iSCSI target (iscsi://…) is logged in to.")));
    }
    if login.target_user.is_some() != login.target_secret.is_some() {
        return Err(wrong(format!("disk {id}: target_user and target_secret come together.")));
    }
    for (user, secret) in
        [(Some(&login.user), Some(&login.secret)), (login.target_user.as_ref(), login.target_secret.as_ref())]
    {
        let (Some(user), Some(secret)) = (user, secret) else { continue };
        if !(1..=255).contains(&user.len()) {
            return Err(wrong(format!("disk {id}: a CHAP user name has 1 to 255 bytes.")));
        }
        if secret == crate::config_diff::REDACTED {
            return Err(wrong(format!(
                "disk {id}: the secret of CHAP user {user} was left out of this file."
            ))
            .todo("Fill it in, or make the file with `holdfast config show` without --redact."));
        }
        if !CHAP_SECRET_BYTES.contains(&secret.len()) {
            return Err(wrong(format!(
                "disk {id}: the secret of CHAP user {user} has {} bytes; 12 to 255 are needed.",
                secret.len()
            )));
        }
    }
    if login.target_secret.as_ref() == Some(&login.secret) {
        return Err(wrong(format!(
            "disk {id}: the target's secret must differ from this node's (RFC 7143 12.1.3)."
        )));
    }
    Ok(())
}

impl Config {
    /// Checks names, references and numbers.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), Problem> {
        if self.schema != CONFIG_SCHEMA {
            return Err(wrong(format!(
                "The configuration has schema {}; this release knows {CONFIG_SCHEMA}.",
                self.schema
            ))
            .todo("Use the release that wrote it, or a file that it exported for this one."));
        }
        if !self.node.name.is_empty() {
            check_name("node", &self.node.name)?;
        }
        if self.policy.rescan_seconds == 0 {
            return Err(wrong("policy.rescan_seconds must be at least 1."));
        }
        unique("disk", self.disks.iter().map(|disk| disk.id.as_str()))?;
        self.disks.iter().try_for_each(check_login)?;
        unique("pool", self.pools.iter().map(|pool| pool.name.as_str()))?;
        check_addresses(&self.pools)?;
        for pool in &self.pools {
            pool.home.iter().try_for_each(|node| check_name("node", node))?;
            crate::check_home(pool)?;
        }
        // Two pools may have volumes of one name.
        let which = self.volumes.iter().map(|volume| match volume.volume_guid {
            Some(guid) => format!("{} ({guid})", volume.name),
            None => volume.name.clone(),
        });
        unique("volume", which.collect::<Vec<_>>().iter().map(String::as_str))?;
        self.volumes.iter().try_for_each(|volume| check_name("volume", &volume.name))?;
        unique("portal", self.portals.iter().map(|portal| portal.address.as_str()))?;
        for portal in &self.portals {
            if portal.address.parse::<SocketAddr>().is_err() {
                return Err(wrong(format!("{:?} is not an address.", portal.address))
                    .todo("Use ADDRESS:PORT with a number address, as 192.0.2.10:3260, 0.0.0.0:3260 or [2001:db8::1]:3260."));
            }
            if portal.group == 0 {
                return Err(wrong(format!("portal {}: its group is a number from 1.", portal.address)));
            }
        }
        let groups = unique("initiator group", self.groups.iter().map(|group| group.name.as_str()))?;
        for group in &self.groups {
            check_name("initiator group", &group.name)?;
            group.initiators.iter().try_for_each(|name| check_iscsi_name(name))?;
        }
        let targets = unique("target", self.targets.iter().map(|target| target.name.as_str()))?;
        for target in &self.targets {
            check_iscsi_name(&target.name)?;
            check_auth(&target.auth, &target.name, &groups)?;
        }
        unique("lun", self.luns.iter().map(|lun| lun.name.as_str()))?;
        let mut files: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for lun in &self.luns {
            check_lun(lun, &groups, &targets)?;
            let others = files.entry((&lun.volume, upcase::upper(&lun.path))).or_default();
            // Volumes of one name in two pools may each have such a file.
            let same = |other: &Option<uuid::Uuid>| {
                other.is_none() || lun.volume_guid.is_none() || *other == lun.volume_guid
            };
            if others.iter().any(same) {
                return Err(wrong(format!(
                    "lun {}: its file {} of volume {} is another LUN's too.",
                    lun.name, lun.path, lun.volume
                )));
            }
            others.push(lun.volume_guid);
        }
        crate::lun_places::check_once(&self.luns)?;
        self.smb.check()?;
        self.http.check()?;
        unique("share", self.shares.iter().map(|share| share.name.as_str()))?;
        self.check_qos()?;
        check_shares(&self.shares)
    }
}

/// Checks what is said of the upkeep of pools: percents are of something whole.
pub(crate) fn check_policy(policy: &PolicyConfig) -> Result<(), Problem> {
    let percents = [
        ("space_warning_percent", u32::from(policy.space_warning_percent)),
        ("space_critical_percent", u32::from(policy.space_critical_percent)),
        ("rebalance_above_percent", policy.rebalance_above_percent),
    ];
    match percents.into_iter().find(|(_, percent)| *percent > 100) {
        Some((name, percent)) => Err(Problem::new(
            Code::InvalidRequest,
            format!("policy.{name} is a percentage from 1 to 100, or 0 for never, not {percent}."),
        )),
        None => Ok(()),
    }
}

fn check_lun(lun: &LunConfig, groups: &BTreeSet<&str>, targets: &BTreeSet<&str>) -> Result<(), Problem> {
    check_name("LUN", &lun.name)?;
    if !lun.path.starts_with('/') {
        return Err(wrong(format!("lun {}: the path {:?} must start with '/'.", lun.name, lun.path)));
    }
    lun.check_parents()?;
    lun.check_write_cache()?;
    if !matches!(lun.block_size, 512 | 4096) {
        return Err(wrong(format!(
            "lun {}: its block size is 512 or 4096, not {}.",
            lun.name, lun.block_size
        )));
    }
    for map in &lun.map {
        if map.number > MAX_LUN_NUMBER {
            return Err(wrong(format!("lun {}: number {} is above {MAX_LUN_NUMBER}.", lun.name, map.number)));
        }
        if !groups.contains(map.group.as_str()) {
            return Err(wrong(format!("lun {}: there is no initiator group {}.", lun.name, map.group))
                .todo("Make it with `holdfast initiator-group create`."));
        }
        if !targets.contains(map.target.as_str()) {
            return Err(wrong(format!("lun {}: there is no target {}.", lun.name, map.target))
                .todo("Make it with `holdfast target create`."));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GroupConfig, LunFormat, LunState, MapConfig, PortalConfig, TargetConfig};

    fn sample() -> Config {
        Config {
            portals: vec![PortalConfig { address: "127.0.0.1:3260".into(), group: 1 }],
            groups: vec![GroupConfig { name: "all".into(), initiators: vec![], any: true }],
            targets: vec![TargetConfig {
                name: "iqn.2026-01.io.holdfast:demo".into(),
                alias: "demo".into(),
                portal_groups: vec![1],
                auth: AuthConfig::default(),
            }],
            luns: vec![LunConfig {
                name: "l1".into(),
                guid: Some(uuid::Uuid::from_u128(7)),
                volume: "v1".into(),
                volume_guid: None,
                path: "/luns/l1".into(),
                format: LunFormat::Vhdx,
                parents_anywhere: true,
                block_size: 4096,
                state: LunState::ReadOnly,
                reason: "migration".into(),
                write_cache: true,
                initiator_write_cache: true,
                write_cache_in: None,
                map: vec![MapConfig {
                    target: "iqn.2026-01.io.holdfast:demo".into(),
                    number: 16383,
                    group: "all".into(),
                    read_only: true,
                }],
            }],
            qos: crate::QosSettings { unit_bytes: 4096, volume_depth: 32, latency_target_us: 5000 },
            qos_policies: vec![crate::Policy {
                guid: uuid::Uuid::from_u128(1),
                name: "gold".into(),
                kind: crate::PolicyKind::Aggregated,
                min_iops: Some(250),
                max_iops: Some(500),
                max_bandwidth: Some(100 << 20),
            }],
            qos_assignments: vec![crate::Assignment { lun: "l1".into(), policy: uuid::Uuid::from_u128(1) }],
            ..Config::default()
        }
    }

    #[test]
    fn sample_is_right_and_survives_toml() {
        let config = sample();
        config.check().expect("makes sense");
        let text = toml::to_string_pretty(&config).expect("serialises");
        assert_eq!(toml::from_str::<Config>(&text).expect("parses"), config, "{text}");
    }

    #[test]
    fn unknown_fields_are_refused() {
        assert!(toml::from_str::<Config>("schema = 1\nsize = 3\n").is_err());
        assert!(
            toml::from_str::<Config>("schema = 1\n[[lun]]\nname='a'\nvolume='v'\npath='/x'\nsise=1\n")
                .is_err()
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        type Change = fn(&mut Config);
        let wrong: [(&str, Change); 18] = [
            ("above its maximum", |c| c.qos_policies[0].min_iops = Some(501)),
            ("no LUN l2 to have policy", |c| c.qos_assignments[0].lun = "l2".into()),
            ("two policies", |c| c.qos_assignments.push(c.qos_assignments[0].clone())),
            ("qos.unit_bytes", |c| c.qos.unit_bytes = 0),
            ("schema", |c| c.schema = 2),
            ("not an address", |c| c.portals[0].address = "localhost:3260".into()),
            ("a number from 1", |c| c.portals[0].group = 0),
            ("no initiator group", |c| c.groups.clear()),
            ("no target", |c| c.luns[0].map[0].target = "iqn.2026-01.io.holdfast:other".into()),
            ("above", |c| c.luns[0].map[0].number = 16384),
            ("block size", |c| c.luns[0].block_size = 520),
            ("start with '/'", |c| c.luns[0].path = "luns".into()),
            ("has parents", |c| c.luns[0].format = LunFormat::Raw),
            ("twice", |c| c.luns.push(c.luns[0].clone())),
            ("another LUN's too", |c| {
                let mut other = c.luns[0].clone();
                other.name = "l2".into();
                other.path = "/LUNS/L1".into();
                c.luns.push(other);
            }),
            ("both are number 16383", |c| {
                let mut other = c.luns[0].clone();
                other.name = "l2".into();
                other.path = "/luns/l2".into();
                c.luns.push(other);
            }),
            ("secret", |c| {
                c.targets[0].auth.chap.push(crate::ChapUser {
                    user: "u".into(),
                    secret: "short".into(),
                    groups: vec![],
                });
            }),
            ("no initiator group nobody", |c| {
                c.targets[0].auth.chap.push(crate::ChapUser {
                    user: "u".into(),
                    secret: "long-enough-1".into(),
                    groups: vec!["nobody".into()],
                });
            }),
        ];
        for (words, change) in wrong {
            let mut config = sample();
            change(&mut config);
            let problem = config.check().expect_err(words);
            assert!(problem.to_string().contains(words), "{words}: {problem}");
        }
    }

    #[test]
    fn percentages_above_a_hundred_are_refused_where_they_are_new() {
        let before = sample();
        for change in [
            (|policy| policy.space_warning_percent = 200) as fn(&mut PolicyConfig),
            |policy| policy.space_critical_percent = 101,
            |policy| policy.rebalance_above_percent = 101,
        ] {
            let mut config = sample();
            change(&mut config.policy);
            let problem = config.check_changed(&before).expect_err("no percentage");
            assert!(problem.to_string().contains("a percentage from 1 to 100"), "{problem}");
            // What a release before this one has written is loaded, and serves.
            config.check().and_then(|()| config.check_changed(&config)).expect("it was accepted");
        }
        let mut config = sample();
        (config.policy.space_warning_percent, config.policy.space_critical_percent) = (0, 100);
        config.check_changed(&before).expect("never, and when it is full");
    }

    #[test]
    fn iscsi_names() {
        for good in [
            "iqn.2026-01.io.holdfast:a.b-c",
            "iqn.1993-08.org.debian:01:abc",
            "eui.02004567a425678d",
            "naa.52004567ba64678d",
        ] {
            check_iscsi_name(good).expect(good);
        }
        for bad in [
            "",
            "iqn.",
            "iqn.2026-1.io",
            "IQN.2026-01.io.x",
            "iqn.2026-01.io x",
            "eui.1",
            "naa.zz004567ba64678d",
            "disk",
        ] {
            assert!(check_iscsi_name(bad).is_err(), "{bad}");
        }
    }
}
