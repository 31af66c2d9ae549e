//! `cluster init`: a node on its own becomes the first one of a cluster, and nothing moves.

use std::path::Path;
use std::time::Duration;

use cluster_identity::{
    Authority, CLUSTER_DIR, CertificateRequest, ClusterIdentity, EtcdAccess, EtcdId, EtcdPem, NodePem,
    NodeRecord, new_key,
};
use cluster_join::{etcd_of, member_config, nodes, wait_for_etcd};
use cluster_store::keys::{ClusterName, NodeId};
use cluster_store_etcd::EtcdStore;
use control_api::{ClusterInit, ClusterPlace, Code, GivenEtcd, Problem};
use managed_etcd::{EtcdProcess, First, is_installed};

use super::address;
use super::membership::store_here as etcd_store;
use super::order::Place;
use super::told::told;
use crate::node::Node;

/// A new etcd elects its leader and makes its first files; on a busy machine with a slow disk.
const ETCD_STARTS: Duration = Duration::from_secs(60);
/// One that is there already answers at once, or its address is wrong.
const ETCD_ANSWERS: Duration = Duration::from_secs(10);

impl Node {
    /// Makes this node the first one of a cluster: prepares everything, and orders the change.
    ///
    /// # Errors
    /// When it belongs to one already, something that was given is wrong, or etcd does not answer. The node is what it was then.
    pub(crate) async fn cluster_init(&self, request: ClusterInit) -> Result<ClusterPlace, Problem> {
        let preparing = self.changing().begin()?;
        let data = self.data_dir().to_owned();
        refuse_member(&data)?;
        let cluster = ClusterName::new(&request.name).ok_or_else(|| {
            Problem::new(Code::InvalidRequest, format!("{:?} cannot be the name of a cluster.", request.name))
                .todo("1 to 64 letters, digits, -, _ and . are possible; the first is a letter or digit.")
        })?;
        let configured = self.config_show(true).node.name;
        let name = address::node_name(request.node_name.as_deref(), &configured)?;
        let addresses = address::addresses(request.address.as_deref())?;
        let first = NodeId::new(1).ok_or_else(|| Problem::new(Code::Internal, "no number"))?;
        let (etcd, etcd_pem) = match request.etcd {
            Some(given) => given_etcd(given)?,
            None => {
                is_installed().map_err(|error| Problem::new(Code::Unsupported, format!("{error}.")))?;
                let own = etcd_of(first, addresses.api);
                let etcd = EtcdAccess {
                    endpoints: vec![own.client_url.clone()],
                    id: None,
                    own_certificates: false,
                    managed: Some(own),
                };
                (etcd, None)
            }
        };
        let record = NodeRecord {
            cluster,
            node: first,
            name,
            link_listen: addresses.link,
            link_addresses: vec![addresses.link.to_string()],
            api_address: addresses.api,
            etcd,
        };
        let now = self.clocks().1;
        let folder = data.join(CLUSTER_DIR);
        let prepared = tokio::task::spawn_blocking({
            let folder = folder.clone();
            move || prepare(&folder, record, etcd_pem, now)
        });
        let failed = |error: tokio::task::JoinError| Problem::new(Code::Internal, error.to_string());
        let mut identity = prepared.await.map_err(failed)??;
        let process = match &identity.record.etcd.managed {
            Some(own) => {
                let token = hex(&crate::entropy::<16>()?);
                let process = EtcdProcess::start(member_config(&folder, own), Some(First::New(token)));
                Some(process.map_err(|error| Problem::new(Code::Io, format!("{error}.")))?)
            }
            None => None,
        };
        let store = etcd_store(&identity)?;
        let patience = if process.is_some() { ETCD_STARTS } else { ETCD_ANSWERS };
        let id = wait_for_etcd(&store, patience).await.map_err(told)?;
        identity.record.etcd.id = Some(EtcdId(id));
        refuse_taken(&store, &identity).await?;
        tracing::info!(cluster = %identity.record.cluster, "this node becomes the first one of a cluster");
        let place = place_of(&identity, true);
        preparing.order(&data, Place::First(Box::new(identity), store, process), now);
        Ok(place)
    }
}

async fn refuse_taken(store: &EtcdStore, identity: &ClusterIdentity) -> Result<(), Problem> {
    let cluster = &identity.record.cluster;
    if nodes(store, cluster).await.map_err(told)?.is_empty() {
        return Ok(());
    }
    Err(Problem::new(Code::AlreadyExists, format!("This etcd has a cluster {cluster} already."))
        .todo("Give the cluster another name, or join the one that is there: `holdfast cluster token` on one of its nodes."))
}

/// Refuses what is for nodes on their own.
pub(super) fn refuse_member(data: &Path) -> Result<(), Problem> {
    let there = ClusterIdentity::load(&data.join(CLUSTER_DIR));
    match there.map_err(|error| Problem::new(Code::Damaged, format!("{error}.")))? {
        None => Ok(()),
        Some(identity) => Err(Problem::new(
            Code::WrongState,
            format!("This node is {} of the cluster {}.", identity.record.name, identity.record.cluster),
        )
        .todo("`holdfast cluster leave` takes it out of that one.")),
    }
}

/// What is told of a place.
pub(super) fn place_of(identity: &ClusterIdentity, changing: bool) -> ClusterPlace {
    let record = &identity.record;
    ClusterPlace {
        cluster: Some(record.cluster.to_string()),
        node: Some(record.name.to_string()),
        number: Some(record.node.number()),
        address: Some(record.api_address.to_string()),
        changing,
        failed: None,
    }
}

fn given_etcd(given: GivenEtcd) -> Result<(EtcdAccess, Option<EtcdPem>), Problem> {
    let GivenEtcd { endpoints, ca, certificate, key } = given;
    let parts = [&ca, &certificate, &key].into_iter().filter(|part| !part.is_empty()).count();
    let without = endpoints.iter().all(|url| url.starts_with("http://"));
    let pem = match (parts, without) {
        (3, false) => Some(EtcdPem { ca, certificate, key: key.into() }),
        (0, true) => None,
        (0, false) => {
            return Err(Problem::new(
                Code::InvalidRequest,
                "For an etcd at https:// certificates are needed.",
            )
            .todo("Give them with --etcd-ca, --etcd-cert and --etcd-key."));
        }
        (_, true) => {
            return Err(Problem::new(
                Code::InvalidRequest,
                "Certificates are given, and endpoints that begin with http://.",
            )
            .todo("An etcd with certificates is at https://."));
        }
        (_, false) => {
            return Err(Problem::new(
                Code::InvalidRequest,
                "Only a part of the certificates for etcd is given.",
            )
            .todo("--etcd-ca, --etcd-cert and --etcd-key belong together."));
        }
    };
    if let Some(url) = endpoints.iter().find(|url| url.starts_with("http://") && !is_loopback(url)) {
        return Err(Problem::new(
            Code::InvalidRequest,
            format!("{url}: without certificates whoever reaches that network can read and change everything that the cluster shares."),
        )
        .todo("Use https:// with --etcd-ca, --etcd-cert and --etcd-key; http:// is for an etcd on this machine's own loopback address, 127.0.0.1."));
    }
    let own_certificates = pem.is_some();
    Ok((EtcdAccess { endpoints, id: None, own_certificates, managed: None }, pem))
}

/// Whether an endpoint is one that only this machine reaches.
fn is_loopback(url: &str) -> bool {
    let place = url.trim_start_matches("http://").trim_end_matches('/');
    let host = place.rsplit_once(':').map_or(place, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.to_canonical().is_loopback())
}

/// Writes what etcd needs to start. What an attempt before has left goes first. Blocks on the disk.
fn prepare(
    folder: &Path,
    record: NodeRecord,
    etcd: Option<EtcdPem>,
    now: u64,
) -> Result<ClusterIdentity, Problem> {
    let wrong = |why: &dyn std::fmt::Display| Problem::new(Code::InvalidRequest, format!("{why}."));
    let internal = |why: &dyn std::fmt::Display| Problem::new(Code::Internal, format!("{why}."));
    // Whatever is wrong with what was given is said before anything is made.
    record.to_text().map_err(|why| wrong(&why))?;
    let authority = Authority::new(now).map_err(|why| internal(&why))?;
    let (node_key, request) = new_key().map_err(|why| internal(&why))?;
    let request = CertificateRequest::from_pem(&request).map_err(|why| internal(&why))?;
    let addresses = address::for_certificate(record.api_address.ip());
    let node = authority
        .issue(&request, record.node, &record.name, &addresses, now)
        .map_err(|why| internal(&why))?;
    let pem = NodePem { ca: authority.pem().to_owned(), ca_key: authority.key_pem(), node, node_key, etcd };
    let identity = ClusterIdentity { record, pem };
    match std::fs::remove_dir_all(folder.join("etcd")) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(Problem::new(Code::Io, format!("{}: {error}.", folder.display())));
        }
        _ => {}
    }
    identity.prepare(folder).map_err(|error| Problem::new(Code::Io, format!("{error}.")))?;
    Ok(identity)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_etcd_without_certificates_is_on_this_machine_or_refused() {
        let given = |url: &str| {
            let endpoints = vec![url.to_owned()];
            given_etcd(GivenEtcd {
                endpoints,
                ca: String::new(),
                certificate: String::new(),
                key: String::new(),
            })
        };
        for url in
            ["http://127.0.0.1:2379", "http://localhost:2379", "http://[::1]:2379", "http://127.9.9.9:1/"]
        {
            assert!(given(url).is_ok(), "{url}");
        }
        for url in [
            "http://10.0.0.1:2379",
            "http://etcd:2379",
            "http://localhost.example:2379",
            "http://127.0.0.1.x:1",
        ] {
            let problem = given(url).expect_err(url);
            assert!(problem.detail.contains(url) && problem.todo.is_some(), "{problem}");
        }
    }
}
