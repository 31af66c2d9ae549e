//! One session: commands go out, ends come back.

use std::io::{self, ErrorKind};
use std::time::Duration;

use io_engine::readiness::Awaited;
use shard_runtime::{Clock as _, SystemClock};

use crate::error::ClientError;
use crate::login::{Options, log_in};
use crate::state::{Buffers, Command, CommandEnd, Ended, LOGOUT, PING, State, Transfer};
use crate::wire::{TURN, Wire};

/// A target that owes an answer and has sent nothing for this long, in nanoseconds, is asked whether it is there.
const ASK: u64 = 5_000_000_000;
/// A target that has sent nothing for this long is taken as gone. One that is busy answers our question.
const DEAD: u64 = 20_000_000_000;
/// Longest wait of [`Session::call`], in nanoseconds.
const CALL: u64 = 60_000_000_000;
/// Longest wait for the answer to a logout, in nanoseconds.
const LEAVE: u64 = 1_000_000_000;
/// Reads of one turn: then the caller has its turn, however much still comes.
const READS: usize = 64;
/// Of what is under way, one turn ends so much at the most (one of so many), however much has come together. What the caller
/// begins in its place is under way while the next part is taken: otherwise the two sides take turns, each asleep while the
/// other works through all commands. With smaller parts system calls cost more than that.
const PART: usize = 4;

/// A session with one connection.
pub struct Session {
    wire: Wire,
    state: State,
    clock: SystemClock,
    /// When the last answer came, while answers are owed.
    silent: Option<Silence>,
}

/// A target that owes us an answer, and from which nothing comes.
#[derive(Clone, Copy)]
struct Silence {
    /// The moment, in nanoseconds of the clock.
    since: u64,
    /// What the wire had taken then: a slow one is not a dead one.
    taken: u64,
    /// Whether we have asked if it is there.
    asked: bool,
}

/// How a [`Session::call`] ended.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Status and sense.
    pub end: CommandEnd,
    /// What came.
    pub data: Vec<u8>,
}

impl Session {
    /// Connects and logs in; a session that is still there under the same name and ISID ends first.
    ///
    /// # Errors
    /// When the target cannot be reached, or does not let us in.
    pub fn open(options: &Options) -> Result<Self, ClientError> {
        let (wire, login) = log_in(options)?;
        let state = State::new(&login, options.depth);
        Ok(Self { wire, state, clock: SystemClock::new(), silent: None })
    }

    /// Commands that are under way.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.state.outstanding()
    }

    /// What the next [`Session::turn`] waits for, for who waits for other things, too. It says nothing of ends that have come
    /// already: first a turn that waits for nothing, until it gives no more, then wait.
    #[must_use]
    pub fn awaited(&self) -> Awaited<'_> {
        self.wire.awaited()
    }

    /// Begins a command; it leaves with the next [`Session::turn`]. `false` when the target takes none at the moment: try
    /// again after a turn.
    ///
    /// # Errors
    /// When the session is broken, the tag is in use or too large, or the buffer is too short.
    pub fn start(
        &mut self,
        tag: usize,
        command: &Command<'_>,
        buffers: &impl Buffers,
    ) -> Result<bool, ClientError> {
        if !self.state.is_free(tag) {
            return Err(ClientError::Protocol("a tag of ours is in use"));
        }
        if self.state.is_full() {
            return Ok(false);
        }
        self.state.start(&mut self.wire.frames, tag, command, buffers)?;
        Ok(true)
    }

    /// Sends what is to be sent, and takes what comes within `timeout`. Adds what has ended to `ended`; returns earlier
    /// than `timeout` as soon as something has, and gives what has come with it in parts: the next turns then do not wait.
    ///
    /// # Errors
    /// When the session is broken. Commands that are under way may then have been carried out, or not.
    pub fn turn(
        &mut self,
        timeout: Duration,
        buffers: &mut impl Buffers,
        ended: &mut Vec<Ended>,
    ) -> Result<(), ClientError> {
        let before = ended.len();
        let enough = before + (self.state.outstanding() / PART).max(1);
        for _ in 0..READS {
            self.send(buffers)?;
            // What has come with the ends that an earlier turn gave.
            self.take(enough, buffers, ended)?;
            if ended.len() > before {
                break;
            }
            self.send(buffers)?;
            let came = self.wire.wait(timeout.min(TURN))?;
            self.take(enough, buffers, ended)?;
            if !came {
                return self.look();
            }
            self.silent = None;
            if ended.len() > before {
                break;
            }
        }
        // What the target asked for meanwhile leaves now, not with the next command.
        self.send(buffers)
    }

    /// Sends what is to be sent, as far as the system takes it.
    fn send(&mut self, buffers: &impl Buffers) -> Result<(), ClientError> {
        self.state.pump(&mut self.wire.frames, buffers)?;
        Ok(self.wire.flush()?)
    }

    /// Takes PDUs that are here, until `enough` commands have ended.
    fn take(
        &mut self,
        enough: usize,
        buffers: &mut impl Buffers,
        ended: &mut Vec<Ended>,
    ) -> Result<(), ClientError> {
        while ended.len() < enough
            && let Some(pdu) = self.wire.frames.next()?
        {
            self.state.take(&mut self.wire.frames, pdu, buffers, ended)?;
        }
        Ok(())
    }

    /// Nothing came: asks a target that owes an answer, and gives one up that does not answer this, either.
    fn look(&mut self) -> Result<(), ClientError> {
        if self.state.outstanding() == 0 && !self.state.is_full() {
            self.silent = None;
            return Ok(());
        }
        let now = self.clock.now().0;
        let begin = Silence { since: now, taken: self.wire.taken, asked: false };
        let Silence { since, taken, asked } = *self.silent.get_or_insert(begin);
        if self.wire.taken != taken && !asked {
            self.silent = Some(begin);
            return Ok(());
        }
        let silent = now.saturating_sub(since);
        if silent >= DEAD {
            let text = format!("nothing came from the target for {} s", DEAD / 1_000_000_000);
            return Err(io::Error::new(ErrorKind::TimedOut, text).into());
        }
        if silent >= ASK && !asked {
            self.silent = Some(Silence { since, taken, asked: true });
            self.immediate(PING)?;
        }
        Ok(())
    }

    fn immediate(&mut self, itt: u32) -> Result<(), ClientError> {
        self.state.immediate(&mut self.wire.frames, itt)?;
        Ok(self.wire.flush()?)
    }

    /// One command from its begin to its end, when no other is under way. Input goes into a buffer of its own.
    ///
    /// # Errors
    /// When the session is broken, others are under way, or the command takes longer than a minute.
    pub fn call(&mut self, command: &Command<'_>, output: &[u8]) -> Result<Answer, ClientError> {
        if self.state.outstanding() > 0 {
            return Err(ClientError::Protocol("a call of ours while commands are under way"));
        }
        let input = match command.transfer {
            Transfer::In(len) => vec![0; len as usize],
            _ => Vec::new(),
        };
        let mut buffers = One { input, output };
        let (mut ended, mut begun) = (Vec::new(), false);
        let limit = self.clock.now().0.saturating_add(CALL);
        loop {
            begun = begun || self.start(0, command, &buffers)?;
            self.turn(TURN, &mut buffers, &mut ended)?;
            if let Some(Ended { end, .. }) = ended.first().copied() {
                buffers.input.truncate(end.moved as usize);
                return Ok(Answer { end, data: buffers.input });
            }
            if self.clock.now().0 > limit {
                return Err(
                    io::Error::new(ErrorKind::TimedOut, "a command takes longer than a minute").into()
                );
            }
        }
    }

    /// Logs out. Commands that are under way are forgotten.
    ///
    /// # Errors
    /// When the target does not answer; the connection is closed all the same.
    pub fn close(mut self) -> Result<(), ClientError> {
        self.immediate(LOGOUT)?;
        let limit = self.clock.now().0.saturating_add(LEAVE);
        let (mut ended, mut nothing) = (Vec::new(), One { input: Vec::new(), output: &[] });
        while !self.state.logged_out() {
            if self.clock.now().0 > limit {
                return Err(io::Error::new(ErrorKind::TimedOut, "the logout is not answered").into());
            }
            match self.turn(TURN, &mut nothing, &mut ended) {
                // The target closes the connection behind its answer.
                Err(_) if self.state.logged_out() => {}
                other => other?,
            }
        }
        Ok(())
    }
}

/// The buffers of a call.
struct One<'a> {
    input: Vec<u8>,
    output: &'a [u8],
}

impl Buffers for One<'_> {
    fn input(&mut self, _: usize) -> &mut [u8] {
        &mut self.input
    }

    fn output(&self, _: usize) -> &[u8] {
        self.output
    }
}
