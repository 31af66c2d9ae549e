//! A LUN's address as initiators write it: `iscsi://[user[%password]@]host[:port]/target/LUN[?key=value&…]`.
//!
//! The form is libiscsi's, so that one address serves QEMU, fio and us. Keys: `header_digest` and `data_digest`
//! (`crc32c` or `none`), `target_user` and `target_password` (mutual CHAP), `initiator` (the name to log in with).

use std::fmt;

use crate::chap::{MAX_USER_BYTES, Secret};
use crate::name::{IscsiName, NameError};

/// The port of iSCSI (RFC 7143 13.8).
pub const PORT: u16 = 3260;
/// Longest address that is taken, in bytes: names, secrets and a host have their own bounds far below.
pub const MAX_URL_BYTES: usize = 4096;
/// Largest unit number: flat space addressing has 14 bits (SAM-5 4.7).
pub const MAX_LUN: u16 = 0x3fff;

const SCHEME: &str = "iscsi://";

/// Where a LUN is, and how to log in to it.
#[derive(Clone, Debug)]
pub struct Url {
    /// Name or address of the portal.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The target.
    pub target: IscsiName,
    /// The unit's number, up to [`MAX_LUN`].
    pub lun: u16,
    /// Who logs in (CHAP_N).
    pub user: Option<String>,
    /// The secret of that user.
    pub password: Option<Secret>,
    /// Who the target must prove to be, for mutual CHAP.
    pub target_user: Option<String>,
    /// The secret that the target must prove to know.
    pub target_password: Option<Secret>,
    /// The name to log in with.
    pub initiator: Option<IscsiName>,
    /// Whether headers must carry a digest.
    pub header_digest: bool,
    /// Whether data must carry a digest.
    pub data_digest: bool,
}

/// Why an address was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// The text is no URL of this form.
    #[error("not of the form iscsi://[user[%password]@]host[:port]/target/LUN, with a LUN from 0 to 16383")]
    Form,
    /// A name is none.
    #[error("'{0}': {1}")]
    Name(String, NameError),
    /// The query has something that is not known, or a value that cannot be.
    #[error(
        "'{0}' is none of header_digest=crc32c|none, data_digest=…, target_user=…, target_password=…, initiator=…"
    )]
    Query(String),
}

/// Whether `text` claims to be such an address.
#[must_use]
pub fn is_url(text: &str) -> bool {
    text.starts_with(SCHEME)
}

/// Host and port of `host`, `host:port`, `[address]` or `[address]:port`.
#[must_use]
pub fn host_and_port(text: &str) -> Option<(String, u16)> {
    let (host, port) = match text.strip_prefix('[').map(|rest| rest.split_once(']')) {
        Some(Some((host, ""))) => (host, None),
        Some(Some((host, rest))) => (host, Some(rest.strip_prefix(':')?)),
        Some(None) => return None,
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let port = port.map_or(Some(PORT), |port| port.parse().ok())?;
    let host_ok = !host.is_empty() && !host.contains(|c: char| c.is_control() || c.is_whitespace());
    host_ok.then(|| (host.to_owned(), port))
}

impl Url {
    /// Reads an address.
    ///
    /// # Errors
    /// Says what is wrong; never with a secret in it.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let rest = text.strip_prefix(SCHEME).filter(|_| text.len() <= MAX_URL_BYTES).ok_or(UrlError::Form)?;
        let (authority, path) = rest.split_once('/').ok_or(UrlError::Form)?;
        let (login, host) = authority.rsplit_once('@').map_or((None, authority), |(a, b)| (Some(a), b));
        let (host, port) = host_and_port(host).ok_or(UrlError::Form)?;
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let (target, lun) = path.split_once('/').ok_or(UrlError::Form)?;
        let digits = !lun.is_empty() && lun.bytes().all(|byte| byte.is_ascii_digit());
        let lun = lun.parse().ok().filter(|lun| digits && *lun <= MAX_LUN).ok_or(UrlError::Form)?;
        let (user, password) = match login.map(|login| login.split_once('%').unwrap_or((login, ""))) {
            Some((user, _)) if user.is_empty() || user.len() > MAX_USER_BYTES => return Err(UrlError::Form),
            Some((user, "")) => (Some(user.to_owned()), None),
            Some((user, password)) => (Some(user.to_owned()), Some(Secret::new(password))),
            None => (None, None),
        };
        let mut url = Self {
            host,
            port,
            target: name(target)?,
            lun,
            user,
            password,
            target_user: None,
            target_password: None,
            initiator: None,
            header_digest: false,
            data_digest: false,
        };
        query.split('&').filter(|pair| !pair.is_empty()).try_for_each(|pair| url.option(pair))?;
        Ok(url)
    }

    fn option(&mut self, pair: &str) -> Result<(), UrlError> {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let digest = || match value.to_ascii_lowercase().as_str() {
            "crc32c" => Ok(true),
            "none" => Ok(false),
            _ => Err(UrlError::Query(pair.to_owned())),
        };
        match key {
            "header_digest" => self.header_digest = digest()?,
            "data_digest" => self.data_digest = digest()?,
            "target_user" if !value.is_empty() && value.len() <= MAX_USER_BYTES => {
                self.target_user = Some(value.to_owned());
            }
            "target_password" if !value.is_empty() => self.target_password = Some(Secret::new(value)),
            "initiator" => self.initiator = Some(name(value)?),
            // The key alone: a mistyped key may stand before a secret.
            _ => return Err(UrlError::Query(key.to_owned())),
        }
        Ok(())
    }
}

fn name(text: &str) -> Result<IscsiName, UrlError> {
    IscsiName::parse(text).map_err(|error| UrlError::Name(text.to_owned(), error))
}

/// The same address without its secrets, to be shown. Anything that is no such address is returned as it is.
#[must_use]
pub fn without_secrets(text: &str) -> String {
    let Some(rest) = text.strip_prefix(SCHEME) else { return text.to_owned() };
    // As `parse` reads it: the login ends at the last '@' before the first '/'.
    let (authority, path) = rest.split_once('/').map_or((rest, None), |(a, p)| (a, Some(p)));
    let mut shown = String::from(SCHEME);
    match authority.rsplit_once('@') {
        Some((login, host)) => {
            shown.push_str(login.split('%').next().unwrap_or_default());
            shown.push('@');
            shown.push_str(host);
        }
        None => shown.push_str(authority),
    }
    let Some(path) = path else { return shown };
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    shown.push('/');
    shown.push_str(path);
    let mut mark = '?';
    for pair in query.split('&').filter(|pair| !pair.is_empty() && !pair.starts_with("target_password")) {
        shown.push(mark);
        shown.push_str(pair);
        mark = '&';
    }
    shown
}

impl fmt::Display for Url {
    /// Portal, target and number; no login.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let brackets = if self.host.contains(':') { ("[", "]") } else { ("", "") };
        let (target, lun) = (&self.target, self.lun);
        write!(f, "{SCHEME}{}{}{}:{}/{target}/{lun}", brackets.0, self.host, brackets.1, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IQN: &str = "iqn.2026-01.org.example:disk";

    #[test]
    fn forms() {
        let url = Url::parse(&format!("iscsi://fs/{IQN}/0")).unwrap();
        assert_eq!((url.host.as_str(), url.port, url.lun), ("fs", 3260, 0));
        assert_eq!(url.target.as_str(), IQN);
        assert!(url.user.is_none() && !url.header_digest);
        let url = Url::parse(&format!("iscsi://me%a%b@c@[::1]:860/{IQN}/300")).unwrap();
        assert_eq!((url.host.as_str(), url.port, url.lun), ("::1", 860, 300));
        assert_eq!(url.user.as_deref(), Some("me"));
        assert!(url.password.as_ref().unwrap().same_as(&Secret::new("a%b@c")));
        assert_eq!(url.to_string(), format!("iscsi://[::1]:860/{IQN}/300"));
        let query = "header_digest=CRC32C&data_digest=none&target_user=it&target_password=x=y&initiator=eui.02004567A425678D";
        let url = Url::parse(&format!("iscsi://h/{IQN}/1?{query}")).unwrap();
        assert!(url.header_digest && !url.data_digest);
        assert_eq!(url.target_user.as_deref(), Some("it"));
        assert!(url.target_password.unwrap().same_as(&Secret::new("x=y")));
        assert_eq!(url.initiator.unwrap().as_str(), "eui.02004567a425678d");
    }

    #[test]
    fn refusals() {
        for wrong in [
            "smb://h/iqn.2026-01.a:b/0",
            "iscsi://h",
            "iscsi:///iqn.2026-01.a:b/0",
            "iscsi://h/iqn.2026-01.a:b",
            "iscsi://h/iqn.2026-01.a:b/",
            "iscsi://h/iqn.2026-01.a:b/+1",
            "iscsi://h/iqn.2026-01.a:b/16384",
            "iscsi://h/iqn.2026-01.a:b/0/1",
            "iscsi://h:x/iqn.2026-01.a:b/0",
            "iscsi://[::1/iqn.2026-01.a:b/0",
            "iscsi://%secret@h/iqn.2026-01.a:b/0",
            "iscsi://h/disk/0",
            "iscsi://h/iqn.2026-01.a:b/0?header_digest=md5",
            "iscsi://h/iqn.2026-01.a:b/0?nonsense=1",
        ] {
            assert!(Url::parse(wrong).is_err(), "{wrong}");
        }
        assert!(Url::parse(&format!("iscsi://h/{IQN}/0?{}", "&".repeat(MAX_URL_BYTES))).is_err());
    }

    #[test]
    fn secrets_are_not_shown() {
        let text = format!("iscsi://me%hush@h/{IQN}/0?target_user=it&target_password=hush2&data_digest=none");
        let shown = format!("iscsi://me@h/{IQN}/0?target_user=it&data_digest=none");
        assert_eq!(without_secrets(&text), shown);
        assert_eq!(without_secrets("/dev/sdb%x@y"), "/dev/sdb%x@y");
        let url = Url::parse(&text).unwrap();
        assert!(!format!("{url:?}{url}").contains("hush"));
        let wrong = Url::parse(&format!("iscsi://h/{IQN}/0?targetpassword=hush")).unwrap_err();
        assert!(!wrong.to_string().contains("hush"));
    }
}
