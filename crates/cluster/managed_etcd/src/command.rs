//! The command line of etcd.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The most bytes of etcd's database; beyond, it takes no changes. What is kept of a cluster takes a few MiB, its history of ten minutes
/// some 20.
pub const QUOTA_BYTES: u64 = 1 << 30;
/// So much of the history is kept.
const RETENTION: &str = "10m";
/// A snapshot after so many changes: what is since then is in memory.
const SNAPSHOT_COUNT: &str = "10000";

/// Files with certificates in PEM, which etcd reads anew for each connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certificates {
    /// Who signs everybody's.
    pub authority: PathBuf,
    /// What this one shows.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// A member that runs here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EtcdMemberConfig {
    /// Its name among the members.
    pub name: String,
    /// Where clients reach it, `https://IP:PORT`; it listens there.
    pub client_url: String,
    /// Where the other members reach it, likewise.
    pub peer_url: String,
    /// The folder of its data, which it has for itself.
    pub data: PathBuf,
    /// What it shows, and whom it lets in.
    pub certificates: Certificates,
}

/// How a member that has no data yet begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum First {
    /// As the only member of a new cluster; the text tells clusters apart that are made at the same address.
    New(String),
    /// As one more of a cluster that has added it: all members, by name and where they reach each other, this one among them.
    Existing(Vec<(String, String)>),
}

/// The options for this member; `first` is for one that has no data yet.
pub(crate) fn options(config: &EtcdMemberConfig, first: Option<&First>) -> Vec<String> {
    let path = |path: &PathBuf| path.display().to_string();
    let certificates = &config.certificates;
    let (authority, certificate, key) =
        (path(&certificates.authority), path(&certificates.certificate), path(&certificates.key));
    let mut options = vec![
        ("name", config.name.clone()),
        ("data-dir", path(&config.data)),
        ("listen-client-urls", config.client_url.clone()),
        ("advertise-client-urls", config.client_url.clone()),
        ("listen-peer-urls", config.peer_url.clone()),
        ("initial-advertise-peer-urls", config.peer_url.clone()),
        ("client-cert-auth", "true".into()),
        ("trusted-ca-file", authority.clone()),
        ("cert-file", certificate.clone()),
        ("key-file", key.clone()),
        ("peer-client-cert-auth", "true".into()),
        ("peer-trusted-ca-file", authority),
        ("peer-cert-file", certificate),
        ("peer-key-file", key),
        ("quota-backend-bytes", QUOTA_BYTES.to_string()),
        ("auto-compaction-mode", "periodic".into()),
        ("auto-compaction-retention", RETENTION.into()),
        ("snapshot-count", SNAPSHOT_COUNT.into()),
        ("logger", "zap".into()),
        ("log-outputs", "stderr".into()),
        ("log-level", "warn".into()),
    ];
    match first {
        Some(First::New(token)) => options.extend([
            ("initial-cluster", format!("{}={}", config.name, config.peer_url)),
            ("initial-cluster-state", "new".into()),
            ("initial-cluster-token", token.clone()),
        ]),
        Some(First::Existing(members)) => {
            let members: Vec<String> = members.iter().map(|(name, url)| format!("{name}={url}")).collect();
            options.extend([
                ("initial-cluster", members.join(",")),
                ("initial-cluster-state", "existing".into()),
            ]);
        }
        // It knows.
        None => options.push(("initial-cluster-state", "existing".into())),
    }
    options.into_iter().map(|(name, value)| format!("--{name}={value}")).collect()
}
