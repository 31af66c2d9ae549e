//! Work that takes long, and how far it is.

use std::collections::BTreeMap;

use control_api::{Job, JobKind, JobState};
use parking_lot::Mutex;

/// Ended jobs that are remembered, so that one who waits sees the end.
const REMEMBERED: usize = 64;

/// Weight of the newest rate in the running mean, in 1/8: a bar that neither jumps nor sleeps.
const NEWEST_OF_EIGHT: u64 = 2;

#[derive(Debug)]
struct Entry {
    job: Job,
    // Where the rate was last taken: milliseconds, bytes.
    mark: (u64, u64),
}

/// The jobs of the node. Times come in as arguments: `now_ms` is monotonic, `wall` seconds since 1970.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    last: u64,
    entries: BTreeMap<u64, Entry>,
}

impl Jobs {
    /// Starts a job, or finds the one of this kind that runs on `subject` already.
    pub(crate) fn start(&self, kind: JobKind, subject: &str, now_ms: u64, wall: u64) -> u64 {
        let mut inner = self.inner.lock();
        let running = inner.entries.values().find(|entry| {
            entry.job.kind == kind && entry.job.subject == subject && entry.job.state == JobState::Running
        });
        if let Some(entry) = running {
            return entry.job.id;
        }
        inner.last += 1;
        let id = inner.last;
        let job = Job {
            id,
            kind,
            subject: subject.into(),
            state: JobState::Running,
            done_bytes: 0,
            total_bytes: 0,
            bytes_per_second: 0,
            eta_seconds: None,
            started: wall,
            message: String::new(),
        };
        inner.entries.insert(id, Entry { job, mark: (now_ms, 0) });
        inner.forget();
        id
    }

    /// Says how far a job is: `left` bytes are still to do. The total is the most that was ever left to do.
    pub(crate) fn progress(&self, id: u64, left: u64, message: &str, now_ms: u64) {
        let mut inner = self.inner.lock();
        let Some(Entry { job, mark }) = inner.entries.get_mut(&id) else { return };
        // Work that is found on the way raises the total, so that what is done never shrinks.
        job.total_bytes = job.total_bytes.max(job.done_bytes + left);
        job.done_bytes = job.total_bytes - left;
        message.clone_into(&mut job.message);
        let elapsed = now_ms.saturating_sub(mark.0);
        // Below half a second the rate is noise.
        if elapsed >= 500 {
            let rate = job.done_bytes.saturating_sub(mark.1).saturating_mul(1000) / elapsed;
            job.bytes_per_second = match job.bytes_per_second {
                0 => rate,
                old => (old * (8 - NEWEST_OF_EIGHT) + rate * NEWEST_OF_EIGHT) / 8,
            };
            *mark = (now_ms, job.done_bytes);
        }
        job.eta_seconds = left.checked_div(job.bytes_per_second);
    }

    /// Ends a job.
    pub(crate) fn end(&self, id: u64, result: Result<String, String>) {
        let mut inner = self.inner.lock();
        let Some(Entry { job, .. }) = inner.entries.get_mut(&id) else { return };
        (job.state, job.message) = match result {
            Ok(message) => {
                job.done_bytes = job.total_bytes;
                (JobState::Done, message)
            }
            Err(message) => (JobState::Failed, message),
        };
        job.eta_seconds = None;
        job.bytes_per_second = 0;
    }

    /// Ends a job because what it was for was taken back.
    pub(crate) fn cancel(&self, id: u64, message: String) {
        self.end(id, Err(message));
        if let Some(Entry { job, .. }) = self.inner.lock().entries.get_mut(&id) {
            job.state = JobState::Cancelled;
        }
    }

    /// The running job of this kind on `subject`.
    pub(crate) fn running(&self, kind: JobKind, subject: &str) -> Option<u64> {
        let inner = self.inner.lock();
        let job = inner.entries.values().map(|entry| &entry.job);
        job.filter(|job| job.kind == kind && job.subject == subject && job.state == JobState::Running)
            .map(|job| job.id)
            .next()
    }

    /// A job.
    pub(crate) fn get(&self, id: u64) -> Option<Job> {
        self.inner.lock().entries.get(&id).map(|entry| entry.job.clone())
    }

    /// All jobs: running ones first, then the newest.
    pub(crate) fn list(&self) -> Vec<Job> {
        let mut jobs: Vec<Job> = self.inner.lock().entries.values().map(|entry| entry.job.clone()).collect();
        jobs.sort_by_key(|job| (job.state != JobState::Running, std::cmp::Reverse(job.id)));
        jobs
    }
}

impl Inner {
    fn forget(&mut self) {
        let ended: Vec<u64> =
            self.entries.values().filter(|e| e.job.state != JobState::Running).map(|e| e.job.id).collect();
        for id in ended.iter().take(ended.len().saturating_sub(REMEMBERED)) {
            self.entries.remove(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_never_goes_back_and_eta_follows_the_rate() {
        let jobs = Jobs::default();
        let id = jobs.start(JobKind::Repair, "pool p", 0, 1000);
        assert_eq!(jobs.start(JobKind::Repair, "pool p", 5, 1000), id, "the same work is one job");
        jobs.progress(id, 1000, "", 0);
        jobs.progress(id, 900, "", 1000);
        let job = jobs.get(id).expect("there");
        assert_eq!((job.done_bytes, job.total_bytes, job.eta_seconds), (100, 1000, Some(9)));
        // More was found to do than was left.
        jobs.progress(id, 1400, "", 1100);
        let job = jobs.get(id).expect("there");
        assert_eq!((job.done_bytes, job.total_bytes), (100, 1500));
        jobs.end(id, Ok("restored".into()));
        assert_eq!(jobs.get(id).expect("remembered").state, JobState::Done);
        let next = jobs.start(JobKind::Repair, "pool p", 5, 1000);
        assert_ne!(next, id);
        jobs.cancel(next, "taken back".into());
        let job = jobs.get(next).expect("remembered");
        assert_eq!((job.state, &*job.message), (JobState::Cancelled, "taken back"));
    }

    #[test]
    fn ended_jobs_are_forgotten_in_the_end() {
        let jobs = Jobs::default();
        for i in 0..1000 {
            let id = jobs.start(JobKind::PoolCheck, &format!("pool {i}"), 0, 0);
            jobs.end(id, Ok(String::new()));
        }
        assert!(jobs.list().len() <= REMEMBERED + 1);
    }
}
