//! Every command, dropped at each of its waits, by an abort and with its session; what must hold after it.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aligned_buffer::SharedBuf;
use block_device::Durability;
use file_store::{Access, Attributes, FileKind, FileStore, MemoryStore, NewFile, OpenFile, OpenOptions};
use scsi_defs::cdb::COMMANDS;
use scsi_defs::{Effect, Op};
use test_layers::{FileLayer, Layered, Left, OnDrop, slow, until_wait};

use super::going_on::copy_list;
use super::*;
use crate::reservations::Reservations;
use crate::sanitize::Sanitize;

/// Blocks of a unit: more than a step of a long command.
const LENGTH: u64 = 3 << 11;
const OLD: u8 = b'o';
const NEW: u8 = b'n';
/// What the second initiator writes as soon as the command is dropped.
const AFTER: u8 = b'a';
/// Where commands write, in blocks; how many follows from the command.
const AT: u64 = 8;

/// How a command is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    /// ABORT TASK, or the loss of one of several connections.
    Abort,
    /// The session is lost.
    Session,
}

/// A file that knows whether it has writes that no flush covers.
struct Tracked {
    file: Arc<dyn OpenFile>,
    written: AtomicU64,
    flushed: AtomicU64,
}

impl FileLayer for Tracked {
    fn below(&self) -> &dyn OpenFile {
        &*self.file
    }

    fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.file.write(offset, data, durability).await?;
            if durability == Durability::Volatile {
                self.written.fetch_add(1, Ordering::SeqCst);
            }
            Ok(())
        })
    }

    fn zero_range(&self, offset: u64, len: u64, durability: Durability) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.file.zero_range(offset, len, durability).await?;
            if durability == Durability::Volatile {
                self.written.fetch_add(1, Ordering::SeqCst);
            }
            Ok(())
        })
    }

    fn flush(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let covers = self.written.load(Ordering::SeqCst);
            self.file.flush().await?;
            self.flushed.fetch_max(covers, Ordering::SeqCst);
            Ok(())
        })
    }
}

/// Two units that two initiators see, in two files of a slow volume.
struct World {
    rig: Rig,
    units: [Arc<LogicalUnit>; 2],
    files: [Arc<Layered<Tracked>>; 2],
    memory: Arc<MemoryStore>,
}

fn new_file() -> NewFile {
    NewFile { kind: FileKind::File, attributes: Attributes(0), security: Vec::new() }
}

fn config(at: usize, cached: bool) -> UnitConfig {
    UnitConfig { id: [at as u8 + 7; 16], write_cache: cached, ..unit_config() }
}

impl World {
    async fn new(on_drop: OnDrop, cached: bool) -> Self {
        let memory = Arc::new(MemoryStore::new(1 << 26));
        let store = slow(memory.clone(), on_drop);
        let (mut units, mut files) = (Vec::new(), Vec::new());
        for at in 0..2 {
            let file = memory.create(memory.root(), &at.to_string(), new_file()).await.unwrap();
            let open = memory.open(file, OpenOptions::shared(Access::READ_WRITE)).await.unwrap();
            open.set_size(LENGTH * 512).await.unwrap();
            let all = IoBuf::copy_from(&vec![OLD; LENGTH as usize * 512]).freeze();
            open.write(0, all, Durability::Durable).await.unwrap();
            let file = store.open(file, OpenOptions::shared(Access::READ_WRITE)).await.unwrap();
            let tracked = Tracked { file, written: AtomicU64::new(0), flushed: AtomicU64::new(0) };
            let tracked = Arc::new(Layered(tracked));
            let backing = FileBacking::new(store.clone(), tracked.clone(), false, false);
            let rows = Arc::new(VolumeReservations(store.clone()));
            units.push(LogicalUnit::open(config(at, cached), Arc::new(backing), rows).await.unwrap());
            files.push(tracked);
        }
        let units: [Arc<LogicalUnit>; 2] = units.try_into().ok().unwrap();
        let rig = Rig::untried(units[0].clone(), Arc::default(), INITIATORS);
        let mapped = |unit: &Arc<LogicalUnit>| MappedUnit { unit: unit.clone(), read_only: false };
        let luns = BTreeMap::from([(1, mapped(&units[0])), (2, mapped(&units[1]))]);
        rig.device.configure(vec![Group { luns, ..Group::default() }]);
        let world = Self { rig, units, files: files.try_into().ok().unwrap(), memory };
        for who in 0..2 {
            world.ready(who).await;
        }
        world
    }

    /// Hears all news of both units.
    async fn ready(&self, who: usize) {
        for lun in [1, 2] {
            while self.rig.send(who, lun, &[0; 6], &[]).await.status != ScsiStatus::Good {}
        }
    }

    /// What a file has, without the slow store.
    async fn content(&self, unit: usize) -> Vec<u8> {
        let entry = self.memory.lookup(self.memory.root(), &unit.to_string()).await.unwrap();
        let open = self.memory.open(entry.file, OpenOptions::shared(Access::READ_WRITE)).await.unwrap();
        open.read(0, IoBuf::new(LENGTH as usize * 512)).await.unwrap().to_vec()
    }

    /// The unit as it is after a restart.
    async fn restarted(&self, at: usize, cached: bool) -> Arc<LogicalUnit> {
        let rows = Arc::new(VolumeReservations(self.memory.clone()));
        let backing = crate::AbsentBacking::default();
        LogicalUnit::open(config(at, cached), Arc::new(backing), rows).await.unwrap()
    }
}

/// What is sent, to which unit it writes, and how many blocks from [`AT`] on.
struct Asked {
    cdb: Vec<u8>,
    data: Vec<u8>,
    unit: usize,
    blocks: u64,
    /// Whether what it writes is zeros.
    zeros: bool,
}

fn reads(cdb: Vec<u8>) -> Asked {
    Asked { cdb, data: Vec::new(), unit: 0, blocks: 0, zeros: false }
}

fn writes(cdb: Vec<u8>, blocks: u64) -> Asked {
    Asked { data: vec![NEW; blocks as usize * 512], unit: 0, blocks, zeros: false, cdb }
}

/// A CDB of the command with these bytes set.
fn bytes(op: Op, set: &[(usize, u8)]) -> Vec<u8> {
    let entry = COMMANDS.iter().find(|entry| entry.op == op).unwrap();
    let mut cdb = vec![0; entry.usage.len()];
    cdb[0] = entry.opcode;
    cdb[1] = entry.action.unwrap_or(0);
    for (at, byte) in set {
        cdb[*at] |= byte;
    }
    cdb
}

/// PERSISTENT RESERVE OUT with keys, made durable.
fn reserve(op: Op, kind: u8, keys: (u64, u64)) -> Asked {
    let mut data = [keys.0.to_be_bytes(), keys.1.to_be_bytes(), [0; 8]].concat();
    data[20] = 1;
    Asked { data, ..reads(bytes(op, &[(2, kind), (8, 24)])) }
}

/// What came before a command, and the command; a new one that is not here does not compile.
async fn asked(op: Op, world: &World) -> Asked {
    use Op::*;
    let (rig, designator) = (&world.rig, world.units[1].designator());
    let registered = || async {
        assert_eq!(rig.prout(0, 0, 0, (0, 0xa), true).await, (0, 0));
        assert_eq!(rig.prout(1, 0, 0, (0, 0xb), true).await, (0, 0));
    };
    match op {
        TestUnitReady | Inquiry | RequestSense | ReportLuns | ReadCapacity10 | PreventAllow | Release6
        | Release10 | Reserve6 | Reserve10 | ReadDefect10 | ReadDefect12 | ReadCapacity16 | LogSense => {
            reads(bytes(op, &[]))
        }
        SendDiagnostic => reads(bytes(op, &[(1, 4)])),
        StartStop => reads(bytes(op, &[(4, 1)])),
        ModeSense6 => reads(bytes(op, &[(2, 0x3f), (4, 255)])),
        ModeSense10 => reads(bytes(op, &[(2, 0x3f), (8, 255)])),
        ReportTargetPortGroups | ReportOpcodes | ReportTaskManagement => reads(bytes(op, &[(9, 64)])),
        PrInReadKeys | PrInReadReservation | PrInReportCapabilities | PrInReadFullStatus => {
            reads(bytes(op, &[(8, 64)]))
        }
        ModeSelect6 | ModeSelect10 => {
            // The other way round than it is, saved.
            let on = !world.units[0].caches_writes();
            let mut page = vec![0; 20];
            (page[0], page[1], page[2]) = (8, 18, u8::from(on) << 2);
            let header = if op == ModeSelect6 { 4 } else { 8 };
            let data = [vec![0; header], page].concat();
            let at = if op == ModeSelect6 { 4 } else { 8 };
            Asked { cdb: bytes(op, &[(1, 0x11), (at, data.len() as u8)]), data, ..reads(Vec::new()) }
        }
        Read6 => reads(bytes(op, &[(3, 8), (4, 8)])),
        Read10 | Verify10 => reads(bytes(op, &[(5, 8), (8, 8)])),
        Read12 | Verify12 => reads(bytes(op, &[(5, 8), (9, 8)])),
        Read16 | Verify16 => reads(bytes(op, &[(9, 8), (13, 8)])),
        Prefetch10 | Prefetch16 => reads(bytes(op, &[])),
        GetLbaStatus => reads(bytes(op, &[(13, 64)])),
        SyncCache10 | SyncCache16 => {
            let write = writes(bytes(Write10, &[(5, 100), (8, 8)]), 8);
            rig.good(0, &write.cdb, &write.data).await;
            reads(bytes(op, &[]))
        }
        Write6 => writes(bytes(op, &[(3, 8), (4, 8)]), 8),
        Write10 | WriteVerify10 => writes(bytes(op, &[(5, 8), (8, 8)]), 8),
        Write12 | WriteVerify12 => writes(bytes(op, &[(5, 8), (9, 8)]), 8),
        Write16 | WriteVerify16 => writes(bytes(op, &[(9, 8), (13, 8)]), 8),
        // Of 'o' and 'n': 'o'.
        OrWrite => writes(bytes(op, &[(9, 8), (13, 8)]), 8),
        WriteSame10 => Asked { data: vec![NEW; 512], ..writes(bytes(op, &[(5, 8), (7, 9)]), 9 << 8) },
        WriteSame16 => Asked { data: vec![NEW; 512], ..writes(bytes(op, &[(9, 8), (12, 9)]), 9 << 8) },
        CompareAndWrite => {
            let data = [vec![OLD; 8 * 512], vec![NEW; 8 * 512]].concat();
            Asked { data, ..writes(bytes(op, &[(9, 8), (13, 8)]), 8) }
        }
        Unmap => {
            let mut data = vec![0, 22, 0, 16, 0, 0, 0, 0];
            data.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0, 0, 0]);
            Asked { data, zeros: true, ..writes(bytes(op, &[(8, 24)]), 8) }
        }
        SanitizeOverwrite => {
            let data = [vec![1, 0, 0, 4], vec![NEW; 4]].concat();
            Asked { data, ..writes(bytes(op, &[(8, 8)]), LENGTH) }
        }
        SanitizeBlockErase => Asked { data: Vec::new(), zeros: true, ..writes(bytes(op, &[]), LENGTH) },
        SanitizeExitFailure => reads(bytes(op, &[])),
        PrOutRegister | PrOutRegisterIgnore => reserve(op, 0, (0, 0xa)),
        PrOutReserve => {
            registered().await;
            reserve(op, 1, (0xa, 0))
        }
        PrOutRelease | PrOutClear => {
            registered().await;
            assert_eq!(rig.prout(0, 1, 1, (0xa, 0), true).await, (0, 0));
            reserve(op, 1, (0xa, 0))
        }
        PrOutPreempt | PrOutPreemptAbort => {
            registered().await;
            assert_eq!(rig.prout(1, 1, 1, (0xb, 0), true).await, (0, 0));
            reserve(op, 1, (0xa, 0xb))
        }
        PrOutRegisterMove => {
            registered().await;
            // A descriptor that names nobody: it is refused, after the state was looked at.
            reserve(op, 0, (0xa, 0xc))
        }
        ExtendedCopy1 | ExtendedCopy4 => {
            // From this unit to the other one, where this initiator's connection is the only one that knows of it.
            fill_source(world).await;
            if op == ExtendedCopy4 {
                // The same list under the longer header is refused here: what there is to drop is in the shorter one.
                return reads(bytes(op, &[(13, 8)]));
            }
            let data = two_unit_list(&world.units[0].designator(), &designator);
            let [high, low] = (data.len() as u16).to_be_bytes();
            Asked { data, unit: 1, blocks: 16, zeros: false, cdb: bytes(op, &[(12, high), (13, low)]) }
        }
        PopulateToken => {
            let list = tokens::populate(&[(AT, 16)]);
            let [high, low] = (list.len() as u16).to_be_bytes();
            Asked { data: list, ..reads(bytes(op, &[(9, 1), (12, high), (13, low)])) }
        }
        WriteUsingToken => {
            fill_source(world).await;
            let token = rig.token(0, &[(0, 8)]).await;
            let data = tokens::write(&token, 0, &[(AT, 8)]);
            let cdb = tokens::cdb(0x11, 2, data.len()).to_vec();
            Asked { data, ..writes(cdb, 8) }
        }
        ReceiveCopyStatus1 | ReceiveCopyParameters | ReceiveCopyStatus4 | ReceiveRodTokenInformation => {
            reads(bytes(op, &[(13, 64)]))
        }
    }
}

/// The first blocks of the first unit are NEW: what is copied.
async fn fill_source(world: &World) {
    let write = writes(bytes(Op::Write10, &[(8, 8)]), 8);
    world.rig.good(0, &write.cdb, &write.data).await;
    let write = writes(bytes(Op::Write10, &[(5, 100), (8, 16)]), 16);
    world.rig.good(0, &write.cdb, &write.data).await;
}

/// A copy of sixteen blocks from block 100 of one unit to [`AT`] of another.
fn two_unit_list(from: &[u8], to: &[u8]) -> Vec<u8> {
    let one = copy_list(1, from, 0, 16, AT);
    let descriptor = |naa: &[u8]| {
        let mut bytes = vec![0xe4, 0, 0, 0, 1, 3, 0, naa.len() as u8];
        bytes.extend_from_slice(naa);
        bytes.resize(32, 0);
        bytes
    };
    let mut list = one[..16].to_vec();
    list[3] = 64;
    list.extend_from_slice(&descriptor(from));
    list.extend_from_slice(&descriptor(to));
    let mut segment = one[48..].to_vec();
    segment[6..8].copy_from_slice(&1_u16.to_be_bytes());
    segment[12..20].copy_from_slice(&100_u64.to_be_bytes());
    list.extend_from_slice(&segment);
    list
}

/// One command, dropped at one of its waits; false when that was its last.
async fn run_at(op: Op, on_drop: OnDrop, cached: bool, cut: Cut, point: usize) -> bool {
    let world = World::new(on_drop, cached).await;
    let before = [0, 1].map(|at| world.units[at].reservations());
    let asked = asked(op, &world).await;
    let old = world.content(asked.unit).await;
    let command = ScsiCommand {
        cdb: asked.cdb.clone(),
        data_out: IoBuf::copy_from(&asked.data).freeze(),
        data_in_limit: 1 << 20,
        attribute: TaskAttribute::Simple,
    };
    let ended = {
        let mut work = world.rig.device.execute(&world.rig.nexuses[0], WireLun::from_number(1), command);
        let left = until_wait(point, pin!(&mut work)).await;
        if let Left::Ended(response) = &left {
            let changes = asked.blocks > 0 || op.is_persistent_reserve_out();
            let refused = matches!(op, Op::PrOutRegisterMove | Op::ExtendedCopy4);
            let status = response.as_ref().unwrap().status;
            assert!(!changes || refused || status == ScsiStatus::Good, "{response:?}");
        }
        !matches!(left, Left::Waiting)
    };
    if cut == Cut::Session {
        world.rig.device.nexus_lost(&world.rig.nexuses[0]);
    }
    let fenced = op.is_reservation_command();
    let blocks = asked.blocks.min(8);
    if asked.blocks > 0 {
        // Whoever is next waits for what still goes on, and comes after it.
        let lun = asked.unit as u16 + 1;
        let write = bytes(Op::Write10, &[(5, AT as u8), (8, blocks as u8)]);
        let mut tries = 0;
        while world.rig.send(1, lun, &write, &vec![AFTER; blocks as usize * 512]).await.status
            != ScsiStatus::Good
        {
            tries += 1;
            assert!(tries < 1000, "the unit never comes back");
            shard_runtime::sleep(Duration::from_millis(100)).await;
        }
    }
    shard_runtime::sleep(Duration::from_secs(60)).await;
    for unit in &world.units {
        assert_eq!(unit.tasks.counts(), (0, 0, 0), "a task is left, or is counted still");
        let inner = unit.inner.lock();
        assert_eq!(inner.sanitize, Sanitize::Idle);
        assert!(cut == Cut::Abort || inner.legacy.is_none(), "a reservation of a session that is gone");
    }
    look_at_content(&world, &asked, &old).await;
    for (at, before) in before.iter().enumerate() {
        let dirty =
            world.files[at].written.load(Ordering::SeqCst) > world.files[at].flushed.load(Ordering::SeqCst);
        assert!(!dirty || world.units[at].cached.is_any(), "a cached write that no flush is asked for");
        let again = world.restarted(at, cached).await;
        assert_eq!(
            again.inner.lock().saved_mode,
            world.units[at].inner.lock().saved_mode,
            "saved mode pages"
        );
        let (memory, row) = (world.units[at].reservations(), again.reservations());
        let durable = if memory.aptpl { Reservations { generation: 0, ..memory } } else { before.clone() };
        assert_eq!(row, Reservations { generation: 0, ..durable }, "stored reservations (left)");
    }
    if !fenced || op == Op::PrOutRegister {
        world.ready(1).await;
        assert_eq!(world.rig.sense(1, &bytes(Op::SyncCache10, &[]), &[]).await, (0, 0));
        let flushed = &world.files[0];
        assert!(flushed.flushed.load(Ordering::SeqCst) >= flushed.written.load(Ordering::SeqCst));
    }
    !ended
}

/// Each block is old or new, and what came after is there.
async fn look_at_content(world: &World, asked: &Asked, old: &[u8]) {
    if asked.blocks == 0 {
        return;
    }
    let now = world.content(asked.unit).await;
    let new = if asked.zeros { 0 } else { NEW };
    for (at, block) in now.chunks(512).enumerate() {
        let is = |byte: u8| block.iter().all(|each| *each == byte);
        let at = at as u64;
        let meant = (AT..AT + asked.blocks).contains(&at) || asked.blocks == LENGTH;
        if (AT..AT + asked.blocks.min(8)).contains(&at) {
            assert!(
                is(AFTER),
                "block {at} has {:x}: what was dropped came after what was written then",
                block[0]
            );
        } else if meant {
            assert!(
                is(new) || block == &old[at as usize * 512..][..512],
                "block {at} is neither old nor new"
            );
        } else {
            assert_eq!(block, &old[at as usize * 512..][..512], "block {at} was never meant");
        }
    }
}

#[test]
fn every_command_dropped_at_each_of_its_waits() {
    std::panic::set_hook(Box::new(|_| {}));
    let only = std::env::var("HOLDFAST_DROPPED").unwrap_or_default();
    let (mut points, mut broken) = (0, Vec::new());
    for entry in COMMANDS.iter().filter(|entry| format!("{:?}", entry.op).contains(&only)) {
        let changes = entry.effect == Effect::Write || matches!(entry.op, Op::ModeSelect6 | Op::ModeSelect10);
        for (on_drop, cached) in [(OnDrop::Stops, false), (OnDrop::GoesOn, true)] {
            for cut in [Cut::Abort, Cut::Session] {
                for point in 0.. {
                    let run = || sim::on_shard(run_at(entry.op, on_drop, cached, cut, point)).unwrap();
                    match std::panic::catch_unwind(run) {
                        Ok(true) => points += 1,
                        Ok(false) => break,
                        Err(why) => {
                            let why = why.downcast_ref::<String>().cloned().unwrap_or_else(|| {
                                why.downcast_ref::<&str>().copied().unwrap_or_default().to_owned()
                            });
                            broken.push(format!("{:?}, {on_drop:?}, {cut:?}, wait {point}: {why}", entry.op));
                            if point > if changes { 60 } else { 10 } {
                                break;
                            }
                        }
                    }
                }
            }
        }
    }
    drop(std::panic::take_hook());
    println!("dropped at {points} points");
    assert!(broken.is_empty(), "{} of {points} points:\n{}", broken.len(), broken.join("\n"));
}
