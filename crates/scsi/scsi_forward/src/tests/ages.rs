//! What is too old, or comes from who has no say any more, is not begun.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::frames::{read_data, read_head};
use crate::wire::{Aim, Call, Hello, PREFIX, Port, Reply, framed};

/// The other end, by hand.
struct Raw(DuplexStream);

impl Raw {
    async fn greet(rig: &Rig, channel: u32) -> (Self, Reply) {
        let mut raw = Self(connect(rig.owner.clone()));
        raw.say(&Call::Hello(Hello { version: 9, from: HERE, incarnation: 1, to: THERE, channel }), &[])
            .await;
        let reply = raw.hear().await.expect("an answer");
        (raw, reply)
    }

    async fn say(&mut self, call: &Call, data: &[u8]) {
        let frame = [&framed(&call.encode(), data.len())[..], data].concat();
        let _ = self.0.write_all(&frame).await;
    }

    async fn hear(&mut self) -> Option<Reply> {
        let (head, data) = read_head(&mut self.0).await.ok()?;
        let reply = Reply::decode(&head).expect("a reply");
        read_data(&mut self.0, data).await.ok()?;
        Some(reply)
    }

    async fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        self.0.read_to_end(&mut rest).await.is_ok()
    }

    async fn write(&mut self, tag: u64, tick: u64, waited: u64) -> Reply {
        let aim = Aim { nexus: 40, lun: WireLun::from_number(3), unit: UNIT, tick, waited };
        let cdb = write(1, 1).to_vec();
        let command = Call::Command { tag, aim, attribute: TaskAttribute::Simple, limit: 0, cdb };
        self.say(&command, &[9; 512]).await;
        self.hear().await.expect("an answer")
    }
}

fn port(target_port: u16) -> Call {
    let (initiator, target) = ("iqn.2026-11.test:e".to_owned(), TARGET.to_owned());
    Call::Nexus(Port { nexus: 40, initiator, initiator_port: [4; 6], target, target_port })
}

#[test]
fn the_owners_clock_says_what_is_too_old() {
    run(async {
        let rig = Rig::ready().await;
        let (mut raw, welcome) = Raw::greet(&rig, 0).await;
        let Reply::Welcome { version: 1, tick } = welcome else { panic!("{welcome:?}") };
        raw.say(&port(17), &[]).await;
        let second = 1_000_000_000;
        assert!(matches!(
            raw.write(1, tick, 0).await,
            Reply::Answer { status: ScsiStatus::CheckCondition, .. }
        ));
        assert!(matches!(raw.write(2, tick, second).await, Reply::Answer { status: ScsiStatus::Good, .. }));
        assert_eq!(
            raw.write(3, tick, second + 1).await,
            Reply::NotDone(3),
            "it had waited at the other node"
        );
        assert_eq!(raw.write(4, tick + 1, 0).await, Reply::NotDone(4), "nobody can have heard that yet");
        rig.world.now.fetch_add(second, Ordering::SeqCst);
        assert!(matches!(raw.write(5, tick, 0).await, Reply::Answer { status: ScsiStatus::Good, .. }));
        rig.world.now.fetch_add(1, Ordering::SeqCst);
        assert_eq!(raw.write(6, tick, 0).await, Reply::NotDone(6), "it was on its way for too long");
        assert_eq!(raw.write(7, tick, u64::MAX).await, Reply::NotDone(7));
        raw.say(&Call::Ask, &[]).await;
        assert_eq!(raw.hear().await, Some(Reply::Tick(tick + second + 1)));
        rig.world.member.store(false, Ordering::SeqCst);
        assert_eq!(raw.write(8, tick + second, 0).await, Reply::NotDone(8), "it was evicted");
    });
}

/// What was held before it was sent is as old as when it came from its initiator.
#[test]
fn the_time_before_it_was_sent_counts() {
    run(async {
        let rig = Rig::ready().await;
        let place = Place { node: THERE, lun: WireLun::from_number(3), unit: UNIT };
        let send = |lba: u8, age: u64| {
            let arrived = rig.sender.now().saturating_sub(age);
            let command = Rig::command(&write(lba, 1), &[9; 512]);
            rig.sender.execute(place, &rig.hosts[0], command, arrived)
        };
        assert!(matches!(send(1, 0).await, Brought::Ended(Some(_))));
        assert!(matches!(send(2, 2_000_000_000).await, Brought::NotBegun), "it is too old");
        let back = rig.straight(&read(1, 2), &[]).await.expect("answered").data_in.expect("data");
        assert_eq!((back[0], back[512]), (9, 0));
    });
}

#[test]
fn strangers_and_wrong_ports_are_refused() {
    run(async {
        let rig = Rig::ready().await;
        for (from, to, incarnation) in [(3, THERE, 1), (HERE, 7, 1), (HERE, THERE, 2)] {
            let mut raw = Raw(connect(rig.owner.clone()));
            raw.say(&Call::Hello(Hello { version: 1, from, incarnation, to, channel: 0 }), &[]).await;
            assert!(matches!(raw.hear().await, Some(Reply::Refused(_))), "{from} {to} {incarnation}");
            assert!(raw.is_closed().await);
        }
        let (mut raw, welcome) = Raw::greet(&rig, 0).await;
        let Reply::Welcome { tick, .. } = welcome else { panic!("{welcome:?}") };
        assert_eq!(raw.write(1, tick, 0).await, Reply::NotDone(1), "nobody was introduced");
        raw.say(&port(33), &[]).await;
        assert_eq!(raw.write(2, tick, 0).await, Reply::NotDone(2), "the port is the owner's");
    });
}

#[test]
fn who_breaks_the_rules_is_closed_out() {
    run(async {
        let rig = Rig::ready().await;
        let hello = Call::Hello(Hello { version: 1, from: HERE, incarnation: 1, to: THERE, channel: 5 });
        let frames: [Vec<u8>; 5] = [
            framed(&Call::Ask.encode(), 7),
            framed(&hello.encode(), 0),
            framed(&[99], 0),
            vec![0; PREFIX],
            vec![0xff; PREFIX],
        ];
        for frame in frames {
            let (mut raw, _) = Raw::greet(&rig, 5).await;
            let _ = raw.0.write_all(&frame).await;
            assert!(raw.is_closed().await, "{frame:?}");
        }
        let mut silent = Raw(connect(rig.owner.clone()));
        silent.say(&Call::Ask, &[]).await;
        assert!(silent.is_closed().await, "who does not greet");
    });
}

/// A connection that takes the place of another one is let in when that has ended, and with it all that it had begun.
#[test]
fn what_an_earlier_connection_had_begun_ends_first() {
    run(async {
        let rig = Rig::ready().await;
        let (mut first, welcome) = Raw::greet(&rig, 0).await;
        let Reply::Welcome { tick, .. } = welcome else { panic!("{welcome:?}") };
        first.say(&port(17), &[]).await;
        assert!(matches!(first.write(1, tick, 0).await, Reply::Answer { .. }));
        let (_second, welcome) = Raw::greet(&rig, 0).await;
        assert!(matches!(welcome, Reply::Welcome { .. }));
        assert!(first.is_closed().await);
        let (_other, welcome) = Raw::greet(&rig, 1).await;
        assert!(matches!(welcome, Reply::Welcome { .. }), "another channel disturbs nobody");
    });
}
