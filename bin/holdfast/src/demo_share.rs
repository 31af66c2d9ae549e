//! The share of `holdfast demo`, its user, and how to reach it.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use control_api::{
    Password, PasswordChange, Share, ShareCaching, ShareCreate, ShareKind, SharePermission, ShareRight,
    SmbStatus, SmbUpdate, User, UserCreate,
};
use control_client::Client;

use crate::error::{CliError, CliResult, elsewhere};

/// The share.
pub(crate) const SHARE: &str = "vmstore";
/// Its user.
pub(crate) const USER: &str = "demo";
/// Where SMB is served when nothing else is said: a port that needs no root.
const DEFAULT_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 4450);
/// The port that clients use when they are told none.
const WELL_KNOWN_PORT: u16 = 445;
/// In the data directory: the node itself keeps no password that can be printed.
const PASSWORD_FILE: &str = "demo-password";

/// The share, as it is served.
pub(crate) struct DemoShare {
    /// Where.
    pub(crate) address: SocketAddr,
    /// The password of [`USER`].
    pub(crate) password: String,
}

impl DemoShare {
    /// A host that this machine reaches it by.
    fn host(&self) -> String {
        match self.address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => "127.0.0.1".into(),
            IpAddr::V6(ip) if ip.is_unspecified() => "::1".into(),
            ip => ip.to_string(),
        }
    }

    /// As clients that take URLs write it.
    pub(crate) fn url(&self) -> String {
        let host = self.host();
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        match self.address.port() {
            WELL_KNOWN_PORT => format!("smb://{USER}@{host}/{SHARE}"),
            port => format!("smb://{USER}@{host}:{port}/{SHARE}"),
        }
    }

    /// Prints how to reach it.
    pub(crate) fn print(&self) {
        let (host, port, password) = (self.host(), self.address.port(), &self.password);
        let local = self.address.ip().is_loopback();
        let server = if local { host.clone() } else { "SERVER".to_owned() };
        outln!("\nOpen the share");
        outln!("  smbclient   smbclient -p {port} -U '{USER}%{password}' //{host}/{SHARE}");
        outln!(
            "  Linux       mount -t cifs //{server}/{SHARE} /mnt -o port={port},username={USER},password={password},vers=3.1.1,seal,persistenthandles"
        );
        if port == WELL_KNOWN_PORT {
            let name = if local { "127.0.0.1" } else { "SERVER" };
            outln!(
                "  Windows     \\\\{name}\\{SHARE} in Explorer, or: net use * \\\\{name}\\{SHARE} /user:{USER} {password}"
            );
        } else {
            outln!("  Windows     Explorer knows port 445 only: --smb 0.0.0.0:445 as root serves it there;");
            outln!(
                "              Windows 11 24H2 takes a port: net use * \\\\SERVER\\{SHARE} /user:{USER} {password} /tcpport:{port}"
            );
        }
        if local {
            outln!("              (served to this machine only: --smb 0.0.0.0:{port} serves it to others)");
        }
    }
}

/// Makes user, share and listener, as far as they aren't there.
pub(crate) async fn make(
    client: &Client,
    wanted: Option<SocketAddr>,
    dir: &Path,
    volume: &str,
) -> CliResult<DemoShare> {
    let password = make_user(client, dir).await?;
    if !client.list::<Share>("/shares").await?.iter().any(|share| share.config.name == SHARE) {
        let request = ShareCreate {
            name: SHARE.into(),
            volume: Some(volume.into()),
            folder: None,
            comment: "Virtual machines of the demo".into(),
            kind: ShareKind::ScaleOut,
            encrypt: false,
            caching: ShareCaching::Manual,
            access_based_enumeration: false,
            hidden: false,
            read_only: false,
            permissions: vec![SharePermission { who: USER.into(), right: ShareRight::Full }],
            preset_folder: false,
        };
        client.post::<Share>("/shares", &request).await?;
    }
    let wanted = match wanted {
        Some(address) => address,
        None => default_address(client).await?,
    };
    let address = listen(client, wanted).await?;
    Ok(DemoShare { address, password })
}

/// The well-known one, or a free port when something else (another demo) has it: nobody asked for this very port.
async fn default_address(client: &Client) -> CliResult<SocketAddr> {
    let status: SmbStatus = client.get("/smb").await?;
    let ours = DEFAULT_ADDRESS.to_string();
    let served = status.listeners.iter().any(|listener| listener.listening.as_ref() == Some(&ours));
    if served || std::net::TcpListener::bind(DEFAULT_ADDRESS).is_ok() {
        return Ok(DEFAULT_ADDRESS);
    }
    Ok(SocketAddr::new(DEFAULT_ADDRESS.ip(), 0))
}

/// Serves on an address and nowhere else, and returns where that is.
async fn listen(client: &Client, wanted: SocketAddr) -> CliResult<SocketAddr> {
    let update = SmbUpdate { listen: Some(vec![wanted.to_string()]), ..SmbUpdate::default() };
    let status: SmbStatus =
        client.patch("/smb", &update).await.map_err(|error| elsewhere(&error, "--smb"))?;
    let listening = status.listeners.first().and_then(|listener| listener.listening.as_ref());
    match listening.and_then(|address| address.parse().ok()) {
        Some(address) => Ok(address),
        None => {
            let why = status.listeners.first().and_then(|listener| listener.problem.clone());
            Err(CliError::here(format!(
                "SMB {wanted}: {}\n  Choose another address with --smb ADDR:PORT (port 0 takes a free one).",
                why.unwrap_or_else(|| "it does not listen".into())
            )))
        }
    }
}

/// Finds or makes the user; its password is kept beside the demo's data, for its owner only.
pub(crate) async fn make_user(client: &Client, dir: &Path) -> CliResult<String> {
    let path = dir.join(PASSWORD_FILE);
    let wrong = |error: std::io::Error| CliError::here(format!("{}: {error}", path.display()));
    let known = std::fs::read_to_string(&path).ok().filter(|text| !text.trim().is_empty());
    let there = client.list::<User>("/users").await?.iter().any(|user| user.name == USER);
    if let (Some(password), true) = (&known, there) {
        return Ok(password.trim().to_owned());
    }
    let password = match known {
        Some(password) => password.trim().to_owned(),
        None => control_server::random_secret()?[..16].to_owned(),
    };
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path).map_err(wrong)?;
    writeln!(file, "{password}").and_then(|()| file.sync_all()).map_err(wrong)?;
    if there {
        let change = PasswordChange { password: Password(password.clone()), end_sessions: false };
        client.post::<User>(&format!("/users/{USER}/password"), &change).await?;
    } else {
        let request = UserCreate {
            name: USER.into(),
            full_name: "User of the demo".into(),
            comment: String::new(),
            disabled: false,
            groups: Vec::new(),
            password: Password(password.clone()),
        };
        client.post::<User>("/users", &request).await?;
    }
    Ok(password)
}
