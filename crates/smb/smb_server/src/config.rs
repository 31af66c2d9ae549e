//! What the node tells the server: who it is, what it asks of clients, and what it shares.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;

use smb_auth::Accounts;
use smb_auth::ntlm::policy::Policy;
use smb_files::FileSystem;
use smb_protocol::Dialect;
use smb_protocol::negotiate::contexts::{Cipher, SigningAlgorithm};
use smb_protocol::security::sid::Sid;
use smb_protocol::tree::CachingMode;
use smb_security::Token;

/// Who a user is to access checks; implemented over the node's users.
pub trait Directory: Accounts + Send + Sync + 'static {
    /// The user's groups and privileges; `None` when the user is gone or disabled.
    fn token(&self, user: Sid, groups: &[Sid]) -> Option<Token>;

    /// The token of a session without a user.
    fn anonymous(&self) -> Token;

    /// Whether it is certain that a user is gone, or disabled: what it has left open is closed then. Who cannot know says no.
    fn has_left(&self, user: Sid) -> bool;

    /// Whether this is a group, or another principal that is no user. Who is not known may be a user who is gone.
    fn is_group(&self, sid: Sid) -> bool;

    /// What a user is called; `None` for one that is not known.
    fn name_of(&self, user: Sid) -> Option<String>;
}

/// How the server protects what it says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Signing {
    /// Messages of a user's session are signed or encrypted, or refused.
    #[default]
    Required,
    /// Signed where the client wants it. For networks that nobody else can reach.
    Offered,
}

/// How the server encrypts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encryption {
    /// Where a share or the client wants it.
    #[default]
    Offered,
    /// All sessions; clients that cannot are refused.
    Required,
}

/// The server as a whole.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Its NetBIOS name, at most 15 characters.
    pub name: String,
    /// Its workgroup or domain.
    pub domain: String,
    /// Its names in DNS, with and without domain; may be empty.
    pub dns_name: String,
    /// Signatures.
    pub signing: Signing,
    /// Encryption.
    pub encryption: Encryption,
    /// What is asked of an authentication.
    pub auth: Policy,
    /// The oldest version that is spoken.
    pub min_dialect: Dialect,
    /// The newest version that is spoken.
    pub max_dialect: Dialect,
    /// Ciphers, best first.
    pub ciphers: Vec<Cipher>,
    /// Signing algorithms, best first.
    pub signing_algorithms: Vec<SigningAlgorithm>,
    /// Whether sessions may have several connections.
    pub multichannel: bool,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            name: "HOLDFAST".to_owned(),
            domain: "WORKGROUP".to_owned(),
            dns_name: String::new(),
            signing: Signing::default(),
            encryption: Encryption::default(),
            auth: Policy::default(),
            min_dialect: Dialect::SMB_2_0_2,
            max_dialect: Dialect::SMB_3_1_1,
            ciphers: vec![Cipher::AES_128_GCM, Cipher::AES_256_GCM, Cipher::AES_128_CCM, Cipher::AES_256_CCM],
            signing_algorithms: vec![
                SigningAlgorithm::AES_GMAC,
                SigningAlgorithm::AES_CMAC,
                SigningAlgorithm::HMAC_SHA256,
            ],
            multichannel: true,
        }
    }
}

/// What a user or group may do at most over a share, whatever the files' own descriptors allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ShareRight {
    /// Read.
    Read,
    /// Read, write, delete.
    Change,
    /// Everything, permissions and owners included.
    Full,
}

/// A row of a share's permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharePermission {
    /// A user or group.
    pub who: Sid,
    /// What it may do.
    pub right: ShareRight,
}

/// What a share promises its clients (MS-SMB2 3.3.1.6: Share.IsCA, Share.Type; MS-SRVS 2.2.2.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShareKind {
    /// What clients have open is lost with the server.
    #[default]
    Plain,
    /// Continuously available, STYPE_CLUSTER_FS: handles survive the server with all that they may cache. Others wait for
    /// who is away to come back and give it up.
    Clustered,
    /// Continuously available, STYPE_CLUSTER_SOFS: handles survive the server and cache no more than reads, which nobody
    /// has to wait for.
    ScaleOut,
}

impl ShareKind {
    /// Whether handles survive the server (persistent handles); all writes are durable then.
    #[must_use]
    pub fn is_continuously_available(self) -> bool {
        self != Self::Plain
    }
}

/// A folder of a volume under a name.
#[derive(Clone)]
pub struct ShareConfig {
    /// The name, at most 80 characters; compared without regard to case.
    pub name: String,
    /// What people read about it.
    pub comment: String,
    /// The volume.
    pub files: FileSystem,
    /// The folder in it, with `\` between names; empty for the volume's root.
    pub folder: String,
    /// Who may do what. Nobody else may connect.
    pub permissions: Vec<SharePermission>,
    /// What it promises its clients.
    pub kind: ShareKind,
    /// Whether everything over it must be encrypted.
    pub encrypt: bool,
    /// What clients may keep on their own disks.
    pub caching: CachingMode,
    /// Whether a listing leaves out what the user could not open.
    pub access_based_enumeration: bool,
    /// Whether it is left out of listings.
    pub hidden: bool,
    /// Whether nothing may be changed over it.
    pub read_only: bool,
}

impl std::fmt::Debug for ShareConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShareConfig")
            .field("name", &self.name)
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}

/// Why a configuration cannot work.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The name is taken.
    #[error("there is a share {0:?} already")]
    Exists(String),
    /// No such share.
    #[error("there is no share {0:?}")]
    Missing(String),
    /// The name cannot be one.
    #[error("{name:?} cannot be the name of a share: {reason}")]
    Name {
        /// The name.
        name: String,
        /// Which rule it breaks.
        reason: &'static str,
    },
}

/// Most characters of a share's name, as Windows.
const NAME_MAX: usize = 80;

/// Whether a name can be that of a share.
///
/// # Errors
/// [`ConfigError::Name`] with the rule.
pub fn check_share_name(name: &str) -> Result<(), ConfigError> {
    let reserved: BTreeSet<&str> = ["IPC$", "PIPE", "MAILSLOT", "GLOBAL"].into();
    let bad = |reason| Err(ConfigError::Name { name: name.chars().take(NAME_MAX).collect(), reason });
    if name.is_empty() || name.encode_utf16().count() > NAME_MAX {
        return bad("it has 1 to 80 characters");
    }
    if name.chars().any(|c| c.is_control() || r#"\/[]:|<>+=;,*?""#.contains(c)) {
        return bad("it contains none of \\ / [ ] : | < > + = ; , * ? \"");
    }
    if reserved.contains(upcase::upper(name).as_str()) {
        return bad("it is reserved");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_shares() {
        for good in ["vmstore", "VM Store 1", "admin$", &"x".repeat(80)] {
            assert!(check_share_name(good).is_ok(), "{good}");
        }
        for bad in ["", "a\\b", "a/b", "a:b", "ipc$", "Pipe", "a\0", &"x".repeat(81)] {
            assert!(check_share_name(bad).is_err(), "{bad}");
        }
    }
}
