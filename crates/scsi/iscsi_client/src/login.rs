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
use crate::frames::{Frames, MAX_RECV};
use crate::wire::{TURN, Wire};

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

/// What a session begins with.
#[derive(Clone, Debug)]
pub struct LoggedIn {
    /// What was agreed on.
    pub agreed: Agreed,
    /// StatSN of the target's next answer.
    pub exp_stat_sn: u32,
    /// The last CmdSN that it takes.
    pub max_cmd_sn: u32,
}

/// CmdSN of our first command.
pub(crate) const FIRST_CMD_SN: u32 = 1;

/// A login under way, without the socket: what it has to say goes into [`Frames`], and what came is taken from there.
pub struct Login {
    client: LoginClient,
    exp_stat_sn: u32,
}

impl Login {
    /// Says the first thing.
    ///
    /// # Errors
    /// None but those of [`Frames::push`].
    pub fn begin(options: &Options, frames: &mut Frames) -> Result<Self, ClientError> {
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
        let first = client.begin();
        let mut login = Self { client, exp_stat_sn: 0 };
        login.say(first, frames)?;
        Ok(login)
    }

    /// Takes what has come, and says what is next. Once we are in, the frames are as was agreed on.
    ///
    /// # Errors
    /// When the target does not let us in, sends us elsewhere, or breaks the rules.
    pub fn go_on(
        &mut self,
        frames: &mut Frames,
        random: &mut impl FnMut(&mut [u8]),
    ) -> Result<Option<LoggedIn>, ClientError> {
        while let Some((bhs, range)) = frames.next()? {
            self.exp_stat_sn = bhs.u32_at(24).wrapping_add(1);
            match self.client.response(&bhs, frames.data(range), random)? {
                Next::Send(request) => self.say(request, frames)?,
                Next::Done(agreed) => {
                    frames.params = agreed.connection.clone();
                    let (exp_stat_sn, max_cmd_sn) = (self.exp_stat_sn, bhs.u32_at(32));
                    return Ok(Some(LoggedIn { agreed, exp_stat_sn, max_cmd_sn }));
                }
            }
        }
        Ok(None)
    }

    fn say(&mut self, request: LoginRequest, frames: &mut Frames) -> Result<(), ClientError> {
        let LoginRequest { mut bhs, data } = request;
        bhs.set_u32(24, FIRST_CMD_SN);
        bhs.set_u32(28, self.exp_stat_sn);
        frames.push(bhs, &data)
    }
}

/// Logs in, and follows a target that is elsewhere.
pub(crate) fn log_in(options: &Options) -> Result<(Wire, LoggedIn), ClientError> {
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

fn log_in_at(options: &Options, portal: &(String, u16)) -> Result<(Wire, LoggedIn), ClientError> {
    let clock = SystemClock::new();
    let mut wire = Wire::new(connect(portal)?)?;
    wire.set_patience(TURN)?;
    let deadline = clock.now().0.saturating_add(LOGIN);
    let mut login = Login::begin(options, &mut wire.frames)?;
    let mut random = |out: &mut [u8]| SystemEntropy.fill(out);
    loop {
        let done = login.go_on(&mut wire.frames, &mut random)?;
        wire.flush()?;
        if let Some(done) = done {
            return Ok((wire, done));
        }
        wire.wait(TURN)?;
        if clock.now().0 > deadline {
            let late = io::Error::new(ErrorKind::TimedOut, "the target does not answer the login");
            return Err(late.into());
        }
    }
}
