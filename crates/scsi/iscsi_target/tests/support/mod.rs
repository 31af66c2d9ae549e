//! A small disk in memory, shards of plain threads, and an initiator of raw PDUs.
#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    reason = "shared by tests and the example, each using a part"
)]

pub mod initiator;

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::time::Duration;

use aligned_buffer::{IoBuf, SharedBuf};
use parking_lot::{Mutex, RwLock};
use scsi_core::*;
use tcp_service::{ShardJob, Spawner};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// Threads with a `current_thread` runtime each.
pub struct Threads(Vec<UnboundedSender<ShardJob>>);

impl Threads {
    pub fn start(count: usize) -> Arc<Self> {
        let (ready, wait) = mpsc::channel();
        let senders = (0..count).map(|_| {
            let (send, mut jobs) = unbounded_channel::<ShardJob>();
            let ready = ready.clone();
            std::thread::spawn(move || {
                let runtime =
                    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
                let local = tokio::task::LocalSet::new();
                let _ = ready.send(());
                local.block_on(&runtime, async move {
                    shard_runtime::adopt_detached_work();
                    while let Some(job) = jobs.recv().await {
                        tokio::task::spawn_local(job());
                    }
                });
            });
            send
        });
        let senders: Vec<_> = senders.collect();
        for _ in 0..count {
            wait.recv().expect("thread");
        }
        Arc::new(Self(senders))
    }
}

impl Spawner for Threads {
    fn shards(&self) -> usize {
        self.0.len()
    }
    fn spawn(&self, shard: usize, job: ShardJob) {
        assert!(self.0[shard].send(job).is_ok(), "shard is gone");
    }
}

/// Blocks of the disk.
pub const BLOCK: usize = 512;

/// A disk in memory at LUN 0; any other LUN is absent. CDB 0xff never ends (for aborts).
pub struct MemoryDisk {
    pub bytes: RwLock<Vec<u8>>,
    pub established: AtomicUsize,
    pub lost: AtomicUsize,
    pub functions: Mutex<Vec<TaskManagement>>,
    /// First CDB bytes in the order of their start.
    pub started: Mutex<Vec<u8>>,
    pub hanging: Arc<AtomicUsize>,
    /// Its nexuses do not reach each other's units.
    pub apart: AtomicBool,
}

impl MemoryDisk {
    pub fn new(len: usize) -> Arc<Self> {
        Arc::new(Self {
            bytes: RwLock::new(vec![0; len]),
            established: AtomicUsize::new(0),
            lost: AtomicUsize::new(0),
            functions: Mutex::default(),
            started: Mutex::default(),
            hanging: Arc::default(),
            apart: AtomicBool::new(false),
        })
    }

    fn run(&self, lun: WireLun, command: &ScsiCommand) -> ScsiResponse {
        let cdb = &command.cdb;
        let be = |at: usize, len: usize| {
            cdb[at..at + len].iter().fold(0u64, |v, b| v << 8 | u64::from(*b)) as usize
        };
        if lun.number() != Some(0) && !matches!(cdb[0], 0x12 | 0xa0) {
            return check(5, 0x25, 0);
        }
        let size = self.bytes.read().len();
        match cdb[0] {
            0x00 => good(None, 0),
            0x12 => {
                let mut data = vec![0; 36];
                data[0] = if lun.number() == Some(0) { 0 } else { 0x7f };
                (data[2], data[3], data[4], data[7]) = (6, 2, 31, 2);
                data[8..36].copy_from_slice(b"HOLDFASTMEMORY DISK     0001");
                reply(&data, be(3, 2))
            }
            0x25 => {
                let mut data = ((size / BLOCK - 1) as u32).to_be_bytes().to_vec();
                data.extend_from_slice(&(BLOCK as u32).to_be_bytes());
                reply(&data, 8)
            }
            0x9e => {
                let mut data = ((size / BLOCK - 1) as u64).to_be_bytes().to_vec();
                data.extend_from_slice(&(BLOCK as u32).to_be_bytes());
                data.resize(32, 0);
                reply(&data, be(10, 4))
            }
            0xa0 => reply(&[0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], be(6, 4)),
            0x1a => reply(&[3, 0, 0, 0], be(4, 1)),
            0x28 | 0x88 => {
                let (lba, blocks) = if cdb[0] == 0x28 { (be(2, 4), be(7, 2)) } else { (be(2, 8), be(10, 4)) };
                let (at, len) = (lba * BLOCK, blocks * BLOCK);
                if at + len > size {
                    return check(5, 0x21, 0);
                }
                let mut buf = IoBuf::new(len);
                buf.copy_from_slice(&self.bytes.read()[at..at + len]);
                good(Some(buf.freeze()), len)
            }
            0x2a | 0x8a => {
                let (lba, blocks) = if cdb[0] == 0x2a { (be(2, 4), be(7, 2)) } else { (be(2, 8), be(10, 4)) };
                let (at, len) = (lba * BLOCK, blocks * BLOCK);
                if at + len > size {
                    return check(5, 0x21, 0);
                }
                let here = command.data_out.len().min(len);
                self.bytes.write()[at..at + here].copy_from_slice(&command.data_out[..here]);
                good(None, len)
            }
            _ => check(5, 0x20, 0),
        }
    }
}

fn good(data_in: Option<SharedBuf>, len: usize) -> ScsiResponse {
    ScsiResponse { status: ScsiStatus::Good, sense: Vec::new(), data_in, transfer_length: len as u64 }
}

fn reply(data: &[u8], allocation: usize) -> ScsiResponse {
    let data = &data[..data.len().min(allocation)];
    good(Some(IoBuf::copy_from(data).freeze()), data.len())
}

fn check(key: u8, asc: u8, ascq: u8) -> ScsiResponse {
    let sense = vec![0x70, 0, key, 0, 0, 0, 0, 10, 0, 0, 0, 0, asc, ascq, 0, 0, 0, 0];
    ScsiResponse { status: ScsiStatus::CheckCondition, sense, data_in: None, transfer_length: 0 }
}

struct Hang(Arc<AtomicUsize>);

impl Drop for Hang {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl ScsiDevice for MemoryDisk {
    fn reaches(&self, _: &Arc<Nexus>, _: &Arc<Nexus>) -> bool {
        !self.apart.load(Ordering::SeqCst)
    }
    fn nexus_established(&self, _: &Arc<Nexus>) {
        self.established.fetch_add(1, Ordering::SeqCst);
    }
    fn nexus_lost(&self, _: &Arc<Nexus>) {
        assert_eq!(self.hanging.load(Ordering::SeqCst), 0, "commands are dropped before the nexus is lost");
        self.lost.fetch_add(1, Ordering::SeqCst);
    }
    fn execute<'a>(
        &'a self,
        _: &'a Arc<Nexus>,
        lun: WireLun,
        command: ScsiCommand,
    ) -> ScsiFuture<'a, Option<ScsiResponse>> {
        Box::pin(async move {
            if command.cdb[0] == 0xff {
                self.hanging.fetch_add(1, Ordering::SeqCst);
                let _hang = Hang(Arc::clone(&self.hanging));
                std::future::poll_fn(|_| Poll::<()>::Pending).await;
            }
            if cfg!(debug_assertions) {
                self.started.lock().push(command.cdb[0]);
            }
            Some(self.run(lun, &command))
        })
    }
    fn task_management<'a>(
        &'a self,
        _: &'a Arc<Nexus>,
        lun: WireLun,
        function: TaskManagement,
    ) -> ScsiFuture<'a, TaskManagementOutcome> {
        Box::pin(async move {
            assert_eq!(self.hanging.load(Ordering::SeqCst), 0, "the transport stops its own commands first");
            self.functions.lock().push(function);
            if lun.number() == Some(0) {
                TaskManagementOutcome::Complete
            } else {
                TaskManagementOutcome::IncorrectLun
            }
        })
    }
}

/// Waits until `condition` holds, for at most ten seconds.
pub fn eventually(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..2000 {
        if condition() {
            return;
        }
        std::thread::park_timeout(Duration::from_millis(5));
    }
    panic!("never happened: {what}");
}

/// Random bytes for challenges.
pub fn random() -> Arc<dyn shard_runtime::Entropy> {
    Arc::new(shard_runtime::SystemEntropy)
}

pub type Boxed = Pin<Box<dyn Future<Output = ()>>>;
