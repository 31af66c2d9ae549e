//! The coordinator: gives all agents the same job, lets them begin at one moment, gathers what they measured.

use std::sync::Arc;
use std::sync::mpsc::{Receiver as Inbox, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use shard_runtime::{Clock, Entropy};
use spd_engine::Progress;
use spd_profile::limits;
use spd_report::Outcome;

use crate::channel::{Sender, connect};
use crate::error::FleetError;
use crate::member::Agent;
use crate::merge;
use crate::message::{Job, ToAgent, ToCoordinator};
use crate::secret::Secret;
use crate::{AGENTS, HEARTBEAT, PLACEHOLDER};

/// Round trips before a start, of which the shortest counts.
const PINGS: u32 = 24;
/// How long before it happens a start is announced, beyond the round trip: what a busy machine may take to hear of it.
const LEAD: u64 = 150_000_000;
/// Messages that wait for the coordinator; then agents wait.
const WAITING: usize = 256;
/// How targets begin that are on each agent's own machine although they look like addresses: volumes of its node.
const OWN_VOLUME: &str = "holdfast://";
/// How often the coordinator looks around when nothing happens.
const LOOK: Duration = Duration::from_millis(50);

/// Who follows and ends a run of several clients.
pub trait Watch: Sync {
    /// Whether all are to stop now.
    fn stop(&self) -> bool;
    /// Called about every second with the sums over all agents.
    fn progress(&self, progress: &Progress);
    /// Something that is worth a line.
    fn note(&self, text: &str);
}

/// What a thread that serves an agent has for the coordinator.
enum News {
    Connected(Sender),
    Message(Box<ToCoordinator>, u64),
    Gone(String),
}

/// Runs a job on all agents `names` and returns what they measured together, and why it ended if not all of it was done.
/// An agent that vanishes once the load has begun is reported in its row, and the others go on.
pub fn run(
    names: &[String],
    secret: &Secret,
    (clock, entropy): (&Arc<dyn Clock>, &dyn Entropy),
    job: &Job,
    watch: &dyn Watch,
) -> (Outcome, Option<FleetError>) {
    if let Err(why) = check(names, job) {
        return (Outcome::default(), Some(why));
    }
    let (news, inbox) = sync_channel(WAITING);
    // Scoped threads of their own: each blocks on its agent, and what they borrow lives here.
    std::thread::scope(|scope| {
        for (index, name) in names.iter().enumerate() {
            let (news, clock) = (news.clone(), clock.as_ref());
            let work = move || attend(index, name, secret, clock, entropy, &news);
            let started =
                std::thread::Builder::new().name(format!("agent-{index}")).spawn_scoped(scope, work);
            if let Err(error) = started {
                let why = FleetError::new(format!("no thread for agent {name}: {error}"));
                return (Outcome::default(), Some(why));
            }
        }
        drop(news);
        let agents = names.iter().enumerate();
        let agents = agents.map(|(index, name)| Agent {
            name: name.clone(),
            job: own(job, index),
            ..Agent::default()
        });
        let mut fleet = Fleet {
            agents: agents.collect(),
            inbox,
            clock: clock.as_ref(),
            watch,
            span: 0,
            targets: 0,
            started: None,
            stopped: false,
            all_or_none: false,
            beat: 0,
            shown: 0,
        };
        // Connections and the inbox end with the fleet, and so do the threads.
        fleet.conduct()
    })
}

/// Refuses what several clients cannot do.
fn check(names: &[String], job: &Job) -> Result<(), FleetError> {
    if names.is_empty() || names.len() > AGENTS {
        return Err(FleetError::new(format!(
            "--agents names between 1 and {AGENTS} agents, not {}",
            names.len()
        )));
    }
    if let Some(twice) =
        names.iter().enumerate().find(|(at, name)| names.iter().take(*at).any(|other| other == *name))
    {
        return Err(FleetError::new(format!(
            "--agents names {} twice: an agent runs one test at a time",
            twice.1
        )));
    }
    for span in &job.profile.spans {
        if span.thread_count().saturating_mul(names.len() as u64) > u64::from(limits::THREADS) {
            return Err(FleetError::new(format!(
                "{} agents with {} threads each are more than {} threads: lower -t or -F",
                names.len(),
                span.thread_count(),
                limits::THREADS
            )));
        }
        for target in &span.targets {
            let is_address = target.path.starts_with(r"\\") || target.path.contains("://");
            let is_remote = is_address && !target.path.starts_with(OWN_VOLUME);
            let makes = target.create.is_some() || job.verify;
            if names.len() > 1 && is_remote && makes && !target.path.contains(PLACEHOLDER) {
                return Err(FleetError::new(format!(
                    "all agents would make the same '{}': write {PLACEHOLDER} into its path, which becomes each agent's number",
                    target.path
                )));
            }
        }
    }
    Ok(())
}

/// The job of the agent with this index: its number in paths, and random numbers of its own.
fn own(job: &Job, index: usize) -> Job {
    let mut job = job.clone();
    for span in &mut job.profile.spans {
        span.seed = span.seed.wrapping_add(index as u32);
        for target in &mut span.targets {
            target.path = target.path.replace(PLACEHOLDER, &(index + 1).to_string());
        }
    }
    job
}

/// Connects to an agent and passes on what it says, with the time at which it came.
fn attend(
    index: usize,
    name: &str,
    secret: &Secret,
    clock: &dyn Clock,
    entropy: &dyn Entropy,
    news: &SyncSender<(usize, News)>,
) {
    let (sender, mut receiver) = match connect(name, secret, entropy) {
        Ok(both) => both,
        Err(why) => return drop(news.send((index, News::Gone(why.0)))),
    };
    if news.send((index, News::Connected(sender))).is_err() {
        return;
    }
    loop {
        let message = receiver.receive();
        let at = clock.now().0;
        let message = message.map_err(|why| why.0).and_then(|bytes| {
            ToCoordinator::decode(&bytes).map_err(|why| format!("it sent a message that {why}"))
        });
        let (item, last) = match message {
            Ok(message) => (News::Message(Box::new(message), at), false),
            Err(why) => (News::Gone(why), true),
        };
        if news.send((index, item)).is_err() || last {
            return;
        }
    }
}

struct Fleet<'a> {
    agents: Vec<Agent>,
    inbox: Inbox<(usize, News)>,
    clock: &'a dyn Clock,
    watch: &'a dyn Watch,
    /// The time span that is under way, and how many targets it has.
    span: u16,
    targets: usize,
    /// When the load of the time span began, or will.
    started: Option<u64>,
    stopped: bool,
    /// Whether an agent that cannot take part ends it for the others, too: what they prepare would be for nothing.
    all_or_none: bool,
    /// When agents were last told that the coordinator is there, and progress was last shown.
    beat: u64,
    shown: u64,
}

impl Fleet<'_> {
    fn conduct(&mut self) -> (Outcome, Option<FleetError>) {
        let spans: Vec<_> =
            self.agents.first().map(|agent| agent.job.profile.spans.clone()).unwrap_or_default();
        let mut outcome = Outcome::default();
        let mut failed = None;
        for (number, span) in spans.iter().enumerate() {
            (self.span, self.targets, self.started) = (number as u16, span.targets.len(), None);
            for agent in &mut self.agents {
                agent.threads.clear();
                (agent.end, agent.began, agent.progress, agent.trip) = (None, None, None, None);
            }
            // Nobody makes or destroys anything before all have taken the job.
            self.all_or_none = number == 0;
            if self.all_or_none {
                self.until(|agent| agent.system.is_some() || agent.end.is_some());
                if self.agents.iter().all(|agent| agent.gone.is_none()) {
                    self.agents.iter_mut().for_each(|agent| agent.tell(&ToAgent::Prepare));
                }
            }
            // It is ready, or has been stopped before that.
            let at = self.span;
            self.until(|agent| agent.ready == Some(at) || agent.end.is_some());
            self.all_or_none = false;
            // Nothing of an incomplete fleet was measured yet: better to say so than to measure something else.
            let missing = self.agents.iter().find_map(|agent| Some((&agent.name, agent.gone.as_ref()?)));
            if let (0, false, Some((name, why))) = (number, self.stopped, missing) {
                failed = Some(FleetError::new(format!("agent {name}: {why}")));
                self.dismiss();
                break;
            }
            if !self.stopped {
                self.synchronise();
                self.start();
            }
            self.until(|agent| agent.end.is_some());
            let interrupted = self.stopped || self.agents.iter().all(|agent| agent.gone.is_some());
            outcome.spans.push(merge::span(&mut self.agents));
            if interrupted {
                break;
            }
        }
        merge::system(&self.agents, &mut outcome);
        (outcome, failed)
    }

    /// Ends what the agents prepare, and waits until they have let go of it: the next run finds them free.
    fn dismiss(&mut self) {
        for agent in &mut self.agents {
            if agent.sender.is_none() {
                // Its connection comes too late, and closes then.
                agent.gone.get_or_insert_with(|| "another agent could not take part".into());
            }
            agent.tell(&ToAgent::Stop);
        }
        self.until(|agent| agent.end.is_some());
    }

    /// Goes on until each agent that is still there has reached `state`, or, before anything was measured, one is gone.
    fn until(&mut self, state: impl Fn(&Agent) -> bool) {
        while !self.agents.iter().all(|agent| agent.has(&state)) {
            if self.all_or_none && self.agents.iter().any(|agent| agent.gone.is_some()) {
                return;
            }
            match self.inbox.recv_timeout(LOOK) {
                Ok((index, news)) => self.hear(index, news),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.look();
        }
    }

    /// What is due whether anything happens or not.
    fn look(&mut self) {
        if self.watch.stop() && !self.stopped {
            self.stopped = true;
            self.agents.iter_mut().for_each(|agent| agent.tell(&ToAgent::Stop));
        }
        let now = self.clock.now().0;
        let every = HEARTBEAT.as_nanos() as u64;
        if now.saturating_sub(self.beat) >= every {
            self.beat = now;
            self.agents.iter_mut().for_each(|agent| agent.tell(&ToAgent::Alive));
        }
        if self.started.is_some_and(|started| started <= now) && now.saturating_sub(self.shown) >= every {
            self.shown = now;
            let running = self.agents.iter().filter(|agent| agent.gone.is_none() && agent.end.is_none());
            if let Some(sum) = merge::progress(running.filter_map(|agent| agent.progress.as_ref())) {
                self.watch.progress(&sum);
            }
        }
    }

    fn hear(&mut self, index: usize, news: News) {
        let (span, targets) = (self.span, self.targets);
        let since = self.started.map(|started| self.clock.now().0 as f64 / 1e9 - started as f64 / 1e9);
        let Some(agent) = self.agents.get_mut(index).filter(|agent| agent.gone.is_none()) else { return };
        let wrong = match news {
            News::Connected(sender) => {
                agent.sender = Some(sender);
                let job = ToAgent::Job(Box::new(agent.job.clone()));
                agent.tell(&job);
                if self.stopped {
                    agent.tell(&ToAgent::Stop);
                }
                return;
            }
            News::Gone(why) => why,
            News::Message(message, at) => match *message {
                ToCoordinator::Failed(why) => why,
                ToCoordinator::Part(thread, target) => match agent.take(span, targets, thread, *target) {
                    Ok(()) => return,
                    Err(why) => why.to_owned(),
                },
                ToCoordinator::Pong(id, theirs) => {
                    if let Some((_, sent)) = agent.ping.take_if(|(mine, _)| *mine == id) {
                        let trip = at.saturating_sub(sent);
                        let offset = i128::from(theirs) - i128::from(sent + trip / 2);
                        if agent.trip.is_none_or(|(shortest, _)| trip < shortest) {
                            agent.trip = Some((trip, offset));
                        }
                    }
                    return;
                }
                ToCoordinator::Thread(thread, outcome) => {
                    if let Some(mine) = agent.threads.get_mut(thread as usize) {
                        mine.waits = outcome.waits;
                    }
                    return;
                }
                ToCoordinator::Accepted(system) => return agent.system = Some(*system),
                ToCoordinator::Ready(span) => return agent.ready = Some(span),
                ToCoordinator::Began(at) => return agent.began = Some(at),
                ToCoordinator::Progress(progress) => return agent.progress = Some(progress),
                ToCoordinator::End(end) => return agent.end = Some(*end),
                ToCoordinator::Alive => return,
            },
        };
        // With all of its results it may go.
        if agent.end.is_some() {
            return;
        }
        let why = match since.filter(|since| *since >= 0.0) {
            None => wrong,
            Some(since) => {
                let done = agent.progress.as_ref().map_or(0, |progress| progress.operations.iter().sum());
                let text = format!(
                    "vanished {since:.3}s after the load began, with {done} I/Os reported, which are not in the sums: {wrong}"
                );
                self.watch.note(&format!("agent {}: {text}", agent.name));
                text
            }
        };
        agent.gone = Some(why);
        agent.threads.clear();
        agent.sender = None;
    }

    /// Learns how each agent's clock differs from this one.
    fn synchronise(&mut self) {
        for id in 0..PINGS {
            for agent in self.agents.iter_mut().filter(|agent| agent.gone.is_none()) {
                agent.ping = Some((id, self.clock.now().0));
                agent.tell(&ToAgent::Ping(id));
            }
            self.until(|agent| agent.ping.is_none() || agent.end.is_some());
        }
    }

    /// Announces the beginning to all, to each by its own clock.
    fn start(&mut self) {
        let trips = self.agents.iter().filter_map(|agent| agent.trip).map(|(trip, _)| trip);
        let longest = trips.max().unwrap_or(0).min(1_000_000_000);
        let at = self.clock.now().0 + LEAD + 2 * longest;
        self.started = Some(at);
        for agent in self.agents.iter_mut().filter(|agent| agent.gone.is_none()) {
            let start = agent.clock_at(at);
            agent.tell(&ToAgent::Start(start));
        }
    }
}
