//! The list of cases, and what each of them gets.

mod agents;
mod alua;
mod alua_guest;
mod bad_input;
mod bus;
mod cached_lun;
mod ceph;
mod choosing_disks;
mod cluster;
mod cluster_demo;
mod cluster_faults;
mod config;
mod disk_images;
mod disks;
mod enclosure;
mod failover;
mod findings;
mod frames;
mod golden;
mod guide;
mod health;
mod http;
mod image_lun;
mod libiscsi;
mod load;
mod load_device;
mod load_lines;
mod load_restart;
mod load_xml;
mod log_live;
mod measuring;
mod multipath;
mod net;
mod one_to_three;
mod ordered;
mod outage;
mod package;
mod page;
mod pool_move;
mod qos;
mod qos_host;
mod qos_smb;
mod quotas;
mod rebalance;
mod registers;
mod reservations;
mod reserve;
mod restart;
mod root_disk;
mod rot;
mod shared_units;
mod shared_vhdx;
mod smb_capture;
mod smb_clients;
mod smb_crash;
mod smb_errors;
mod smb_failover;
mod smb_guest;
mod smb_images;
mod smb_multichannel;
mod smb_python;
mod smb_rpc;
mod snapshots;
mod supervised;
mod table;
mod two_hosts;
mod upgrade;
mod volume_check;
mod web_pages;

use std::path::PathBuf;

use crate::Result;
use crate::node::{Node, Options};
use crate::peer::{IQN, Tgt};

/// User and secret of the stand-in's CHAP account.
const PEER_CHAP: (&str, &str) = ("peer", "peer-secret-123");

/// One case.
#[derive(Debug)]
pub struct Case {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it shows, in a sentence.
    pub about: &'static str,
    /// Whether `make test` runs it. A case joins when it has passed against Holdfast; `false` is a debt.
    pub ci: bool,
    /// Whether it starts a virtual machine: one after another, they take a processor each.
    pub guest: bool,
    /// Does it.
    pub run: fn(&Context) -> Result,
}

/// What a case gets.
#[derive(Debug)]
pub struct Context {
    /// A folder of its own.
    pub folder: PathBuf,
    /// Sizes as for a release; otherwise as for each change.
    pub full: bool,
    /// Use tgt in Holdfast's place.
    pub peer: bool,
    /// Use the LUN of a server that runs already: `iscsi://ADDRESS:PORT/IQN/LUN`. Its data is destroyed.
    pub url: Option<String>,
}

pub use table::CASES;

/// The node, or what stands in for it.
#[derive(Debug)]
pub enum Server {
    /// Holdfast.
    Node(Box<Node>),
    /// tgt: no faults can be switched on, so a case shows only that it is right itself.
    Peer(Tgt, bool),
    /// A server that somebody else started, as (url, portal, iqn).
    Other(String, String, String),
}

impl Server {
    /// Starts what the context says.
    pub fn start(context: &Context, options: Options) -> Result<Self> {
        if let Some(url) = &context.url {
            let mut parts = url.trim_start_matches("iscsi://").split('/');
            let (portal, iqn) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            return Ok(Self::Other(url.clone(), portal.into(), iqn.into()));
        }
        if context.peer {
            let port = 20_000 + (std::process::id() % 10_000) as u16;
            let chap = options.chap.then_some(PEER_CHAP);
            return Ok(Self::Peer(Tgt::start(&context.folder, port, 20_480, chap)?, options.chap));
        }
        Ok(Self::Node(Box::new(Node::start(&context.folder, options)?)))
    }

    /// `address:port`
    #[must_use]
    pub fn portal(&self) -> &str {
        match self {
            Self::Node(node) => &node.ready().portal,
            Self::Peer(tgt, _) => &tgt.portal,
            Self::Other(_, portal, _) => portal,
        }
    }

    /// The LUN as libiscsi and QEMU name it.
    #[must_use]
    pub fn url(&self) -> String {
        match self {
            Self::Node(node) => node.ready().url.clone(),
            Self::Peer(tgt, _) => format!("iscsi://{}/{IQN}/1", tgt.portal),
            Self::Other(url, ..) => url.clone(),
        }
    }

    /// What a guest script needs to log in through QEMU's user network.
    #[must_use]
    pub fn guest_env(&self) -> Vec<(&'static str, String)> {
        let port = self.portal().rsplit(':').next().unwrap_or_default();
        let (iqn, user, secret) = match self {
            Self::Node(node) => {
                (node.ready().iqn.clone(), node.told("iscsi_user"), node.told("iscsi_password"))
            }
            Self::Peer(_, chap) => {
                let (user, secret) = if *chap { PEER_CHAP } else { ("", "") };
                (IQN.to_string(), user.to_string(), secret.to_string())
            }
            Self::Other(_, _, iqn) => (iqn.clone(), String::new(), String::new()),
        };
        vec![
            ("PORTAL", format!("10.0.2.2:{port}")),
            ("IQN", iqn),
            ("CHAP_USER", user),
            ("CHAP_SECRET", secret),
        ]
    }

    /// The node, when it is one.
    pub fn node(&mut self) -> Option<&mut Node> {
        match self {
            Self::Node(node) => Some(node),
            Self::Peer(..) | Self::Other(..) => None,
        }
    }

    /// Ends it; a node must end cleanly and have nothing unexpected in its log.
    pub fn finish(self) -> Result {
        match self {
            Self::Node(node) => node.finish(),
            Self::Peer(tgt, _) => tgt.stop(),
            Self::Other(..) => Ok(()),
        }
    }
}
