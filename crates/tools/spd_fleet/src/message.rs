//! What coordinator and agent tell each other, as bytes.

use byte_codec::{DecodeError, Reader, Writer};
use spd_engine::Progress;
use spd_profile::{Profile, limits};
use spd_report::{System, ThreadOutcome};

use crate::outcome::{self, End};

/// What an agent is to do.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Job {
    /// The profile. What XML does not hold (the command line) does not arrive.
    pub profile: Profile,
    /// What is there may be written over; an agent must have been told so, too.
    pub yes: bool,
    /// Files are made without content.
    pub sparse: bool,
    /// What is written is verified.
    pub verify: bool,
    /// Who logs in to servers, when the agent was not told; passwords are the agent's own.
    pub user: Option<String>,
}

/// Messages to an agent.
#[derive(Clone, Debug)]
pub(crate) enum ToAgent {
    Job(Box<Job>),
    /// All agents have taken the job: files may be made.
    Prepare,
    Ping(u32),
    /// The load begins at this time of the agent's clock.
    Start(u64),
    Stop,
    Alive,
}

/// Messages to the coordinator.
#[derive(Clone, Debug)]
pub(crate) enum ToCoordinator {
    Accepted(Box<System>),
    /// It does not do the job, or cannot go on.
    Failed(String),
    /// Time span so-and-so is set up.
    Ready(u16),
    /// The answer to a ping, with the time of the agent's clock.
    Pong(u32, u64),
    /// The load has begun at this time of the agent's clock.
    Began(u64),
    Progress(Progress),
    /// One target of one thread.
    Part(u32, Box<spd_report::TargetOutcome>),
    /// A thread is complete; only its waits are in here.
    Thread(u32, Box<ThreadOutcome>),
    /// The time span is complete.
    End(Box<End>),
    Alive,
}

impl ToAgent {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        match self {
            Self::Job(job) => {
                out.u8(1);
                let flags = [job.yes, job.sparse, job.verify, job.user.is_some()];
                out.u8(flags.iter().rev().fold(0, |sum, flag| sum << 1 | u8::from(*flag)));
                out.text(job.user.as_deref().unwrap_or_default());
                let xml = spd_profile::xml::write(&job.profile, 0);
                out.u32(xml.len() as u32);
                out.raw(xml.as_bytes());
            }
            Self::Ping(id) => {
                out.u8(2);
                out.u32(*id);
            }
            Self::Start(at) => {
                out.u8(3);
                out.u64(*at);
            }
            Self::Stop => out.u8(4),
            Self::Alive => out.u8(5),
            Self::Prepare => out.u8(6),
        }
        out.finish()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut from = Reader::new(bytes);
        let message = match from.u8()? {
            1 => {
                let flags = from.u8()?;
                let user = from.text()?;
                let length = from.u32()? as usize;
                if length > limits::XML_BYTES || flags > 15 {
                    return Err(DecodeError::Invalid("job"));
                }
                let xml =
                    std::str::from_utf8(from.raw(length)?).map_err(|_| DecodeError::Invalid("profile"))?;
                let profile = spd_profile::xml::read(xml).map_err(|_| DecodeError::Invalid("profile"))?;
                let flag = |bit: u8| flags & 1 << bit != 0;
                let user = flag(3).then_some(user);
                let job = Job { profile, yes: flag(0), sparse: flag(1), verify: flag(2), user };
                Self::Job(Box::new(job))
            }
            2 => Self::Ping(from.u32()?),
            3 => Self::Start(from.u64()?),
            4 => Self::Stop,
            5 => Self::Alive,
            6 => Self::Prepare,
            _ => return Err(DecodeError::Invalid("kind of message")),
        };
        end(&from, message)
    }
}

impl ToCoordinator {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        match self {
            Self::Accepted(system) => {
                out.u8(1);
                outcome::put_system(&mut out, system);
            }
            Self::Failed(why) => {
                out.u8(2);
                out.text(why);
            }
            Self::Ready(span) => {
                out.u8(3);
                out.u16(*span);
            }
            Self::Pong(id, at) => {
                out.u8(4);
                out.u32(*id);
                out.u64(*at);
            }
            Self::Began(at) => {
                out.u8(5);
                out.u64(*at);
            }
            Self::Progress(progress) => {
                out.u8(6);
                outcome::put_progress(&mut out, progress);
            }
            Self::Part(thread, target) => {
                out.u8(7);
                out.u32(*thread);
                outcome::put_target(&mut out, target);
            }
            Self::Thread(thread, outcome) => {
                out.u8(8);
                out.u32(*thread);
                outcome::put_waits(&mut out, &outcome.waits);
            }
            Self::End(end) => {
                out.u8(9);
                outcome::put_end(&mut out, end);
            }
            Self::Alive => out.u8(10),
        }
        out.finish()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut from = Reader::new(bytes);
        let message = match from.u8()? {
            1 => Self::Accepted(Box::new(outcome::system(&mut from)?)),
            2 => Self::Failed(from.text()?),
            3 => Self::Ready(from.u16()?),
            4 => Self::Pong(from.u32()?, from.u64()?),
            5 => Self::Began(from.u64()?),
            6 => Self::Progress(outcome::progress(&mut from)?),
            7 => Self::Part(from.u32()?, Box::new(outcome::target(&mut from)?)),
            8 => {
                let thread = from.u32()?;
                let waits = outcome::waits(&mut from)?;
                Self::Thread(thread, Box::new(ThreadOutcome { targets: Vec::new(), waits }))
            }
            9 => Self::End(Box::new(outcome::end(&mut from)?)),
            10 => Self::Alive,
            _ => return Err(DecodeError::Invalid("kind of message")),
        };
        end(&from, message)
    }
}

/// Nothing may follow a message.
fn end<T>(from: &Reader<'_>, message: T) -> Result<T, DecodeError> {
    if from.remaining() == 0 { Ok(message) } else { Err(DecodeError::Invalid("length of message")) }
}
