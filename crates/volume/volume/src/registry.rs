//! Who uses what: opens, the streams in memory, and removed files that wait for their last user.
//!
//! ```text
//!   Handle ──► entry in `opens` (access, sharing), gone when the handle is dropped
//!      └─────► Arc<Pin> ◄── operations in flight, also after the handle is gone
//!                 └──► the stream in memory; exactly one for each stream of the volume
//! ```
//! Invariants:
//! * While anybody can change a stream's extents or size, it is in `streams`, and whoever opens it gets that one.
//!   So no two maps of one stream exist, and none is older than the database.
//! * Streams enter only on the metadata thread, in the change that read their extents; what was committed before
//!   is in what was read, and what is committed later is done by the stream that entered.
//! * A removed file keeps its extents until no stream of it is pinned.
//!
//! The lock is held for look-ups only; nothing else is locked or waited for meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use file_store::{Access, Share, StoreError, StoreErrorKind};
use shard_runtime::Monotonic;

use crate::ahead::{Ahead, Leftover};
use crate::stream::{Stream, Unsaved};
use crate::tables::StreamKey;

/// The opens and pinned streams of a volume.
#[derive(Default)]
pub(crate) struct Registry {
    last: u64,
    opens: BTreeMap<u64, BTreeMap<u64, Open>>,
    streams: BTreeMap<StreamKey, Pinned>,
    unsaved: BTreeMap<StreamKey, Unsaved>,
    /// What was mapped ahead and not used, until it is given back.
    leftovers: BTreeMap<StreamKey, Leftover>,
    /// Files without a name that somebody still uses.
    orphans: std::collections::BTreeSet<u64>,
}

struct Open {
    stream: u32,
    access: Access,
    share: Share,
}

struct Pinned {
    stream: Arc<Stream>,
    pins: usize,
}

impl Registry {
    /// Whether an open with this access and sharing can join those of the stream.
    pub(crate) fn check(
        &self,
        (file, stream): StreamKey,
        access: Access,
        share: Share,
    ) -> Result<(), StoreError> {
        let allows = |share: &Share, access: &Access| {
            (share.read || !access.read) && (share.write || !access.write) && (share.delete || !access.delete)
        };
        let mut others = self.opens.get(&file).into_iter().flat_map(BTreeMap::values);
        let refused = others.any(|other| {
            other.stream == stream && !(allows(&other.share, &access) && allows(&share, &other.access))
        });
        if refused {
            let detail = format!("file {file} is open in a way that does not share this access");
            return Err(StoreError::new(StoreErrorKind::SharingViolation, detail));
        }
        Ok(())
    }

    /// Counts an open in and gives its number.
    pub(crate) fn add_open(&mut self, (file, stream): StreamKey, access: Access, share: Share) -> u64 {
        self.last += 1;
        self.opens.entry(file).or_default().insert(self.last, Open { stream, access, share });
        self.last
    }

    pub(crate) fn remove_open(&mut self, file: u64, id: u64) {
        if let Some(opens) = self.opens.get_mut(&file) {
            opens.remove(&id);
            if opens.is_empty() {
                self.opens.remove(&file);
            }
        }
    }

    /// An error if an open of the file does not share deletion.
    pub(crate) fn check_delete(&self, file: u64) -> Result<(), StoreError> {
        let mut opens = self.opens.get(&file).into_iter().flat_map(BTreeMap::values);
        if opens.any(|open| !open.share.delete) {
            let detail = "it is open by someone who does not share deletion: a client, a LUN, or a child of this image";
            return Err(StoreError::new(StoreErrorKind::SharingViolation, detail));
        }
        Ok(())
    }

    /// An error if another open of the stream keeps its size. Who does not share deletion keeps the file as it is, and changes its
    /// size itself: `by` is the open that would, if it is one.
    pub(crate) fn check_resize(&self, (file, stream): StreamKey, by: Option<u64>) -> Result<(), StoreError> {
        let Some(opens) = self.opens.get(&file) else { return Ok(()) };
        let own = by.and_then(|id| opens.get(&id)).is_some_and(|open| !open.share.delete);
        if !own && opens.values().any(|open| open.stream == stream && !open.share.delete) {
            let detail = format!("file {file} is open by someone who keeps its size");
            return Err(StoreError::new(StoreErrorKind::SharingViolation, detail));
        }
        Ok(())
    }

    /// The files with an open that does not share deletion.
    pub(crate) fn kept(&self) -> Vec<u64> {
        let is_kept = |opens: &BTreeMap<u64, Open>| opens.values().any(|open| !open.share.delete);
        self.opens.iter().filter(|(_, opens)| is_kept(opens)).map(|(file, _)| *file).collect()
    }

    /// The file loses its name. If somebody uses it, the content goes with the last of them (true); else the
    /// caller deletes it.
    pub(crate) fn begin_removal(&mut self, file: u64) -> bool {
        let used = self.is_pinned(file);
        if used {
            self.orphans.insert(file);
        }
        used
    }

    fn is_pinned(&self, file: u64) -> bool {
        self.streams.range((file, 0)..=(file, u32::MAX)).next().is_some()
    }

    /// The stream in memory, if there is one.
    pub(crate) fn stream(&self, key: StreamKey) -> Option<&Arc<Stream>> {
        self.streams.get(&key).map(|pinned| &pinned.stream)
    }

    /// All streams in memory.
    pub(crate) fn streams(&self) -> Vec<Arc<Stream>> {
        self.streams.values().map(|pinned| Arc::clone(&pinned.stream)).collect()
    }

    /// Those that were written, and of which the database does not know when.
    pub(crate) fn streams_written(&self) -> Vec<Arc<Stream>> {
        let streams = self.streams.values().map(|pinned| &pinned.stream);
        streams.filter(|stream| stream.written.load(Ordering::Acquire) > 0).cloned().collect()
    }

    /// Those that are longer than the database knows.
    pub(crate) fn streams_grown(&self) -> Vec<Arc<Stream>> {
        let streams = self.streams.values().map(|pinned| &pinned.stream);
        streams.filter(|stream| stream.size() > stream.durable_size()).cloned().collect()
    }

    /// Those that have space ahead of need, or of which the database says so.
    pub(crate) fn streams_ahead(&self) -> Vec<Arc<Stream>> {
        let streams = self.streams.values().map(|pinned| &pinned.stream);
        streams.filter(|stream| stream.ahead.clusters() > 0 || stream.ahead.is_recorded()).cloned().collect()
    }

    /// One more user of a stream in memory.
    pub(crate) fn pin(&mut self, key: StreamKey) -> Option<Arc<Stream>> {
        let pinned = self.streams.get_mut(&key)?;
        pinned.pins += 1;
        Some(Arc::clone(&pinned.stream))
    }

    /// Puts a stream that was just read in memory, with one user. What its last user left unsaved is newer than
    /// what was read. On the metadata thread, which alone adds streams.
    pub(crate) fn enter(&mut self, mut stream: Stream, now: Monotonic) -> Arc<Stream> {
        let key = stream.key;
        if let Some(left) = self.leftovers.remove(&key) {
            stream.ahead = Ahead::of(left, now);
        }
        if let Some(unsaved) = self.unsaved.remove(&key) {
            stream.size.store(unsaved.size, Ordering::Release);
            stream.written.store(unsaved.written, Ordering::Release);
        }
        let stream = Arc::new(stream);
        self.streams.insert(key, Pinned { stream: Arc::clone(&stream), pins: 1 });
        stream
    }

    /// What was unused of a stream that is not in memory.
    pub(crate) fn take_leftover(&mut self, key: StreamKey) -> Option<Leftover> {
        self.leftovers.remove(&key)
    }

    pub(crate) fn unsaved(&self, key: StreamKey) -> Option<Unsaved> {
        self.unsaved.get(&key).copied()
    }

    pub(crate) fn all_unsaved(&self) -> Vec<(StreamKey, Unsaved)> {
        self.unsaved.iter().map(|(key, unsaved)| (*key, *unsaved)).collect()
    }

    /// Takes what is unsaved of a stream, if it is still what it was.
    pub(crate) fn take_unsaved(&mut self, key: StreamKey, known: Unsaved) -> bool {
        let same = self.unsaved.get(&key) == Some(&known);
        if same {
            self.unsaved.remove(&key);
        }
        same
    }

    /// Forgets when the streams of a file were last written.
    pub(crate) fn forget_written(&mut self, file: u64) {
        for (_, pinned) in self.streams.range((file, 0)..=(file, u32::MAX)) {
            pinned.stream.written.store(0, Ordering::Release);
        }
        for (_, unsaved) in self.unsaved.range_mut((file, 0)..=(file, u32::MAX)) {
            unsaved.written = 0;
        }
    }

    /// Forgets what is unsaved of a file that goes.
    pub(crate) fn forget_unsaved(&mut self, file: u64) {
        self.unsaved.retain(|(of, _), _| *of != file);
    }

    /// One user less; what is to be done when it was the last.
    pub(crate) fn unpin(&mut self, stream: &Stream) -> Left {
        let Some(pinned) = self.streams.get_mut(&stream.key) else { return Left::default() };
        pinned.pins -= 1;
        if pinned.pins > 0 {
            return Left::default();
        }
        self.streams.remove(&stream.key);
        let file = stream.key.0;
        if self.orphans.contains(&file) {
            if self.is_pinned(file) {
                return Left::default();
            }
            self.orphans.remove(&file);
            return Left { delete: true, ..Left::default() };
        }
        let (unsaved, unused) = (stream.unsaved(), stream.ahead.take());
        let left = Left { save: unsaved.is_some(), give_back: !unused.is_empty(), delete: false };
        self.unsaved.extend(unsaved.map(|unsaved| (stream.key, unsaved)));
        if left.give_back {
            self.leftovers.insert(stream.key, unused);
        }
        left
    }
}

/// What is to be done after the last user of a stream.
#[derive(Default)]
pub(crate) struct Left {
    /// Its size and time are to be saved.
    pub(crate) save: bool,
    /// What was mapped ahead and not used is to be given back.
    pub(crate) give_back: bool,
    /// Its file is to be deleted.
    pub(crate) delete: bool,
}
