//! An agent as the coordinator knows it: what it was told, what it has said, and how its clock goes.

use spd_engine::Progress;
use spd_report::{System, TargetOutcome, ThreadOutcome};

use crate::channel::Sender;
use crate::message::{Job, ToAgent};
use crate::outcome::End;

/// One agent, as the coordinator knows it.
#[derive(Default)]
pub(crate) struct Agent {
    pub(crate) name: String,
    pub(crate) sender: Option<Sender>,
    pub(crate) system: Option<System>,
    /// What this agent was told to do: its own paths and seed.
    pub(crate) job: Job,
    pub(crate) ready: Option<u16>,
    /// The ping that is under way and when it was sent.
    pub(crate) ping: Option<(u32, u64)>,
    /// The shortest round trip, and what to add to this clock to get the agent's.
    pub(crate) trip: Option<(u64, i128)>,
    /// When it began, by its own clock.
    pub(crate) began: Option<u64>,
    pub(crate) progress: Option<Progress>,
    pub(crate) threads: Vec<ThreadOutcome>,
    pub(crate) end: Option<End>,
    /// Why it takes part no longer.
    pub(crate) gone: Option<String>,
}

impl Agent {
    /// Sends it a message, if it is there.
    pub(crate) fn tell(&mut self, message: &ToAgent) {
        // An agent that cannot be told anything is noticed by the thread that listens to it.
        if let Some(sender) = &mut self.sender {
            let _ = sender.send(&message.encode());
        }
    }

    /// Its own clock at this moment of the coordinator's.
    pub(crate) fn clock_at(&self, at: u64) -> u64 {
        let offset = self.trip.map_or(0, |(_, offset)| offset);
        u64::try_from(i128::from(at) + offset).unwrap_or(0)
    }

    /// Whether it is at this time span or beyond.
    pub(crate) fn has(&self, state: impl Fn(&Self) -> bool) -> bool {
        self.gone.is_some() || state(self)
    }

    /// Takes what a thread of it measured of a target.
    ///
    /// # Errors
    /// It was told to do nothing of the kind.
    pub(crate) fn take(
        &mut self,
        number: u16,
        target_limit: usize,
        thread: u32,
        target: TargetOutcome,
    ) -> Result<(), &'static str> {
        let span = self.job.profile.spans.get(usize::from(number));
        let threads = span.map_or(0, |span| span.thread_count());
        if u64::from(thread) >= threads {
            return Err("it sent results of a thread that it has not");
        }
        if self.threads.len() <= thread as usize {
            self.threads.resize_with(thread as usize + 1, ThreadOutcome::default);
        }
        match self.threads.get_mut(thread as usize) {
            Some(outcome) if outcome.targets.len() < target_limit => outcome.targets.push(target),
            _ => return Err("it sent results of targets that it has not"),
        }
        Ok(())
    }
}
