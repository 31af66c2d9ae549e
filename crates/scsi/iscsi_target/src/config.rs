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

/// A user of CHAP, and which initiators it may be.
#[derive(Clone, Debug)]
pub struct Account {
    /// Its name and secret.
    pub user: ChapUser,
    /// The initiators that it may log in as. A name that a [`InitiatorAccess::Check`] of some account of the target
    /// allows is for such accounts only: an account for any initiator cannot log in under it.
    pub initiators: InitiatorAccess,
}

impl From<ChapUser> for Account {
    /// A user that may log in as any initiator.
    fn from(user: ChapUser) -> Self {
        Self { user, initiators: InitiatorAccess::Any }
    }
}

/// Who an initiator has to prove to be. Secrets are redacted in `Debug`.
#[derive(Clone, Debug)]
pub enum AuthConfig {
    /// Nobody.
    None,
    /// One of the users.
    Chap {
        /// Names and secrets of initiators.
        users: Vec<Account>,
        /// Our own name and secret, for initiators that ask (mutual CHAP).
        mutual: Option<ChapUser>,
    },
}

impl AuthConfig {
    /// What an initiator of this name has to prove.
    pub(crate) fn to_auth(&self, initiator: &IscsiName) -> Auth {
        match self {
            Self::None => Auth::None,
            Self::Chap { mutual, .. } => {
                Auth::Chap { users: self.users_for(initiator).cloned().collect(), mutual: mutual.clone() }
            }
        }
    }

    /// The users that may log in as this initiator; none also where nobody has to prove anything.
    pub(crate) fn users_for<'a>(
        &'a self,
        initiator: &'a IscsiName,
    ) -> impl Iterator<Item = &'a ChapUser> + 'a {
        let accounts: &[Account] = match self {
            Self::None => &[],
            Self::Chap { users, .. } => users,
        };
        let bound = |account: &Account| matches!(account.initiators, InitiatorAccess::Check(_));
        let taken = accounts.iter().any(|a| bound(a) && a.initiators.allows(initiator));
        let may = accounts.iter().filter(move |a| bound(a) == taken && a.initiators.allows(initiator));
        may.map(|account| &account.user)
    }

    /// Whether there is a user of that name, for whichever initiators.
    pub(crate) fn has_user(&self, name: &str) -> bool {
        match self {
            Self::None => false,
            Self::Chap { users, .. } => users.iter().any(|account| account.user.name == name),
        }
    }

    /// Whether who has proved to be `user`, or nobody, would be let in now.
    pub(crate) fn admits(&self, initiator: &IscsiName, user: Option<&ChapUser>) -> bool {
        match self {
            Self::None => true,
            Self::Chap { .. } => {
                user.is_some_and(|user| self.users_for(initiator).any(|known| known.same_as(user)))
            }
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

impl fmt::Debug for InitiatorAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Any => "Any",
            Self::Check(_) => "Check",
        })
    }
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

    /// Whether a session of this initiator, which has proved to be `user` or nobody, may be there now.
    pub(crate) fn admits(&self, initiator: &IscsiName, user: Option<&ChapUser>, group: u16) -> bool {
        self.in_group(group) && self.access.allows(initiator) && self.auth.admits(initiator, user)
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

/// What a discovery session has to prove.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DiscoveryAuth {
    /// Nothing: an initiator is told of the targets that let its name in.
    #[default]
    Open,
    /// That it is a user of some target under the name that it gives: it is told of those that would let it in.
    Chap,
}

/// What holds for the whole server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// What we are ready to agree to.
    pub offer: Offer,
    /// What a discovery session has to prove.
    pub discovery: DiscoveryAuth,
    /// How long a peer may be silent, or take none of our answers, before its connection is closed. It is asked with
    /// a NOP-In well before. Holds for connections made from now on.
    pub dead_after: Duration,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self { offer: Offer::default(), discovery: DiscoveryAuth::Open, dead_after: limits::DEAD_AFTER }
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
    let names = || users.iter().map(|account| &account.user);
    if names().chain(mutual).any(bad) {
        return Err(ConfigError::Auth("a user name has 1 to 255 bytes"));
    }
    if mutual.as_ref().is_some_and(|m| names().any(|u| u.secret.same_as(&m.secret))) {
        return Err(ConfigError::Auth("both directions must not share a secret"));
    }
    Ok(())
}
