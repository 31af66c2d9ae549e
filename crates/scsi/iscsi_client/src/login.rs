//! Connecting and logging in.

use std::io::{self, ErrorKind};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use iscsi_protocol::IscsiName;
use iscsi_protocol::chap::ChapUser;
use iscsi_protocol::keys::Offer;
use iscsi_protocol::login_client::{Agreed, LoginClient, LoginError, LoginRequest, Next, Wish};
use iscsi_protocol::url::{Url, host_and_port};
use shard_runtime::{Clock as _, Entropy as _, SystemClock, SystemEntropy};

use crate::error::ClientError;
use crate::wire::{MAX_RECV, Wire};

/// Longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// Longest login, in nanoseconds: a target that is alive takes well below a second.
const LOGIN: u64 = 15_000_000_000;
/// How often a target may send us elsewhere.
const MOVES: usize = 4;
/// Longest burst that we offer: what is sent after one R2T, or unasked.
const BURST: u32 = 1 << 20;

/// How a session is opened, as often as it has to be.
#[derive(Clone, Debug)]
pub struct Options {
    /// Portal, target, unit and digests. Its user and secrets are not looked at: see the fields below.
    pub url: Url,
    /// Our name.
    pub initiator: IscsiName,
    /// Our port: sessions that are there at the same time have different ones, and a session that is opened with the
    /// same one again takes the place of the old one.
    pub isid: [u8; 6],
    /// Who we are, if the target asks.
    pub user: Option<ChapUser>,
    /// Who the target must prove to be; only together with `user`.
    pub target_user: Option<ChapUser>,
    /// Commands that may be under way: tags are below this. At most 65536.
    pub depth: usize,
}

/// A connection in full feature phase.
pub(crate) struct LoggedIn {
    pub(crate) wire: Wire,
    pub(crate) agreed: Agreed,
    pub(crate) exp_stat_sn: u32,
    pub(crate) max_cmd_sn: u32,
}

/// CmdSN of our first command.
pub(crate) const FIRST_CMD_SN: u32 = 1;

/// Logs in, and follows a target that is elsewhere.
pub(crate) fn log_in(options: &Options) -> Result<LoggedIn, ClientError> {
    let mut portal = (options.url.host.clone(), options.url.port);
    for _ in 0..MOVES {
        match log_in_at(options, &portal) {
            Err(ClientError::Login(LoginError::Moved(address))) => {
                portal = host_and_port(&address)
                    .ok_or(ClientError::Protocol("it sends us to an address that is none"))?;
            }
            other => return other,
        }
    }
    Err(ClientError::Protocol("it sends us from one address to the next"))
}

fn connect((host, port): &(String, u16)) -> io::Result<TcpStream> {
    let mut last = io::Error::new(ErrorKind::NotFound, format!("'{host}' has no address: check the name"));
    for address in (host.as_str(), *port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn log_in_at(options: &Options, portal: &(String, u16)) -> Result<LoggedIn, ClientError> {
    let clock = SystemClock::new();
    let mut wire = Wire::new(connect(portal)?)?;
    wire.set_patience(crate::wire::TURN)?;
    let offer = Offer {
        max_connections: 1,
        initial_r2t: false,
        immediate_data: true,
        max_recv: MAX_RECV,
        max_burst: BURST,
        first_burst: BURST,
        max_outstanding_r2t: 4,
        ..Offer::default()
    };
    let mut client = LoginClient::new(Wish {
        initiator: options.initiator.clone(),
        target: options.url.target.clone(),
        isid: options.isid,
        offer,
        header_digest: options.url.header_digest,
        data_digest: options.url.data_digest,
        user: options.user.clone(),
        target_user: options.target_user.clone(),
    });
    // Login has its own bound of a segment, and no digests.
    let deadline = clock.now().0.saturating_add(LOGIN);
    let mut exp_stat_sn = 0;
    let mut next = client.begin();
    loop {
        send(&mut wire, next, exp_stat_sn)?;
        let (bhs, range) = loop {
            if let Some(found) = wire.next()? {
                break found;
            }
            wire.wait(crate::wire::TURN)?;
            wire.flush()?;
            if clock.now().0 > deadline {
                let late = io::Error::new(ErrorKind::TimedOut, "the target does not answer the login");
                return Err(late.into());
            }
        };
        exp_stat_sn = bhs.u32_at(24).wrapping_add(1);
        let mut random = |out: &mut [u8]| SystemEntropy.fill(out);
        match client.response(&bhs, wire.data(range), &mut random)? {
            Next::Send(request) => next = request,
            Next::Done(agreed) => {
                wire.params = agreed.connection.clone();
                return Ok(LoggedIn { wire, agreed, exp_stat_sn, max_cmd_sn: bhs.u32_at(32) });
            }
        }
    }
}

fn send(wire: &mut Wire, request: LoginRequest, exp_stat_sn: u32) -> Result<(), ClientError> {
    let LoginRequest { mut bhs, data } = request;
    bhs.set_u32(24, FIRST_CMD_SN);
    bhs.set_u32(28, exp_stat_sn);
    wire.push(bhs, &data)?;
    Ok(wire.flush()?)
}
