//! How the way to another machine is: latency, loss, the longest packet that passes, and connections to a port.
//!
//! ```text
//!   look ──► echo     ICMP echo requests, short ones for latency and loss, long ones for what passes
//!        └─► connect  TCP connections that are closed at once
//! ```
//! Invariants:
//! * What arrives is compared with lengths before it is looked at; what is no answer to a request of ours is passed over.
//! * At most one request is under way, so whoever is looked at gets no more than it answers.
//!
//! Deliberately absent: names (whoever calls looks them up), and what to do about what is found.

mod connect;
mod echo;
mod times;

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use shard_runtime::Clock;

pub use times::Tries;

/// Most requests of one kind.
pub const MOST_TRIES: u32 = 1000;

/// How a way is looked at.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Requests of each kind, at most [`MOST_TRIES`].
    pub tries: u32,
    /// How long an answer is waited for.
    pub timeout: Duration,
    /// How long lies between two requests.
    pub interval: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { tries: 10, timeout: Duration::from_secs(1), interval: Duration::from_millis(20) }
    }
}

/// The way to one address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Way {
    /// The other end.
    pub address: IpAddr,
    /// The address of this end; absent when there is no route.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<IpAddr>,
    /// Echo requests; absent when this process may send none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub echo: Option<Tries>,
    /// Why there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_echo: Option<String>,
    /// Bytes of the longest packet that this end sends, if that was looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u64>,
    /// Bytes of the longest of the usual lengths that came through both ways; absent when none did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passes: Option<u64>,
    /// Connections to the port, if one was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connect: Option<Tries>,
}

/// The address that this machine would use to reach another one. Nothing is sent.
#[must_use]
pub fn local_address(to: IpAddr) -> Option<IpAddr> {
    let any: SocketAddr =
        if to.is_ipv4() { ([0_u8; 4], 0).into() } else { (std::net::Ipv6Addr::UNSPECIFIED, 0).into() };
    let socket = UdpSocket::bind(any).ok()?;
    // The port is of no consequence.
    socket.connect((to, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// Looks at the way to an address, and to a port there. `mtu` says how long packets from an address of this machine may be.
pub async fn look(
    address: IpAddr,
    port: Option<u16>,
    mtu: impl Fn(IpAddr) -> Option<u64>,
    options: Options,
    clock: Arc<dyn Clock>,
) -> Way {
    let from = local_address(address);
    let mut way = Way { address, from, echo: None, no_echo: None, mtu: None, passes: None, connect: None };
    match echo::Echo::open(address, options.timeout) {
        Ok(echo) => {
            let echo = Arc::new(echo);
            let tries = echo::short(&echo, options, &clock).await;
            if tries.answered > 0 {
                way.mtu = from.and_then(&mtu).map(|mtu| mtu.min(echo::LONGEST));
                if let Some(mtu) = way.mtu {
                    way.passes = echo::longest(&echo, mtu, &clock).await;
                }
            }
            way.echo = Some(tries);
        }
        Err(error) => way.no_echo = Some(error.to_string()),
    }
    if let Some(port) = port {
        way.connect = Some(connect::tries(SocketAddr::new(address, port), options, clock.as_ref()).await);
    }
    way
}
