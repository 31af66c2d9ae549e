//! One connection in full feature phase, on the shard.

use std::future::Future;
use std::io::{self, ErrorKind};
use std::time::Duration;

use iscsi_client::{
    Buffers, ClientError, Command, CommandEnd, Ended, Frames, LOGOUT, Login, Options, PING, State, Transfer,
};
use iscsi_protocol::login_client::LoginError;
use iscsi_protocol::url::host_and_port;
use shard_runtime::{Monotonic, sleep, timeout};
use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::settings::Settings;

/// How often a target may send us elsewhere.
const MOVES: usize = 4;
/// Reads of one turn: then what else is to be done has its turn, however much still comes.
const READS: usize = 16;
/// Longest wait for the answer to a logout.
const LEAVE: Duration = Duration::from_millis(200);

/// A connection.
pub(crate) struct Connection {
    stream: TcpStream,
    frames: Frames,
    pub(crate) state: State,
    /// When the last bytes came or went, as far as answers are owed.
    moved: Monotonic,
    /// Whether we have asked since if the target is there.
    asked: bool,
}

/// Why a turn has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Something may have come.
    Came,
    /// What the caller waits for besides.
    Called,
}

impl Connection {
    /// Connects and logs in; a session that is still there under the same name and ISID ends first.
    pub(crate) async fn open(settings: &Settings, login: &Options) -> Result<Self, ClientError> {
        let opened = timeout(settings.times.login, async {
            let mut portal = (login.url.host.clone(), login.url.port);
            for _ in 0..MOVES {
                match Self::open_at(settings, login, &portal).await {
                    Err(ClientError::Login(LoginError::Moved(address))) => {
                        portal = host_and_port(&address)
                            .ok_or(ClientError::Protocol("it sends us to an address that is none"))?;
                    }
                    other => return other,
                }
            }
            Err(ClientError::Protocol("it sends us from one address to the next"))
        });
        opened.await.unwrap_or_else(|| Err(late("the target does not answer the login")))
    }

    async fn open_at(
        settings: &Settings,
        options: &Options,
        (host, port): &(String, u16),
    ) -> Result<Self, ClientError> {
        let stream = TcpStream::connect((host.as_str(), *port)).await?;
        stream.set_nodelay(true)?;
        let mut frames = Frames::default();
        let mut login = Login::begin(options, &mut frames)?;
        let mut random = |out: &mut [u8]| settings.entropy.fill(out);
        loop {
            let done = login.go_on(&mut frames, &mut random)?;
            while frames.waiting() > 0 {
                stream.writable().await?;
                send(&stream, &mut frames)?;
            }
            if let Some(done) = done {
                // One more, for the question whether something was cut short.
                let state = State::new(&done, slots_of(options.depth) + 1);
                return Ok(Self { stream, frames, state, moved: settings.clock.now(), asked: false });
            }
            stream.readable().await?;
            receive(&stream, &mut frames)?;
        }
    }

    /// Begins a command, for whose tag there is place.
    pub(crate) fn start(
        &mut self,
        now: Monotonic,
        tag: usize,
        command: &Command<'_>,
        buffers: &impl Buffers,
    ) -> Result<(), ClientError> {
        if self.state.outstanding() == 0 {
            self.moved = now;
            self.asked = false;
        }
        self.state.start(&mut self.frames, tag, command, buffers)
    }

    /// Sends what is to be sent, waits until something comes, `called` ends or `patience` is over, and takes what came.
    pub(crate) async fn turn(
        &mut self,
        settings: &Settings,
        patience: Duration,
        called: impl Future<Output = ()>,
        buffers: &mut impl Buffers,
        ended: &mut Vec<Ended>,
    ) -> Result<Turn, ClientError> {
        let mut progress = self.send(buffers)?;
        let interest = match self.frames.waiting() > 0 {
            true => Interest::READABLE | Interest::WRITABLE,
            false => Interest::READABLE,
        };
        let turn = tokio::select! {
            ready = self.stream.ready(interest) => { ready?; Turn::Came }
            () = called => Turn::Called,
            () = sleep(patience) => Turn::Called,
        };
        for _ in 0..READS {
            if !receive(&self.stream, &mut self.frames)? {
                break;
            }
            progress = true;
            while let Some(pdu) = self.frames.next()? {
                self.state.take(&mut self.frames, pdu, buffers, ended)?;
            }
        }
        // What the target asked for leaves now, not with the next command.
        progress |= self.send(buffers)?;
        let now = settings.clock.now();
        if progress || self.state.outstanding() == 0 {
            (self.moved, self.asked) = (now, false);
        }
        let silent = now.since(self.moved);
        if silent >= settings.times.silence {
            return Err(late("nothing comes from the target"));
        }
        if silent >= settings.times.ask && !self.asked {
            self.asked = true;
            self.state.immediate(&mut self.frames, PING)?;
            self.send(buffers)?;
        }
        Ok(turn)
    }

    /// Sends what the system takes at once; whether it took any.
    fn send(&mut self, buffers: &impl Buffers) -> Result<bool, ClientError> {
        let mut any = false;
        loop {
            self.state.pump(&mut self.frames, buffers)?;
            if self.frames.waiting() == 0 || !send(&self.stream, &mut self.frames)? {
                return Ok(any);
            }
            any = true;
        }
    }

    /// Has the target end all commands that run: see [`State::abort_all`].
    pub(crate) fn abort_all(&mut self, lun: [u8; 8]) -> Result<(), ClientError> {
        self.state.abort_all(&mut self.frames, lun)
    }

    /// One command from its begin to its end, when no other is under way.
    pub(crate) async fn call(
        &mut self,
        settings: &Settings,
        lun: [u8; 8],
        (cdb, len): (&[u8], u32),
    ) -> Result<(CommandEnd, Vec<u8>), ClientError> {
        let transfer = if len > 0 { Transfer::In(len) } else { Transfer::None };
        let (command, mut buffer) = (Command { lun, cdb, transfer }, One(vec![0; len as usize]));
        let begun = settings.clock.now();
        let (mut ended, mut started) = (Vec::new(), false);
        loop {
            if !started && !self.state.is_full() {
                self.start(settings.clock.now(), 0, &command, &buffer)?;
                started = true;
            }
            let forever = std::future::pending();
            self.turn(settings, settings.times.ask, forever, &mut buffer, &mut ended).await?;
            if let Some(Ended { end, .. }) = ended.first().copied() {
                buffer.0.truncate(end.moved as usize);
                return Ok((end, buffer.0));
            }
            if settings.clock.now().since(begun) > settings.times.login {
                return Err(late("the target does not say what it is"));
            }
        }
    }

    /// Says goodbye, as well as it goes.
    pub(crate) async fn close(mut self, settings: &Settings) {
        let mut nothing = One(Vec::new());
        let mut ended = Vec::new();
        let farewell = async {
            self.state.immediate(&mut self.frames, LOGOUT)?;
            while !self.state.logged_out() {
                let forever = std::future::pending();
                self.turn(settings, settings.times.ask, forever, &mut nothing, &mut ended).await?;
            }
            Ok::<_, ClientError>(())
        };
        let _ = timeout(LEAVE, farewell).await;
    }
}

/// How many jobs are under way at once at the most; their tags are below that.
pub(crate) fn slots_of(depth: usize) -> usize {
    depth.clamp(1, (1 << 16) - 1)
}

fn late(what: &'static str) -> ClientError {
    io::Error::new(ErrorKind::TimedOut, what).into()
}

/// Sends once; whether the system took any.
fn send(stream: &TcpStream, frames: &mut Frames) -> io::Result<bool> {
    match stream.try_write(frames.unsent()) {
        Ok(0) => Err(ErrorKind::WriteZero.into()),
        Ok(count) => {
            frames.sent(count);
            Ok(true)
        }
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Reads once; whether anything came.
fn receive(stream: &TcpStream, frames: &mut Frames) -> io::Result<bool> {
    match stream.try_read(frames.room()) {
        Ok(0) => Err(io::Error::new(ErrorKind::UnexpectedEof, "the target closed the connection")),
        Ok(count) => {
            frames.filled(count);
            Ok(true)
        }
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The buffer of a call.
struct One(Vec<u8>);

impl Buffers for One {
    fn input(&mut self, _: usize) -> &mut [u8] {
        &mut self.0
    }

    fn output(&self, _: usize) -> &[u8] {
        &self.0
    }
}
