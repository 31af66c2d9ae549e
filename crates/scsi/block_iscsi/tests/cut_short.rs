//! Commands that another initiator ends: nobody waits for them, and nobody takes what was cut short for done or for not done.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

mod rig;
#[path = "../../iscsi_target/tests/support/mod.rs"]
mod support;

use std::time::Duration;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{BlockDevice, BlockError, BlockErrorKind, Durability, Reservations};
use block_iscsi::{IscsiDisk, Settings, Times};
use futures_util::future::{join, join_all};
use iscsi_protocol::Bhs;
use iscsi_protocol::pdu::{RESERVED_TAG, flag, opcode};
use rig::{Make, Rig, TARGET, on_shard, open, settings};
use support::initiator::Initiator;

const WRITES: u64 = 6;
const PIECE: usize = 4096;
/// For what waits for nothing that does not come.
const NEVER: Duration = Duration::from_secs(3600);
/// After which a test has failed, and does not hang.
const LIMIT: Duration = Duration::from_secs(30);

fn data(byte: u8) -> SharedBuf {
    let mut buf = IoBuf::new(PIECE);
    buf.fill(byte);
    buf.freeze()
}

fn reservations(disk: &IscsiDisk) -> &dyn Reservations {
    BlockDevice::reservations(disk).unwrap()
}

fn why(error: &BlockError) -> String {
    std::error::Error::source(error).map(ToString::to_string).unwrap_or_default()
}

/// Nothing but what is tested ends a command that is not answered.
fn patient(rig: &Rig, node: u8, ask: Duration) -> Settings {
    let times = Times { ask, silence: NEVER, command: NEVER, ..Times::default() };
    Settings { times, ..settings(rig.address, TARGET, 0, node, 2, "") }
}

/// A session beside the disks.
fn beside(rig: &Rig) -> Initiator {
    let mut i = Initiator::connect(rig.address);
    assert_eq!(i.login(&[]).bhs.u16_at(36), 0);
    i.command(0x81, &[0; 6], 0, &[]);
    assert_eq!(i.receive().bhs.0[3], 2, "the news of a new session");
    i
}

/// The control mode page, behind its header.
fn control_mode(i: &mut Initiator) -> Vec<u8> {
    let (len, mut page) = (16, Vec::new());
    i.command(0xc1, &[0x1a, 8, 0x0a, 0, len, 0], len.into(), &[]);
    while page.len() < usize::from(len) {
        let answer = i.receive();
        // News of a change, if there is any, comes in place of an answer.
        if answer.bhs.opcode() == opcode::SCSI_RESPONSE && answer.bhs.0[3] == 2 {
            i.command(0xc1, &[0x1a, 8, 0x0a, 0, len, 0], len.into(), &[]);
            continue;
        }
        assert!(!answer.data.is_empty(), "status {:02x}", answer.bhs.0[3]);
        page.extend(answer.data);
    }
    page
}

/// Sets whether the unit answers commands that are ended for others; what it says of it before.
fn answers_aborted(i: &mut Initiator, on: bool) -> bool {
    let (len, mut page) = (16, control_mode(i));
    let before = page[9] & 0x40 != 0;
    page[..4].fill(0);
    page[4] &= 0x3f;
    page[9] = page[9] & !0x40 | u8::from(on) << 6;
    i.command(0xa1, &[0x15, 0x10, 0, 0, len, 0], len.into(), &page);
    assert_eq!(i.receive().bhs.0[3], 0);
    before
}

/// A node that has the disk is fenced while writes of it are held up at the medium. How its writes end.
async fn fenced(rig: &Rig, old: &IscsiDisk, new: &IscsiDisk) {
    reservations(new).register(2).await.unwrap();
    rig.gate.hold();
    let writes = join_all((0..WRITES).map(|n| old.write(n * PIECE as u64, data(7), Durability::Durable)));
    let takes = async {
        rig.gate.holds(WRITES as i64).await;
        let preempts = async {
            reservations(new).preempt_and_abort(2, 1).await.unwrap();
            new.write(0, data(9), Durability::Durable).await.unwrap();
        };
        let lets = async {
            // The commands have been marked when the disk has another holder.
            while rig.unit.reservations().holders().all(|holder| holder.key != 2) {
                shard_runtime::sleep(Duration::from_millis(2)).await;
            }
            shard_runtime::sleep(Duration::from_millis(50)).await;
            rig.gate.release();
        };
        join(preempts, lets).await;
    };
    let (written, ()) = join(writes, takes).await;
    for (n, written) in written.into_iter().enumerate() {
        let error = written.expect_err("a fenced node's write");
        assert_eq!(error.kind(), BlockErrorKind::Fenced, "write {n}: {error}");
        assert!(why(&error).contains("is not known"), "write {n}: {}", why(&error));
    }
    assert_eq!(rig.medium.read(0, IoBuf::new(PIECE)).await.unwrap()[0], 9, "nothing of before lands later");
    // What comes after that is refused, and that is known.
    let error = old.write(0, data(8), Durability::Durable).await.unwrap_err();
    assert_eq!(error.kind(), BlockErrorKind::Fenced);
    assert!(!why(&error).contains("is not known"), "{}", why(&error));
}

async fn in_time(test: impl Future<Output = ()>) {
    assert!(shard_runtime::timeout(LIMIT, test).await.is_some(), "commands that were ended are waited for");
}

/// Registers a session beside the disks, or takes its registration back: who is registered may set mode pages.
fn register(i: &mut Initiator, key: u64) {
    let list = [[0; 8], key.to_be_bytes(), [0; 8]].concat();
    i.command(0xa1, &[0x5f, 6, 0, 0, 0, 0, 0, 0, list.len() as u8], list.len() as u32, &list);
    assert_eq!(i.receive().bhs.0[3], 0);
}

async fn take(disk: &IscsiDisk) {
    reservations(disk).register(1).await.unwrap();
    reservations(disk).reserve(1).await.unwrap();
}

/// A unit that others may use is looked at, and stays as it is until a node takes it: then it is asked to answer what is ended, as
/// long as it runs.
#[test]
fn a_look_at_a_disk_changes_nothing_of_it() {
    on_shard(async {
        let rig = Rig::new(Make::default()).await;
        let mut other = beside(&rig);
        answers_aborted(&mut other, false);
        let disk = open(patient(&rig, 1, NEVER)).await.unwrap();
        assert_eq!(control_mode(&mut other)[9] & 0x40, 0, "opened only");
        reservations(&disk).register(1).await.unwrap();
        assert_eq!(control_mode(&mut other)[9] & 0x40, 0, "registered, and nobody's yet");
        let saved = rig.saved_modes();
        register(&mut other, 99);
        reservations(&disk).reserve(1).await.unwrap();
        assert_eq!(control_mode(&mut other)[9] & 0x40, 0x40, "taken");
        assert_eq!(rig.saved_modes(), saved, "what the target keeps stays as it was");
    });
}

/// The unit is asked to answer what is ended, and does: no question is needed.
#[test]
fn a_fenced_nodes_writes_end_with_the_units_answer() {
    on_shard(async {
        let rig = Rig::new(Make::default()).await;
        let old = open(patient(&rig, 1, NEVER)).await.unwrap();
        let new = open(patient(&rig, 2, NEVER)).await.unwrap();
        take(&old).await;
        let mut other = beside(&rig);
        register(&mut other, 99);
        assert_ne!(control_mode(&mut other)[9] & 0x40, 0, "who takes the disk has turned it on");
        register(&mut other, 0);
        in_time(fenced(&rig, &old, &new)).await;
    });
}

/// A unit that does not answer what is ended: its unit attention tells.
#[test]
fn a_fenced_nodes_writes_end_without_an_answer_of_the_unit() {
    on_shard(async {
        let rig = Rig::new(Make::default()).await;
        let old = open(patient(&rig, 1, Duration::from_millis(100))).await.unwrap();
        let new = open(patient(&rig, 2, NEVER)).await.unwrap();
        take(&old).await;
        let mut other = beside(&rig);
        register(&mut other, 99);
        answers_aborted(&mut other, false);
        register(&mut other, 0);
        in_time(fenced(&rig, &old, &new)).await;
    });
}

/// Nobody takes the disk away, but its commands end without an answer: they are begun again, and are done.
#[test]
fn what_a_reset_has_ended_is_done_again() {
    on_shard(async {
        let rig = Rig::new(Make::default()).await;
        let disk = open(patient(&rig, 1, Duration::from_millis(100))).await.unwrap();
        let mut other = beside(&rig);
        answers_aborted(&mut other, false);
        rig.gate.hold();
        let writes =
            join_all((0..WRITES).map(|n| disk.write(n * PIECE as u64, data(7), Durability::Durable)));
        let resets = async {
            rig.gate.holds(WRITES as i64).await;
            let mut reset = Bhs::new(opcode::TASK_MANAGEMENT | 0x40, flag::FINAL | 5);
            reset.set_u32(16, 0x99);
            reset.set_u32(20, RESERVED_TAG);
            reset.set_u32(24, other.cmd_sn);
            other.send(reset, &[]);
            // By then the commands have been marked.
            shard_runtime::sleep(Duration::from_millis(200)).await;
            rig.gate.release();
        };
        in_time(async {
            let (written, ()) = join(writes, resets).await;
            written.into_iter().for_each(|written| written.unwrap());
            for n in 0..WRITES {
                let read = rig.medium.read(n * PIECE as u64, IoBuf::new(PIECE)).await.unwrap();
                assert!(read.iter().all(|byte| *byte == 7), "write {n}");
            }
        })
        .await;
        let answer = other.receive();
        assert_eq!((answer.bhs.opcode(), answer.bhs.0[2]), (opcode::TASK_MANAGEMENT_RESPONSE, 0));
    });
}
