//! The member's side of joining: looks at the token, gives number, name and certificate.

use std::collections::BTreeMap;

use cluster_identity::{CertificateRequest, ClusterIdentity, JoinToken};
use cluster_store::keys::{Key, NodeId};
use cluster_store::values::{Named, NodeEntry, TokenEntry, Value as _};
use cluster_store::{ClusterStore, Condition, Range, Step, StoreError, Transaction};
use sha2::{Digest as _, Sha256};

use crate::error::{JoinError, Kind};
use crate::messages::{Admission, JoinRequest};
use crate::roll::nodes;

/// So often it is tried anew when others write at the same time, or an answer was lost.
const TRIES: u32 = 8;

/// Lets a node in that has shown a token, or says why not. `identity` is this member's, `release` its release, `now` seconds since 1970. May be asked again: the same token with the same key gets the same number.
///
/// # Errors
/// When the token does not count, the request makes no sense, a name or address is taken, or etcd does not answer.
pub async fn admit(
    store: &dyn ClusterStore,
    identity: &ClusterIdentity,
    release: &str,
    request: &JoinRequest,
    now: u64,
) -> Result<Admission, JoinError> {
    // Before anything else is said to somebody who is not known.
    let hash = JoinToken::key_of_secret(&request.secret).ok_or_else(no_token)?;
    let asked = request.check()?;
    let key = hex(&Sha256::digest(asked.public_key()));
    let cluster = &identity.record.cluster;
    let token_key = Key::Token(hash.clone()).path(cluster);
    let mut last = None;
    for _ in 0..TRIES {
        let all = nodes(store, cluster).await?;
        if let Some((node, _, entry)) = all.iter().find(|(_, _, entry)| entry.token == hash) {
            // The same node again: it did not hear the answer.
            let same = entry.key == key && !entry.removed && entry.name == request.name.as_str();
            return if same { answer(identity, *node, &asked, request, now) } else { Err(no_token()) };
        }
        let token = store.get(Range::Key(token_key.clone())).await?.found.into_iter().next();
        let token = token.ok_or_else(no_token)?;
        let counts = TokenEntry::decode(&token.value).is_ok_and(|entry| now < entry.expires);
        if !counts {
            return Err(no_token());
        }
        if request.release != release {
            return Err(JoinError::new(
                Kind::Release,
                format!("The node has release {} of Holdfast, the cluster {release}.", request.release),
                "Install the cluster's release on the node. The token still counts.",
            ));
        }
        let here: BTreeMap<NodeId, &NodeEntry> = all
            .iter()
            .filter(|(_, _, entry)| !entry.removed)
            .map(|(node, _, entry)| (*node, entry))
            .collect();
        if here.values().any(|entry| entry.name == request.name.as_str()) {
            return Err(JoinError::new(
                Kind::Taken,
                format!("The cluster has a node {} already.", request.name),
                "Choose another name with --node-name; or, if that node is gone for good, `holdfast node remove` it first. The token still counts.",
            ));
        }
        if let Some(other) = here.values().find(|entry| entry.api == request.api.to_string()) {
            return Err(JoinError::new(
                Kind::Taken,
                format!("Node {} of the cluster has the address {} already.", other.name, request.api),
                "Give this node its own address with --address. The token still counts.",
            ));
        }
        let highest = all.iter().map(|(node, ..)| node.number()).max().unwrap_or(0);
        let node = highest.checked_add(1).and_then(NodeId::new).ok_or_else(|| {
            JoinError::new(Kind::State, "All 65,535 numbers of nodes are given.", "Make another cluster.")
        })?;
        let entry = NodeEntry {
            name: request.name.to_string(),
            api: request.api.to_string(),
            release: release.into(),
            joined: now,
            removed: false,
            token: hash.clone(),
            key: key.clone(),
        };
        // Signed before the token is gone: what cannot be signed costs none.
        let admission = answer(identity, node, &asked, request, now)?;
        let (node_key, name_key) =
            (Key::Node(node).path(cluster), Key::NodeName(entry.name.clone()).path(cluster));
        let transaction = Transaction {
            conditions: vec![
                Condition::Modified(token_key.clone(), token.modified),
                Condition::Absent(node_key.clone()),
                Condition::Absent(name_key.clone()),
            ],
            steps: vec![
                Step::Delete(token_key.clone()),
                Step::Put(node_key, entry.encode().map_err(JoinError::damaged)?),
                Step::Put(name_key, Named { node }.encode().map_err(JoinError::damaged)?),
            ],
            reads: Vec::new(),
        };
        match store.transact(transaction).await {
            Ok(outcome) if outcome.done => return Ok(admission),
            Ok(_) => {}
            // It may have been done: the next look shows it.
            Err(error @ StoreError::Unknown(_)) => last = Some(error),
            Err(error) => return Err(error.into()),
        }
    }
    Err(last.map_or_else(
        || JoinError::new(Kind::Away, "Other nodes join at the same time, again and again.", "Try again."),
        JoinError::from,
    ))
}

/// One answer to all tokens that do not count: whoever guesses learns nothing.
fn no_token() -> JoinError {
    JoinError::new(
        Kind::Token,
        "The token does not count: it is none of this cluster, was used, or is older than 24 hours.",
        "Make another one on a node of the cluster: `holdfast cluster token`.",
    )
}

fn answer(
    identity: &ClusterIdentity,
    node: NodeId,
    asked: &CertificateRequest,
    request: &JoinRequest,
    now: u64,
) -> Result<Admission, JoinError> {
    let authority = identity.authority().map_err(JoinError::damaged)?;
    let mut addresses = request.addresses.clone();
    addresses.push(request.api.ip());
    addresses.sort();
    addresses.dedup();
    let certificate = authority
        .issue(asked, node, &request.name, &addresses, now)
        .map_err(|why| JoinError::new(Kind::Invalid, why.to_string(), "Try again."))?;
    let mut etcd = identity.record.etcd.clone();
    // That is this member's own.
    etcd.managed = None;
    Ok(Admission {
        cluster: identity.record.cluster.to_string(),
        node,
        certificate,
        ca: authority.pem().to_owned(),
        ca_key: authority.key_pem().to_string(),
        etcd,
        etcd_pem: identity
            .pem
            .etcd
            .as_ref()
            .map(|pem| (pem.ca.clone(), pem.certificate.clone(), pem.key.to_string())),
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
