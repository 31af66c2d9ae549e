//! Records there and back, as bytes and across a restart.

use proptest::prelude::*;
use smb_protocol::lock::{LockElement, LockFlags};
use smb_protocol::{Guid, NtStatus};

use super::*;
use crate::tests::{Ask, Fixture, buf, read, run, sid, status};
use crate::{Durability, FileSystem, WriteFlags};

fn record() -> OpenRecord {
    OpenRecord {
        file: FileId(7),
        parent: FileId(1),
        name: "disk.vhdx".into(),
        stream: "s".into(),
        token: Token::new(sid(5), sid(6), &[sid(7)], true),
        root: FileId(1),
        share_access_cap: AccessMask::FILE_ALL,
        access_based_enumeration: true,
        write_through: true,
        client: Guid([3; 16]),
        owner: OwnerId(9),
        granted: AccessMask::FILE_READ,
        share_access: ShareAccess::READ,
        options: CreateOptions::WRITE_THROUGH,
        oplock: OplockLevel::LEASE,
        lease: Some(LeaseRecord {
            key: LeaseKey([4; 16]),
            state: LeaseState(7),
            epoch: 5,
            v2: true,
            parent: Some(LeaseKey([8; 16])),
        }),
        locks: vec![LockRecord { offset: 1, length: 2, exclusive: true }; 3],
        delete_on_close: true,
        delete_pending: false,
        position: 77,
        disk: false,
    }
}

#[test]
fn bytes_there_and_back_and_damaged() {
    let disk = OpenRecord { disk: true, ..record() };
    for record in [record(), OpenRecord { lease: None, locks: vec![], ..record() }, disk] {
        let bytes = record.encode();
        assert_eq!(OpenRecord::decode(&bytes), Ok(record));
        for cut in 0..bytes.len() {
            assert!(OpenRecord::decode(&bytes[..cut]).is_err());
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(OpenRecord::decode(&longer).is_err());
        let mut newer = bytes;
        newer[0] = 3;
        assert!(OpenRecord::decode(&newer).is_err());
    }
}

proptest! {
    #[test]
    fn any_bytes_are_a_record_or_refused(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        at in 0_usize..200,
        value: u8,
    ) {
        crate::fuzz::record(&bytes);
        let mut damaged = record().encode();
        let at = at % damaged.len();
        damaged[at] = value;
        crate::fuzz::record(&damaged);
    }
}

/// The file system of a process that starts on the same store.
fn restarted(f: &Fixture) -> FileSystem {
    let entropy = std::sync::Arc::new(shard_runtime::SeededEntropy::new(2));
    FileSystem::new(f.store.clone(), f.fs.core.clock.clone(), entropy, f.fs.core.options.clone())
}

#[test]
fn opens_come_back_after_a_restart() {
    run(|f| async move {
        f.directory("d").await;
        f.file("d\\disk", b"content").await;
        let ask = Ask::open().share(1).lease_v2(1, 7, 0, None);
        let open = f.create("d\\disk", &ask).await.unwrap().open;
        let lock = LockElement { offset: 2, length: 3, flags: LockFlags(0x12) };
        open.lock(&[lock], &|_| {}).await.unwrap();
        let saved = open.record().encode();
        // The process ends here; the store stays.
        let again = restarted(&f);
        let back = again.restore(vec![OpenRecord::decode(&saved).unwrap()]).await.remove(0).unwrap();
        assert_eq!(back.record(), open.record());
        assert!(
            back.is_detached() && back.path() == "d\\disk" && back.durability() == Durability::Persistent
        );
        let f = Fixture { fs: again, ..f };
        assert_eq!(f.status("d\\disk", &Ask::open()).await, NtStatus::FILE_NOT_AVAILABLE);
        back.attach(f.told.clone(), OwnerId(4));
        assert_eq!(read(&back, 0, 9).await.unwrap(), b"content");
        let (client, ask) = (f.client(2), Ask::open().access(AccessMask::READ_DATA));
        let (other, ()) = tokio::join!(f.create_as(&client, "d\\disk", &ask), async {
            shard_runtime::sleep(std::time::Duration::from_secs(1)).await;
            assert_eq!(f.told.take().len(), 1, "the lease is still there to be broken");
            f.fs.acknowledge_lease(Guid([1; 16]), f.user.token.user, LeaseKey([1; 16]), LeaseState(3))
                .unwrap();
        });
        let other = other.unwrap().open;
        assert_eq!(status(read(&other, 2, 1).await), NtStatus::FILE_LOCK_CONFLICT, "and so is the lock");
        back.write(2, buf(b"X"), WriteFlags::default()).await.unwrap();
        other.close(false).await.unwrap();
        back.close(false).await.unwrap();
        f.assert_clean();
        let gone = OpenRecord { file: FileId(99_999), ..OpenRecord::decode(&saved).unwrap() };
        let refused = f.fs.restore(vec![gone]).await.remove(0);
        assert_eq!(status(refused), NtStatus::OBJECT_NAME_NOT_FOUND);
    });
}

#[test]
fn deletion_on_close_survives_too() {
    run(|f| async move {
        let doc = Ask::default().options(CreateOptions::DELETE_ON_CLOSE);
        let open = f.open("f", &doc).await;
        let saved = open.record();
        let f = Fixture { fs: restarted(&f), ..f };
        let back = f.fs.restore(vec![saved]).await.remove(0).unwrap();
        back.close(false).await.unwrap();
        assert_eq!(f.status("f", &Ask::open()).await, NtStatus::OBJECT_NAME_NOT_FOUND);
        drop(open);
    });
}
