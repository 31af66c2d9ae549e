//! Byte-range locks as requests.

use std::time::Duration;

use smb_protocol::lock::{LockElement, LockFlags};

use super::*;

const EX: LockFlags = LockFlags(0x12);
const SH: LockFlags = LockFlags(0x11);

fn element(offset: u64, length: u64, flags: LockFlags) -> LockElement {
    LockElement { offset, length, flags }
}

async fn lock(open: &Arc<Open>, all: &[(u64, u64, LockFlags)]) -> NtStatus {
    let all: Vec<LockElement> = all.iter().map(|(o, l, f)| element(*o, *l, *f)).collect();
    status(open.lock(&all, &|_| {}).await)
}

#[test]
fn ranges_keep_others_out() {
    run(|f| async move {
        f.file("f", &[7; 100]).await;
        let (a, b) = (f.open("f", &Ask::open()).await, f.open("f", &Ask::open()).await);
        assert_eq!(lock(&a, &[(0, 10, EX)]).await, NtStatus::SUCCESS);
        assert_eq!(lock(&b, &[(5, 1, SH)]).await, NtStatus::LOCK_NOT_GRANTED);
        assert_eq!(status(read(&b, 0, 20).await), NtStatus::FILE_LOCK_CONFLICT);
        assert_eq!(status(b.write(9, buf(b"x"), WriteFlags::default()).await), NtStatus::FILE_LOCK_CONFLICT);
        a.write(0, buf(b"x"), WriteFlags::default()).await.unwrap();
        assert_eq!(lock(&b, &[(20, 1, EX), (5, 1, EX)]).await, NtStatus::LOCK_NOT_GRANTED);
        assert_eq!(lock(&a, &[(20, 1, EX)]).await, NtStatus::SUCCESS, "all or none");
        for (bad, expected) in [
            (vec![], NtStatus::INVALID_PARAMETER),
            (vec![(0, 1, LockFlags(0))], NtStatus::INVALID_PARAMETER),
            (vec![(0, 1, LockFlags(3))], NtStatus::INVALID_PARAMETER),
            (vec![(0, 1, LockFlags(0x14))], NtStatus::INVALID_PARAMETER),
            (vec![(50, 1, EX), (60, 1, LockFlags::EXCLUSIVE)], NtStatus::INVALID_PARAMETER),
            (vec![(50, 1, EX), (50, 1, LockFlags::UNLOCK)], NtStatus::INVALID_PARAMETER),
            (vec![(u64::MAX, 2, EX)], NtStatus::INVALID_LOCK_RANGE),
            (vec![(90, 1, LockFlags::UNLOCK)], NtStatus::RANGE_NOT_LOCKED),
        ] {
            assert_eq!(lock(&b, &bad).await, expected, "{bad:?}");
        }
        let unlock = LockFlags::UNLOCK;
        assert_eq!(
            lock(&a, &[(0, 10, unlock), (1, 1, unlock), (20, 1, unlock)]).await,
            NtStatus::RANGE_NOT_LOCKED
        );
        assert_eq!(lock(&b, &[(0, 10, EX)]).await, NtStatus::SUCCESS, "the first was unlocked");
        assert_eq!(lock(&b, &[(20, 1, EX)]).await, NtStatus::LOCK_NOT_GRANTED);
        a.close(false).await.unwrap();
        assert_eq!(lock(&b, &[(20, 1, EX)]).await, NtStatus::SUCCESS);
        b.close(false).await.unwrap();
        f.assert_clean();
    });
}

#[test]
fn waiting_cancelling_and_closing() {
    run(|f| async move {
        f.file("f", &[7; 100]).await;
        let (a, b) = (f.open("f", &Ask::open()).await, f.open("f", &Ask::open()).await);
        assert_eq!(lock(&a, &[(0, 10, EX)]).await, NtStatus::SUCCESS);
        let waits = std::cell::Cell::new(0);
        let wanted = [element(0, 10, LockFlags::EXCLUSIVE)];
        let on_wait = |begins| waits.set(waits.get() + usize::from(begins));
        let cancelled = tokio::time::timeout(Duration::from_secs(9), b.lock(&wanted, &on_wait)).await;
        assert!(cancelled.is_err() && waits.get() == 1);
        let (got, ()) = tokio::join!(b.lock(&wanted, &on_wait), async {
            shard_runtime::sleep(Duration::from_secs(5)).await;
            assert_eq!(lock(&a, &[(0, 10, LockFlags::UNLOCK)]).await, NtStatus::SUCCESS);
        });
        got.unwrap();
        let (closed, ()) = tokio::join!(a.lock(&wanted, &on_wait), async {
            shard_runtime::sleep(Duration::from_secs(5)).await;
            a.close(false).await.unwrap();
        });
        assert_eq!(status(closed), NtStatus::RANGE_NOT_LOCKED);
        b.close(false).await.unwrap();
        f.assert_clean();
    });
}
