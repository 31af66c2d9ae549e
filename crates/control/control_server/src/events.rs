//! Events: what has changed, told to whoever listens, so that nobody has to ask again and again.
//!
//! Each listener has a queue of bounded length; one that does not take what is in it is ended, comes again and looks at everything
//! anew. Jobs and health are looked at only while somebody listens.

use std::collections::BTreeMap;

use control_api::{Code, Event, EventKind, Job, JobState, Problem, Status};
use parking_lot::Mutex;
use tokio::sync::broadcast;

/// Events that a listener may leave untaken.
const QUEUE: usize = 256;
/// Most listeners.
const LISTENERS: usize = 128;

/// Those who listen.
#[derive(Debug)]
pub(crate) struct Events {
    /// Absent once the node stops.
    sender: Mutex<Option<broadcast::Sender<Event>>>,
    /// What was told last of jobs (bytes done, and whether it runs) and of health.
    told: Mutex<Told>,
}

#[derive(Debug, Default)]
struct Told {
    jobs: BTreeMap<u64, (u64, bool)>,
    health: Option<String>,
}

impl Default for Events {
    fn default() -> Self {
        Self { sender: Mutex::new(Some(broadcast::Sender::new(QUEUE))), told: Mutex::default() }
    }
}

impl Events {
    /// Listens from now on.
    ///
    /// # Errors
    /// When too many do, or the node stops.
    pub(crate) fn listen(&self) -> Result<broadcast::Receiver<Event>, Problem> {
        let sender = self.sender.lock();
        let stopping = || Problem::new(Code::Unavailable, "The node is stopping.");
        let sender = sender.as_ref().ok_or_else(stopping)?;
        if sender.receiver_count() >= LISTENERS {
            let detail = format!("{LISTENERS} clients listen to events already.");
            return Err(
                Problem::new(Code::Unavailable, detail).todo("Ask for what is needed now and then instead.")
            );
        }
        Ok(sender.subscribe())
    }

    /// Tells it to all who listen.
    pub(crate) fn tell(&self, kind: EventKind, subject: impl Into<String>) {
        if let Some(sender) = &*self.sender.lock() {
            // Nobody may listen, which is no error.
            let _ = sender.send(Event { kind, subject: subject.into() });
        }
    }

    /// Whether anybody listens.
    pub(crate) fn has_listeners(&self) -> bool {
        self.sender.lock().as_ref().is_some_and(|sender| sender.receiver_count() > 0)
    }

    /// Tells what of jobs and health is other than was told last.
    pub(crate) fn tell_news(&self, jobs: Vec<Job>, status: Option<Status>) {
        let jobs: BTreeMap<u64, (u64, bool)> =
            jobs.into_iter().map(|job| (job.id, (job.done_bytes, job.state == JobState::Running))).collect();
        let health = status.map(|status| {
            let issues: Vec<&str> = status.issues.iter().map(|issue| issue.detail.as_str()).collect();
            (status.summary.clone() + &issues.join("\n"), status.verdict)
        });
        let mut told = self.told.lock();
        let news = jobs.iter().filter(|(id, now)| told.jobs.get(id) != Some(now));
        for (id, _) in news {
            self.tell(EventKind::Job, id.to_string());
        }
        told.jobs = jobs;
        if let Some((text, verdict)) = health
            && told.health.as_ref() != Some(&text)
        {
            let verdict = serde_json::to_value(verdict).ok();
            self.tell(EventKind::Health, verdict.as_ref().and_then(|word| word.as_str()).unwrap_or_default());
            told.health = Some(text);
        }
    }

    /// Ends all who listen.
    pub(crate) fn close(&self) {
        self.sender.lock().take();
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::broadcast::error::TryRecvError;

    use super::*;

    #[test]
    fn who_does_not_take_events_is_ended_and_others_go_on() {
        let events = Events::default();
        let mut slow = events.listen().expect("the first");
        let mut quick = events.listen().expect("the second");
        for n in 0..QUEUE + 10 {
            events.tell(EventKind::Job, n.to_string());
            assert_eq!(quick.try_recv().expect("told").subject, n.to_string());
        }
        assert!(matches!(slow.try_recv(), Err(TryRecvError::Lagged(_))));
        events.close();
        assert_eq!(quick.try_recv(), Err(TryRecvError::Closed));
        assert_eq!(events.listen().expect_err("it stops").code, Code::Unavailable);
    }

    #[test]
    fn there_are_only_so_many_listeners() {
        let events = Events::default();
        let all: Vec<_> = (0..LISTENERS).map(|_| events.listen().expect("one more")).collect();
        assert_eq!(events.listen().expect_err("too many").code, Code::Unavailable);
        drop(all);
        assert!(!events.has_listeners());
        events.listen().expect("room again");
    }
}
