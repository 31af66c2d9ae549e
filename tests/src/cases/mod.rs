//! The list of cases, and what each of them gets.

mod agents;
mod bad_input;
mod choosing_disks;
mod cluster;
mod cluster_demo;
mod config;
mod disk_images;
mod disks;
mod enclosure;
mod frames;
mod golden;
mod guide;
mod http;
mod libiscsi;
mod load;
mod load_device;
mod load_lines;
mod load_restart;
mod load_xml;
mod log_live;
mod measuring;
mod multipath;
mod ordered;
mod outage;
mod page;
mod pool_move;
mod qos;
mod rebalance;
mod reservations;
mod reserve;
mod restart;
mod root_disk;
mod rot;
mod shared_units;
mod smb_capture;
mod smb_clients;
mod smb_errors;
mod smb_guest;
mod smb_images;
mod smb_multichannel;
mod smb_python;
mod smb_rpc;
mod snapshots;
mod supervised;
mod two_hosts;
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

/// All cases, quick ones first.
pub const CASES: &[Case] = &[
    Case {
        name: "restart",
        about: "data survives kill -9; a second node is refused; SIGTERM is clean",
        ci: true,
        guest: false,
        run: restart::run,
    },
    Case {
        name: "supervised",
        about: "a supervised node that is killed is back at once, and nobody is refused meanwhile; what stops stays stopped",
        ci: true,
        guest: false,
        run: supervised::run,
    },
    Case {
        name: "cluster-demo",
        about: "three nodes with etcd on fenced disks: killed, stood still, killed with the supervisor; iSCSI and SMB go on elsewhere",
        ci: true,
        guest: false,
        run: cluster_demo::run,
    },
    Case {
        name: "cluster",
        about: "three nodes and a real etcd: the owner of a pool is killed, another one serves its LUN with all data; moved back by hand",
        ci: true,
        guest: false,
        run: cluster::takes_over,
    },
    Case {
        name: "http",
        about: "the API over TLS for curl and openssl; promtool and a Prometheus take metrics, rules and dashboard",
        ci: true,
        guest: false,
        run: http::run,
    },
    Case {
        name: "web-pages",
        about: "the web pages in Chromium: each page and flow, login over TLS, axe, keyboard, dark, phone, a lost disk, 10,000 rows",
        ci: true,
        guest: false,
        run: web_pages::run,
    },
    Case {
        name: "load-restart",
        about: "kill -9 and restart under verified load over iSCSI and SMB: nothing fails, nothing is lost",
        ci: true,
        guest: false,
        run: load_restart::run,
    },
    Case {
        name: "load-lines",
        about: "published command lines of DiskSpd and SQLIO run under those names; scripts read their reports",
        ci: true,
        guest: false,
        run: load_lines::run,
    },
    Case {
        name: "load-xml",
        about: "XML results have all elements for a parser that is not ours; a profile cut out of one runs the same test",
        ci: true,
        guest: false,
        run: load_xml::run,
    },
    Case {
        name: "load-device",
        about: "a block device that loses its capacity ends a load, with what was measured; one that is detached while open does not",
        ci: true,
        guest: false,
        run: load_device::run,
    },
    Case {
        name: "bad-input",
        about: "garbage, half-open and flooding connections harm nobody",
        ci: true,
        guest: false,
        run: bad_input::run,
    },
    Case {
        name: "agents",
        about: "three load agents in three network namespaces begin within 10 ms; one is cut off, one killed, the others are measured",
        ci: true,
        guest: false,
        run: agents::run,
    },
    Case {
        name: "frames",
        about: "tshark finds no malformed iSCSI frame in a session",
        ci: true,
        guest: false,
        run: frames::run,
    },
    Case {
        name: "config",
        about: "config show, wipe, apply restores targets, LUNs, groups",
        ci: true,
        guest: false,
        run: config::run,
    },
    Case {
        name: "choosing-disks",
        about: "every command of the guide's page on choosing disks, refusals too, says what the page says",
        ci: true,
        guest: false,
        run: choosing_disks::run,
    },
    Case {
        name: "measuring",
        about: "every command of the guide's pages that measure step by step runs, with shorter times and smaller files",
        ci: true,
        guest: false,
        run: measuring::run,
    },
    Case {
        name: "measuring-reference",
        about: "every command of the guide's reference on measuring runs: LUN, share, volume, trace, sweep, copy, agents, counters",
        ci: true,
        guest: false,
        run: measuring::reference,
    },
    Case {
        name: "guide-commands",
        about: "every verb and option of the node's commands that the guide names is there",
        ci: true,
        guest: false,
        run: guide::run,
    },
    Case {
        name: "disk-images",
        about: "VHDX between us, QEMU and libvhdi, both ways: types, sizes, blocks, parents; resized and compacted",
        ci: true,
        guest: false,
        run: disk_images::run,
    },
    Case {
        name: "volume-check",
        about: "pool check and volume check name a damage made by hand in each structure",
        ci: true,
        guest: false,
        run: volume_check::run,
    },
    Case {
        name: "snapshots",
        about: "previous versions over SMB, differences applied, a cloned LUN, schedules, deletion across a kill",
        ci: true,
        guest: false,
        run: snapshots::run,
    },
    Case {
        name: "shared-units",
        about: "two nodes, one pool on LUNs of a third: who takes it over fences the other, which stops, says so and writes no more; LUNs go and come back",
        ci: true,
        guest: false,
        run: shared_units::run,
    },
    Case {
        name: "pool-move",
        about: "a pool with parity, mirror and a log goes to another node, disks renamed and one missing; it does not go back by itself",
        ci: true,
        guest: false,
        run: pool_move::run,
    },
    Case {
        name: "qos",
        about: "limits of storage QoS hold for QEMU over iSCSI; changed, removed and lost under load; nonsense is refused",
        ci: true,
        guest: false,
        run: qos::run,
    },
    Case {
        name: "rot",
        about: "bytes flip on one disk of a mirror and of parity under fio over iSCSI and load over SMB: none is read; a scrub ends clean",
        ci: true,
        guest: false,
        run: rot::run,
    },
    Case {
        name: "rebalance",
        about: "a lost disk takes one spare of two; disks join under fio over iSCSI and take their share",
        ci: true,
        guest: false,
        run: rebalance::run,
    },
    Case {
        name: "reserve",
        about: "what a lost disk held is made again in the room that is kept for it on the others",
        ci: true,
        guest: false,
        run: reserve::run,
    },
    Case {
        name: "enclosure",
        about: "fio over iSCSI and load over SMB while an enclosure goes and returns; only dirty regions are copied",
        ci: true,
        guest: false,
        run: enclosure::run,
    },
    Case {
        name: "outage",
        about: "all copies of the data, then most of the disks, are away for seconds under fio over iSCSI: service goes on by itself",
        ci: true,
        guest: false,
        run: outage::run,
    },
    Case {
        name: "log-live",
        about: "a volume in use gets a log and loses it under fio over iSCSI, the node killed between and in the middle of both",
        ci: true,
        guest: false,
        run: log_live::run,
    },
    Case {
        name: "golden",
        about: "an image cloned 1,000 times, 100 clones written at once, all deleted: space back to the byte",
        ci: true,
        guest: false,
        run: golden::run,
    },
    Case {
        name: "snapshot-load",
        about: "snapshots under fio over SMB and iSCSI are crash-consistent: ordered writes, e2fsck; differences applied",
        ci: true,
        guest: true,
        run: ordered::run,
    },
    Case {
        name: "reservations",
        about: "persistent reservations survive kill -9 with APTPL",
        ci: true,
        guest: false,
        run: reservations::run,
    },
    Case {
        name: "two-hosts",
        about: "two hosts with CHAP and masking: neither sees, ends or fences the other's, whatever name it gives itself",
        ci: true,
        guest: false,
        run: two_hosts::run,
    },
    Case {
        name: "guest-vanish",
        about: "kernel client, CHAP, ext4, fio verify while a disk goes and returns",
        ci: true,
        guest: true,
        run: disks::vanish,
    },
    Case {
        name: "guest-replace",
        about: "kernel client, xfs, fio verify while a lost disk is replaced",
        ci: true,
        guest: true,
        run: disks::replace,
    },
    Case {
        name: "guest-kill",
        about: "kernel client, ext4, fio verify while the node is killed -9 and started",
        ci: true,
        guest: true,
        run: disks::kill,
    },
    Case {
        name: "smb-clients",
        about: "smbclient in every version, signed and encrypted; right errors; no malformed frame",
        ci: true,
        guest: false,
        run: smb_clients::run,
    },
    Case {
        name: "smb-rpc",
        about: "shares, sessions, users over RPC: smbclient -L, rpcclient, smbtorture; shares made from afar",
        ci: true,
        guest: false,
        run: smb_rpc::run,
    },
    Case {
        name: "smb-errors",
        about: "passwords, permissions, names, locks, a full volume, an ended session: the right status, one line in the log",
        ci: true,
        guest: false,
        run: smb_errors::run,
    },
    Case {
        name: "smb-python",
        about: "the suites of smbprotocol, impacket, pike: versions, leases, durable and persistent; no malformed frame",
        ci: true,
        guest: false,
        run: smb_python::run,
    },
    Case {
        name: "smb-guest",
        about: "kernel client over SMB 3.1.1, signed: many small files, rename, hard link, lock, append, fio verify",
        ci: true,
        guest: true,
        run: smb_guest::files,
    },
    Case {
        name: "smb-kill",
        about: "kernel client over SMB 3.1.1, encrypted, persistent handles: fio verify while the node is killed -9",
        ci: true,
        guest: true,
        run: smb_guest::kill,
    },
    Case {
        name: "smb-images",
        about: "qemu-img on a share through the kernel client: raw, qcow2, vhdx; the raw image as a LUN has the same bytes",
        ci: true,
        guest: true,
        run: smb_images::run,
    },
    Case {
        name: "smb-multichannel",
        about: "kernel client with two channels over two networks, each of them cut under load; fio verify",
        ci: true,
        guest: true,
        run: smb_multichannel::run,
    },
    Case {
        name: "multipath",
        about: "dm-multipath over two portals, one of them cut; then one kernel as two hosts with CHAP and masking",
        ci: true,
        guest: true,
        run: multipath::run,
    },
    Case {
        name: "root-disk",
        about: "a Debian guest runs from a root file system on a LUN, through QEMU's initiator",
        ci: true,
        guest: true,
        run: root_disk::run,
    },
    Case {
        name: "libiscsi",
        about: "libiscsi's test suite: no failure, at least 200 passed",
        ci: true,
        guest: false,
        run: libiscsi::run,
    },
];

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
