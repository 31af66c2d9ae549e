//! What the keys hold: JSON with a version, bounded and checked when it is read.
//!
//! A field that is not known is left alone, so that nodes of two releases work together during an upgrade; a change that an
//! older release must not overlook raises the version, and is refused by name.

mod entries;
mod paths;
mod sight;

use std::fmt;
use std::net::SocketAddr;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::Revision;
use crate::keys::{NodeId, PoolId};
pub use entries::{
    MAX_SEATS, Named, NodeEntry, NodeOrder, NodeVerb, Seats, TokenEntry, VolumeName, WentBack,
};
pub use paths::{MAX_PORTALS, NodePaths, NodePortal, PoolVolumes};
pub use sight::{NodeSees, PoolDisks, PoolVoter};

/// The longest value of a type that is kept here, in bytes; chunks of the configuration are bytes of their own.
pub const MAX_JSON: usize = 64 << 10;
/// The most addresses, nodes or pools that one value lists.
const MAX_LIST: usize = 256;
/// The longest address or version.
const MAX_TEXT: usize = 256;
/// The highest epoch: a reservation key has 48 bits for it.
pub const MAX_EPOCH: u64 = (1 << 48) - 1;

/// Why a value is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueError {
    /// It is too long to be looked at.
    TooLong(usize),
    /// It is no JSON of this kind; what the parser says.
    Malformed(String),
    /// A newer release wrote it; its version.
    Newer(u64),
    /// A field has a value that no writer makes; its name.
    Invalid(&'static str),
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong(length) => write!(f, "a value of {length} bytes, {MAX_JSON} are allowed"),
            Self::Malformed(why) => write!(f, "a value that cannot be understood: {why}"),
            Self::Newer(version) => {
                write!(f, "a value of version {version}: a newer release of Holdfast wrote it")
            }
            Self::Invalid(field) => write!(f, "a value with an impossible {field}"),
        }
    }
}

impl std::error::Error for ValueError {}

/// What can be kept under a key.
pub trait Value: Serialize + DeserializeOwned {
    /// The version that is written; older ones are read.
    const VERSION: u64 = 1;

    /// Refuses what no writer makes.
    ///
    /// # Errors
    /// [`ValueError::Invalid`].
    fn check(&self) -> Result<(), ValueError>;

    /// The bytes to keep.
    ///
    /// # Errors
    /// When the value itself is none that [`Self::check`] lets pass, or is too long.
    fn encode(&self) -> Result<Vec<u8>, ValueError> {
        self.check()?;
        let malformed = |error: serde_json::Error| ValueError::Malformed(error.to_string());
        let mut json = serde_json::to_value(self).map_err(malformed)?;
        let Json::Object(fields) = &mut json else { return Err(ValueError::Malformed("no object".into())) };
        fields.insert("version".into(), Self::VERSION.into());
        let bytes = serde_json::to_vec(&json).map_err(malformed)?;
        if bytes.len() > MAX_JSON { Err(ValueError::TooLong(bytes.len())) } else { Ok(bytes) }
    }

    /// The value that was kept; any bytes may come.
    ///
    /// # Errors
    /// Whatever is wrong with them.
    fn decode(bytes: &[u8]) -> Result<Self, ValueError> {
        if bytes.len() > MAX_JSON {
            return Err(ValueError::TooLong(bytes.len()));
        }
        let malformed = |error: serde_json::Error| ValueError::Malformed(error.to_string());
        let json: Json = serde_json::from_slice(bytes).map_err(malformed)?;
        match json.get("version").and_then(Json::as_u64) {
            None | Some(0) => return Err(ValueError::Invalid("version")),
            Some(newer) if newer > Self::VERSION => return Err(ValueError::Newer(newer)),
            Some(_) => {}
        }
        let value: Self = serde_json::from_value(json).map_err(malformed)?;
        value.check()?;
        Ok(value)
    }
}

fn list(length: usize, field: &'static str) -> Result<(), ValueError> {
    if length > MAX_LIST { Err(ValueError::Invalid(field)) } else { Ok(()) }
}

fn text(text: &str, field: &'static str) -> Result<(), ValueError> {
    let fine = text.len() <= MAX_TEXT && !text.chars().any(char::is_control);
    if fine { Ok(()) } else { Err(ValueError::Invalid(field)) }
}

/// One life of a node's process; each start takes a number that no start had before; the first one is 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Incarnation(pub u64);

/// A node that takes part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its present life.
    pub incarnation: Incarnation,
    /// Where the other nodes find it, `HOST:PORT`.
    pub addresses: Vec<String>,
    /// It takes no pools while it is paused.
    #[serde(default)]
    pub paused: bool,
    /// It gives its pools away.
    #[serde(default)]
    pub draining: bool,
    /// Its release.
    #[serde(default)]
    pub release: String,
    /// What people call it; empty when it has not said.
    #[serde(default)]
    pub name: String,
    /// Where it answers what other nodes ask of its API, `HOST:PORT`; empty when it does not.
    #[serde(default)]
    pub api: String,
    /// Where it lends its disks to other nodes, `HOST:PORT`; empty when it does not.
    #[serde(default)]
    pub bus: String,
}

impl Value for Member {
    fn check(&self) -> Result<(), ValueError> {
        list(self.addresses.len(), "list of addresses")?;
        self.addresses.iter().try_for_each(|address| text(address, "address"))?;
        text(&self.release, "release")?;
        text(&self.name, "name")?;
        text(&self.api, "address of the API")?;
        text(&self.bus, "address of the bus")
    }
}

/// A node's sign of life, and the end of the chain of its transactions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beat {
    /// Whose.
    pub incarnation: Incarnation,
    /// Counts the transactions of the incarnation.
    pub counter: u64,
    /// The node knows all changes of the membership up to this revision of the store.
    pub membership: u64,
}

impl Beat {
    /// [`Self::membership`] as a revision.
    #[must_use]
    pub fn knows(&self) -> Revision {
        Revision(self.membership)
    }
}

impl Value for Beat {
    fn check(&self) -> Result<(), ValueError> {
        Ok(())
    }
}

/// Who owns a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Rises with each change; 0 before the first owner.
    pub epoch: u64,
    /// The node and its life; none when the last owner has let go of the pool.
    pub holder: Option<Holder>,
}

/// The node that owns a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The node.
    pub node: NodeId,
    /// The life in which it owns the pool; the next one does not.
    pub incarnation: Incarnation,
}

impl Value for Owner {
    fn check(&self) -> Result<(), ValueError> {
        if self.epoch > MAX_EPOCH { Err(ValueError::Invalid("epoch")) } else { Ok(()) }
    }
}

/// The vote of the store on a pool's metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Vote {
    /// The epoch of the owner that voted.
    pub epoch: u64,
    /// The newest change of the metadata.
    pub sequence: u64,
}

impl Value for Vote {
    fn check(&self) -> Result<(), ValueError> {
        if self.epoch > MAX_EPOCH { Err(ValueError::Invalid("epoch")) } else { Ok(()) }
    }
}

/// In which epoch a pool was last let clients in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    /// That of the owner: the pool is served when it is the owner's still.
    pub epoch: u64,
}

impl Value for Served {
    fn check(&self) -> Result<(), ValueError> {
        if self.epoch > MAX_EPOCH { Err(ValueError::Invalid("epoch")) } else { Ok(()) }
    }
}

/// Who is connected to the service address of a pool: whoever takes it over tells them that their connections are gone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clients {
    /// Ends of connections: that of the pool's address, and the client's.
    pub connections: Vec<(SocketAddr, SocketAddr)>,
}

impl Clients {
    /// As many as are told of: more find out by themselves, later.
    pub const MAX: usize = 4096;

    /// The first of these connections, as many as one value has room for: some 1,300 of IPv4, fewer of IPv6.
    #[must_use]
    pub fn that_fit(connections: &[(SocketAddr, SocketAddr)]) -> Self {
        const FRAME: usize = r#"{"connections":[],"version":1}"#.len();
        const EACH: usize = r#"["",""],"#.len();
        let mut room = MAX_JSON - FRAME;
        let fits = |(local, remote): &&(SocketAddr, SocketAddr)| {
            let left = room.checked_sub(EACH + local.to_string().len() + remote.to_string().len());
            room = left.unwrap_or_default();
            left.is_some()
        };
        Self { connections: connections.iter().take(Self::MAX).take_while(fits).copied().collect() }
    }
}

impl Value for Clients {
    fn check(&self) -> Result<(), ValueError> {
        if self.connections.len() > Self::MAX {
            Err(ValueError::Invalid("number of clients"))
        } else {
            Ok(())
        }
    }
}

/// Where a pool should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Home {
    /// The first that can takes it.
    pub nodes: Vec<NodeId>,
}

impl Value for Home {
    fn check(&self) -> Result<(), ValueError> {
        list(self.nodes.len(), "list of nodes")
    }
}

/// Pools that move together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// All of them.
    pub pools: Vec<PoolId>,
}

impl Value for Group {
    fn check(&self) -> Result<(), ValueError> {
        list(self.pools.len(), "list of pools")
    }
}

/// Where a disk is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskPlace {
    /// The node that it is built into; none when several reach it.
    pub node: Option<NodeId>,
    /// How the others reach it.
    pub lun: String,
    /// The pool that it belongs to.
    pub pool: Option<PoolId>,
}

impl Value for DiskPlace {
    fn check(&self) -> Result<(), ValueError> {
        text(&self.lun, "LUN")
    }
}

/// Who does a job of which there is one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// The node and its life.
    pub holder: Option<Holder>,
}

impl Value for Job {
    fn check(&self) -> Result<(), ValueError> {
        Ok(())
    }
}

/// Which configuration holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigHead {
    /// Its revision: chunks under `config/REVISION/`.
    pub revision: u64,
    /// How many chunks.
    pub chunks: u32,
    /// Its length in bytes.
    pub length: u64,
    /// XXH3 of its bytes.
    pub checksum: u64,
}

impl Value for ConfigHead {
    fn check(&self) -> Result<(), ValueError> {
        // 64 MiB: a configuration is text that people write.
        if self.chunks > 64 || self.length > 64 << 20 { Err(ValueError::Invalid("length")) } else { Ok(()) }
    }
}
