//! Files of volumes of this machine as targets (`holdfast://volume/path/file`): what the engine costs without a protocol.
//!
//! The node's disks are opened here, so it must not run. A lane hands what was queued to its shard in one piece; the
//! shard's tasks do it and tell the lane of its ends. What is measured so includes the way between the two threads.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::Durability;
use control_api::{Code, Problem};
use control_server::local::{LocalVolumes, problem};
use file_store::{OpenFile, StoreError, StoreErrorKind};
use shard_runtime::{Entropy as _, SeededEntropy};
use spd_engine::{
    Backend, Confirm, Data, Done, EngineError, Lane, LaneFailure, LanePlan, Op, Preparation, fits, may_lose,
};
use spd_profile::{Target, display_size};

/// How such addresses begin.
const SCHEME: &str = "holdfast://";
/// Bytes that are written at once when a file is made.
const CHUNK: u64 = 1 << 20;
/// Threads of the control plane while nothing is served.
const CONTROL_THREADS: usize = 2;

/// Whether a path names a file of a volume.
pub(super) fn is_url(path: &str) -> bool {
    path.starts_with(SCHEME)
}

/// The volume and the path in it.
fn parse(address: &str) -> Result<(String, String), EngineError> {
    let parts = address.strip_prefix(SCHEME).and_then(|rest| rest.split_once('/'));
    match parts {
        Some((volume, path)) if !volume.is_empty() && !path.trim_matches('/').is_empty() => {
            Ok((volume.to_owned(), format!("/{path}")))
        }
        _ => Err(EngineError(format!("'{address}' names no file of a volume: {SCHEME}volume/path/file"))),
    }
}

/// A problem on one line.
fn told(problem: &Problem) -> String {
    match &problem.todo {
        Some(todo) => format!("{} {todo}", problem.detail),
        None => problem.detail.clone(),
    }
}

/// The volumes, and the runtime that they are opened and closed on.
struct Node {
    volumes: Arc<LocalVolumes>,
    runtime: tokio::runtime::Runtime,
}

impl Node {
    fn open(data: Option<&str>) -> Result<Self, EngineError> {
        let data = data.ok_or_else(|| {
            EngineError(format!(
                "{SCHEME} targets are volumes of a node that does not run: which one? --data=DIRECTORY, or HOLDFAST_SPD_DATA"
            ))
        })?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(CONTROL_THREADS)
            .enable_all()
            .build()
            .map_err(|error| EngineError(format!("no threads for the node's volumes: {error}")))?;
        let volumes = runtime
            .block_on(LocalVolumes::open(Path::new(data)))
            .map_err(|why| EngineError(format!("--data {data}: {}", told(&why))))?;
        Ok(Self { volumes: Arc::new(volumes), runtime })
    }

    /// Runs work on a shard and waits for its result.
    fn on_shard<T, F, W>(&self, work: W) -> Result<T, EngineError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + 'static,
        W: FnOnce() -> F + Send + 'static,
    {
        let (send, receive) = channel();
        let job = move || -> std::pin::Pin<Box<dyn Future<Output = ()>>> {
            Box::pin(async move {
                // Whoever asked waits for it.
                let _ = send.send(work().await);
            })
        };
        self.volumes.spawn(0, Box::new(job));
        match receive.recv() {
            Ok(result) => result.map_err(|error| EngineError(told(&problem(&error)))),
            Err(_) => Err(EngineError("the shard has ended".into())),
        }
    }
}

/// One target, opened.
struct Opened {
    file: Arc<dyn OpenFile>,
    size: u64,
    durability: Durability,
}

/// Files of volumes, found and checked.
pub(super) struct VolumeBackend {
    volumes: Arc<LocalVolumes>,
    sizes: Vec<u64>,
    /// Taken when it is closed.
    inside: parking_lot::Mutex<Option<(Node, Vec<Opened>)>>,
}

impl VolumeBackend {
    /// Opens the volumes of the node whose data directory `data` is, makes files (-c), and asks before anything is lost: a
    /// file of a volume has no mark that says who made it.
    ///
    /// # Errors
    /// When a node runs there, or a file cannot be made or opened, or its loss was not agreed to.
    pub(super) fn open(
        targets: &[Target],
        paths: &[String],
        data: Option<&str>,
        how: Preparation,
        confirm: &dyn Confirm,
    ) -> Result<Self, EngineError> {
        let addresses: Vec<_> = paths.iter().map(|path| parse(path)).collect::<Result<_, _>>()?;
        let node = Node::open(data)?;
        let opened = targets
            .iter()
            .zip(paths.iter().zip(&addresses))
            .map(|(target, (path, (volume, file)))| open(&node, target, (path, volume, file), how, confirm))
            .collect::<Result<Vec<_>, _>>();
        match opened {
            Ok(opened) => {
                let sizes = opened.iter().map(|opened| opened.size).collect();
                let volumes = Arc::clone(&node.volumes);
                Ok(Self { volumes, sizes, inside: parking_lot::Mutex::new(Some((node, opened))) })
            }
            Err(why) => {
                // The first reason is the one to tell.
                let _ = node.runtime.block_on(node.volumes.close());
                Err(why)
            }
        }
    }
}

/// Makes a file if that is asked for, and opens it.
fn open(
    node: &Node,
    target: &Target,
    (shown, volume, path): (&str, &str, &str),
    how: Preparation,
    confirm: &dyn Confirm,
) -> Result<Opened, EngineError> {
    let wrong = |why: Problem| EngineError(format!("'{shown}': {}", told(&why)));
    let writes = target.write_percent > 0 || how.verify;
    let there = node.runtime.block_on(node.volumes.size(volume, path)).map_err(wrong)?;
    match there {
        Some(size) if size > 0 && (writes || target.create.is_some()) => {
            may_lose(confirm, &format!("file {shown} ({})", display_size(size)))?;
        }
        None if target.create.is_none() => {
            return Err(EngineError(format!("'{shown}' does not exist: make it with -c<size>")));
        }
        _ => {}
    }
    if let Some(size) = target.create {
        node.runtime.block_on(node.volumes.make(volume, path)).map_err(wrong)?;
        let file = node.runtime.block_on(node.volumes.file(volume, path, true)).map_err(wrong)?;
        if let Err(why) = fill(node, &file, shown, size, how.sparse, confirm) {
            drop(file);
            // Half a file would be taken for a whole one by the next run. The first reason is the one to tell.
            let _ = node.runtime.block_on(node.volumes.make(volume, path));
            return Err(EngineError(format!("{why}; it is empty now")));
        }
    }
    let file =
        node.runtime.block_on(node.volumes.file(volume, path, writes)).map_err(|why| match why.code {
            Code::InUse => EngineError(format!("'{shown}' is open elsewhere: {}", why.detail)),
            _ => wrong(why),
        })?;
    let size = file.size();
    fits(target, size)?;
    let durability = if target.write_through { Durability::Durable } else { Durability::Volatile };
    Ok(Opened { file, size, durability })
}

/// Gives a new file its size, and content that neither compresses nor repeats unless it may be sparse.
fn fill(
    node: &Node,
    file: &Arc<dyn OpenFile>,
    shown: &str,
    size: u64,
    sparse: bool,
    confirm: &dyn Confirm,
) -> Result<(), EngineError> {
    let failed = |why: EngineError| EngineError(format!("cannot make '{shown}' (-c): {why}"));
    let resized = Arc::clone(file);
    node.on_shard(move || async move { resized.set_size(size).await }).map_err(failed)?;
    let random = SeededEntropy::new(0x5bd);
    let mut at = if sparse { size } else { 0 };
    while at < size {
        if !confirm.made(shown, at, size) {
            return Err(EngineError(format!("making '{shown}' was interrupted")));
        }
        let mut piece = IoBuf::new((size - at).min(CHUNK) as usize);
        random.fill(&mut piece);
        let (file, piece, from) = (Arc::clone(file), piece.freeze(), at);
        at += piece.len() as u64;
        node.on_shard(move || async move { file.write(from, piece, Durability::Volatile).await })
            .map_err(failed)?;
    }
    let file = Arc::clone(file);
    node.on_shard(move || async move { file.flush().await }).map_err(failed)
}

impl Backend for VolumeBackend {
    fn sizes(&self) -> Vec<u64> {
        self.sizes.clone()
    }

    fn lane(&self, plan: &LanePlan<'_>) -> Result<Box<dyn Lane>, EngineError> {
        let inside = self.inside.lock();
        let all = inside.as_ref().map(|(_, opened)| opened.as_slice()).unwrap_or_default();
        let targets: Option<Vec<_>> = plan
            .targets
            .iter()
            .map(|target| all.get(*target).map(|opened| (Arc::clone(&opened.file), opened.durability)))
            .collect();
        let Some(targets) = targets else { return Err(EngineError("no such target".into())) };
        let slots = plan.slots.iter().map(|slot| Slot {
            read: IoBuf::new(slot.read),
            write: IoBuf::zeroed(slot.write),
            ..Slot::default()
        });
        let (ends, inbox) = channel();
        Ok(Box::new(VolumeLane {
            volumes: Arc::clone(&self.volumes),
            shard: plan.thread % self.volumes.shards().max(1),
            targets,
            slots: slots.collect(),
            source: IoBuf::copy_from(plan.source).freeze(),
            queued: Vec::with_capacity(plan.slots.len()),
            under_way: 0,
            ends,
            inbox,
        }))
    }

    fn close(&self) -> Result<(), EngineError> {
        let Some((node, opened)) = self.inside.lock().take() else { return Ok(()) };
        drop(opened);
        node.runtime.block_on(node.volumes.close()).map_err(|why| EngineError(told(&why)))
    }
}

impl Drop for VolumeBackend {
    fn drop(&mut self) {
        // Where nobody has closed it the run has failed before, and that is told.
        let _ = self.close();
    }
}

/// One thread's way to its shard.
struct VolumeLane {
    volumes: Arc<LocalVolumes>,
    shard: usize,
    targets: Vec<(Arc<dyn OpenFile>, Durability)>,
    slots: Vec<Slot>,
    source: SharedBuf,
    queued: Vec<Work>,
    under_way: usize,
    ends: Sender<End>,
    inbox: Receiver<End>,
}

/// One request's buffers, and what is under way with them.
struct Slot {
    read: IoBuf,
    write: IoBuf,
    op: Option<Op>,
    /// What of the read buffer is longer than the operation.
    rest: IoBuf,
    /// The write buffer while an operation has it.
    lent: Option<SharedBuf>,
}

impl Default for Slot {
    fn default() -> Self {
        Self { read: IoBuf::new(0), write: IoBuf::new(0), op: None, rest: IoBuf::new(0), lent: None }
    }
}

/// An operation for the shard.
struct Work {
    slot: usize,
    file: Arc<dyn OpenFile>,
    offset: u64,
    kind: Kind,
}

enum Kind {
    Read(IoBuf),
    Write(SharedBuf, Durability),
}

/// How it ended, with what was read.
struct End {
    slot: usize,
    result: Result<Option<IoBuf>, StoreError>,
}

impl Work {
    async fn carry_out(self) -> End {
        let result = match self.kind {
            Kind::Read(buf) => self.file.read(self.offset, buf).await.map(Some),
            Kind::Write(data, durability) => {
                self.file.write(self.offset, data, durability).await.map(|()| None)
            }
        };
        End { slot: self.slot, result }
    }
}

/// An error of the volume as one of an operation.
fn failure(error: &StoreError) -> LaneFailure {
    let gone = matches!(
        error.kind(),
        StoreErrorKind::NoSpace
            | StoreErrorKind::ReadOnly
            | StoreErrorKind::Stopped
            | StoreErrorKind::AccessDenied
            | StoreErrorKind::InvalidArgument
    );
    LaneFailure::Other(problem(error).detail, gone)
}

impl VolumeLane {
    /// Hands over what was queued, in one piece.
    fn begin(&mut self) {
        if self.queued.is_empty() {
            return;
        }
        let batch = std::mem::replace(&mut self.queued, Vec::with_capacity(self.slots.len()));
        self.under_way += batch.len();
        let ends = self.ends.clone();
        let job = move || -> std::pin::Pin<Box<dyn Future<Output = ()>>> {
            Box::pin(async move {
                for work in batch {
                    let ends = ends.clone();
                    shard_runtime::spawn_local(async move {
                        // A lane that is gone does not wait for ends.
                        let _ = ends.send(work.carry_out().await);
                    });
                }
            })
        };
        self.volumes.spawn(self.shard, Box::new(job));
    }

    fn take(&mut self, end: End, done: &mut Vec<Done>) {
        self.under_way = self.under_way.saturating_sub(1);
        let Some(slot) = self.slots.get_mut(end.slot) else { return };
        let Some(op) = slot.op.take() else { return };
        if let Some(lent) = slot.lent.take() {
            // A store that still holds it, for a cache, keeps its own.
            slot.write = lent.try_unfreeze().unwrap_or_else(|lent| IoBuf::copy_from(&lent));
        }
        let result = match end.result {
            Ok(Some(data)) => slot.back(data, op.len as usize),
            Ok(None) => Ok(()),
            Err(error) => {
                if op.data == Data::Read {
                    slot.read = IoBuf::new(op.len as usize + slot.rest.len());
                }
                Err(failure(&error))
            }
        };
        done.push(Done { slot: end.slot, result });
    }
}

impl Slot {
    /// Puts the read buffer together again.
    fn back(&mut self, data: IoBuf, len: usize) -> Result<(), LaneFailure> {
        let moved = data.len();
        let rest = std::mem::replace(&mut self.rest, IoBuf::new(0));
        let whole = len + rest.len();
        self.read = data;
        if moved == len && self.read.join(rest).is_ok() {
            return Ok(());
        }
        // Fewer bytes, or in another buffer.
        let mut read = IoBuf::zeroed(whole);
        read.iter_mut().zip(self.read.iter()).for_each(|(to, from)| *to = *from);
        self.read = read;
        if moved == len { Ok(()) } else { Err(LaneFailure::Short(moved as u32)) }
    }
}

impl Lane for VolumeLane {
    fn read_buffer(&mut self, slot: usize) -> &mut [u8] {
        match self.slots.get_mut(slot) {
            Some(slot) if slot.op.is_none() => &mut slot.read,
            _ => &mut [],
        }
    }

    fn write_buffer(&mut self, slot: usize) -> &mut [u8] {
        match self.slots.get_mut(slot) {
            Some(slot) if slot.op.is_none() => &mut slot.write,
            _ => &mut [],
        }
    }

    fn queue(&mut self, op: &Op) -> io::Result<()> {
        let wrong = |what| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        let Some(slot) = self.slots.get_mut(op.slot).filter(|slot| slot.op.is_none()) else {
            return wrong("no such slot, or it is busy");
        };
        let Some((file, durability)) = self.targets.get(op.target) else { return wrong("no such target") };
        let len = op.len as usize;
        let kind = match op.data {
            Data::Read if len <= slot.read.len() => {
                let mut rest = std::mem::replace(&mut slot.read, IoBuf::new(0));
                let head = rest.split_to(len);
                slot.rest = rest;
                Kind::Read(head)
            }
            Data::Write if len <= slot.write.len() => {
                let whole = std::mem::replace(&mut slot.write, IoBuf::new(0)).freeze();
                let part = whole.slice(0..len);
                slot.lent = Some(whole);
                Kind::Write(part, *durability)
            }
            Data::WriteSource(at) if at.checked_add(len).is_some_and(|end| end <= self.source.len()) => {
                Kind::Write(self.source.slice(at..at + len), *durability)
            }
            _ => return wrong("the operation is longer than its buffer"),
        };
        slot.op = Some(*op);
        self.queued.push(Work { slot: op.slot, file: Arc::clone(file), offset: op.offset, kind });
        Ok(())
    }

    fn wait(&mut self, timeout: Option<Duration>, done: &mut Vec<Done>) -> io::Result<()> {
        let timeout = timeout.unwrap_or(Duration::from_secs(1));
        self.begin();
        if self.under_way == 0 {
            std::thread::park_timeout(timeout);
            return Ok(());
        }
        match self.inbox.recv_timeout(timeout) {
            Ok(end) => self.take(end, done),
            Err(RecvTimeoutError::Timeout) => return Ok(()),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(io::Error::other("the volume's shard has ended"));
            }
        }
        while let Ok(end) = self.inbox.try_recv() {
            self.take(end, done);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        assert_eq!(parse("holdfast://vm/a/b.dat").ok(), Some(("vm".into(), "/a/b.dat".into())));
        for wrong in ["holdfast://vm", "holdfast://vm/", "holdfast:///f", "holdfast://", "vm/f"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_read_buffer_is_whole_again_whatever_comes_back() {
        for (moved, other) in [(4096, false), (4096, true), (100, true)] {
            let mut slot = Slot { rest: IoBuf::zeroed(8192), ..Slot::default() };
            let mut head = slot.rest.split_to(4096);
            if other {
                head = IoBuf::zeroed(moved);
            }
            head.fill(7);
            let result = slot.back(head, 4096);
            assert_eq!((slot.read.len(), slot.read[..moved].iter().all(|byte| *byte == 7)), (8192, true));
            assert_eq!(result.is_ok(), moved == 4096);
        }
    }
}
