//! The folder of a node's identity: read and checked as a whole, written so that a crash leaves all of it or nothing that counts.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use crate::authority::Authority;
use crate::error::IdentityError;
use crate::private_file::{make_folder, read, remove, replace};
use crate::record::NodeRecord;

/// The folder's name in a node's data directory.
pub const CLUSTER_DIR: &str = "cluster";

const RECORD: &str = "identity.toml";
const CA: &str = "ca.pem";
const CA_KEY: &str = "ca.key";
const NODE: &str = "node.pem";
const NODE_KEY: &str = "node.key";
const ETCD_CA: &str = "etcd-ca.pem";
const ETCD: &str = "etcd.pem";
const ETCD_KEY: &str = "etcd.key";

/// Certificates and keys of a node, in PEM.
#[derive(Clone)]
pub struct NodePem {
    /// The cluster's authority.
    pub ca: String,
    /// Its key.
    pub ca_key: Zeroizing<String>,
    /// The node's certificate, for `cluster_node::node_name` and the machine's addresses; good for servers and clients.
    pub node: String,
    /// Its key.
    pub node_key: Zeroizing<String>,
    /// Certificates for an etcd that is not the cluster's own.
    pub etcd: Option<EtcdPem>,
}

/// Certificates for etcd, in PEM.
#[derive(Clone)]
pub struct EtcdPem {
    /// Authorities one of which has signed etcd's certificate.
    pub ca: String,
    /// What nodes show.
    pub certificate: String,
    /// Its key.
    pub key: Zeroizing<String>,
}

impl fmt::Debug for NodePem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NodePem")
    }
}

impl fmt::Debug for EtcdPem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EtcdPem")
    }
}

/// A node's place in its cluster.
#[derive(Clone, Debug)]
pub struct ClusterIdentity {
    /// Who it is, and where things are.
    pub record: NodeRecord,
    /// What it shows to others, and checks them by.
    pub pem: NodePem,
}

impl ClusterIdentity {
    /// The identity in this folder ([`CLUSTER_DIR`] of the data directory); none for a node on its own. Blocks on the disk.
    ///
    /// # Errors
    /// When it is there and cannot be read or believed: such a node must not start as one on its own.
    pub fn load(folder: &Path) -> Result<Option<Self>, IdentityError> {
        let path = folder.join(RECORD);
        let Some(text) = read(&path).map_err(|error| IdentityError::io(&path, error))? else {
            return Ok(None);
        };
        let record = NodeRecord::parse(&text).map_err(|why| IdentityError::damaged(&path, why))?;
        let file = |name: &str| {
            let path = folder.join(name);
            let text = read(&path).map_err(|error| IdentityError::io(&path, error))?;
            text.ok_or_else(|| IdentityError::damaged(&path, "the file is not there"))
        };
        let etcd = match record.etcd.own_certificates {
            true => Some(EtcdPem {
                ca: file(ETCD_CA)?,
                certificate: file(ETCD)?,
                key: Zeroizing::new(file(ETCD_KEY)?),
            }),
            false => None,
        };
        let pem = NodePem {
            ca: file(CA)?,
            ca_key: Zeroizing::new(file(CA_KEY)?),
            node: file(NODE)?,
            node_key: Zeroizing::new(file(NODE_KEY)?),
            etcd,
        };
        let identity = Self { record, pem };
        identity.check().map_err(|why| IdentityError::damaged(folder, why))?;
        Ok(Some(identity))
    }

    /// Makes the identity that of this folder, durably. The node belongs to the cluster when this has ended, and not before. Blocks on the disk.
    ///
    /// # Errors
    /// When there is one already, when this is none that could be read, and what the system says.
    pub fn create(&self, folder: &Path) -> Result<(), IdentityError> {
        let path = folder.join(RECORD);
        if read(&path).map_err(|error| IdentityError::io(&path, error))?.is_some() {
            return Err(IdentityError::Exists(path.display().to_string()));
        }
        let text = self.record.to_text().map_err(|why| IdentityError::Invalid(why.to_string()))?;
        self.prepare(folder)?;
        replace(&path, &text).map_err(|error| IdentityError::io(&path, error))
    }

    /// Writes the certificates and keys only, durably: the node does not belong to the cluster by that. For an etcd that has to run before it
    /// does. Blocks on the disk.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub fn prepare(&self, folder: &Path) -> Result<(), IdentityError> {
        self.check().map_err(IdentityError::Invalid)?;
        make_folder(folder).map_err(|error| IdentityError::io(folder, error))?;
        let own = [
            (CA, self.pem.ca.as_str()),
            (CA_KEY, &self.pem.ca_key),
            (NODE, &self.pem.node),
            (NODE_KEY, &self.pem.node_key),
        ];
        let etcd = self.pem.etcd.iter();
        let etcd = etcd
            .flat_map(|etcd| [(ETCD_CA, etcd.ca.as_str()), (ETCD, &etcd.certificate), (ETCD_KEY, &etcd.key)]);
        for (name, text) in own.into_iter().chain(etcd) {
            let path = folder.join(name);
            replace(&path, text).map_err(|error| IdentityError::io(&path, error))?;
        }
        Ok(())
    }

    /// The key that this node asks for a certificate with, and the request: the same again until it belongs to a cluster, so that whoever let it in
    /// knows it again. Blocks on the disk.
    ///
    /// # Errors
    /// When the node belongs to a cluster already, and what the system says.
    pub fn joining_key(folder: &Path) -> Result<(Zeroizing<String>, String), IdentityError> {
        let record = folder.join(RECORD);
        if read(&record).map_err(|error| IdentityError::io(&record, error))?.is_some() {
            return Err(IdentityError::Exists(record.display().to_string()));
        }
        make_folder(folder).map_err(|error| IdentityError::io(folder, error))?;
        let path = folder.join(NODE_KEY);
        let kept = read(&path).ok().flatten().map(Zeroizing::new);
        if let Some(key) = kept
            && let Ok(request) = crate::request::of_key(&key)
        {
            return Ok((key, request));
        }
        let (key, request) =
            crate::request::new_key().map_err(|why| IdentityError::Invalid(why.to_string()))?;
        replace(&path, &key).map_err(|error| IdentityError::io(&path, error))?;
        Ok((key, request))
    }

    /// Replaces the record: other addresses, other endpoints. The certificates stay. Blocks on the disk.
    ///
    /// # Errors
    /// When it is none that could be read with these certificates, and what the system says; the old one is then still there.
    pub fn save_record(&self, folder: &Path) -> Result<(), IdentityError> {
        let text = self.record.to_text().map_err(|why| IdentityError::Invalid(why.to_string()))?;
        self.check().map_err(IdentityError::Invalid)?;
        let path = folder.join(RECORD);
        replace(&path, &text).map_err(|error| IdentityError::io(&path, error))
    }

    /// Gives the node another certificate for the key that it has, with these addresses of its machine. Blocks on the disk.
    ///
    /// # Errors
    /// When it cannot be signed or written; the old one is then still there.
    pub fn renew_certificate(
        &mut self,
        folder: &Path,
        addresses: &[IpAddr],
        now: u64,
    ) -> Result<(), IdentityError> {
        let invalid = |why: &dyn fmt::Display| IdentityError::Invalid(why.to_string());
        let authority = self.authority().map_err(|why| invalid(&why))?;
        let key = rcgen::KeyPair::from_pem(&self.pem.node_key)
            .map_err(|_| IdentityError::Invalid("the node's key is damaged".into()))?;
        let node = authority
            .issue(&key, self.record.node, &self.record.name, addresses, now)
            .map_err(|why| invalid(&why))?;
        let path = folder.join(NODE);
        replace(&path, &node).map_err(|error| IdentityError::io(&path, error))?;
        self.pem.node = node;
        Ok(())
    }

    /// The node belongs to no cluster any more, durably: the record goes first, then keys and certificates. What a crash leaves of these
    /// counts for nothing; another call takes it away. Blocks on the disk.
    ///
    /// # Errors
    /// What the system says.
    pub fn remove(folder: &Path) -> Result<(), IdentityError> {
        if !folder.is_dir() {
            return Ok(());
        }
        for name in [RECORD, CA_KEY, NODE_KEY, ETCD_KEY, CA, NODE, ETCD_CA, ETCD] {
            let path: PathBuf = folder.join(name);
            remove(&path).map_err(|error| IdentityError::io(&path, error))?;
        }
        Ok(())
    }

    /// The cluster's authority, to let another node in.
    ///
    /// # Errors
    /// When its files are damaged, which [`Self::load`] has looked at.
    pub fn authority(&self) -> Result<Authority, crate::CertificateError> {
        Authority::from_pem(&self.pem.ca, &self.pem.ca_key)
    }

    /// What connections to etcd show and check; none when it is reached without certificates.
    #[must_use]
    pub fn etcd_pem(&self) -> Option<EtcdPem> {
        if self.record.etcd.without_tls() {
            return None;
        }
        let cluster = || EtcdPem {
            ca: self.pem.ca.clone(),
            certificate: self.pem.node.clone(),
            key: self.pem.node_key.clone(),
        };
        Some(self.pem.etcd.clone().unwrap_or_else(cluster))
    }

    fn check(&self) -> Result<(), String> {
        let authority = self.authority().map_err(|why| why.to_string())?;
        authority
            .check(&self.pem.node, &self.pem.node_key, self.record.node)
            .map_err(|why| why.to_string())?;
        if self.record.etcd.own_certificates == self.pem.etcd.is_some() {
            Ok(())
        } else {
            Err("certificates of an etcd that has none of its own, or none of one that has".into())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use cluster_store::keys::{ClusterName, NodeId};

    use super::*;
    use crate::{CertificateRequest, EtcdAccess, EtcdId, ManagedEtcd, NodeName, new_key};

    const NOW: u64 = 1_800_000_000;

    fn identity() -> ClusterIdentity {
        let authority = Authority::new(NOW).expect("made");
        let (node_key, request) = new_key().expect("made");
        let request = CertificateRequest::from_pem(&request).expect("right");
        let (node, name) = (NodeId::new(3).expect("a number"), NodeName::new("Alpha").expect("a name"));
        let certificate = authority.issue(&request, node, &name, &[], NOW).expect("signed");
        let url = |port: u16| format!("https://10.0.0.1:{port}");
        let record = NodeRecord {
            cluster: ClusterName::new("store1").expect("a name"),
            node,
            name,
            link_listen: "0.0.0.0:7400".parse().expect("an address"),
            link_addresses: vec!["10.0.0.1:7400".into(), "alpha.example:7400".into()],
            api_address: "10.0.0.1:7401".parse().expect("an address"),
            etcd: EtcdAccess {
                endpoints: vec![url(7402)],
                id: Some(EtcdId(0xab)),
                own_certificates: false,
                managed: Some(ManagedEtcd {
                    name: "alpha".into(),
                    client_url: url(7402),
                    peer_url: url(7403),
                }),
            },
        };
        let pem = NodePem {
            ca: authority.pem().into(),
            ca_key: authority.key_pem(),
            node: certificate,
            node_key,
            etcd: None,
        };
        ClusterIdentity { record, pem }
    }

    #[test]
    fn what_is_created_is_loaded_and_private() {
        let dir = tempfile::tempdir().expect("temp dir");
        let folder = dir.path().join(CLUSTER_DIR);
        assert!(ClusterIdentity::load(&folder).expect("nothing").is_none());
        let mut made = identity();
        made.create(&folder).expect("written");
        assert!(matches!(made.create(&folder), Err(IdentityError::Exists(_))));
        let read = ClusterIdentity::load(&folder).expect("right").expect("there");
        assert_eq!(read.record, made.record);
        assert_eq!(read.record.name.as_str(), "alpha", "as a host's name");
        assert_eq!((read.pem.ca, read.pem.node), (made.pem.ca.clone(), made.pem.node.clone()));
        for entry in fs::read_dir(&folder).expect("readable") {
            let entry = entry.expect("an entry");
            let mode = entry.metadata().expect("there").permissions().mode() & 0o777;
            assert_eq!(mode, 0o600, "{:?}", entry.file_name());
            assert_ne!(entry.path().extension(), Some("new".as_ref()), "nothing is left aside");
        }
        assert_eq!(fs::metadata(&folder).expect("there").permissions().mode() & 0o777, 0o700);
        made.record.api_address = "10.0.0.9:1".parse().expect("an address");
        made.save_record(&folder).expect("written");
        let before = made.pem.node.clone();
        made.renew_certificate(&folder, &["10.0.0.9".parse().expect("an address")], NOW + 1).expect("signed");
        let read = ClusterIdentity::load(&folder).expect("right").expect("there");
        assert_eq!(read.record, made.record);
        assert!(read.pem.node == made.pem.node && read.pem.node != before);
        ClusterIdentity::remove(&folder).expect("removed");
        ClusterIdentity::remove(&folder).expect("nothing to do");
        assert!(ClusterIdentity::load(&folder).expect("nothing").is_none());
        assert_eq!(fs::read_dir(&folder).expect("readable").count(), 0);
        ClusterIdentity::remove(&dir.path().join("none")).expect("nothing to do");
    }

    /// An etcd of somebody else, with its own certificates, and without any.
    #[test]
    fn certificates_for_etcd_are_its_own_where_it_has_some() {
        let dir = tempfile::tempdir().expect("temp dir");
        let mut made = identity();
        assert_eq!(made.etcd_pem().expect("the cluster's").ca, made.pem.ca);
        made.record.etcd.managed = None;
        made.record.etcd.own_certificates = true;
        made.create(dir.path()).expect_err("they are missing");
        made.pem.etcd =
            Some(EtcdPem { ca: "a".into(), certificate: "b".into(), key: Zeroizing::new("c".into()) });
        made.create(dir.path()).expect("written");
        let read = ClusterIdentity::load(dir.path()).expect("right").expect("there");
        assert_eq!(read.etcd_pem().expect("its own").certificate, "b");
        made.record.etcd.own_certificates = false;
        made.record.etcd.endpoints = vec!["http://10.0.0.1:2379".into()];
        made.pem.etcd = None;
        assert!(made.etcd_pem().is_none());
        made.save_record(dir.path()).expect("written");
    }

    #[test]
    fn whatever_is_damaged_is_said_and_never_taken_for_nothing() {
        let dir = tempfile::tempdir().expect("temp dir");
        let (made, other) = (identity(), identity());
        made.create(dir.path()).expect("written");
        let good = fs::read_to_string(dir.path().join(RECORD)).expect("there");
        let huge = "x".repeat(70_000);
        for (file, content) in [
            (CA, "x"),
            (CA, &other.pem.ca),
            (CA_KEY, ""),
            (CA_KEY, &other.pem.ca_key),
            (NODE, &other.pem.node),
            (NODE_KEY, &other.pem.node_key),
            (NODE_KEY, &huge),
            (RECORD, ""),
            (RECORD, &good.replace("schema = 1", "schema = 2")),
            (RECORD, &good.replace("node = 3", "node = 4")),
            (RECORD, &good.replace("node = 3", "node = 0")),
            (RECORD, &good.replace("node = 3", "node = 70000")),
            (RECORD, &good.replace("store1", "a/b")),
            (RECORD, &good.replace("\"alpha\"", "\"-\"")),
            (RECORD, &good.replace("alpha.example:7400", "alpha.example")),
            (RECORD, &good.replace("alpha.example:7400", "a@b:1")),
            (RECORD, &good.replace("10.0.0.1:7401", "0.0.0.0:7401")),
            (RECORD, &good.replace("https://10.0.0.1:7402", "http://10.0.0.1:7402")),
            (RECORD, &good.replace("00000000000000ab", "ab")),
            (RECORD, &format!("{good}\nmore = 1\n")),
        ] {
            let path = dir.path().join(file);
            let before = fs::read_to_string(&path).expect("there");
            assert_ne!(before, content, "{file}");
            fs::write(&path, content).expect("written");
            let error = ClusterIdentity::load(dir.path()).expect_err(content).to_string();
            assert!(error.contains(&dir.path().display().to_string()), "{error}");
            assert!(!error.contains("PRIVATE"), "{error}");
            fs::write(&path, before).expect("written");
        }
        fs::remove_file(dir.path().join(CA_KEY)).expect("removed");
        let error = ClusterIdentity::load(dir.path()).expect_err("missing").to_string();
        assert!(error.contains("ca.key: the file is not there"), "{error}");
    }

    #[test]
    fn the_key_to_join_with_stays_until_the_node_has_joined() {
        let dir = tempfile::tempdir().expect("temp dir");
        let folder = dir.path().join(CLUSTER_DIR);
        let (key, request) = ClusterIdentity::joining_key(&folder).expect("made");
        let (again, other) = ClusterIdentity::joining_key(&folder).expect("kept");
        assert!(key == again);
        let of = |pem: &str| CertificateRequest::from_pem(pem).expect("right");
        assert_eq!(of(&request), of(&other));
        fs::write(folder.join(NODE_KEY), "x").expect("written");
        assert!(ClusterIdentity::joining_key(&folder).expect("made anew").0 != key);
        assert!(ClusterIdentity::load(&folder).expect("on its own").is_none());
        identity().create(&folder).expect("written");
        assert!(matches!(ClusterIdentity::joining_key(&folder), Err(IdentityError::Exists(_))));
    }

    /// The record comes last and goes first: whatever of the other files a crash has left, the node is on its own.
    #[test]
    fn without_its_record_nothing_counts() {
        let dir = tempfile::tempdir().expect("temp dir");
        let made = identity();
        made.create(dir.path()).expect("written");
        fs::remove_file(dir.path().join(RECORD)).expect("removed");
        assert!(ClusterIdentity::load(dir.path()).expect("on its own").is_none());
        let again = identity();
        again.create(dir.path()).expect("over what was left");
        let read = ClusterIdentity::load(dir.path()).expect("right").expect("there");
        assert_eq!(read.pem.ca, again.pem.ca);
    }
}
