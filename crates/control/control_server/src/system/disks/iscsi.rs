//! Disks that are units of iSCSI targets: addresses, who this node is there, and what goes wrong in words.

use std::sync::Arc;

use block_iscsi::{IscsiDisk, Settings, Times};
use control_api::{Code, DiskLogin, Problem};
use iscsi_client::{ClientError, Options};
use iscsi_protocol::IscsiName;
use iscsi_protocol::chap::{ChapUser, Secret};
use iscsi_protocol::login_client::LoginError;
use iscsi_protocol::url::Url;
use shard_runtime::{Clock, SystemEntropy};

/// Sessions of one disk: enough that one full socket does not hold the others up.
const LANES: usize = 2;
/// Commands under way on each of them.
const DEPTH: usize = 64;

/// Why a session is opened: sessions of one kind take each other's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum For {
    /// To use the disk. A process that is no more is followed by the next one, whose sessions end its own.
    Use,
    /// To ask whether it is there, beside whoever uses it.
    Look,
}

/// What this node is to targets.
#[derive(Clone)]
pub(super) struct Initiator {
    /// Its name. Another node must not have it: a target would take both for one.
    pub(super) name: IscsiName,
    pub(super) clock: Arc<dyn Clock>,
}

/// The address of a unit in the one form that it is known by: with its port, without secrets.
///
/// # Errors
/// When it is none, or has what belongs into the configuration.
pub(super) fn address(text: &str) -> Result<(String, Url), Problem> {
    let wrong = |why: String| {
        Problem::new(Code::InvalidRequest, format!("disk {}: {why}", shown(text)))
            .todo("Name it iscsi://HOST:PORT/TARGET/LUN. User and secret are in the configuration, in `login` of the disk.")
    };
    let url = Url::parse(text).map_err(|error| wrong(error.to_string()))?;
    if url.user.is_some() || url.target_user.is_some() || url.initiator.is_some() {
        return Err(wrong("user, secret and initiator's name do not belong into an address.".into()));
    }
    let host = if url.host.contains(':') { format!("[{}]", url.host) } else { url.host.clone() };
    let digests = [("header_digest", url.header_digest), ("data_digest", url.data_digest)];
    let digests: Vec<String> =
        digests.into_iter().filter(|(_, on)| *on).map(|(name, _)| format!("{name}=crc32c")).collect();
    let query = if digests.is_empty() { String::new() } else { format!("?{}", digests.join("&")) };
    Ok((format!("iscsi://{host}:{}/{}/{}{query}", url.port, url.target, url.lun), url))
}

/// What may be shown of a text that was to be an address.
fn shown(text: &str) -> &str {
    text.rsplit_once('@').map_or(text, |(_, rest)| rest)
}

/// Opens a unit. Call on a shard.
pub(super) async fn open(
    initiator: Initiator,
    url: Url,
    login: Option<DiskLogin>,
    wanted: For,
) -> Result<IscsiDisk, Problem> {
    let user = |name: &str, secret: &str| ChapUser { name: name.to_owned(), secret: Secret::new(secret) };
    let target_user = login
        .as_ref()
        .and_then(|login| Some(user(login.target_user.as_deref()?, login.target_secret.as_deref()?)));
    // Random format (RFC 7143 11.12.5): the unit's number, and below it that of the session.
    let [high, low] = url.lun.to_be_bytes();
    let isid = [0x80, u8::from(wanted == For::Look), high, low, 0, 0];
    let name = format!("unit {} of {} at {}:{}", url.lun, url.target, url.host, url.port);
    let asked_for = login.is_some();
    let settings = Settings {
        login: Options {
            url,
            initiator: initiator.name.clone(),
            isid,
            user: login.as_ref().map(|login| user(&login.user, &login.secret)),
            target_user,
            depth: DEPTH,
        },
        lanes: if wanted == For::Use { LANES } else { 1 },
        times: Times::default(),
        clock: initiator.clock,
        entropy: Arc::new(SystemEntropy),
    };
    IscsiDisk::open(settings).await.map_err(|error| told(&name, &error, (&initiator.name, asked_for)))
}

/// What went wrong, where, and what to do.
fn told(unit: &str, error: &ClientError, (initiator, with_login): (&IscsiName, bool)) -> Problem {
    let (code, todo) = match error {
        ClientError::Io(_) => (
            Code::Unavailable,
            "Look whether the target runs and its address is reachable from here; the disk is used again by itself when it is.".to_owned(),
        ),
        ClientError::Login(LoginError::Refused(_)) if with_login => (
            Code::Io,
            format!("Look at the disk's `login` in the configuration, and whether the target lets {initiator} in."),
        ),
        ClientError::Login(_) => (
            Code::Io,
            format!("Look whether the target's name is right and it lets {initiator} in; where it asks for CHAP, put a `login` for the disk into the configuration."),
        ),
        ClientError::NotADisk(_) => (Code::Unsupported, "Map a disk under this number at the target, or name another one.".to_owned()),
        _ => (Code::Io, "The log of the target may say more.".to_owned()),
    };
    Problem::new(code, format!("{unit}: {error}.")).todo(todo)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_one_form_and_no_secrets() {
        let known = |text: &str| address(text).map(|(known, _)| known);
        let form = "iscsi://10.0.0.5:3260/iqn.2026-01.org.example:disk/3";
        assert_eq!(known("iscsi://10.0.0.5/IQN.2026-01.org.example:disk/3").as_deref(), Ok(form));
        assert_eq!(known(form).as_deref(), Ok(form));
        let six = "iscsi://[fd00::5]:3260/iqn.2026-01.org.example:disk/0?data_digest=crc32c";
        assert_eq!(known(six).as_deref(), Ok(six));
        let problem =
            known("iscsi://me%a-secret-word@h/iqn.2026-01.org.example:disk/0").expect_err("refused");
        assert!(!format!("{problem:?}").contains("a-secret-word"));
        assert!(known("iscsi://h/iqn.2026-01.org.example:disk").is_err());
    }
}
