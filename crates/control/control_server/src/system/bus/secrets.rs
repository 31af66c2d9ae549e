//! By what nodes of a cluster prove to each other on the bus who they are: secrets for each pair, made of the cluster's key by HKDF
//! (RFC 5869) with SHA-256. Nothing of them is kept or sent.

use cluster_store::keys::{ClusterName, NodeId};
use hmac::{Hmac, Mac};
use iscsi_protocol::chap::{ChapUser, Secret};
use sha2::Sha256;

type HmacSha256 = Hmac<Sha256>;

/// What the extracted key is for.
const SALT: &[u8] = b"holdfast bus 1";

/// The keys of a cluster's bus.
pub(super) struct Secrets {
    key: [u8; 32],
}

/// HMAC with a key of any length.
fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    // Keys of all lengths are taken; without one nobody would be let in.
    let Ok(mut mac) = HmacSha256::new_from_slice(key) else { return [0; 32] };
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

/// A user of CHAP.
pub(super) fn chap(name: String, secret: &str) -> ChapUser {
    ChapUser { name, secret: Secret::new(secret) }
}

impl Secrets {
    /// Of a cluster, from what its nodes know and nobody else.
    pub(super) fn new(cluster: &ClusterName, secret: &[u8]) -> Self {
        let extracted = hmac(SALT, &[secret]);
        Self { key: hmac(&extracted, &[cluster.to_string().as_bytes(), &[1]]) }
    }

    fn derived(&self, label: &str, from: u16, to: u16) -> String {
        let info = [label.as_bytes(), &from.to_be_bytes(), &to.to_be_bytes(), &[1]];
        hmac(&self.key, &info).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// User and secret of a node towards the disks of another one.
    pub(super) fn node(&self, from: NodeId, to: NodeId) -> (String, String) {
        (format!("node-{from}"), self.derived("initiator", from.number(), to.number()))
    }

    /// User and secret of the disks of a node towards whoever uses them.
    pub(super) fn target(&self, of: NodeId) -> (String, String) {
        (format!("disks-of-node-{of}"), self.derived("target", of.number(), 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pair_and_each_direction_has_its_own() {
        let node = |number| NodeId::new(number).expect("a number");
        let cluster = |name| ClusterName::new(name).expect("a name");
        let of = |name, key: &[u8]| Secrets::new(&cluster(name), key);
        let (ours, other, foreign) = (of("c", b"key"), of("d", b"key"), of("c", b"yek"));
        let mut seen = std::collections::BTreeSet::new();
        for secrets in [&ours, &other, &foreign] {
            for (from, to) in [(1, 2), (2, 1), (1, 3)] {
                assert!(seen.insert(secrets.node(node(from), node(to)).1));
            }
            for of in [1, 2] {
                assert!(seen.insert(secrets.target(node(of)).1));
            }
        }
        assert_eq!(ours.node(node(1), node(2)), of("c", b"key").node(node(1), node(2)));
        assert!(seen.iter().all(|secret| secret.len() == 64));
    }
}
