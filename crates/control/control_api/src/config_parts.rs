//! The two parts of a configuration: what all nodes of a cluster have in common, and what is one node's own.
//!
//! | the cluster's ([`SharedConfig`]) | a node's ([`LocalConfig`]) |
//! |---|---|
//! | pools, how volumes are cached, LUNs, shares | its name and threads, the sizes of its caches |
//! | targets, initiator groups, CHAP | paths of disks, and what is said of disks |
//! | disks by a URL, or by node and path (`n2:/dev/sdb`): every node reaches them | |
//! | policies of repair and space, QoS | portals |
//! | SMB: name, workgroup, signing, encryption, versions | SMB: addresses, interfaces |
//! | the API: who may use it | the API: addresses, names, certificate |
//!
//! A node on its own has both in one file, in one document ([`Config`]): `config show` and `config apply` know no parts. A new field does not
//! compile before it is said here whose it is.

use serde::{Deserialize, Serialize};

use crate::{
    Assignment, CacheConfig, Config, Demand, DiskConfig, GroupConfig, HttpConfig, IscsiConfig, LunConfig,
    NodeConfig, Place, Policy, PolicyConfig, PoolConfig, PortalConfig, QosSettings, ShareConfig, SmbConfig,
    SmbConstraint, SmbDialect, TargetConfig, VolumeConfig,
};

/// What all nodes of a cluster have in common: whoever owns a pool serves it by this.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedConfig {
    /// Version of the schema, that of [`Config`].
    pub schema: u32,
    /// What nodes do by themselves.
    pub policy: PolicyConfig,
    /// Pools.
    pub pools: Vec<PoolConfig>,
    /// How volumes are cached.
    pub volumes: Vec<VolumeConfig>,
    /// Disks that every node reaches by the same name: a URL, or a node and a path.
    #[serde(default)]
    pub disks: Vec<DiskConfig>,
    /// What holds for all targets.
    pub iscsi: IscsiConfig,
    /// Who sees what.
    pub groups: Vec<GroupConfig>,
    /// Targets.
    pub targets: Vec<TargetConfig>,
    /// LUNs.
    pub luns: Vec<LunConfig>,
    /// What holds for all disks in storage QoS.
    pub qos: QosSettings,
    /// Policies of storage QoS.
    pub qos_policies: Vec<Policy>,
    /// Which LUN has which policy.
    pub qos_assignments: Vec<Assignment>,
    /// Which files, folders and volumes have which policy.
    #[serde(default)]
    pub qos_places: Vec<Place>,
    /// What clients find the same whichever node they come to.
    pub smb: SharedSmb,
    /// Who may use the API over the network.
    pub http: SharedHttp,
    /// Shares.
    pub shares: Vec<ShareConfig>,
}

/// The SMB server as it is on all nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedSmb {
    /// Its NetBIOS name; empty for that of the node.
    pub name: String,
    /// Its workgroup.
    pub domain: String,
    /// Signatures of messages.
    pub signing: Demand,
    /// Encryption of messages.
    pub encryption: Demand,
    /// Whether a session may have several connections.
    pub multichannel: bool,
    /// The oldest version that is spoken.
    pub min_dialect: SmbDialect,
    /// The newest version that is spoken.
    pub max_dialect: SmbDialect,
}

/// Who may use the API, on all nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedHttp {
    /// Groups of users whose members are operators.
    pub operators: Vec<String>,
    /// Groups of users whose members are viewers.
    pub viewers: Vec<String>,
}

/// What is one node's own: its machine, its addresses, its disks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LocalConfig {
    /// The node itself.
    pub node: NodeConfig,
    /// Its caches.
    pub cache: CacheConfig,
    /// Disks that are files, and overrides.
    pub disks: Vec<DiskConfig>,
    /// Addresses that targets are served on.
    pub portals: Vec<PortalConfig>,
    /// Where shares are served.
    pub smb: LocalSmb,
    /// Where the API is served.
    pub http: LocalHttp,
}

/// Where a node serves shares.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LocalSmb {
    /// Addresses.
    pub listen: Vec<String>,
    /// Interfaces that clients are told of.
    pub interfaces: Vec<String>,
    /// Other interfaces for some clients.
    pub constraints: Vec<SmbConstraint>,
}

/// Where a node serves the API over the network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LocalHttp {
    /// Addresses.
    pub listen: Vec<String>,
    /// What its own certificate is also made for.
    pub names: Vec<String>,
    /// File with a certificate.
    pub certificate: String,
    /// File with its key.
    pub key: String,
}

impl Config {
    /// The two parts of it.
    #[must_use]
    pub fn split(self) -> (SharedConfig, LocalConfig) {
        let Self {
            schema,
            node,
            policy,
            cache,
            disks,
            pools,
            volumes,
            iscsi,
            portals,
            groups,
            targets,
            luns,
            qos,
            qos_policies,
            qos_assignments,
            qos_places,
            smb,
            http,
            shares,
        } = self;
        let (of_all, disks): (Vec<_>, Vec<_>) = disks.into_iter().partition(|disk| crate::is_unit(&disk.id));
        let SmbConfig {
            name,
            domain,
            listen,
            signing,
            encryption,
            multichannel,
            min_dialect,
            max_dialect,
            interfaces,
            constraints,
        } = smb;
        let (shared_smb, local_smb) = (
            SharedSmb { name, domain, signing, encryption, multichannel, min_dialect, max_dialect },
            LocalSmb { listen, interfaces, constraints },
        );
        let HttpConfig { listen, names, certificate, key, operators, viewers } = http;
        let (shared_http, local_http) =
            (SharedHttp { operators, viewers }, LocalHttp { listen, names, certificate, key });
        let shared = SharedConfig {
            schema,
            policy,
            pools,
            volumes,
            disks: of_all,
            iscsi,
            groups,
            targets,
            luns,
            qos,
            qos_policies,
            qos_assignments,
            qos_places,
            smb: shared_smb,
            http: shared_http,
            shares,
        };
        (shared, LocalConfig { node, cache, disks, portals, smb: local_smb, http: local_http })
    }

    /// The configuration that these are the parts of.
    #[must_use]
    pub fn join(shared: SharedConfig, local: LocalConfig) -> Self {
        let SharedConfig {
            schema,
            policy,
            pools,
            volumes,
            disks: mut of_all,
            iscsi,
            groups,
            targets,
            luns,
            qos,
            qos_policies,
            qos_assignments,
            qos_places,
            smb: SharedSmb { name, domain, signing, encryption, multichannel, min_dialect, max_dialect },
            http: SharedHttp { operators, viewers },
            shares,
        } = shared;
        let LocalConfig { node, cache, disks, portals, smb: local_smb, http: local_http } = local;
        of_all.extend(disks);
        let disks = of_all;
        let LocalSmb { listen, interfaces, constraints } = local_smb;
        let smb = SmbConfig {
            name,
            domain,
            listen,
            signing,
            encryption,
            multichannel,
            min_dialect,
            max_dialect,
            interfaces,
            constraints,
        };
        let LocalHttp { listen, names, certificate, key } = local_http;
        let http = HttpConfig { listen, names, certificate, key, operators, viewers };
        Self {
            schema,
            node,
            policy,
            cache,
            disks,
            pools,
            volumes,
            iscsi,
            portals,
            groups,
            targets,
            luns,
            qos,
            qos_policies,
            qos_assignments,
            qos_places,
            smb,
            http,
            shares,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What one node has and another one has not, and what both have.
    #[test]
    fn parts_are_the_whole_and_keep_apart() {
        let mut config = Config::default();
        config.node.name = "node1".into();
        config.smb.listen = vec!["192.0.2.1:445".into()];
        config.smb.domain = "HOUSE".into();
        config.http.key = "/etc/key.pem".into();
        config.http.viewers = vec!["Staff".into()];
        let url = "iscsi://192.0.2.9:3260/iqn.2026-11.example:t/0";
        config.disks = vec![DiskConfig::new(url), DiskConfig::new("/disks/1")];
        config.pools = vec![PoolConfig::new("p", uuid::Uuid::from_u128(1))];
        config.portals = vec![PortalConfig { address: "192.0.2.1:3260".into(), group: 1 }];
        let (shared, local) = config.clone().split();
        assert_eq!(Config::join(shared.clone(), local.clone()), config);
        let (_, other) = Config::default().split();
        let there = Config::join(shared.clone(), other);
        assert_eq!((there.pools, there.smb.domain), (config.pools, config.smb.domain));
        assert_eq!(there.http.viewers, ["Staff"]);
        let own = (there.node.name, there.smb.listen, there.disks, there.portals.len(), there.http.key);
        assert_eq!(
            own,
            (String::new(), Vec::new(), vec![DiskConfig::new(url)], 0, String::new()),
            "nothing of node1"
        );
        let kept = serde_json::to_string(&shared).expect("JSON");
        assert!(!kept.contains("192.0.2.1:") && !kept.contains("key.pem"), "{kept}");
        assert_eq!(serde_json::from_str::<SharedConfig>(&kept).expect("read"), shared);
        let kept = serde_json::to_string(&local).expect("JSON");
        assert_eq!(serde_json::from_str::<LocalConfig>(&kept).expect("read"), local);
    }
}
