//! How a node becomes one of a cluster, and one on its own again.
//!
//! ```text
//!   init, join, leave   prepared while the node serves ──► change: carried out while it is stopped
//!   part                what a node of a cluster runs beside its pools: a member of etcd, and listener, where others join
//! ```
//! A node on its own has none of this.

mod address;
pub(crate) mod change;
mod init;
mod join;
mod leave;
mod listener;
pub(crate) mod part;

use cluster_identity::ClusterIdentity;
use cluster_join::{JoinError, Kind};
use cluster_store_etcd::{EtcdStore, Options, Patience, Tls};
use control_api::{Code, Problem};
use tokio::runtime::Handle;

pub use change::{Carried, ChangeOver, START_AGAIN};

/// An error of coming and going, for who has asked.
pub(crate) fn told(error: JoinError) -> Problem {
    let code = match error.kind {
        Kind::Invalid => Code::InvalidRequest,
        Kind::Token => Code::Forbidden,
        Kind::Taken => Code::AlreadyExists,
        Kind::Release => Code::Unsupported,
        Kind::State => Code::WrongState,
        Kind::NotFound => Code::NotFound,
        Kind::Away => Code::Unavailable,
        Kind::Damaged => Code::Damaged,
    };
    Problem::new(code, error.what).todo(error.todo)
}

/// The store of a node's cluster. On a runtime, where its connections live.
///
/// # Errors
/// What is wrong with its addresses or certificates.
pub(crate) fn etcd_store(identity: &ClusterIdentity) -> Result<EtcdStore, Problem> {
    let tls = identity.etcd_pem().map(|pem| Tls {
        ca: pem.ca.into_bytes(),
        certificate: pem.certificate.into_bytes(),
        key: pem.key.as_bytes().to_vec(),
    });
    let etcd = &identity.record.etcd;
    let options = Options {
        endpoints: etcd.endpoints.clone(),
        tls,
        patience: Patience::default(),
        cluster_id: etcd.id.map(|id| id.0),
    };
    EtcdStore::new(options, Handle::current())
        .map_err(|error| Problem::new(Code::InvalidRequest, format!("{error}.")))
}
