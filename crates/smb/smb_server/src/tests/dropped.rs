//! The loop: each case, each way to drop it, each wait, in a world of its own.

use std::cell::Cell;
use std::pin::pin;

use smb_files::{FSCTLS, SET_CLASSES};
use smb_protocol::Command;
use test_layers::{Left, OnDrop, until_wait};

use super::cases::{self, Case, Covers, Scene};
use super::look;
use super::world::{OTHER, VICTIM, World, settle};
use super::{cases_controls, cases_info};

/// What the product drops a request by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// Its connection, the only one of its session, is lost.
    Connection,
    /// The same, and another client changes the file at once.
    Followed,
    /// One of two connections of the session is lost.
    Channel,
    /// The client cancels it.
    Cancel,
}

/// How one run went.
#[derive(Debug, PartialEq, Eq)]
enum Run {
    Dropped,
    /// It was not at a point where this drops it, or waits for ever there.
    Last,
    /// Nothing can be dropped at this point.
    NotHere,
}

fn all() -> Vec<Case> {
    [cases::all(), cases_info::all(), cases_controls::all()].into_iter().flatten().collect()
}

thread_local! {
    /// Whether the run that is going on is the last one of its case and cut.
    static LAST: Cell<bool> = const { Cell::new(false) };
}

fn run(case: &Case, on_drop: OnDrop, cut: Cut, point: usize) -> Run {
    sim::on_shard(async {
        let world = World::new(on_drop);
        let victim = world.client(1, VICTIM, case.share).await;
        let second = victim.second(2, VICTIM).await;
        let other = world.client(3, OTHER, case.share).await;
        let scene = Scene { world, victim, second, other };
        let prepared = (case.prepare)(&scene).await;
        if cut != Cut::Channel {
            scene.second.leave();
        }
        let watcher = look::Watcher::begin(&scene, prepared.alone).await;
        let mut work = scene.victim.begin(&prepared.packet);
        let left = until_wait(point, pin!(&mut work.future)).await;
        let ran = match left {
            Left::Ended(()) => {
                let got = scene.victim.answer(work.last).await.unwrap();
                let wanted = prepared.status;
                assert_eq!(got.status(), wanted, "the request itself, when nobody drops it");
                drop(work);
                if cut != Cut::Cancel {
                    scene.victim.leave();
                }
                Run::Last
            }
            left => {
                let last = matches!(left, Left::ForEver);
                if cut == Cut::Cancel {
                    if !scene.victim.cancel(work.last) && !last {
                        return Run::NotHere;
                    }
                    let ended =
                        shard_runtime::timeout(std::time::Duration::from_secs(100), work.future).await;
                    assert!(ended.is_some() || case.of_others, "it goes on although it was cancelled");
                } else {
                    scene.victim.lose(work);
                }
                if last { Run::Last } else { Run::Dropped }
            }
        };
        LAST.set(ran == Run::Last);
        let mut prepared = prepared;
        if cut == Cut::Followed {
            look::follow(&scene, &mut prepared).await;
        }
        settle().await;
        look::after(scene, &prepared, watcher, cut).await;
        ran
    })
    .unwrap()
}

#[test]
fn every_command_dropped_at_each_of_its_waits() {
    let only = std::env::var("HOLDFAST_DROPPED").unwrap_or_default();
    std::panic::set_hook(Box::new(|_| {}));
    let mut points = 0;
    let mut broken: Vec<String> = Vec::new();
    for case in all().iter().filter(|case| case.name.contains(&only)) {
        let before = points;
        for on_drop in [OnDrop::Stops, OnDrop::GoesOn] {
            for cut in [Cut::Connection, Cut::Followed, Cut::Channel, Cut::Cancel] {
                for point in 0.. {
                    LAST.set(false);
                    let ran = std::panic::catch_unwind(|| run(case, on_drop, cut, point));
                    match ran {
                        Ok(Run::Dropped) => points += 1,
                        Ok(Run::NotHere) => {}
                        Ok(Run::Last) => break,
                        Err(why) => {
                            let why = why.downcast_ref::<String>().cloned().unwrap_or_else(|| {
                                why.downcast_ref::<&str>().copied().unwrap_or_default().to_owned()
                            });
                            broken.push(format!("{}, {on_drop:?}, {cut:?}, wait {point}: {why}", case.name));
                            points += 1;
                            if LAST.take() || point > 100 {
                                break;
                            }
                        }
                    }
                }
            }
        }
        println!("{}: {}", case.name, points - before);
    }
    drop(std::panic::take_hook());
    println!("dropped at {points} points");
    assert!(broken.is_empty(), "{} of {points} points:\n{}", broken.len(), broken.join("\n"));
}

#[test]
fn every_command_has_a_case() {
    let cases = all();
    let covers = |wanted: Covers| cases.iter().any(|case| case.covers.contains(&wanted));
    for command in (0..=Command::OPLOCK_BREAK.0).map(Command) {
        // These two end without a wait, and a CANCEL is one of the ways to drop.
        let never_waits = [Command::NEGOTIATE, Command::ECHO, Command::CANCEL].contains(&command);
        assert!(never_waits || covers(Covers::Command(command)), "{command:?} has no case");
    }
    for code in FSCTLS {
        assert!(covers(Covers::Control(code)), "{code:?} has no case");
    }
    for class in SET_CLASSES {
        assert!(covers(Covers::Set(class)), "{class:?} has no case");
    }
}
