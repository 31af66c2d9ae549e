//! Where what lies: every key under `/holdfast/CLUSTER/`, made and read back here and nowhere else.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Number of a node in its cluster, from 1; a part of the keys by which disks know who may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u16", into = "u16")]
pub struct NodeId(u16);

impl NodeId {
    /// The node of this number; 0 is none.
    #[must_use]
    pub fn new(number: u16) -> Option<Self> {
        (number != 0).then_some(Self(number))
    }

    /// Its number.
    #[must_use]
    pub fn number(self) -> u16 {
        self.0
    }
}

impl TryFrom<u16> for NodeId {
    type Error = &'static str;

    fn try_from(number: u16) -> Result<Self, Self::Error> {
        Self::new(number).ok_or("0 is the number of no node")
    }
}

impl From<NodeId> for u16 {
    fn from(node: NodeId) -> Self {
        node.0
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A pool, by the GUID in its superblocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PoolId(pub Uuid);

impl fmt::Display for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A disk, by the GUID in its superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DiskId(pub Uuid);

/// The name of a cluster: 1 to 64 letters, digits, `-`, `_` and `.`, the first a letter or digit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterName(String);

impl ClusterName {
    /// The cluster of this name.
    #[must_use]
    pub fn new(name: &str) -> Option<Self> {
        plain(name).then(|| Self(name.to_owned()))
    }

    /// What all of its keys begin with.
    #[must_use]
    pub fn root(&self) -> String {
        format!("/holdfast/{}/", self.0)
    }
}

impl fmt::Display for ClusterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether a name can be a part of a key.
fn plain(name: &str) -> bool {
    let rest = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (1..=64).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(rest)
}

/// What the tails of the keys begin with that say how clients reach what nodes serve.
pub const PATHS: &str = "paths/";

/// One thing that is kept.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// `config/head`: [`ConfigHead`](crate::values::ConfigHead).
    ConfigHead,
    /// `config/REV/I`: one chunk of a revision of the configuration, immutable.
    ConfigChunk(u64, u32),
    /// `users/NAME`: sealed by who writes it.
    User(String),
    /// `members/N`: [`Member`](crate::values::Member).
    Member(NodeId),
    /// `beats/N`: [`Beat`](crate::values::Beat).
    Beat(NodeId),
    /// `pools/P/owner`: [`Owner`](crate::values::Owner).
    Owner(PoolId),
    /// `pools/P/witness`: [`Vote`](crate::values::Vote).
    Witness(PoolId),
    /// `pools/P/served`: [`Served`](crate::values::Served).
    Served(PoolId),
    /// `pools/P/clients`: [`Clients`](crate::values::Clients).
    Clients(PoolId),
    /// `pools/P/home`: [`Home`](crate::values::Home).
    Home(PoolId),
    /// `pools/P/group`: [`Group`](crate::values::Group).
    Group(PoolId),
    /// `pools/P/disks`: [`PoolDisks`](crate::values::PoolDisks).
    PoolDisks(PoolId),
    /// `sees/N`: [`NodeSees`](crate::values::NodeSees).
    NodeSees(NodeId),
    /// `disks/D`: [`DiskPlace`](crate::values::DiskPlace).
    Disk(DiskId),
    /// `witness/C`: registration of an SMB witness client.
    SmbWitness(String),
    /// `jobs/balancer`: [`Job`](crate::values::Job).
    Balancer,
    /// `nodes/N`: [`NodeEntry`](crate::values::NodeEntry).
    Node(NodeId),
    /// `names/NAME`: [`Named`](crate::values::Named).
    NodeName(String),
    /// `tokens/HASH`: [`TokenEntry`](crate::values::TokenEntry).
    Token(String),
    /// `etcd/seats`: [`Seats`](crate::values::Seats).
    EtcdSeats,
    /// `known/UUID`: [`Named`](crate::values::Named), the node that pools know by this identity. It stays when the node is gone.
    Known(Uuid),
    /// `orders/N/UUID`: [`NodeOrder`](crate::values::NodeOrder), what node N is asked to do.
    Order(NodeId, Uuid),
    /// `volumes/NAME`: [`VolumeName`](crate::values::VolumeName).
    Volume(String),
    /// `paths/nodes/N`: [`NodePaths`](crate::values::NodePaths).
    NodePaths(NodeId),
    /// `paths/pools/P`: [`PoolVolumes`](crate::values::PoolVolumes).
    PoolVolumes(PoolId),
    /// `store/back`: [`WentBack`](crate::values::WentBack).
    WentBack,
}

impl Key {
    /// The whole key.
    #[must_use]
    pub fn path(&self, cluster: &ClusterName) -> String {
        let tail = match self {
            Self::ConfigHead => "config/head".into(),
            // Digits of one width: chunks come in their order.
            Self::ConfigChunk(revision, index) => format!("config/{revision:020}/{index:06}"),
            Self::User(name) => format!("users/{name}"),
            Self::Member(node) => format!("members/{node:05}"),
            Self::Beat(node) => format!("beats/{node:05}"),
            Self::Owner(pool) => format!("pools/{pool}/owner"),
            Self::Witness(pool) => format!("pools/{pool}/witness"),
            Self::Served(pool) => format!("pools/{pool}/served"),
            Self::Clients(pool) => format!("pools/{pool}/clients"),
            Self::Home(pool) => format!("pools/{pool}/home"),
            Self::Group(pool) => format!("pools/{pool}/group"),
            Self::PoolDisks(pool) => format!("pools/{pool}/disks"),
            Self::NodeSees(node) => format!("sees/{node:05}"),
            Self::Disk(disk) => format!("disks/{}", disk.0),
            Self::SmbWitness(client) => format!("witness/{client}"),
            Self::Balancer => "jobs/balancer".into(),
            Self::Node(node) => format!("nodes/{node:05}"),
            Self::NodeName(name) => format!("names/{name}"),
            Self::Token(hash) => format!("tokens/{hash}"),
            Self::EtcdSeats => "etcd/seats".into(),
            Self::Known(id) => format!("known/{id}"),
            Self::Order(node, id) => format!("orders/{node:05}/{id}"),
            Self::Volume(name) => format!("volumes/{name}"),
            Self::NodePaths(node) => format!("{PATHS}nodes/{node:05}"),
            Self::PoolVolumes(pool) => format!("{PATHS}pools/{pool}"),
            Self::WentBack => "store/back".into(),
        };
        cluster.root() + &tail
    }

    /// The key of a volume's name; none for a name that cannot be a part of a key, which no volume is given.
    #[must_use]
    pub fn of_volume(name: &str) -> Option<Self> {
        plain(name).then(|| Self::Volume(name.to_owned()))
    }

    /// The key that [`Self::path`] makes this of; `None` for anything else, also for another spelling of a key.
    #[must_use]
    pub fn parse(cluster: &ClusterName, path: &str) -> Option<Self> {
        let tail = path.strip_prefix(&cluster.root())?;
        let parts: Vec<&str> = tail.splitn(4, '/').collect();
        let node = |text: &str| text.parse().ok().and_then(NodeId::new);
        let key = match parts.as_slice() {
            ["config", "head"] => Self::ConfigHead,
            ["config", revision, index] => Self::ConfigChunk(revision.parse().ok()?, index.parse().ok()?),
            ["users", name] if plain(name) => Self::User((*name).to_owned()),
            ["members", number] => Self::Member(node(number)?),
            ["beats", number] => Self::Beat(node(number)?),
            ["sees", number] => Self::NodeSees(node(number)?),
            ["pools", pool, what] => {
                let pool = PoolId(Uuid::parse_str(pool).ok()?);
                match *what {
                    "owner" => Self::Owner(pool),
                    "witness" => Self::Witness(pool),
                    "served" => Self::Served(pool),
                    "clients" => Self::Clients(pool),
                    "home" => Self::Home(pool),
                    "group" => Self::Group(pool),
                    "disks" => Self::PoolDisks(pool),
                    _ => return None,
                }
            }
            ["disks", disk] => Self::Disk(DiskId(Uuid::parse_str(disk).ok()?)),
            ["witness", client] if plain(client) => Self::SmbWitness((*client).to_owned()),
            ["jobs", "balancer"] => Self::Balancer,
            ["nodes", number] => Self::Node(node(number)?),
            ["names", name] if plain(name) => Self::NodeName((*name).to_owned()),
            ["tokens", hash] if plain(hash) => Self::Token((*hash).to_owned()),
            ["etcd", "seats"] => Self::EtcdSeats,
            ["orders", number, id] => Self::Order(node(number)?, Uuid::parse_str(id).ok()?),
            ["known", id] => Self::Known(Uuid::parse_str(id).ok()?),
            ["volumes", name] if plain(name) => Self::Volume((*name).to_owned()),
            ["paths", "nodes", number] => Self::NodePaths(node(number)?),
            ["store", "back"] => Self::WentBack,
            ["paths", "pools", pool] => Self::PoolVolumes(PoolId(Uuid::parse_str(pool).ok()?)),
            _ => return None,
        };
        (key.path(cluster) == path).then_some(key)
    }
}
