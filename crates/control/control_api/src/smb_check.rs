//! Whether the SMB part of a configuration makes sense by itself.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use crate::{Code, Problem, ShareConfig, SmbConfig};

/// Longest NetBIOS name (RFC 1001 14.1; the sixteenth character says what it is).
const NETBIOS_MAX: usize = 15;
/// Longest name of a share, as Windows.
const SHARE_NAME_MAX: usize = 80;
/// Longest comment of a share (MS-SRVS 2.2.2.4 has no limit; Windows' tools take 255).
const COMMENT_MAX: usize = 255;
/// Most permissions of a share: what a security descriptor of 64 KiB holds, with room.
const PERMISSIONS_MAX: usize = 1024;

fn wrong(detail: impl Into<String>) -> Problem {
    Problem::new(Code::InvalidRequest, detail)
}

/// Checks a NetBIOS name of a server or workgroup.
fn check_netbios(what: &str, name: &str) -> Result<(), Problem> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if name.len() > NETBIOS_MAX || !name.chars().all(plain) {
        return Err(wrong(format!("smb.{what}: {name:?} is not a NetBIOS name."))
            .todo("Use at most 15 letters, digits, '-' or '_'."));
    }
    Ok(())
}

/// Checks the name of a share.
///
/// # Errors
/// Says what is wrong with it.
pub fn check_share_name(name: &str) -> Result<(), Problem> {
    let bad = |why: String, todo: &str| {
        Err(wrong(format!("{name:?} can't be the name of a share: {why}.")).todo(todo))
    };
    let length = name.encode_utf16().count();
    if !(1..=SHARE_NAME_MAX).contains(&length) {
        return bad(format!("it has {length} characters"), "Use 1 to 80 characters.");
    }
    if let Some(c) = name.chars().find(|c| c.is_control() || r#"\/[]:|<>+=;,*?""#.contains(*c)) {
        return bad(
            format!("it contains {c:?}"),
            "Use none of \\ / [ ] : | < > + = ; , * ? \" in it. Which folder it shows says `--folder`, and is no part of its name.",
        );
    }
    let reserved = ["IPC$", "PIPE", "MAILSLOT", "GLOBAL"];
    if reserved.iter().any(|word| name.eq_ignore_ascii_case(word)) {
        return bad("it is reserved".to_owned(), "Choose another name.");
    }
    Ok(())
}

/// An address with the bits of it that count, as `ADDRESS` or `ADDRESS/BITS`.
#[must_use]
pub fn parse_network(text: &str) -> Option<(IpAddr, u8)> {
    let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
    let address: IpAddr = address.parse().ok()?;
    let all = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.map_or(Some(all), |bits| bits.parse().ok())?;
    (bits <= all).then_some((address, bits))
}

fn check_interface(name: &str) -> Result<(), Problem> {
    // IFNAMSIZ of Linux is 16 with the zero at the end.
    let name_like = !name.is_empty()
        && name.len() < 16
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:@".contains(c));
    if parse_network(name).is_none() && !name_like {
        return Err(wrong(format!("smb.interfaces: {name:?} is no interface, address or network."))
            .todo("Use a name as eth0, an address as 192.0.2.10, or a network as 192.0.2.0/24."));
    }
    Ok(())
}

impl SmbConfig {
    /// Checks names, addresses and versions.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), Problem> {
        check_netbios("name", &self.name)?;
        check_netbios("domain", &self.domain)?;
        if self.domain.is_empty() {
            return Err(wrong("smb.domain must not be empty.").todo("WORKGROUP is what most machines have."));
        }
        let mut seen = BTreeSet::new();
        for address in &self.listen {
            if address.parse::<SocketAddr>().is_err() {
                return Err(wrong(format!("{address:?} is not an address."))
                    .todo("Use ADDRESS:PORT with a number address, as 192.0.2.10:445, 0.0.0.0:445 or [2001:db8::1]:445."));
            }
            if !seen.insert(address) {
                return Err(wrong(format!("smb.listen: {address} is there twice.")));
            }
        }
        if self.min_dialect > self.max_dialect {
            return Err(wrong("smb.min_dialect is newer than smb.max_dialect: no client could connect."));
        }
        self.interfaces.iter().try_for_each(|name| check_interface(name))?;
        for constraint in &self.constraints {
            if parse_network(&constraint.clients).is_none() {
                return Err(wrong(format!(
                    "smb.constraint: {:?} is no address or network.",
                    constraint.clients
                ))
                .todo("Use an address as 192.0.2.10, or a network as 192.0.2.0/24."));
            }
            constraint.interfaces.iter().try_for_each(|name| check_interface(name))?;
        }
        Ok(())
    }
}

/// Checks shares, each and together.
pub(crate) fn check_shares(shares: &[ShareConfig]) -> Result<(), Problem> {
    let mut names = BTreeSet::new();
    for share in shares {
        check_share_name(&share.name)?;
        let name = &share.name;
        if !names.insert(upcase::upper(name)) {
            return Err(wrong(format!("share {name} is there twice: case does not count.")));
        }
        if !share.folder.starts_with('/') {
            return Err(wrong(format!("share {name}: the folder {:?} must start with '/'.", share.folder)));
        }
        if share.comment.chars().count() > COMMENT_MAX {
            return Err(wrong(format!("share {name}: its comment has more than {COMMENT_MAX} characters.")));
        }
        if share.permissions.len() > PERMISSIONS_MAX {
            return Err(wrong(format!("share {name} has more than {PERMISSIONS_MAX} permissions.")));
        }
        let mut who = BTreeSet::new();
        for permission in &share.permissions {
            if permission.who.is_empty() {
                return Err(wrong(format!("share {name}: a permission names nobody.")));
            }
            if !who.insert(upcase::upper(&permission.who)) {
                return Err(wrong(format!("share {name}: {} has two permissions.", permission.who))
                    .todo("Keep the one that is meant."));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Config, Demand, ShareCaching, ShareKind, SharePermission, ShareRight, SmbConstraint, SmbDialect,
    };

    fn sample() -> Config {
        Config {
            smb: SmbConfig {
                name: "STORE1".into(),
                listen: vec!["0.0.0.0:445".into(), "[::1]:4450".into()],
                encryption: Demand::Required,
                min_dialect: SmbDialect::V300,
                interfaces: vec!["eth0".into(), "192.0.2.0/24".into()],
                constraints: vec![SmbConstraint {
                    clients: "198.51.100.0/24".into(),
                    interfaces: vec!["eth1".into()],
                }],
                ..SmbConfig::default()
            },
            shares: vec![ShareConfig {
                name: "vmstore".into(),
                volume: "v1".into(),
                volume_guid: None,
                folder: "/shares/vmstore".into(),
                comment: "virtual machines".into(),
                kind: ShareKind::Plain,
                encrypt: true,
                caching: ShareCaching::None,
                access_based_enumeration: true,
                hidden: true,
                read_only: true,
                permissions: vec![SharePermission { who: "hosts".into(), right: ShareRight::Full }],
            }],
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
    fn little_has_to_be_written() {
        let text =
            "schema = 1\n[smb]\nlisten = ['0.0.0.0:445']\n[[share]]\nname='a'\nvolume='v'\nfolder='/a'\n";
        let config: Config = toml::from_str(text).expect("parses");
        assert_eq!(config.shares[0].kind, ShareKind::ScaleOut);
        assert!(config.shares[0].permissions.is_empty());
        assert_eq!(config.smb.signing, Demand::Required);
        assert!(
            !toml::to_string(&Config::default()).expect("text").contains("smb"),
            "the default is not written"
        );
        assert!(toml::from_str::<Config>(&text.replace("folder", "path")).is_err());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        type Change = fn(&mut Config);
        let wrong: [(&str, Change); 13] = [
            ("NetBIOS", |c| c.smb.name = "a-name-that-is-too-long".into()),
            ("not be empty", |c| c.smb.domain = String::new()),
            ("not an address", |c| c.smb.listen = vec!["localhost:445".into()]),
            ("twice", |c| c.smb.listen.push("0.0.0.0:445".into())),
            ("newer", |c| c.smb.max_dialect = SmbDialect::V210),
            ("no interface", |c| c.smb.interfaces.push("not an interface at all".into())),
            ("no address or network", |c| c.smb.constraints[0].clients = "10.0.0.0/33".into()),
            ("reserved", |c| c.shares[0].name = "ipc$".into()),
            ("it contains '/'", |c| c.shares[0].name = "a/b".into()),
            ("case does not count", |c| {
                let mut other = c.shares[0].clone();
                other.name = "VMSTORE".into();
                c.shares.push(other);
            }),
            ("start with '/'", |c| c.shares[0].folder = "shares".into()),
            ("names nobody", |c| c.shares[0].permissions[0].who = String::new()),
            ("two permissions", |c| {
                let mut other = c.shares[0].permissions[0].clone();
                other.who = "HOSTS".into();
                c.shares[0].permissions.push(other);
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
    fn networks() {
        assert_eq!(parse_network("192.0.2.7"), Some(([192, 0, 2, 7].into(), 32)));
        assert_eq!(parse_network("192.0.2.0/24"), Some(([192, 0, 2, 0].into(), 24)));
        assert_eq!(parse_network("fd00::/8").map(|(_, bits)| bits), Some(8));
        for bad in ["", "eth0", "192.0.2.0/33", "192.0.2.0/", "/8"] {
            assert_eq!(parse_network(bad), None, "{bad}");
        }
    }
}
