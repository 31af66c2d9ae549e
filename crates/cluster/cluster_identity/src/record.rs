//! What `identity.toml` says, as text and as a value that has been checked.

use std::fmt;
use std::net::SocketAddr;

use cluster_store::keys::{ClusterName, NodeId};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Version of the file.
const SCHEMA: u32 = 1;
/// The most addresses of links, and endpoints of etcd.
const MAX_LIST: usize = 16;
/// The longest address or URL.
const MAX_TEXT: usize = 256;
/// First lines of the file, for who opens it.
const HEADER: &str = "# The cluster that this node belongs to. Written by `holdfast cluster init` and `holdfast cluster join`: not to be changed here.\n\n";

/// What is wrong with a record.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct RecordError(String);

/// The name of a node, for people: 1 to 63 letters, digits and `-`, not at the ends; as a host's name is. Unique in its cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeName(String);

impl NodeName {
    /// The node of this name, in small letters.
    ///
    /// # Errors
    /// When it cannot be a name.
    pub fn new(name: &str) -> Result<Self, RecordError> {
        let fine = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        let right = (1..=63).contains(&name.len())
            && name.bytes().all(fine)
            && !name.starts_with('-')
            && !name.ends_with('-');
        if !right {
            return Err(RecordError(format!(
                "{name:?} cannot be the name of a node: 1 to 63 letters, digits and -, a letter or digit at both ends"
            )));
        }
        Ok(Self(name.to_ascii_lowercase()))
    }

    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for NodeName {
    type Error = RecordError;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        Self::new(&name)
    }
}

impl From<NodeName> for String {
    fn from(name: NodeName) -> Self {
        name.0
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Who a node is in its cluster, and how it is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRecord {
    /// The cluster.
    pub cluster: ClusterName,
    /// The node's number: its own for ever, given to nobody else after it.
    pub node: NodeId,
    /// Its name, for people.
    pub name: NodeName,
    /// Where links of other nodes arrive; may be the address of all interfaces.
    pub link_listen: SocketAddr,
    /// Where the others find it, `HOST:PORT`, the first that answers.
    pub link_addresses: Vec<String>,
    /// Where it answers other members, and nodes that want to join.
    pub api_address: SocketAddr,
    /// The cluster's etcd.
    pub etcd: EtcdAccess,
}

/// Where etcd is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EtcdAccess {
    /// `https://HOST:PORT`, or `http://HOST:PORT` for an etcd without certificates; all of one kind.
    pub endpoints: Vec<String>,
    /// Which etcd it has to be, 16 hexadecimal digits: one that was set up anew is not taken for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<EtcdId>,
    /// It has certificates of its own (`etcd-ca.pem`, `etcd.pem`, `etcd.key`), not the cluster's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub own_certificates: bool,
    /// The member of it that this node runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed: Option<ManagedEtcd>,
}

/// The number that an etcd has given itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EtcdId(pub u64);

impl TryFrom<String> for EtcdId {
    type Error = RecordError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let digits = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = digits.then(|| u64::from_str_radix(&text, 16).ok()).flatten();
        number.map(Self).ok_or_else(|| RecordError(format!("{text:?} is not 16 hexadecimal digits")))
    }
}

impl From<EtcdId> for String {
    fn from(id: EtcdId) -> Self {
        format!("{:016x}", id.0)
    }
}

/// A member of etcd that a node runs itself, with its data in `etcd/` beside the record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManagedEtcd {
    /// Its name among etcd's members.
    pub name: String,
    /// Where nodes reach it.
    pub client_url: String,
    /// Where the other members reach it.
    pub peer_url: String,
}

/// The file as it is written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: u32,
    cluster: String,
    node: NodeId,
    name: NodeName,
    link_listen: SocketAddr,
    link_addresses: Vec<String>,
    api_address: SocketAddr,
    etcd: EtcdAccess,
}

/// Only the version, to tell a newer file from a damaged one.
#[derive(Deserialize)]
struct Version {
    schema: u32,
}

impl NodeRecord {
    /// The record that this text is.
    ///
    /// # Errors
    /// What is wrong with it; any text may come.
    pub fn parse(text: &str) -> Result<Self, RecordError> {
        let malformed = |error: toml::de::Error| RecordError(error.to_string().trim_end().to_owned());
        let Version { schema } = toml::from_str(text).map_err(malformed)?;
        if schema != SCHEMA {
            return Err(RecordError(format!(
                "its schema is {schema}, this release of Holdfast knows {SCHEMA}"
            )));
        }
        let file: File = toml::from_str(text).map_err(malformed)?;
        let cluster = ClusterName::new(&file.cluster)
            .ok_or_else(|| RecordError(format!("{:?} cannot be the name of a cluster", file.cluster)))?;
        let record = Self {
            cluster,
            node: file.node,
            name: file.name,
            link_listen: file.link_listen,
            link_addresses: file.link_addresses,
            api_address: file.api_address,
            etcd: file.etcd,
        };
        record.check()?;
        Ok(record)
    }

    /// The text of the file.
    ///
    /// # Errors
    /// When it is none that [`Self::parse`] takes.
    pub fn to_text(&self) -> Result<String, RecordError> {
        self.check()?;
        let file = File {
            schema: SCHEMA,
            cluster: self.cluster.to_string(),
            node: self.node,
            name: self.name.clone(),
            link_listen: self.link_listen,
            link_addresses: self.link_addresses.clone(),
            api_address: self.api_address,
            etcd: self.etcd.clone(),
        };
        let text = toml::to_string_pretty(&file).map_err(|error| RecordError(error.to_string()))?;
        Ok(format!("{HEADER}{text}"))
    }

    fn check(&self) -> Result<(), RecordError> {
        let wrong = |what: String| Err(RecordError(what));
        if self.link_addresses.is_empty() || self.link_addresses.len() > MAX_LIST {
            return wrong(format!(
                "link_addresses has {} entries, not 1 to {MAX_LIST}",
                self.link_addresses.len()
            ));
        }
        if let Some(address) = self.link_addresses.iter().find(|address| !is_host_and_port(address)) {
            return wrong(format!("link_addresses: {address:?} is not HOST:PORT"));
        }
        if self.link_listen.port() == 0 {
            return wrong(format!("link_listen: {} has no port", self.link_listen));
        }
        if self.api_address.port() == 0 || self.api_address.ip().is_unspecified() {
            return wrong(format!("api_address: the others cannot reach {}", self.api_address));
        }
        self.etcd.check()
    }
}

impl EtcdAccess {
    fn check(&self) -> Result<(), RecordError> {
        let wrong = |what: String| Err(RecordError(what));
        if self.endpoints.is_empty() || self.endpoints.len() > MAX_LIST {
            return wrong(format!("etcd has {} endpoints, not 1 to {MAX_LIST}", self.endpoints.len()));
        }
        let managed = self.managed.iter().flat_map(|own| [&own.client_url, &own.peer_url]);
        if let Some(url) = self.endpoints.iter().chain(managed).find(|url| !is_url(url)) {
            return wrong(format!("etcd: {url:?} is not https://HOST:PORT"));
        }
        if self.endpoints.iter().any(|url| url.starts_with("http://") != self.without_tls()) {
            return wrong("etcd: some endpoints begin with https://, others with http://".into());
        }
        if self.without_tls() && (self.own_certificates || self.managed.is_some()) {
            return wrong("etcd: certificates, and endpoints that begin with http://".into());
        }
        if self.own_certificates && self.managed.is_some() {
            return wrong("etcd: a member that this node runs has the cluster's certificates".into());
        }
        match &self.managed {
            Some(own) if NodeName::new(&own.name).is_err() => {
                wrong(format!("etcd: {:?} cannot be the name of a member", own.name))
            }
            _ => Ok(()),
        }
    }

    /// It is reached without certificates.
    #[must_use]
    pub fn without_tls(&self) -> bool {
        self.endpoints.first().is_some_and(|url| url.starts_with("http://"))
    }
}

fn is_url(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    rest.is_some_and(is_host_and_port)
}

/// `HOST:PORT`, an IPv6 address in brackets.
fn is_host_and_port(text: &str) -> bool {
    if text.len() > MAX_TEXT {
        return false;
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return address.port() != 0 && !address.ip().is_unspecified();
    }
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    !host.is_empty() && host.bytes().all(fine) && port.parse::<u16>().is_ok_and(|port| port != 0)
}
