//! Changes as they come, whole revisions, each once.
//!
//! etcd may tell a long revision in several messages (fragments), and has told some twice after a hick-up; whoever was told of a
//! compaction too late may miss deletions of the very revision that was kept. So a revision is handed on when it is certain that all
//! of it is there, what was told already is dropped, and a watch begins one revision earlier than what is wanted: if that one is known
//! still, everything after it is.

use std::collections::BTreeSet;
use std::sync::Arc;

use cluster_store::{Change, Revision, StoreError, StoreFuture, Watch};
use hyper::body::Bytes;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use crate::call::{self, CallError, Messages, Outgoing, framed};
use crate::convert;
use crate::endpoints::{Endpoints, Place};
use crate::messages::{WatchAsk, WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchResponse};
use crate::verdict;

/// The most bytes of one revision: a transaction is smaller, also with etcd's framing.
const MAX_REVISION: usize = 8 << 20;

pub(crate) struct EtcdWatch {
    endpoints: Arc<Endpoints>,
    place: Arc<Place>,
    messages: Messages,
    questions: mpsc::Sender<Bytes>,
    asked_for_life: bool,
    sieve: Sieve,
}

impl EtcdWatch {
    pub(crate) async fn begin(
        endpoints: &Arc<Endpoints>,
        prefix: &str,
        after: Revision,
    ) -> Result<Self, StoreError> {
        let patience = endpoints.patience.request;
        let begin = Self::connect(endpoints.clone(), prefix, after);
        match timeout(patience, begin).await {
            Ok(watch) => watch,
            Err(_) => Err(StoreError::NotDone(format!("etcd: no watch in {patience:?}"))),
        }
    }

    async fn connect(endpoints: Arc<Endpoints>, prefix: &str, after: Revision) -> Result<Self, StoreError> {
        let (place, mut sender) = endpoints.connect().await.map_err(StoreError::NotDone)?;
        let (questions, asked) = mpsc::channel(2);
        let create = WatchCreateRequest {
            key: convert::first_of(prefix),
            range_end: convert::after(prefix),
            start_revision: convert::revision_out(after)?.max(1),
            progress_notify: true,
            fragment: true,
        };
        let create = framed(&WatchRequest { ask: Some(WatchAsk::Create(create)) });
        let closed = || StoreError::NotDone("etcd: the watch was closed".into());
        questions.send(create).await.map_err(|_| closed())?;
        let url = place.url().to_owned();
        let failed = |error: CallError| {
            endpoints.leave(&place);
            verdict::of_read(error)
        };
        let begun = call::begin(&mut sender, &url, call::WATCH, Outgoing::Stream(asked), None).await;
        let mut messages = Messages::new(begun.map_err(failed)?.into_body());
        let mut sieve = Sieve::new(after);
        let created = messages.next::<WatchResponse>().await.map_err(failed)?.ok_or_else(closed)?;
        sieve.take(created)?;
        Ok(Self { endpoints, place, messages, questions, asked_for_life: false, sieve })
    }

    async fn next_changes(&mut self) -> Result<Vec<Change>, StoreError> {
        loop {
            let ready = self.sieve.ready();
            if !ready.is_empty() {
                return Ok(ready);
            }
            let silence = self.endpoints.patience.watch_silence;
            let message = tokio::select! {
                biased;
                message = self.messages.next::<WatchResponse>() => message,
                () = sleep(silence) => {
                    let question = framed(&WatchRequest { ask: Some(WatchAsk::Progress(WatchProgressRequest {})) });
                    if self.asked_for_life || self.questions.try_send(question).is_err() {
                        self.endpoints.leave(&self.place);
                        return Err(StoreError::NotDone(format!("etcd: a watch that says nothing for {:?}", silence * 2)));
                    }
                    self.asked_for_life = true;
                    continue;
                }
            };
            self.asked_for_life = false;
            match message {
                Ok(Some(message)) => self.sieve.take(message)?,
                Ok(None) => return Err(StoreError::NotDone("etcd: the watch was closed".into())),
                Err(error) => {
                    self.endpoints.leave(&self.place);
                    return Err(verdict::of_read(error));
                }
            }
        }
    }
}

impl Watch for EtcdWatch {
    fn next(&mut self) -> StoreFuture<'_, Vec<Change>> {
        Box::pin(self.next_changes())
    }
}

/// Makes whole revisions of what etcd says.
#[derive(Debug)]
struct Sieve {
    /// Everything up to this revision was told, or was not asked for.
    told: Revision,
    /// Of one revision, of which more may come.
    held: Vec<Change>,
    /// Their keys.
    held_keys: BTreeSet<String>,
    held_revision: Revision,
    held_bytes: usize,
    ready: Vec<Change>,
}

impl Sieve {
    fn new(after: Revision) -> Self {
        let (held, held_keys, ready) = (Vec::new(), BTreeSet::new(), Vec::new());
        Self { told: after, held, held_keys, held_revision: after, held_bytes: 0, ready }
    }

    fn ready(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.ready)
    }

    fn take(&mut self, message: WatchResponse) -> Result<(), StoreError> {
        if message.compact_revision > 0 {
            let oldest = Revision(u64::try_from(message.compact_revision).unwrap_or_default());
            return Err(StoreError::Compacted { oldest });
        }
        if message.canceled {
            return Err(StoreError::NotDone(format!(
                "etcd: the watch was cancelled: {}",
                message.cancel_reason
            )));
        }
        for event in message.events {
            let Some((revision, change)) = convert::change(event) else {
                return Err(StoreError::NotDone("etcd: a change that is none".into()));
            };
            if revision <= self.told {
                continue;
            }
            if revision < self.held_revision {
                return Err(StoreError::NotDone("etcd: changes that are not in their order".into()));
            }
            if revision > self.held_revision {
                self.hand_on();
                self.held_revision = revision;
            }
            let Some(change) = change else { continue };
            self.held_bytes += change.key.len() + change.now.as_ref().map_or(0, |found| found.value.len());
            if self.held_bytes > MAX_REVISION {
                return Err(StoreError::NotDone(format!(
                    "etcd: a revision of more than {MAX_REVISION} bytes"
                )));
            }
            // A key changes once in a revision: told again, it is the same change.
            if self.held_keys.insert(change.key.clone()) {
                self.held.push(change);
            }
        }
        if !message.fragment {
            self.hand_on();
        }
        Ok(())
    }

    fn hand_on(&mut self) {
        self.told = self.told.max(self.held_revision);
        self.held_bytes = 0;
        self.held_keys.clear();
        self.ready.append(&mut self.held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{Event, KeyValue};

    fn event(key: &str, revision: i64) -> Event {
        let kv = KeyValue { key: key.into(), create_revision: 1, mod_revision: revision, value: Vec::new() };
        Event { kind: 0, kv: Some(kv) }
    }

    fn message(events: &[(&str, i64)], fragment: bool) -> WatchResponse {
        let events = events.iter().map(|(key, revision)| event(key, *revision)).collect();
        WatchResponse { events, fragment, ..WatchResponse::default() }
    }

    fn told(sieve: &mut Sieve) -> Vec<(String, u64)> {
        sieve.ready().into_iter().map(|change| (change.key, change.revision.0)).collect()
    }

    #[test]
    fn a_revision_is_told_when_all_of_it_is_there() {
        let mut sieve = Sieve::new(Revision(4));
        sieve.take(message(&[("/old", 4), ("/a", 5), ("/a", 6)], true)).expect("sound");
        assert_eq!(told(&mut sieve), [("/a".to_owned(), 5)], "more of 6 may come");
        sieve.take(message(&[("/b", 6)], true)).expect("sound");
        assert_eq!(told(&mut sieve), []);
        sieve.take(message(&[("/c", 6), ("/a", 7)], false)).expect("sound");
        let expected = [("/a", 6), ("/b", 6), ("/c", 6), ("/a", 7)];
        assert_eq!(told(&mut sieve), expected.map(|(key, revision)| (key.to_owned(), revision)));
    }

    #[test]
    fn what_was_told_is_not_told_again() {
        let mut sieve = Sieve::new(Revision(4));
        sieve.take(message(&[("/a", 5), ("/b", 5)], false)).expect("sound");
        assert_eq!(told(&mut sieve).len(), 2);
        sieve.take(message(&[("/a", 5), ("/b", 5), ("/a", 6)], false)).expect("sound");
        assert_eq!(told(&mut sieve), [("/a".to_owned(), 6)]);
        sieve.take(message(&[("/a", 7)], true)).expect("sound");
        sieve.take(message(&[("/a", 7), ("/b", 7)], false)).expect("sound");
        assert_eq!(told(&mut sieve), [("/a".to_owned(), 7), ("/b".to_owned(), 7)]);
    }

    #[test]
    fn what_cannot_be_followed_ends_the_watch() {
        let mut sieve = Sieve::new(Revision(4));
        assert!(sieve.take(message(&[("/a", 9), ("/a", 8)], true)).is_err(), "backwards");
        let mut sieve = Sieve::new(Revision(4));
        let none = WatchResponse { events: vec![Event { kind: 0, kv: None }], ..WatchResponse::default() };
        assert!(sieve.take(none).is_err());
        let compacted = WatchResponse { compact_revision: 7, canceled: true, ..WatchResponse::default() };
        assert_eq!(sieve.take(compacted), Err(StoreError::Compacted { oldest: Revision(7) }));
        let cancelled = WatchResponse { canceled: true, ..WatchResponse::default() };
        assert!(matches!(sieve.take(cancelled), Err(StoreError::NotDone(_))));
    }
}
