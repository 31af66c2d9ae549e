//! `holdfast demo`: a node that makes its own disks, to try Holdfast out.
//!
//! It is the same node as `holdfast serve`; what it makes, it makes over the node's own API, as a person would.
//! A second run finds everything there and goes on with it.

use std::fs::OpenOptions;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use control_api::{
    AuthConfig, ChapUser, Config, Disk, DiskUpdate, Done, GroupConfig, Lun, LunCreate, LunFormat, LunMap,
    PoolCreate, PoolDetail, PortalConfig, PortalInfo, Provisioning, Resiliency, Target, TargetConfig,
    TargetUpdate, Volume, VolumeCreate,
};
use control_client::{Client, Query, segment};
use control_server::{NodeOptions, Running};
use serde_json::json;

use crate::context::DEFAULT_DEMO_DIR;
use crate::demo_cluster;
use crate::demo_pages::{self, DemoPages};
use crate::demo_share::{self, DemoShare};
use crate::error::{CliError, CliResult, elsewhere};
use crate::serve::runtime;

/// Where iSCSI is served when nothing else is said.
const DEFAULT_PORTAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 3260);
/// Where the first node of a cluster serves it.
const FIRST_NODE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 11)), 3260);
const POOL: &str = "demo";
const VOLUME: &str = "vm";
const LUN: &str = "disk1";
const GROUP: &str = "everyone";
const TARGET: &str = "iqn.2026-01.io.holdfast:demo";
const NUMBER: u16 = 0;
const DISKS: u32 = 4;
const DISK_BYTES: u64 = 20 << 30;
const VOLUME_BYTES: u64 = 32 << 30;
const LUN_BYTES: u64 = 20 << 30;

/// Run a node that makes its own disks, to try Holdfast out.
///
/// Makes, if they aren't there, four sparse file disks in two pretend enclosures, a pool, a two-way mirrored
/// thin volume, a 20 GiB LUN and a share. Serves the LUN over iSCSI to whoever connects, the share over SMB to a user
/// whose password is made up and printed. Ctrl-C stops it; another run goes on with the same data.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where everything is kept.
    #[arg(long, default_value = DEFAULT_DEMO_DIR)]
    dir: PathBuf,
    /// Address that iSCSI is served on; port 0 takes a free one. Without it: 127.0.0.1:3260.
    #[arg(long, value_name = "ADDR:PORT")]
    iscsi: Option<std::net::SocketAddr>,
    /// Initiators must prove themselves with CHAP; user and secret are made up and printed.
    #[arg(long)]
    chap: bool,
    /// Threads that serve; one per core when absent.
    #[arg(long, value_name = "N")]
    shards: Option<usize>,
    /// Address that SMB is served on; port 0 takes a free one. Without it: 127.0.0.1:4450, or a free port if that is
    /// taken. Windows Explorer and other clients that know no other port need 0.0.0.0:445, which takes root.
    #[arg(long, value_name = "ADDR:PORT")]
    smb: Option<std::net::SocketAddr>,
    /// Address that the web pages and the API are served on over TLS; port 0 takes a free one. Without it: a free port of
    /// 127.0.0.1.
    #[arg(long, value_name = "ADDR:PORT")]
    http: Option<std::net::SocketAddr>,
    /// Run a cluster of so many nodes instead, each a process of its own: the first one has the address of --iscsi (127.0.0.11:3260
    /// if none is given), the others those after it.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=5), conflicts_with_all = ["chap", "smb", "http"])]
    nodes: Option<u8>,
}

pub(crate) fn run(args: Args, json: bool) -> CliResult {
    observe::init_logging();
    if let Some(nodes) = args.nodes {
        let iscsi = args.iscsi.unwrap_or(FIRST_NODE);
        return demo_cluster::run(&demo_cluster::Args { dir: args.dir, nodes, iscsi }, json);
    }
    let options = NodeOptions { data_dir: args.dir.clone(), socket: None, shards: args.shards, http: None };
    runtime()?.block_on(async {
        let signals = control_server::Signals::new().map_err(CliError::here)?;
        let node = Running::start(options).await?;
        let client = Client::new(node.socket());
        let made = tokio::select! {
            made = async {
                node.wait_ready().await;
                make(&args, &client).await
            } => made,
            _ = signals.wait() => Ok(None),
        };
        match made {
            Ok(Some(demo)) => {
                if json {
                    outln!("{}", demo.line(node.socket()));
                } else {
                    demo.print(&args.dir, node.socket());
                }
                signals.wait().await;
                eprintln!("holdfast: stopping cleanly.");
                node.stop().await?;
                Ok(())
            }
            Ok(None) => Ok(node.stop().await?),
            Err(error) => {
                node.stop().await?;
                Err(error)
            }
        }
    })
}

/// What the demo serves.
struct Demo {
    disks: Vec<String>,
    iscsi: String,
    chap: Option<ChapUser>,
    smb: DemoShare,
    http: DemoPages,
}

impl Demo {
    fn url(&self) -> String {
        let user =
            self.chap.as_ref().map(|chap| format!("{}%{}@", chap.user, chap.secret)).unwrap_or_default();
        format!("iscsi://{user}{}/{TARGET}/{NUMBER}", self.iscsi)
    }

    /// Everything a script needs, on one line.
    fn line(&self, socket: &Path) -> String {
        let (user, secret) = self.chap.as_ref().map(|chap| (&chap.user, &chap.secret)).unzip();
        json!({
            "ready": true,
            "pid": std::process::id(),
            "api_socket": socket,
            "data_dir": socket.parent(),
            "iscsi_address": self.iscsi,
            "iscsi_target": TARGET,
            "iscsi_lun": NUMBER,
            "iscsi_url": self.url(),
            "iscsi_user": user,
            "iscsi_password": secret,
            "smb_address": self.smb.address.to_string(),
            "smb_port": self.smb.address.port(),
            "smb_url": self.smb.url(),
            "smb_share": demo_share::SHARE,
            "smb_user": demo_share::USER,
            "smb_password": self.smb.password,
            "http_url": self.http.url(),
            "http_user": demo_pages::USER,
            "http_password": self.smb.password,
            "http_ca_file": self.http.ca_file,
            "pool": POOL,
            "volume": VOLUME,
            "lun": LUN,
            "lun_bytes": LUN_BYTES,
            "disks": self.disks,
        })
        .to_string()
    }

    fn print(&self, dir: &Path, socket: &Path) {
        let (url, address) = (self.url(), &self.iscsi);
        outln!(
            "Holdfast serves a 20 GiB LUN and a share, mirrored over {DISKS} file disks in two pretend enclosures.\n"
        );
        outln!("  data        {}", dir.display());
        outln!("  iSCSI       {url}");
        match &self.chap {
            Some(chap) => outln!("  CHAP        user {}, secret {}", chap.user, chap.secret),
            None => {
                outln!("  CHAP        off: whoever reaches {address} may read and write (--chap turns it on)")
            }
        }
        outln!("  SMB         {}, user {}, password {}", self.smb.url(), demo_share::USER, self.smb.password);
        outln!(
            "  pages       {}, user {}, password {}",
            self.http.url(),
            demo_pages::USER,
            self.smb.password
        );
        self.http.print();
        outln!("\nAttach the LUN");
        outln!("  qemu        qemu-system-x86_64 -drive file={url},format=raw,if=virtio …");
        outln!("  qemu-img    qemu-img info {url}");
        outln!("  open-iscsi  iscsiadm -m discovery -t sendtargets -p {address}");
        if let Some(chap) = &self.chap {
            for (name, value) in
                [("authmethod", "CHAP"), ("username", &chap.user), ("password", &chap.secret)]
            {
                outln!(
                    "              iscsiadm -m node -T {TARGET} -o update -n node.session.auth.{name} -v {value}"
                );
            }
        }
        outln!("              iscsiadm -m node -T {TARGET} -p {address} --login");
        self.smb.print();
        let node = if socket.starts_with(std::env::current_dir().unwrap_or_default().join(DEFAULT_DEMO_DIR)) {
            String::new()
        } else {
            format!(" --node {}", socket.display())
        };
        let disk = self.disks.first().map(String::as_str).unwrap_or_default();
        outln!("\nBreak a disk and watch it heal (in another terminal)");
        outln!("  holdfast status{node}");
        outln!("  holdfast disk fault{node} {disk} vanish");
        outln!("  holdfast status{node}");
        outln!("  holdfast disk fault{node} {disk} return");
        outln!(
            "\nCtrl-C stops it. Another run goes on with the same data; remove {} to start afresh.",
            dir.display()
        );
    }
}

/// Makes what isn't there.
async fn make(args: &Args, client: &Client) -> CliResult<Option<Demo>> {
    let dir = std::path::absolute(args.dir.join("disks")).map_err(CliError::here)?;
    let paths: Vec<String> =
        (1..=DISKS).map(|i| dir.join(format!("disk{i}.img")).to_string_lossy().into_owned()).collect();
    let config: Config = client.get("/config").await?;
    if !config.pools.iter().any(|pool| pool.name == POOL) {
        make_pool(client, &dir, &paths).await?;
    }
    if !client.list::<Volume>("/volumes").await?.iter().any(|volume| volume.name == VOLUME) {
        let request = VolumeCreate {
            name: VOLUME.into(),
            pool: Some(POOL.into()),
            size_bytes: VOLUME_BYTES,
            resiliency: Resiliency::Mirror2,
            provisioning: Provisioning::Thin,
            columns: None,
            interleave_bytes: None,
            integrity: None,
            cache: Default::default(),
            log: None,
        };
        client.post::<Volume>("/volumes", &request).await?;
    }
    if !config.groups.iter().any(|group| group.name == GROUP) {
        let group = GroupConfig { name: GROUP.into(), initiators: Vec::new(), any: true };
        client.post::<GroupConfig>("/initiator-groups", &group).await?;
    }
    let chap = make_target(client, &config, args.chap).await?;
    if !config.luns.iter().any(|lun| lun.name == LUN) {
        let map = LunMap {
            target: Some(TARGET.into()),
            number: Some(NUMBER),
            group: Some(GROUP.into()),
            everyone: false,
            read_only: false,
            confirm: None,
        };
        let request = LunCreate {
            name: LUN.into(),
            volume: Some(VOLUME.into()),
            path: None,
            format: LunFormat::Raw,
            parents_anywhere: false,
            size_bytes: Some(LUN_BYTES),
            block_size: None,
            reserve: false,
            write_cache: false,
            write_cache_in: None,
            map: vec![map],
        };
        client.post::<Lun>("/luns", &request).await?;
    }
    let iscsi = make_portal(client, &config, args.iscsi.unwrap_or(DEFAULT_PORTAL).to_string()).await?;
    let smb = demo_share::make(client, args.smb, &args.dir, VOLUME).await?;
    let http = demo_pages::make(client, args.http, &smb.password).await?;
    Ok(Some(Demo { disks: paths, iscsi, chap, smb, http }))
}

async fn make_pool(client: &Client, dir: &Path, paths: &[String]) -> CliResult {
    std::fs::create_dir_all(dir).map_err(|error| CliError::here(format!("{}: {error}", dir.display())))?;
    for (i, path) in paths.iter().enumerate() {
        let wrong = |error| CliError::here(format!("{path}: {error}"));
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(wrong)?;
        if file.metadata().map_err(wrong)?.len() < DISK_BYTES {
            file.set_len(DISK_BYTES).map_err(wrong)?;
        }
        let place = DiskUpdate {
            enclosure: Some(if i < paths.len() / 2 { "shelf-a" } else { "shelf-b" }.into()),
            slot: Some((i + 1).to_string()),
            ..DiskUpdate::default()
        };
        client.patch::<Disk>(Query::new("/disks").with("disk", path).as_str(), &place).await?;
    }
    let request = PoolCreate {
        name: POOL.into(),
        disks: paths.to_vec(),
        select: Vec::new(),
        spares: Vec::new(),
        slab_bytes: None,
        overwrite_foreign: false,
        confirm: Some(POOL.into()),
    };
    client.post::<PoolDetail>("/pools", &request).await?;
    Ok(())
}

async fn make_target(client: &Client, config: &Config, chap: bool) -> CliResult<Option<ChapUser>> {
    let there = config.targets.iter().find(|target| target.name == TARGET);
    let known = there.and_then(|target| target.auth.chap.first().cloned());
    let wanted = match (chap, known.clone()) {
        (false, _) => None,
        (true, Some(user)) => Some(user),
        (true, None) => Some(ChapUser {
            user: "demo".into(),
            secret: control_server::random_secret()?,
            groups: Vec::new(),
        }),
    };
    let auth = AuthConfig { chap: wanted.iter().cloned().collect(), ..AuthConfig::default() };
    if there.is_none() {
        let target = TargetConfig {
            name: TARGET.into(),
            alias: "Holdfast demo".into(),
            portal_groups: Vec::new(),
            auth,
        };
        client.post::<Target>("/targets", &target).await?;
    } else if wanted != known {
        let path = format!("/targets/{}", segment(TARGET));
        client
            .patch::<Target>(
                &path,
                &TargetUpdate { auth: Some(auth), confirm: Some(TARGET.into()), ..TargetUpdate::default() },
            )
            .await?;
    }
    Ok(wanted)
}

/// Listens on `wanted` and nowhere else, and returns where that is.
async fn make_portal(client: &Client, config: &Config, wanted: String) -> CliResult<String> {
    for portal in config.portals.iter().filter(|portal| portal.address != wanted) {
        let path = Query::new("/portals").with("address", &portal.address);
        let confirm = control_api::Confirm { confirm: Some(portal.address.clone()) };
        client.delete::<Done>(path.as_str(), &confirm).await?;
    }
    if !config.portals.iter().any(|portal| portal.address == wanted) {
        let portal = PortalConfig { address: wanted.clone(), group: 1 };
        client.post::<PortalInfo>("/portals", &portal).await.map_err(|error| elsewhere(&error, "--iscsi"))?;
    }
    let portals: Vec<PortalInfo> = client.list("/portals").await?;
    let portal = portals.into_iter().find(|portal| portal.address == wanted);
    match portal {
        Some(PortalInfo { listening: Some(address), .. }) => Ok(address),
        Some(PortalInfo { problem, .. }) => Err(CliError::here(format!(
            "iSCSI {wanted}: {}\n  Choose another address with --iscsi ADDR:PORT (port 0 takes a free one).",
            problem.unwrap_or_else(|| "it does not listen".into())
        ))),
        None => Err(CliError::here(format!("iSCSI {wanted}: the portal is gone again"))),
    }
}
