//! What happens to a unit while its commands wait for their turn: the storage goes away, the unit is taken away, somebody fences
//! their sender off, everything is to be erased.

use std::pin::pin;
use std::time::Duration;

use block_device::BlockDevice;

use super::flows::{FIRST, Held, SECOND, poll, settle, write};
use super::storage::{BECOMING_READY, disk, run_quickly};
use super::{going_on, tokens, *};

/// Longer than anything here waits; the clock jumps.
const NEVER: Duration = Duration::from_secs(600);

/// What a response says; `None`: it did not come.
async fn told(response: impl Future<Output = Option<ScsiResponse>>) -> Option<(u8, u16)> {
    let response = shard_runtime::timeout(NEVER, response).await??;
    Some(match response.status {
        ScsiStatus::CheckCondition => {
            (response.sense[2], u16::from_be_bytes([response.sense[12], response.sense[13]]))
        }
        status => (0, status as u16),
    })
}

fn command(cdb: &[u8], data: &[u8]) -> ScsiCommand {
    ScsiCommand {
        cdb: cdb.to_vec(),
        data_out: IoBuf::copy_from(data).freeze(),
        data_in_limit: 1 << 20,
        attribute: TaskAttribute::Simple,
    }
}

impl Held {
    fn send(&self, who: usize, command: ScsiCommand) -> ScsiFuture<'_, Option<ScsiResponse>> {
        self.rig.device.execute(&self.rig.nexuses[who], WireLun::from_number(1), command)
    }

    /// Writes of the first initiator that went to the volume, and all that it asked for.
    fn writes(&self) -> (u64, u64) {
        let counted = self.counted();
        (counted.write_iops, counted.measured.asked)
    }
}

#[test]
fn a_limit_does_not_keep_a_command_whose_storage_is_away() {
    run_quickly(async {
        let held = Held::new().await;
        let counted = held.writes();
        held.rig.unit.detach();
        // The limit lets nothing through, and is not asked.
        assert_eq!(told(held.send(0, write(SECOND))).await, Some(BECOMING_READY));
        assert_eq!((held.waiting(), held.writes()), (0, counted));
    });
}

#[test]
fn a_command_that_waits_leaves_the_queue_with_its_storage_and_comes_back_with_it() {
    run_quickly(async {
        for comes_back in [false, true] {
            let held = Held::new().await;
            let mut waits = pin!(held.send(0, write(SECOND)));
            assert!(poll(waits.as_mut()).is_pending());
            assert_eq!(held.waiting(), 1);
            held.rig.unit.detach();
            assert!(poll(waits.as_mut()).is_pending());
            assert_eq!(held.waiting(), 0);
            if !comes_back {
                assert_eq!(told(waits).await, Some(BECOMING_READY));
                continue;
            }
            held.rig.unit.attach(disk(), held.rig.rows.clone());
            assert!(poll(waits.as_mut()).is_pending());
            assert_eq!(held.waiting(), 1, "its limit holds again");
            held.limit(None);
            assert_eq!(told(waits).await, Some((0, 0)));
            assert_eq!(held.block().await, SECOND);
        }
    });
}

/// The volume has stopped, and nobody has let go of it yet.
#[test]
fn tries_of_a_storage_that_has_stopped_count_once() {
    run_quickly(async {
        let held = Held::new().await;
        held.limit(None);
        let (writes, asked) = held.writes();
        held.rig.unit.detach();
        held.rig.unit.has_stopped();
        let same = [&[0x41, 0][..], &[0; 6], &[8, 0]].concat();
        for command in [write(SECOND), command(&same, SECOND), write(SECOND)] {
            assert_eq!(told(held.send(0, command)).await, Some(BECOMING_READY));
        }
        assert_eq!(held.writes(), (writes + 1, asked + 1));
        held.limit(Some(1));
        assert_eq!(told(held.send(0, write(SECOND))).await, Some(BECOMING_READY), "no limit keeps it");
        // It is there again.
        held.rig.unit.attach(disk(), held.rig.rows.clone());
        held.limit(None);
        assert_eq!(told(held.send(0, write(SECOND))).await, Some((0, 0)));
        assert_eq!(held.writes(), (writes + 2, asked + 2), "what goes on counts again");
    });
}

/// Commands that go on in steps, and ones that change nothing on their way.
fn in_steps(held: &Held) -> Vec<(&'static str, ScsiCommand)> {
    let one_block = [&[0; 8][..], &[0, 0, 0, 1, 0, 0]].concat();
    let unmap = [&[0, 22, 0, 16, 0, 0, 0, 0][..], &[0; 8], &[0, 0, 0, 1, 0, 0, 0, 0]].concat();
    let copied = going_on::copy_list(1, &held.rig.unit.designator(), 0, 1, 8);
    let [high, low] = (copied.len() as u16).to_be_bytes();
    let copy = [0x83, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, high, low, 0, 0];
    let zeros = [&[0xff, 0xff, 0, 1, 0, 0, 1, 0xf8][..], &[0; 504]].concat();
    let zeros = tokens::write(&zeros, 0, &[(0, 1)]);
    vec![
        ("UNMAP", command(&[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], &unmap)),
        ("WRITE SAME", command(&[&[0x93, 0][..], &one_block].concat(), SECOND)),
        ("WRITE SAME of zeros", command(&[&[0x93, 0][..], &one_block].concat(), &[0; 512])),
        ("VERIFY", command(&[&[0x8f, 0][..], &one_block].concat(), &[])),
        ("EXTENDED COPY", command(&copy, &copied)),
        ("WRITE USING TOKEN", command(&tokens::cdb(0x11, 2, zeros.len()), &zeros)),
    ]
}

#[test]
fn who_is_fenced_off_while_a_step_waits_does_nothing_more() {
    run_quickly(async {
        let held = Held::new().await;
        let all = in_steps(&held).len();
        for number in 0..all {
            let held = Held::new().await;
            let (name, command) = in_steps(&held).swap_remove(number);
            let mut waits = pin!(held.send(0, command));
            assert!(poll(waits.as_mut()).is_pending(), "{name}");
            assert_eq!(held.waiting(), 1, "{name}");
            // The other reserves for itself alone.
            assert_eq!(held.rig.prout(1, 0, 0, (0, 7), false).await, (0, 0));
            assert_eq!(held.rig.prout(1, 1, 3, (7, 0), false).await, (0, 0));
            held.limit(None);
            assert_eq!(told(waits).await, Some((0, ScsiStatus::ReservationConflict as u16)), "{name}");
            assert_eq!(held.rig.good(1, &rw(0x28, 0, 0, 1), &[]).await, FIRST, "{name}");
            assert_eq!(held.rig.good(1, &rw(0x28, 0, 8, 1), &[]).await, [0; 512], "{name}");
        }
    });
}

/// Its initiators are at what stands for it by then; what was held back gets its turn before the unit is closed.
#[test]
fn who_waits_while_the_unit_is_given_away_is_no_stranger_to_its_reservation() {
    run_quickly(async {
        let busy = Some((0, ScsiStatus::Busy as u16));
        let all = in_steps(&Held::new().await).len();
        for number in 0..=all {
            let held = Held::new().await;
            assert_eq!(held.rig.prout(0, 0, 0, (0, 5), false).await, (0, 0));
            assert_eq!(held.rig.prout(0, 1, 3, (5, 0), false).await, (0, 0));
            let mut commands = in_steps(&held);
            commands.push(("WRITE", write(SECOND)));
            let (name, command) = commands.swap_remove(number);
            let mut waits = pin!(held.send(0, command));
            assert!(poll(waits.as_mut()).is_pending(), "{name}");
            held.rig.unit.moves();
            let unit = open(Arc::new(Rows::default())).await;
            unit.set_state(UnitState::Elsewhere(None));
            let mapped = MappedUnit { unit, read_only: false };
            let group = Group { luns: BTreeMap::from([(1, mapped)]), ..Group::default() };
            held.rig.device.configure(vec![group]);
            held.limit(None);
            assert_eq!(told(waits).await, busy, "{name}");
        }
    });
}

/// The holder of a reservation is preempted, without its commands being aborted.
#[test]
fn an_unmap_that_waits_when_its_sender_is_preempted_does_not_unmap() {
    run_quickly(async {
        let held = Held::new().await;
        assert_eq!(held.rig.prout(0, 0, 0, (0, 5), false).await, (0, 0));
        assert_eq!(held.rig.prout(0, 1, 3, (5, 0), false).await, (0, 0));
        assert_eq!(held.rig.prout(1, 0, 0, (0, 7), false).await, (0, 0));
        let (_, unmap) = in_steps(&held).swap_remove(0);
        let mut waits = pin!(held.send(0, unmap));
        assert!(poll(waits.as_mut()).is_pending());
        assert_eq!(held.rig.prout(1, 4, 3, (7, 5), false).await, (0, 0));
        held.limit(None);
        assert_eq!(told(waits).await, Some((0, ScsiStatus::ReservationConflict as u16)));
        assert_eq!(held.rig.good(1, &rw(0x28, 0, 0, 1), &[]).await, FIRST);
    });
}

#[test]
fn a_sanitize_waits_for_nothing_that_waits_for_its_turn() {
    run_quickly(async {
        let held = Held::new().await;
        let all = in_steps(&held);
        let mut waiting: Vec<_> = all.into_iter().take(4).map(|(_, command)| held.send(0, command)).collect();
        waiting.push(held.send(0, write(SECOND)));
        for waits in &mut waiting {
            assert!(poll(waits.as_mut()).is_pending());
        }
        let erase = command(&[0x48, 2, 0, 0, 0, 0, 0, 0, 0, 0], &[]);
        assert_eq!(told(held.send(0, erase)).await, Some((0, 0)));
        assert_eq!(held.waiting(), 5, "they still wait");
    });
}

#[test]
fn what_waits_ends_with_its_unit_and_what_runs_is_waited_for() {
    run_quickly(async {
        let (volume, rig) = going_on::gated().await;
        let held = Held::with(rig).await;
        // Lets one more through.
        held.limit(None);
        held.limit(Some(1));
        volume.set(true, false);
        let mut runs = pin!(held.send(0, write(FIRST)));
        let mut waits = pin!(held.send(0, write(SECOND)));
        assert!(poll(runs.as_mut()).is_pending() && poll(waits.as_mut()).is_pending());
        assert_eq!((held.at_volume(), held.waiting()), (1, 1));
        let unit = held.rig.unit.clone();
        let mut closes = pin!(unit.close());
        assert!(poll(closes.as_mut()).is_pending(), "one still writes");
        assert_eq!(told(waits).await, Some((5, 0x2500)), "it is gone");
        assert_eq!(held.waiting(), 0);
        settle().await;
        assert!(poll(closes.as_mut()).is_pending() && Arc::strong_count(&volume) > 1);
        volume.set(false, false);
        assert!(told(runs).await.is_some());
        closes.await;
        assert_eq!(Arc::strong_count(&volume), 1, "what it kept its data in is let go of");
        assert_eq!(volume.read(0, IoBuf::new(512)).await.unwrap()[..], FIRST[..]);
        // A session that has seen it before it was taken away.
        assert_eq!(told(held.send(0, write(SECOND))).await, Some((5, 0x2500)));
        assert_eq!(volume.read(0, IoBuf::new(512)).await.unwrap()[..], FIRST[..]);
    });
}

/// A second unit under the number 2, and a copy of the first block of the first unit to it.
async fn copy_to_another(rig: &Rig) -> (Arc<LogicalUnit>, ScsiCommand) {
    let config = UnitConfig { id: [8; 16], ..unit_config() };
    let other = LogicalUnit::open(config, disk(), rig.rows.clone()).await.unwrap();
    let both = [(1, rig.unit.clone()), (2, other.clone())];
    let luns = both.map(|(number, unit)| (number, MappedUnit { unit, read_only: false })).into();
    rig.device.configure(vec![Group { luns, ..Group::default() }]);
    for lun in [1, 2] {
        while rig.send(0, lun, &[0; 6], &[]).await.status != ScsiStatus::Good {}
    }
    let token = rig.token(0, &[(0, 1)]).await;
    let list = tokens::write(&token, 0, &[(0, 1)]);
    (other, command(&tokens::cdb(0x11, 2, list.len()), &list))
}

#[test]
fn the_last_step_of_a_copy_from_a_unit_that_goes_is_waited_for() {
    run_quickly(async {
        let (volume, rig) = going_on::gated().await;
        let (_other, copy) = copy_to_another(&rig).await;
        *volume.late.lock() = true;
        let mut copy = rig.device.execute(&rig.nexuses[0], WireLun::from_number(2), copy);
        assert!(poll(copy.as_mut()).is_pending());
        let mut closes = pin!(rig.unit.close());
        assert!(poll(closes.as_mut()).is_pending() && Arc::strong_count(&volume) > 1, "it still reads");
        *volume.late.lock() = false;
        assert!(told(copy).await.is_some());
        closes.await;
        assert_eq!(Arc::strong_count(&volume), 1);
    });
}

/// Or a copy from a unit that is away would let commands past the limits of the unit that it was sent to.
#[test]
fn a_copy_says_nothing_of_the_storage_that_it_was_sent_to() {
    run_quickly(async {
        let rig = Rig::new().await;
        let (other, copy) = copy_to_another(&rig).await;
        rig.unit.detach();
        let copied = rig.device.execute(&rig.nexuses[0], WireLun::from_number(2), copy);
        assert_eq!(told(copied).await, Some(BECOMING_READY));
        assert!(rig.unit.storage_fails() && !other.storage_fails());
    });
}
