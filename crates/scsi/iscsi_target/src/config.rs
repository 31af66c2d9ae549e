//! What the administrator decides.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use iscsi_protocol::IscsiName;
use iscsi_protocol::chap::ChapUser;
use iscsi_protocol::keys::Offer;
use iscsi_protocol::login::Auth;
use scsi_core::ScsiDevice;

use crate::limits;

/// Who an initiator has to prove to be. Secrets are redacted in `Debug`.
#[derive(Clone, Debug)]
pub enum AuthConfig {
    /// Nobody.
    None,
    /// One of the users.
    Chap {
        /// Names and secrets of initiators.
        users: Vec<ChapUser>,
        /// Our own name and secret, for initiators that ask (mutual CHAP).
        mutual: Option<ChapUser>,
    },
}

impl AuthConfig {
    pub(crate) fn to_auth(&self) -> Auth {
        match self {
            Self::None => Auth::None,
            Self::Chap { users, mutual } => Auth::Chap { users: users.clone(), mutual: mutual.clone() },
        }
    }
}

/// Which initiators may log in.
#[derive(Clone)]
pub enum InitiatorAccess {
    /// All.
    Any,
    /// Those for which the function says yes (masking: an initiator without any LUN is refused).
    Check(Arc<dyn Fn(&IscsiName) -> bool + Send + Sync>),
}

impl InitiatorAccess {
    pub(crate) fn allows(&self, initiator: &IscsiName) -> bool {
        match self {
            Self::Any => true,
            Self::Check(check) => check(initiator),
        }
    }
}

/// One target.
#[derive(Clone)]
pub struct TargetConfig {
    /// Its name.
    pub name: IscsiName,
    /// What initiators show to people.
    pub alias: Option<String>,
    /// Tags of the portal groups it is reached through; empty for all.
    pub portal_groups: Vec<u16>,
    /// What initiators have to prove.
    pub auth: AuthConfig,
    /// Which initiators may log in, and see it in discovery.
    pub access: InitiatorAccess,
    /// What it is.
    pub device: Arc<dyn ScsiDevice>,
}

impl TargetConfig {
    /// A target open to all.
    #[must_use]
    pub fn new(name: IscsiName, device: Arc<dyn ScsiDevice>) -> Self {
        let (auth, access) = (AuthConfig::None, InitiatorAccess::Any);
        Self { name, alias: None, portal_groups: Vec::new(), auth, access, device }
    }

    pub(crate) fn in_group(&self, tag: u16) -> bool {
        self.portal_groups.is_empty() || self.portal_groups.contains(&tag)
    }
}

impl fmt::Debug for TargetConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TargetConfig")
            .field("name", &self.name)
            .field("portal_groups", &self.portal_groups)
            .field("auth", &self.auth)
            .finish_non_exhaustive()
    }
}

/// Where we listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortalConfig {
    /// Address and port; port 0 takes a free one.
    pub address: SocketAddr,
    /// Target portal group tag, from 1.
    pub group: u16,
}

/// What holds for the whole server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// What we are ready to agree to.
    pub offer: Offer,
    /// What a discovery session has to prove.
    pub discovery_auth: AuthConfig,
    /// How long a peer may be silent, or take none of our answers, before its connection is closed. It is asked with
    /// a NOP-In well before. Holds for connections made from now on.
    pub dead_after: Duration,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self { offer: Offer::default(), discovery_auth: AuthConfig::None, dead_after: limits::DEAD_AFTER }
    }
}

/// Why a change was refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The name is taken.
    #[error("target {0} exists already")]
    Exists(IscsiName),
    /// There is no such target.
    #[error("there is no target {0}")]
    Missing(IscsiName),
    /// A user without name or secret, or a mutual secret that is also an initiator's.
    #[error("CHAP: {0}")]
    Auth(&'static str),
    /// The portal's address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        source: std::io::Error,
    },
    /// Portal group tags start at 1.
    #[error("portal group tag 0 is reserved")]
    GroupTag,
}

pub(crate) fn check_auth(auth: &AuthConfig) -> Result<(), ConfigError> {
    let AuthConfig::Chap { users, mutual } = auth else { return Ok(()) };
    if users.is_empty() {
        return Err(ConfigError::Auth("at least one user is needed"));
    }
    let bad =
        |user: &ChapUser| user.name.is_empty() || user.name.len() > iscsi_protocol::chap::MAX_USER_BYTES;
    if users.iter().chain(mutual).any(bad) {
        return Err(ConfigError::Auth("a user name has 1 to 255 bytes"));
    }
    if mutual.as_ref().is_some_and(|m| users.iter().any(|u| u.secret.same_as(&m.secret))) {
        return Err(ConfigError::Auth("both directions must not share a secret"));
    }
    Ok(())
}
