//! Oplocks and leases between clients, as the suites smb2.oplock and smb2.lease look at them.

use std::time::Duration;

use super::*;

const R: u32 = 1;
const RH: u32 = 3;
const RW: u32 = 5;
const RWH: u32 = 7;

fn oplock(created: &Created) -> OplockLevel {
    created.granted.level()
}

fn lease(created: &Created) -> (u32, bool, Option<u16>) {
    match created.granted {
        Granted::Lease { state, flags, epoch, .. } => (state.0, flags.0 & 2 != 0, epoch),
        Granted::Oplock(level) => panic!("an oplock: {level:?}"),
    }
}

fn broken(key: u8, from: u32, to: u32, ack: bool) -> Told {
    Told::Lease { key, from: LeaseState(from), to: LeaseState(to), ack, epoch: 0 }
}

#[test]
fn a_batch_oplock_is_broken_by_a_second_open() {
    run(|f| async move {
        let first = f.create("f", &Ask::default().oplock(OplockLevel::BATCH)).await.unwrap();
        assert_eq!(oplock(&first), OplockLevel::BATCH);
        let other = f.client(2);
        let stat = Ask::open().access(AccessMask::READ_ATTRIBUTES);
        f.create_as(&other, "f", &stat).await.unwrap().open.close(false).await.unwrap();
        assert_eq!(f.told.take(), [], "who only looks breaks nothing");
        let ask = Ask::open().oplock(OplockLevel::BATCH);
        let (second, ()) = tokio::join!(f.create_as(&other, "f", &ask), async {
            shard_runtime::sleep(Duration::from_secs(1)).await;
            assert_eq!(f.told.take(), [Told::Oplock(OplockLevel::II)]);
            assert_eq!(
                status(first.open.acknowledge_oplock(OplockLevel::BATCH)),
                NtStatus::INVALID_PARAMETER
            );
            assert_eq!(first.open.acknowledge_oplock(OplockLevel::II), Ok(OplockLevel::II));
        });
        let second = second.unwrap();
        assert_eq!(oplock(&second), OplockLevel::II);
        assert_eq!(status(first.open.acknowledge_oplock(OplockLevel::II)), NtStatus::INVALID_DEVICE_STATE);
        second.open.write(0, buf(b"x"), WriteFlags::default()).await.unwrap();
        assert_eq!(f.told.take(), [Told::Oplock(OplockLevel::NONE); 2], "both, the writer's own too");
        first.open.close(false).await.unwrap();
        second.open.close(false).await.unwrap();
        f.assert_clean();
    });
}

#[test]
fn who_does_not_answer_loses_after_35_seconds() {
    run(|f| async move {
        let first = f.create("f", &Ask::default().oplock(OplockLevel::EXCLUSIVE)).await.unwrap();
        let begin = tokio::time::Instant::now();
        let waits = std::cell::Cell::new(0);
        let name = utf16("f");
        let on_wait = |begins| waits.set(waits.get() + usize::from(begins));
        let request = CreateRequest {
            on_wait: &on_wait,
            ..CreateRequest::open(Utf16::new(&name).unwrap(), f.told.clone())
        };
        let second = f.fs.create(&f.client(2), request).await.unwrap();
        assert_eq!((begin.elapsed().as_secs(), waits.get()), (35, 1));
        assert_eq!(first.open.caching(), Granted::Oplock(OplockLevel::NONE));
        assert_eq!(status(first.open.acknowledge_oplock(OplockLevel::II)), NtStatus::INVALID_OPLOCK_PROTOCOL);
        first.open.close(false).await.unwrap();
        second.open.close(false).await.unwrap();
        f.assert_clean();
    });
}

#[test]
fn closing_is_an_answer_and_ends_the_sharing_violation() {
    run(|f| async move {
        let first = f.create("f", &Ask::default().oplock(OplockLevel::BATCH).share(0)).await.unwrap();
        let (ask, other) = (Ask::open(), f.client(2));
        let (second, ()) = tokio::join!(f.create_as(&other, "f", &ask), async {
            shard_runtime::sleep(Duration::from_secs(1)).await;
            assert_eq!(f.told.take().len(), 1);
            first.open.close(false).await.unwrap();
        });
        second.unwrap().open.close(false).await.unwrap();
        let plain = f.create("f", &Ask::default().oplock(OplockLevel::EXCLUSIVE).share(0)).await.unwrap();
        assert_eq!(status(f.create_as(&other, "f", &ask).await), NtStatus::SHARING_VIOLATION);
        assert_eq!(f.told.take(), [], "an oplock without the handle cannot help");
        plain.open.close(false).await.unwrap();
    });
}

#[test]
fn who_overwrites_keeps_what_it_was_granted() {
    run(|f| async move {
        let first = f.create("f", &Ask::default().oplock(OplockLevel::EXCLUSIVE)).await.unwrap();
        let ask = Ask::default()
            .access(AccessMask::READ_ATTRIBUTES)
            .disposition(CreateDisposition::OVERWRITE_IF)
            .oplock(OplockLevel::II);
        let other = f.client(2);
        let (second, ()) = tokio::join!(f.create_as(&other, "f", &ask), async {
            shard_runtime::sleep(Duration::from_secs(1)).await;
            assert_eq!(f.told.take(), [Told::Oplock(OplockLevel::NONE)]);
            first.open.acknowledge_oplock(OplockLevel::NONE).unwrap();
        });
        let second = second.unwrap();
        assert_eq!((oplock(&second), f.told.take()), (OplockLevel::II, vec![]), "no break of its own");
        assert_eq!(second.open.caching(), Granted::Oplock(OplockLevel::II));
        let more = first.open.set_info(FileClass::ALLOCATION, &[0, 0, 1, 0, 0, 0, 0, 0], &|_| {}).await;
        assert_eq!((more, f.told.take()), (Ok(()), vec![Told::Oplock(OplockLevel::NONE)]), "allocation too");
        first.open.close(false).await.unwrap();
        second.open.close(false).await.unwrap();
        f.assert_clean();
    });
}

#[test]
fn leases_are_granted_shared_and_upgraded() {
    run(|f| async move {
        for (wanted, expected) in [(R, R), (RH, RH), (RW, RW), (RWH, RWH), (2, 0), (4, 0), (6, 0), (0, 0)] {
            let made = f.create("f", &Ask::default().lease(1, wanted)).await.unwrap();
            assert_eq!(lease(&made), (expected, false, None), "{wanted}");
            made.open.close(false).await.unwrap();
        }
        for (first, second, expected) in
            [(R, RH, RH), (R, RWH, RWH), (RH, RW, RH), (RH, RWH, RWH), (RW, RH, RW), (RWH, R, RWH), (0, R, R)]
        {
            let a = f.create("f", &Ask::default().lease(1, first)).await.unwrap();
            let b = f.create("f", &Ask::default().lease(1, second)).await.unwrap();
            assert_eq!(lease(&b).0, expected, "{first} {second}");
            a.open.close(false).await.unwrap();
            b.open.close(false).await.unwrap();
        }
        let a = f.create("f", &Ask::default().lease(1, R)).await.unwrap();
        let b = f.create_as(&f.client(2), "f", &Ask::default().lease(1, RH)).await.unwrap();
        assert_eq!(lease(&b).0, RH, "another client's key is another lease");
        let c = f.create("f", &Ask::default().lease(1, RWH)).await.unwrap();
        assert_eq!(lease(&c).0, R, "not upgraded in part");
        assert_eq!(status(f.create("g", &Ask::default().lease(1, R)).await), NtStatus::INVALID_PARAMETER);
        for open in [a, b, c] {
            open.open.close(false).await.unwrap();
        }
        let dir = f.create("d", &Ask::directory().lease(1, RWH)).await.unwrap();
        assert_eq!(lease(&dir).0, 0, "directories need version 2");
        dir.open.close(false).await.unwrap();
        assert_eq!(f.told.take(), []);
        f.assert_clean();
    });
}

#[test]
fn leases_break_in_steps() {
    run(|f| async move {
        // As smb2.lease.v2_breaking3: RWH → RH → R → nothing, all in one epoch.
        let held = f.create("f", &Ask::default().lease_v2(1, RWH, 0x10, None)).await.unwrap();
        let broken = |key, from, to, ack| match broken(key, from, to, ack) {
            Told::Lease { key, from, to, ack, .. } => Told::Lease { key, from, to, ack, epoch: 0x12 },
            other => other,
        };
        let others = f.client(2);
        let (open, over) = (Ask::open(), Ask::open().disposition(CreateDisposition::OVERWRITE));
        let key = LeaseKey([1; 16]);
        let ack = |state| f.fs.acknowledge_lease(f.user.client, f.user.token.user, key, LeaseState(state));
        let acting = async {
            shard_runtime::sleep(Duration::from_secs(1)).await;
            assert_eq!(f.told.take(), [broken(1, RWH, RH, true)], "one at a time");
            let again = f.create("f", &Ask::open().lease_v2(1, RWH, 0x10, None)).await.unwrap();
            assert_eq!(lease(&again), (RWH, true, Some(0x12)));
            again.open.close(false).await.unwrap();
            assert_eq!(status(ack(RWH)), NtStatus::REQUEST_NOT_ACCEPTED);
            assert_eq!(ack(RH), Ok(LeaseState(RH)));
            assert_eq!(f.told.take(), [broken(1, RH, R, true)]);
            assert_eq!(ack(R), Ok(LeaseState(R)));
            assert_eq!(f.told.take(), [broken(1, R, 0, false)]);
            assert_eq!(status(ack(0)), NtStatus::UNSUCCESSFUL);
        };
        let (a, b, ()) =
            tokio::join!(f.create_as(&others, "f", &open), f.create_as(&others, "f", &over), acting);
        a.unwrap().open.close(false).await.unwrap();
        b.unwrap().open.close(false).await.unwrap();
        assert_eq!(
            f.fs.acknowledge_lease(others.client, f.user.token.user, key, LeaseState(0)).unwrap_err().status,
            NtStatus::OBJECT_NAME_NOT_FOUND
        );
        held.open.close(false).await.unwrap();
        f.assert_clean();
    });
}

#[test]
fn epochs_count_changes() {
    run(|f| async move {
        let a = f.create("f", &Ask::default().lease_v2(1, RH, 0x10, None)).await.unwrap();
        assert_eq!(lease(&a).2, Some(0x11));
        let b = f.create("f", &Ask::default().lease_v2(1, RWH, 0x10, None)).await.unwrap();
        assert_eq!(lease(&b), (RWH, false, Some(0x12)));
        let (other, ask) = (f.client(2), Ask::open());
        let (c, ()) = tokio::join!(f.create_as(&other, "f", &ask), async {
            shard_runtime::yield_now().await;
            let told = f.told.take();
            assert!(matches!(told[..], [Told::Lease { epoch: 0x13, ack: true, .. }]), "{told:?}");
            f.fs.acknowledge_lease(f.user.client, f.user.token.user, LeaseKey([1; 16]), LeaseState(RH))
                .unwrap();
        });
        for open in [a, b, c.unwrap()] {
            open.open.close(false).await.unwrap();
        }
    });
}

#[test]
fn writes_locks_and_renames_take_back_what_they_must() {
    run(|f| async move {
        let a = f.create("f", &Ask::default().lease(1, RH)).await.unwrap().open;
        let b = f.create_as(&f.client(2), "f", &Ask::default().lease(2, RH)).await.unwrap().open;
        a.write(0, buf(b"x"), WriteFlags::default()).await.unwrap();
        assert_eq!(f.told.take(), [broken(2, RH, 0, true)], "not the writer's own");
        f.fs.acknowledge_lease(Guid([2; 16]), f.user.token.user, LeaseKey([2; 16]), LeaseState(0)).unwrap();
        let lock = smb_protocol::lock::LockElement {
            offset: 0,
            length: 1,
            flags: smb_protocol::lock::LockFlags(0x12),
        };
        b.lock(&[lock], &|_| {}).await.unwrap();
        assert_eq!(f.told.take(), [broken(1, RH, 0, true)]);
        f.fs.acknowledge_lease(f.user.client, f.user.token.user, LeaseKey([1; 16]), LeaseState(0)).unwrap();
        a.close(false).await.unwrap();
        b.close(false).await.unwrap();
        let a = f.create("f", &Ask::default().lease(1, RH)).await.unwrap().open;
        let b = f.create_as(&f.client(2), "f", &Ask::default()).await.unwrap().open;
        let (renamed, ()) = tokio::join!(super::rename::rename(&b, "g", false), async {
            shard_runtime::sleep(Duration::from_secs(1)).await;
            assert_eq!(f.told.take(), [broken(1, RH, R, true)]);
            f.fs.acknowledge_lease(f.user.client, f.user.token.user, LeaseKey([1; 16]), LeaseState(R))
                .unwrap();
        });
        assert_eq!(renamed, NtStatus::SUCCESS);
        a.close(false).await.unwrap();
        b.close(false).await.unwrap();
        f.assert_clean();
    });
}

#[test]
fn directory_leases_break_for_others_only() {
    run(|f| async move {
        let d = f.create("d", &Ask::directory().lease_v2(9, RWH, 0, None)).await.unwrap();
        assert_eq!(lease(&d).0, RH);
        let child = Ask::default().lease_v2(1, R, 0, Some(9));
        f.create("d\\mine", &child).await.unwrap().open.close(false).await.unwrap();
        assert_eq!(f.told.take(), [], "the child names the directory's lease as its parent");
        f.create_as(&f.client(2), "d\\theirs", &child).await.unwrap().open.close(false).await.unwrap();
        assert!(matches!(f.told.take()[..], [Told::Lease { key: 9, to: LeaseState(0), ack: true, .. }]));
        f.fs.acknowledge_lease(f.user.client, f.user.token.user, LeaseKey([9; 16]), LeaseState(0)).unwrap();
        let again = f.create("d", &Ask::directory().lease_v2(9, RWH, 7, None)).await.unwrap();
        assert_eq!(lease(&again), (RH, false, Some(3)), "had again, though W is never had");
        again.open.close(false).await.unwrap();
        d.open.close(false).await.unwrap();
        f.assert_clean();
    });
}

#[test]
fn a_durable_open_that_is_away_yields_and_a_persistent_one_does_not() {
    run(|f| async move {
        let ask = Ask::default().lease(1, RWH);
        for (durability, expected) in [
            (crate::Durability::Durable, NtStatus::SUCCESS),
            (crate::Durability::Persistent, NtStatus::FILE_NOT_AVAILABLE),
        ] {
            let held = f.create("f", &ask).await.unwrap().open;
            held.set_durability(durability);
            held.detach();
            let stat = Ask::open().access(AccessMask::READ_ATTRIBUTES);
            f.create_as(&f.client(2), "f", &stat).await.unwrap().open.close(false).await.unwrap();
            assert!(!held.is_closed(), "looking disturbs nobody");
            let other = f.create_as(&f.client(2), "f", &Ask::open().lease(2, RWH)).await;
            assert_eq!(status(other.as_ref().map(|_| ()).map_err(Clone::clone)), expected);
            assert_eq!(held.is_closed(), expected == NtStatus::SUCCESS);
            if let Ok(other) = other {
                assert_eq!(lease(&other).0, RWH);
                other.open.close(false).await.unwrap();
            } else {
                held.attach(f.told.clone(), OwnerId(5));
                assert_eq!((held.owner(), held.caching().level()), (OwnerId(5), OplockLevel::LEASE));
                held.close(false).await.unwrap();
            }
        }
        // Without a lease, a persistent open still protects by its share mode.
        let held = f.create("f", &Ask::default().share(0)).await.unwrap().open;
        held.set_durability(crate::Durability::Persistent);
        held.detach();
        assert_eq!(f.status("f", &Ask::open()).await, NtStatus::FILE_NOT_AVAILABLE);
        held.attach(f.told.clone(), OwnerId(1));
        assert_eq!(f.status("f", &Ask::open()).await, NtStatus::SHARING_VIOLATION);
        held.close(false).await.unwrap();
        f.assert_clean();
    });
}

/// A resilient open that is away stays until its time is up; only what it caches goes (MS-SMB2 3.3.4.6, 3.3.4.7).
#[test]
fn a_resilient_open_that_is_away_stays() {
    run(|f| async move {
        let held = f.create("f", &Ask::default().lease(1, RWH)).await.unwrap().open;
        held.set_durability(crate::Durability::Resilient);
        held.detach();
        let stat = Ask::open().access(AccessMask::READ_ATTRIBUTES);
        f.create_as(&f.client(2), "f", &stat).await.unwrap().open.close(false).await.unwrap();
        assert_eq!(held.summary().lease.unwrap().1, LeaseState(RWH), "looking disturbs nobody");
        held.attach(f.told.clone(), OwnerId(5));
        assert_eq!(held.summary().lease.unwrap().1, LeaseState(RWH), "nothing conflicted");
        held.detach();
        let other = f.create_as(&f.client(2), "f", &Ask::open().lease(2, RWH)).await.unwrap();
        assert!(!held.is_closed(), "it was not persistent, and yet it stays");
        assert_eq!(held.summary().lease.unwrap().1, LeaseState(0));
        assert_eq!(super::rename::rename(&other.open, "g", false).await, NtStatus::SUCCESS);
        assert!(!held.is_closed());
        other.open.close(false).await.unwrap();
        held.attach(f.told.clone(), OwnerId(5));
        assert_eq!(held.path(), "g");
        held.close(false).await.unwrap();
        // It goes on keeping out what it does not share.
        let held = f.create("f", &Ask::default().share(0).oplock(OplockLevel::BATCH)).await.unwrap().open;
        held.set_durability(crate::Durability::Resilient);
        held.detach();
        let conflicting = f.create_as(&f.client(2), "f", &Ask::open()).await;
        assert_eq!(status(conflicting), NtStatus::SHARING_VIOLATION);
        assert!(!held.is_closed());
        held.close(false).await.unwrap();
        f.assert_clean();
    });
}

#[test]
fn who_keeps_a_handle_of_a_file_that_goes_is_asked_to_close_it() {
    run(|f| async move {
        let held = f.create("f", &Ask::default().lease(1, RH)).await.unwrap().open;
        let ask = Ask::open().access(AccessMask::DELETE).options(CreateOptions::DELETE_ON_CLOSE);
        let other = f.create_as(&f.client(2), "f", &ask).await.unwrap().open;
        assert_eq!(f.told.take(), []);
        other.close(false).await.unwrap();
        assert_eq!(f.told.take(), [broken(1, RH, R, true)]);
        held.close(false).await.unwrap();
        assert_eq!(f.status("f", &Ask::open()).await, NtStatus::OBJECT_NAME_NOT_FOUND);
        f.assert_clean();
    });
}

#[test]
fn leases_of_two_users_are_two_whatever_client_and_key_they_name() {
    run(|f| async move {
        let (mine, theirs) = (f.told.clone(), Arc::new(Recorder::default()));
        let ask = Ask::open().lease(1, RWH);
        let a = f.create("f", &Ask::default().lease(1, RWH)).await.unwrap();
        assert_eq!(lease(&a).0, RWH);
        let other = f.administrator(1001);
        let ack = |caller: &Caller, state| {
            let user = caller.token.user;
            f.fs.acknowledge_lease(caller.client, user, LeaseKey([1; 16]), LeaseState(state))
        };
        let (b, ()) = tokio::join!(f.create_told(&other, "f", &ask, theirs.clone()), async {
            shard_runtime::sleep(Duration::from_secs(1)).await;
            assert_eq!(mine.take(), [broken(1, RWH, RH, true)], "another user is another holder");
            assert_eq!(
                status(ack(&other, RH)),
                NtStatus::OBJECT_NAME_NOT_FOUND,
                "it is not theirs to answer"
            );
            assert_eq!(ack(&f.user, RH), Ok(LeaseState(RH)));
        });
        let b = b.unwrap();
        assert_eq!(lease(&b).0, RH, "a lease of its own, beside one that caches reads");
        b.open.write(0, buf(b"new"), WriteFlags::default()).await.unwrap();
        assert_eq!(mine.take(), [broken(1, RH, 0, true)], "what is cached has become wrong");
        assert_eq!(theirs.take(), []);
        assert_eq!(status(ack(&other, 0)), NtStatus::UNSUCCESSFUL, "their own is not being broken");
        assert_eq!(ack(&f.user, 0), Ok(LeaseState(0)));
        // A key is a user's: the same one on another file takes nothing from the first user.
        let made = f.create_told(&other, "g", &Ask::default().lease(1, RWH), theirs.clone()).await;
        assert_eq!(status(made), NtStatus::INVALID_PARAMETER, "their own key is in use");
        let third = f.administrator(1002);
        let ask = Ask::default().lease(1, RWH);
        let elsewhere = f.create_told(&third, "g", &ask, theirs.clone()).await.unwrap();
        assert_eq!(lease(&elsewhere).0, RWH);
        for open in [a, b, elsewhere] {
            open.open.close(false).await.unwrap();
        }
        f.assert_clean();
    });
}

#[test]
fn breaks_of_one_users_lease_go_to_its_own_opens() {
    run(|f| async move {
        let (mine, theirs, second) = (f.told.clone(), Arc::new(Recorder::default()), Arc::default());
        let first = f.create("f", &Ask::default().lease(1, RH)).await.unwrap();
        let other = f.administrator(1001);
        let b = f.create_told(&other, "f", &Ask::open().lease(1, RH), theirs.clone()).await.unwrap();
        // The same user in another session shares its lease.
        let session = Caller { owner: OwnerId(2), ..f.user.clone() };
        let again =
            f.create_told(&session, "f", &Ask::open().lease(1, RH), Arc::clone(&second)).await.unwrap();
        first.open.close(false).await.unwrap();
        b.open.write(0, buf(b"new"), WriteFlags::default()).await.unwrap();
        assert_eq!(second.take(), [broken(1, RH, 0, true)], "the lease's open that is left");
        assert_eq!((mine.take(), theirs.take()), (vec![], vec![]));
        again.open.close(false).await.unwrap();
        b.open.close(false).await.unwrap();
        f.assert_clean();
    });
}
