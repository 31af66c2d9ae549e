//! Quotas: who sees whose, who sets them, and what space a user is told of.

use std::collections::BTreeMap;

use file_store::{
    NO_LIMIT, Owner, QuotaEntry, QuotaEvent, QuotaLimits, QuotaMode, QuotaReport, QuotaSettings, QuotaStore,
    StoreFuture,
};
use smb_protocol::fscc::VolumeClass;
use smb_protocol::fscc::quota::{Quota, push_quota, quota_writer, quotas};
use smb_protocol::fscc::volume::{ControlInformation, FileSystemAttributes};
use smb_protocol::security::{Ace, AceFlags, Acl, SecurityDescriptor};
use smb_protocol::wire::Wire as _;
use test_layers::{Layered, StoreLayer};

use super::*;
use crate::{QuotaChange, QuotaChanges};

/// Whose quota is never set: whoever sets it waits.
const SLOW: u32 = 2999;

fn bytes_of(sid: Sid) -> Vec<u8> {
    let mut bytes = Vec::new();
    sid.put(&mut bytes);
    bytes
}

/// What nobody reads.
fn unread() -> QuotaChanges {
    QuotaChanges::default()
}

/// A store that keeps quotas, and enforces none.
struct Kept {
    below: Arc<MemoryStore>,
    settings: Mutex<QuotaSettings>,
    own: Mutex<BTreeMap<Owner, QuotaLimits>>,
}

const USED: u64 = 3 << 20;

impl Kept {
    fn report(&self, owners: Vec<Owner>) -> QuotaReport {
        let settings = *self.settings.lock();
        let entry = |owner: Owner| {
            let own = self.own.lock().get(&owner).copied();
            let limits = own.unwrap_or(settings.default);
            QuotaEntry { owner, used: USED, limits, own: own.is_some(), changed: 0 }
        };
        QuotaReport { settings, counting: false, owners: owners.into_iter().map(entry).collect() }
    }
}

impl StoreLayer for Kept {
    fn below(&self) -> &dyn FileStore {
        &*self.below
    }

    fn quota_store(&self) -> Option<&dyn QuotaStore> {
        Some(self)
    }
}

impl QuotaStore for Kept {
    fn quota_mode(&self) -> QuotaMode {
        self.settings.lock().mode
    }

    fn quotas(&self) -> StoreFuture<'_, QuotaReport> {
        let owners = self.own.lock().keys().copied().collect();
        Box::pin(async move { Ok(self.report(owners)) })
    }

    fn quota_of(&self, owner: Owner) -> StoreFuture<'_, QuotaReport> {
        Box::pin(async move { Ok(self.report(vec![owner])) })
    }

    fn set_quotas(&self, settings: QuotaSettings) -> StoreFuture<'_, ()> {
        *self.settings.lock() = settings;
        Box::pin(async { Ok(()) })
    }

    fn set_quota(&self, owner: Owner, limits: Option<QuotaLimits>) -> StoreFuture<'_, ()> {
        if Owner::from_bytes(&bytes_of(sid(SLOW))) == Some(owner) {
            return Box::pin(std::future::pending());
        }
        match limits {
            Some(limits) => self.own.lock().insert(owner, limits),
            None => self.own.lock().remove(&owner),
        };
        Box::pin(async { Ok(()) })
    }

    fn quota_events(&self) -> StoreFuture<'_, Vec<QuotaEvent>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

fn run_kept<F: Future<Output = ()>>(test: impl FnOnce(Fixture) -> F) {
    let kept = |below| {
        let kept = Kept { below, settings: Mutex::default(), own: Mutex::default() };
        Arc::new(Layered(kept)) as Arc<dyn FileStore>
    };
    run_on(kept, async |f: Fixture| {
        let all = Ace::allow(Sid::EVERYONE, AccessMask::FILE_ALL, AceFlags(3));
        let descriptor = SecurityDescriptor {
            owner: Some(Sid::ADMINISTRATORS),
            dacl: Some(Acl { aces: vec![all] }),
            ..SecurityDescriptor::default()
        };
        f.store.set_security(f.store.root(), descriptor.encode()).await.unwrap();
        test(f).await;
    });
}

/// No SID is a group's.
fn nobody(_: Sid) -> bool {
    false
}

fn list(all: &[(u32, u64, u64)]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut list = quota_writer(&mut out, 4096);
    for (rid, threshold, limit) in all {
        let quota =
            Quota { sid: sid(*rid), change_time: FileTime(0), used: 0, threshold: *threshold, limit: *limit };
        assert!(push_quota(&mut list, &quota));
    }
    out
}

/// A query for these users, for all where there are none.
fn asked(single: bool, restart: bool, users: &[u32]) -> Vec<u8> {
    let mut list = Vec::new();
    for (at, rid) in users.iter().enumerate() {
        let len = sid(*rid).encoded_len() as u32;
        let next = if at + 1 < users.len() { 8 + len } else { 0 };
        list.extend(next.to_le_bytes());
        list.extend(len.to_le_bytes());
        sid(*rid).put(&mut list);
    }
    let mut query = vec![u8::from(single), u8::from(restart), 0, 0];
    query.extend((list.len() as u32).to_le_bytes());
    query.extend([0; 8]);
    query.extend(list);
    query
}

async fn told(open: &Open, query: &[u8], limit: usize) -> crate::Result<Vec<Sid>> {
    let mut out = Vec::new();
    open.query_quota(query, limit, &mut out).await?;
    assert!(out.len() <= limit);
    Ok(quotas(&out).map(|quota| quota.unwrap().sid).collect())
}

fn control(flags: u32, default_threshold: u64, default_limit: u64) -> Vec<u8> {
    ControlInformation { flags, default_threshold, default_limit, ..ControlInformation::default() }.to_bytes()
}

async fn volume(open: &Open, class: VolumeClass) -> crate::Result<Vec<u8>> {
    let mut out = Vec::new();
    open.query_volume(class, 4096, &mut out).await.map(|_| out)
}

#[test]
fn who_is_no_administrator_sees_its_own_quota_and_sets_none() {
    run_kept(|f| async move {
        let boss = f.open("", &Ask::open()).await;
        let bob = f.create_as(&f.plain(2001), r"$Extend\$Quota:$Q:$INDEX_ALLOCATION", &Ask::open()).await;
        let bob = bob.unwrap().open;
        assert_eq!(status(told(&boss, &asked(false, true, &[]), 4096).await), NtStatus::NOT_SUPPORTED);
        assert_eq!(
            status(boss.set_quota(&list(&[(2001, 1, 2)]), &nobody, &mut unread()).await),
            NtStatus::NOT_SUPPORTED
        );
        assert_eq!(
            status(bob.set_volume(VolumeClass::CONTROL, &control(2, 1, 2), &mut unread()).await),
            NtStatus::ACCESS_DENIED
        );
        boss.set_volume(VolumeClass::CONTROL, &control(2, 4 << 20, 5 << 20), &mut unread()).await.unwrap();

        assert_eq!(
            status(bob.set_quota(&list(&[(2001, 1, 2)]), &nobody, &mut unread()).await),
            NtStatus::ACCESS_DENIED
        );
        assert_eq!(status(volume(&bob, VolumeClass::CONTROL).await), NtStatus::ACCESS_DENIED);
        boss.set_quota(
            &list(&[(2001, 1, 2), (2002, 8, 9), (2003, u64::MAX, u64::MAX)]),
            &nobody,
            &mut unread(),
        )
        .await
        .unwrap();
        let all = [sid(2001), sid(2002), sid(2003)];
        assert_eq!(told(&boss, &asked(false, true, &[]), 4096).await.unwrap(), all);
        assert_eq!(told(&boss, &asked(false, true, &[2002, 7]), 4096).await.unwrap(), [sid(2002), sid(7)]);
        for (users, seen) in [(&[][..], true), (&[2001, 2002], true), (&[2002], false)] {
            let found = told(&bob, &asked(false, true, users), 4096).await;
            if seen {
                assert_eq!(found.unwrap(), [sid(2001)], "{users:?}");
            } else {
                assert_eq!(status(found), NtStatus::NO_MORE_ENTRIES);
            }
        }

        // One by one, as far as a buffer goes, and to the end.
        for wanted in all {
            let restart = wanted == all[0];
            assert_eq!(told(&boss, &asked(true, restart, &[]), 4096).await.unwrap(), [wanted]);
        }
        assert_eq!(status(told(&boss, &asked(true, false, &[]), 4096).await), NtStatus::NO_MORE_ENTRIES);
        assert_eq!(told(&boss, &asked(false, true, &[]), 150).await.unwrap(), all[..2]);
        assert_eq!(told(&boss, &asked(false, false, &[]), 150).await.unwrap(), all[2..]);
        assert_eq!(status(told(&boss, &asked(false, true, &[]), 20).await), NtStatus::BUFFER_TOO_SMALL);

        // All of a list makes sense, or nothing of it is done; -2 takes limits away.
        let mut bad = list(&[(2001, 1, 1000), (2002, 1, 1000)]);
        bad.truncate(bad.len() - 1);
        assert_eq!(status(boss.set_quota(&bad, &nobody, &mut unread()).await), NtStatus::INVALID_PARAMETER);
        assert_eq!(status(boss.set_quota(&[], &nobody, &mut unread()).await), NtStatus::INVALID_PARAMETER);
        let remove = -2_i64 as u64;
        boss.set_quota(&list(&[(2002, remove, remove)]), &nobody, &mut unread()).await.unwrap();
        assert_eq!(told(&boss, &asked(false, true, &[]), 4096).await.unwrap(), [sid(2001), sid(2003)]);
        let many = boss.query_quota(&asked(false, true, &[2001; 1025]), 1 << 20, &mut Vec::new()).await;
        assert_eq!(status(many), NtStatus::INVALID_PARAMETER, "each is a look at the volume");
        let mut out = Vec::new();
        boss.query_quota(&asked(false, true, &[2001, 2003]), 4096, &mut out).await.unwrap();
        let limits: Vec<_> = quotas(&out).map(|q| q.map(|q| (q.threshold, q.limit)).unwrap()).collect();
        assert_eq!(limits, [(1, 2), (NO_LIMIT, NO_LIMIT)], "{bad:?} has changed nothing");
    });
}

#[test]
fn a_user_is_told_of_what_its_quota_leaves() {
    run_kept(|f| async move {
        let boss = f.open("", &Ask::open()).await;
        let bob = f.create_as(&f.plain(2001), "", &Ask::open()).await.unwrap().open;
        let sizes = async |open: &Open| {
            let out = volume(open, VolumeClass::FULL_SIZE).await.unwrap();
            [0, 8, 16].map(|at| u64::from_le_bytes(out[at..at + 8].try_into().unwrap()))
        };
        let has_quotas = async |open: &Open| {
            let out = volume(open, VolumeClass::ATTRIBUTE).await.unwrap();
            let attributes = FileSystemAttributes(u32::from_le_bytes(out[..4].try_into().unwrap()));
            attributes.contains(FileSystemAttributes::VOLUME_QUOTAS)
        };
        let (all, free) = (16384, sizes(&bob).await[2]);
        assert_eq!((sizes(&bob).await, has_quotas(&bob).await), ([all, free, free], false));
        boss.set_volume(VolumeClass::CONTROL, &control(1, 4 << 20, 5 << 20), &mut unread()).await.unwrap();
        assert_eq!((sizes(&bob).await, has_quotas(&bob).await), ([all, free, free], true), "tracked only");
        boss.set_volume(VolumeClass::CONTROL, &control(2, 4 << 20, 5 << 20), &mut unread()).await.unwrap();
        assert_eq!(sizes(&bob).await, [80, 32, free], "5 MiB, and 3 of them used");
        boss.set_quota(&list(&[(2001, 1, 1 << 20)]), &nobody, &mut unread()).await.unwrap();
        assert_eq!(sizes(&bob).await, [16, 0, free], "more than there may be");
        boss.set_quota(&list(&[(2001, 1, u64::MAX)]), &nobody, &mut unread()).await.unwrap();
        assert_eq!(sizes(&bob).await, [all, free, free]);
        let out = volume(&boss, VolumeClass::CONTROL).await.unwrap();
        let shown = ControlInformation::decode(&out).unwrap();
        assert_eq!(
            (shown.flags & 0x303, shown.default_threshold, shown.default_limit),
            (2, 4 << 20, 5 << 20)
        );
    });
}

#[test]
fn quotas_are_changed_over_shares_that_allow_changes_and_make_sense() {
    run_kept(|f| async move {
        let boss = f.open("", &Ask::open()).await;
        boss.set_volume(VolumeClass::CONTROL, &control(2, 4 << 20, 5 << 20), &mut unread()).await.unwrap();
        let reading =
            f.through(&f.user, f.store.root(), AccessMask::FILE_READ.union(AccessMask::FILE_EXECUTE));
        let reader =
            f.create_as(&reading, "", &Ask::open().access(AccessMask::FILE_READ)).await.unwrap().open;
        let ask = list(&[(2001, 1, 2)]);
        assert_eq!(status(reader.set_quota(&ask, &nobody, &mut unread()).await), NtStatus::ACCESS_DENIED);
        let off =
            reader.set_volume(VolumeClass::CONTROL, &control(0, u64::MAX, u64::MAX), &mut unread()).await;
        assert_eq!(status(off), NtStatus::ACCESS_DENIED);
        assert!(told(&reader, &asked(false, true, &[2001]), 4096).await.is_ok(), "to look is to read");
        let change = AccessMask::FILE_ALL.without(AccessMask::WRITE_DAC | AccessMask::WRITE_OWNER);
        let changing = f.through(&f.user, f.store.root(), change);
        let changer = f.create_as(&changing, "", &Ask::open()).await.unwrap().open;
        changer.set_quota(&ask, &nobody, &mut unread()).await.unwrap();

        // A warning that would never be given, alone and behind one that makes sense, and everybody's.
        for wrong in [&[(2001, 9, 8)][..], &[(2001, 3, 4), (2002, 9, 8)]] {
            assert_eq!(
                status(boss.set_quota(&list(wrong), &nobody, &mut unread()).await),
                NtStatus::INVALID_PARAMETER
            );
        }
        let wrong = boss.set_volume(VolumeClass::CONTROL, &control(2, 9, 8), &mut unread()).await;
        assert_eq!(status(wrong), NtStatus::INVALID_PARAMETER);
        boss.set_quota(&list(&[(2003, u64::MAX, 8)]), &nobody, &mut unread()).await.unwrap();

        let is_group = |who: Sid| who == sid(2002);
        let groups = list(&[(2001, 3, 4), (2002, 3, 4)]);
        assert_eq!(
            status(boss.set_quota(&groups, &is_group, &mut unread()).await),
            NtStatus::INVALID_PARAMETER
        );
        let remove = -2_i64 as u64;
        boss.set_quota(&list(&[(2002, remove, remove)]), &is_group, &mut unread()).await.unwrap();
        let mut out = Vec::new();
        boss.query_quota(&asked(false, true, &[]), 4096, &mut out).await.unwrap();
        let limits: Vec<_> =
            quotas(&out).map(|q| q.map(|q| (q.sid, q.threshold, q.limit)).unwrap()).collect();
        assert_eq!(
            limits,
            [(sid(2001), 1, 2), (sid(2003), NO_LIMIT, 8)],
            "what was refused has changed nothing"
        );
    });
}

#[test]
fn what_was_changed_is_told_with_what_was_before_also_when_the_request_is_dropped() {
    run_kept(|f| async move {
        let boss = f.open("", &Ask::open()).await;
        let mut changes = unread();
        boss.set_volume(VolumeClass::CONTROL, &control(2, 4, 5), &mut changes).await.unwrap();
        let on = QuotaSettings { mode: QuotaMode::Enforce, default: QuotaLimits { warning: 4, limit: 5 } };
        let Some(QuotaChange::Everybody { old: Some(off), new }) = changes.done.first().copied() else {
            panic!("{changes:?}");
        };
        assert_eq!((off.mode, new), (QuotaMode::Off, on));
        let limits = |warning, limit| Some(QuotaLimits { warning, limit });
        let user = |user, old, new| QuotaChange::User { sid: sid(user), old, new };
        let mut changes = unread();
        boss.set_quota(&list(&[(2001, 1, 2)]), &nobody, &mut changes).await.unwrap();
        boss.set_quota(&list(&[(2001, 3, 4)]), &nobody, &mut changes).await.unwrap();
        assert_eq!(changes.done, [user(2001, None, limits(1, 2)), user(2001, limits(1, 2), limits(3, 4))]);
        // What is refused changes nothing, and is not told as a change.
        let mut changes = unread();
        assert!(boss.set_quota(&list(&[(2001, 9, 8)]), &nobody, &mut changes).await.is_err());
        assert_eq!(changes, unread());
        let (mut changes, asked) = (unread(), list(&[(2001, 5, 6), (SLOW, 1, 2), (2003, 1, 2)]));
        {
            let mut set = std::pin::pin!(boss.set_quota(&asked, &nobody, &mut changes));
            for _ in 0..100 {
                let once = std::future::poll_fn(|cx| std::task::Poll::Ready(set.as_mut().poll(cx)));
                assert!(once.await.is_pending());
            }
        }
        assert_eq!(changes.done, [user(2001, limits(3, 4), limits(5, 6))]);
        assert_eq!(changes.begun, Some(user(SLOW, None, limits(1, 2))), "nobody knows of that one");
    });
}
