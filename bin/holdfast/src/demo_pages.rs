//! The pages of `holdfast demo`, who may use them, and how to reach them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use control_api::{HttpStatus, HttpUpdate, Password, PasswordChange, User, UserCreate};
use control_client::Client;

use crate::error::{CliError, CliResult, elsewhere};

/// Who may do everything there. Another user than that of the share, whose files are no administrator's.
pub(crate) const USER: &str = "admin";
/// The group of administrators.
const GROUP: &str = "Administrators";
/// Where the pages are served when nothing else is said: a free port, which is printed.
const DEFAULT_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// The pages, as they are served.
pub(crate) struct DemoPages {
    /// Where.
    address: SocketAddr,
    /// The authority that has signed the node's certificate, and its fingerprint.
    pub(crate) ca_file: String,
    ca_fingerprint: String,
}

impl DemoPages {
    /// As browsers write it.
    pub(crate) fn url(&self) -> String {
        match self.address.ip() {
            ip if ip.is_unspecified() => format!("https://localhost:{}/", self.address.port()),
            _ => format!("https://{}/", self.address),
        }
    }

    /// Prints why browsers ask, and what to compare.
    pub(crate) fn print(&self) {
        outln!("              the browser asks once, as the certificate is the node's own; its authority is");
        outln!("              {} ({})", self.ca_file, self.ca_fingerprint);
    }
}

/// Makes user and listener, as far as they aren't there.
pub(crate) async fn make(
    client: &Client,
    wanted: Option<SocketAddr>,
    password: &str,
) -> CliResult<DemoPages> {
    let password = Password(password.to_owned());
    if client.list::<User>("/users").await?.iter().any(|user| user.name == USER) {
        let change = PasswordChange { password, end_sessions: false };
        client.post::<User>(&format!("/users/{USER}/password"), &change).await?;
    } else {
        let request = UserCreate {
            name: USER.into(),
            full_name: "Administrator of the demo".into(),
            comment: String::new(),
            disabled: false,
            groups: vec![GROUP.into()],
            password,
        };
        client.post::<User>("/users", &request).await?;
    }
    let wanted = wanted.unwrap_or(DEFAULT_ADDRESS);
    let status = listen(client, wanted).await.map_err(|error| elsewhere(&error, "--http"))?;
    let address = status.listeners.iter().find_map(|listener| listener.listening.as_ref()?.parse().ok());
    let problem = status.listeners.iter().find_map(|listener| listener.problem.clone());
    let address = address.ok_or_else(|| {
        CliError::here(format!(
            "the pages are not served: {}",
            problem.unwrap_or_else(|| "no address".into())
        ))
    })?;
    let certificate = status.in_use.unwrap_or_else(|| control_api::HttpCertificate {
        own: false,
        names: Vec::new(),
        not_after: 0,
        fingerprint: String::new(),
        ca_fingerprint: None,
        ca_file: None,
    });
    Ok(DemoPages {
        address,
        ca_file: certificate.ca_file.unwrap_or_default(),
        ca_fingerprint: certificate.ca_fingerprint.unwrap_or_default(),
    })
}

/// Listens there and nowhere else.
async fn listen(client: &Client, address: SocketAddr) -> Result<HttpStatus, control_client::ClientError> {
    let update = HttpUpdate { listen: Some(vec![address.to_string()]), ..HttpUpdate::default() };
    client.patch::<HttpStatus>("/http", &update).await
}
