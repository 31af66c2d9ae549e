//! Quotas: charges against what the files are seen to have, and what is refused.

use std::collections::BTreeMap;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use file_store::{
    NewSnapshot, Owner, QuotaLevel, QuotaLimits, QuotaMode, QuotaSettings, QuotaStore, SnapshotStore,
    StoreError,
};

use super::*;
use crate::quota_tally::TABLE;

/// The descriptor of a file of a user; 0 is nobody, whose files are the administrators'.
fn descriptor(user: u32) -> Vec<u8> {
    let mut bytes = vec![1, 0, 0, 0x80, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    bytes.extend([1, 2, 0, 0, 0, 0, 0, 5, 21, 0, 0, 0]);
    bytes.extend(user.to_le_bytes());
    if user == 0 { Vec::new() } else { bytes }
}

fn owner(user: u32) -> Owner {
    Owner::of(&descriptor(user))
}

fn of(user: u32) -> NewFile {
    NewFile { security: descriptor(user), ..file() }
}

fn settings(mode: QuotaMode, limit: u64) -> QuotaSettings {
    QuotaSettings { mode, default: QuotaLimits { warning: limit / 2, limit } }
}

async fn counted(volume: &Volume) {
    while volume.quotas().await.expect("quotas").counting {
        shard_runtime::sleep(Duration::from_millis(1)).await;
    }
}

async fn used(volume: &Volume, user: u32) -> u64 {
    volume.quota_of(owner(user)).await.expect("quota").owners[0].used
}

async fn make(volume: &Volume, name: &str, user: u32) -> (FileId, Arc<dyn OpenFile>) {
    let made = volume.create(volume.root(), name, of(user)).await.expect("create");
    (made, open(volume, made).await)
}

async fn put(open: &dyn OpenFile, offset: u64, clusters: u64) -> Result<(), StoreError> {
    let data = IoBuf::copy_from(&vec![7; (clusters * CLUSTER) as usize]).freeze();
    open.write(offset, data, Durability::Durable).await
}

/// Of each user what its files are seen to have.
async fn seen(volume: &Volume, files: &[(FileId, u32)]) -> BTreeMap<Owner, u64> {
    let mut all = BTreeMap::new();
    for (file, user) in files {
        let streams = volume.streams(*file).await.expect("streams");
        *all.entry(owner(*user)).or_default() += streams.iter().map(|stream| stream.allocated).sum::<u64>();
    }
    all.retain(|_, used| *used > 0);
    all
}

/// Waits until charges are what files are seen to have: some is given up, or mapped ahead, while nobody waits.
async fn agrees(volume: &Volume, files: &[(FileId, u32)], after: &str) {
    counted(volume).await;
    let mut last = None;
    for _ in 0..3000 {
        let before = seen(volume, files).await;
        let report = volume.quotas().await.expect("quotas");
        let charged: BTreeMap<Owner, u64> =
            report.owners.iter().filter(|e| e.used > 0).map(|e| (e.owner, e.used)).collect();
        if charged == before {
            return;
        }
        last = Some((before, charged));
        shard_runtime::sleep(Duration::from_millis(2)).await;
    }
    panic!("after {after}: seen and charged are {last:?}");
}

#[test]
fn charges_are_what_files_have_whatever_happens_to_them() {
    on_shard(async {
        let (device, mut volume) = fresh().await;
        let mut rng = Rng::new(16);
        // Half of it was there before quotas came on.
        let mut files: Vec<(FileId, u32)> = Vec::new();
        let mut snapshots = Vec::new();
        let mut removed: Vec<(FileId, u32, Arc<dyn OpenFile>)> = Vec::new();
        let mut names: BTreeMap<FileId, String> = BTreeMap::new();
        for step in 0..400u32 {
            if step == 60 {
                volume.set_quotas(settings(QuotaMode::Track, 1 << 20)).await.expect("on");
            }
            let user = rng.below(3) as u32;
            let at = if files.is_empty() { 0 } else { rng.below(files.len() as u64) as usize };
            let op = if files.len() < 2 { 0 } else { rng.below(14) };
            match op {
                0 | 1 => {
                    let name = format!("f{step}");
                    let (made, _) = make(&volume, &name, user).await;
                    names.insert(made, name);
                    files.push((made, user));
                }
                2..=4 => {
                    let open = open(&volume, files[at].0).await;
                    let written = put(&*open, rng.below(40) * 4096, rng.below(3)).await;
                    assert!(
                        written.is_ok() || written.is_err_and(|e| e.kind() == StoreErrorKind::QuotaExceeded)
                    );
                }
                5 => drop(open(&volume, files[at].0).await.set_size(rng.below(20 * CLUSTER)).await),
                6 => {
                    let open = open(&volume, files[at].0).await;
                    open.punch_hole(rng.below(8) * CLUSTER, 2 * CLUSTER).await.expect("punch");
                }
                7 => {
                    let options = OpenOptions {
                        stream: format!("s{}", rng.below(2)),
                        create_stream: true,
                        ..OpenOptions::shared(Access::READ_WRITE)
                    };
                    let stream = volume.open(files[at].0, options).await.expect("stream");
                    drop(put(&*stream, 0, 1 + rng.below(2)).await);
                }
                8 => {
                    volume.set_security(files[at].0, descriptor(user)).await.expect("owner");
                    files[at].1 = user;
                }
                9 => {
                    let (from, to) = (files[at].0, files[(at + 1) % files.len()].0);
                    let len = open(&volume, from).await.size();
                    drop(volume.clone_range((from, 0), (to, rng.below(2) * CLUSTER), len).await);
                }
                10 => {
                    let name = format!("c{step}");
                    let copy = volume.clone_tree(files[at].0, volume.root(), &name).await.expect("clone");
                    names.insert(copy, name);
                    files.push((copy, files[at].1));
                }
                11 => {
                    let (file, user) = files.swap_remove(at);
                    let held = rng.below(2) == 0;
                    let open = open(&volume, file).await;
                    volume.remove(volume.root(), &names[&file]).await.expect("remove");
                    if held {
                        removed.push((file, user, open));
                    }
                }
                12 => {
                    let new = NewSnapshot {
                        name: format!("n{step}"),
                        source: volume.root(),
                        quiesce: false,
                        maker: String::new(),
                        path: "/".into(),
                    };
                    snapshots.push(volume.take_snapshot(new).await.expect("snapshot").id);
                    if snapshots.len() > 2 {
                        volume.delete_snapshot(snapshots.remove(0)).await.expect("delete");
                    }
                }
                _ if step % 3 == 0 => {
                    removed.clear();
                    volume = reopen(&device, volume).await;
                }
                _ => {
                    let new = format!("m{step}");
                    let from = (volume.root(), names[&files[at].0].as_str());
                    volume.rename(from, (volume.root(), &new), false).await.expect("rename");
                    names.insert(files[at].0, new);
                }
            }
            if step >= 60 {
                let mut all = files.clone();
                all.extend(removed.iter().map(|(file, user, _)| (*file, *user)));
                agrees(&volume, &all, &format!("step {step}, {op}")).await;
            }
        }
        drop(removed);
        volume.close().await.expect("close");
    });
}

#[test]
fn what_passes_the_limit_is_refused_and_leaves_nothing() {
    on_shard(async {
        let (_, volume) = fresh().await;
        let (_, first) = make(&volume, "first", 1).await;
        let (second_id, second) = make(&volume, "second", 2).await;
        let (_, admin) = make(&volume, "admin", 0).await;
        put(&*first, 0, 6).await.expect("write");
        volume.set_quotas(settings(QuotaMode::Enforce, 8 * CLUSTER)).await.expect("on");
        counted(&volume).await;
        put(&*first, 6 * CLUSTER, 2).await.expect("up to the limit");
        let full = |result: Result<(), StoreError>| {
            assert_eq!(result.unwrap_err().kind(), StoreErrorKind::QuotaExceeded)
        };
        full(put(&*first, 8 * CLUSTER, 1).await);
        full(put(&*first, 7 * CLUSTER, 2).await);
        full(first.allocate(8 * CLUSTER, CLUSTER, true).await);
        full(
            volume
                .volatile()
                .expect("volatile")
                .open(first.file(), OpenOptions::shared(Access::READ_WRITE))
                .await
                .expect("open")
                .write(8 * CLUSTER, IoBuf::copy_from(&[1]).freeze(), Durability::Volatile)
                .await,
        );
        assert_eq!((first.size(), used(&volume, 1).await), (8 * CLUSTER, 8 * CLUSTER), "nothing by halves");
        let stream = OpenOptions {
            stream: "s".into(),
            create_stream: true,
            ..OpenOptions::shared(Access::READ_WRITE)
        };
        let stream = volume.open(first.file(), stream).await.expect("stream");
        full(put(&*stream, 0, 1).await);
        put(&*first, 0, 8).await.expect("what is there is written");
        // A clone is charged as a whole; so is what another one gives.
        let (third, third_open) = make(&volume, "third", 1).await;
        full(volume.clone_range((first.file(), 0), (third, 0), 8 * CLUSTER).await);
        assert_eq!(third_open.size(), 0);
        full(volume.clone_tree(first.file(), volume.root(), "copy").await.map(drop));
        assert!(volume.lookup(volume.root(), "copy").await.is_err());
        put(&*second, 0, 2).await.expect("another user");
        put(&*admin, 0, 20).await.expect("nothing limits administrators");
        full(volume.set_security(second_id, descriptor(1)).await);
        assert_eq!(Owner::of(&volume.security(second_id).await.expect("read")), owner(2));
        // What is given back may be had again, and a limit of its own counts.
        first.set_size(7 * CLUSTER).await.expect("cut");
        put(&*stream, 0, 1).await.expect("room again");
        volume
            .set_quota(owner(1), Some(QuotaLimits { warning: u64::MAX, limit: 9 * CLUSTER }))
            .await
            .expect("set");
        put(&*first, 7 * CLUSTER, 1).await.expect("more");
        full(put(&*first, 8 * CLUSTER, 1).await);
        let bad = volume.set_quota(owner(1), Some(QuotaLimits { warning: 2, limit: 1 })).await;
        assert_eq!(bad.unwrap_err().kind(), StoreErrorKind::InvalidArgument);
        assert!(volume.set_quota(Owner::ADMINISTRATORS, Some(QuotaLimits::NONE)).await.is_err());
        volume.set_quotas(settings(QuotaMode::Track, 8 * CLUSTER)).await.expect("track");
        put(&*first, 8 * CLUSTER, 1).await.expect("nothing is refused");
        assert_eq!(used(&volume, 1).await, 10 * CLUSTER);
    });
}

#[test]
fn many_writers_of_one_user_get_no_more_than_the_limit() {
    on_shard(async {
        let (_, volume) = fresh().await;
        volume.set_quotas(settings(QuotaMode::Enforce, 20 * CLUSTER)).await.expect("on");
        counted(&volume).await;
        let mut opens = Vec::new();
        for at in 0..16 {
            opens.push(make(&volume, &format!("f{at}"), 1).await.1);
        }
        let write = |at: u64| {
            let open = Arc::clone(&opens[(at % 16) as usize]);
            async move { put(&*open, at / 16 * CLUSTER, 1).await.is_ok() }
        };
        let written = futures_util::future::join_all((0..64).map(write)).await;
        assert_eq!(written.iter().filter(|ok| **ok).count(), 20);
        assert_eq!(used(&volume, 1).await, 20 * CLUSTER);
    });
}

#[test]
fn a_write_that_is_dropped_at_any_wait_is_charged_for_what_it_has() {
    on_shard(async {
        let (_, volume) = fresh().await;
        volume.set_quotas(settings(QuotaMode::Enforce, 100 * CLUSTER)).await.expect("on");
        let mut files = Vec::new();
        for polls in 0..24 {
            let (made, open) = make(&volume, &format!("f{polls}"), 1).await;
            files.push((made, 1));
            {
                let mut write = pin!(put(&*open, 0, 2));
                for _ in 0..polls {
                    if write.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                        break;
                    }
                    shard_runtime::sleep(Duration::from_millis(1)).await;
                }
            }
            drop(open);
            agrees(&volume, &files, &format!("{polls} polls")).await;
        }
    });
}

#[test]
fn limits_and_mode_stay_and_nothing_is_kept_where_there_are_none() {
    on_shard(async {
        let (device, volume) = fresh().await;
        let rows = async |volume: &Volume| volume.state_scan(TABLE, b"").await.expect("rows").len();
        volume.set_quotas(QuotaSettings::default()).await.expect("as it is");
        assert_eq!((rows(&volume).await, volume.quota_mode()), (0, QuotaMode::Off));
        let limits = QuotaLimits { warning: 1 << 20, limit: 2 << 20 };
        volume.set_quota(owner(3), Some(limits)).await.expect("set");
        volume.set_quotas(settings(QuotaMode::Enforce, 5 << 20)).await.expect("set");
        let volume = reopen(&device, volume).await;
        let report = volume.quotas().await.expect("quotas");
        assert_eq!(
            (report.settings, volume.quota_mode()),
            (settings(QuotaMode::Enforce, 5 << 20), QuotaMode::Enforce)
        );
        assert_eq!((report.owners.len(), report.owners[0].limits, report.owners[0].own), (1, limits, true));
        volume.set_quota(owner(3), None).await.expect("take away");
        volume.set_quotas(QuotaSettings::default()).await.expect("off");
        assert_eq!(rows(&volume).await, 0);
        // What a newer release has made is not changed, and enforces nothing.
        let newer = StateChange { table: TABLE.into(), key: Vec::new(), value: Some(vec![2, 2]) };
        volume.state_write(vec![newer]).await.expect("write");
        let volume = reopen(&device, volume).await;
        assert_eq!(volume.quota_mode(), QuotaMode::Off);
        let set = volume.set_quotas(settings(QuotaMode::Track, 1)).await;
        assert_eq!(set.unwrap_err().kind(), StoreErrorKind::Corrupt);
        assert_eq!(rows(&volume).await, 1);
    });
}

#[test]
fn an_owner_is_told_of_once_until_it_has_clearly_less() {
    on_shard(async {
        let (_, volume) = fresh().await;
        volume.set_quotas(settings(QuotaMode::Enforce, 8 * CLUSTER)).await.expect("on");
        counted(&volume).await;
        let told =
            async || volume.quota_events().await.expect("events").iter().map(|e| e.level).collect::<Vec<_>>();
        let (_, open) = make(&volume, "f", 1).await;
        put(&*open, 0, 3).await.expect("write");
        assert_eq!(told().await, []);
        for at in 3..8 {
            put(&*open, at * CLUSTER, 1).await.expect("write");
        }
        assert_eq!(told().await, [QuotaLevel::Warning]);
        for _ in 0..3 {
            assert!(put(&*open, 8 * CLUSTER, 1).await.is_err());
        }
        assert_eq!(told().await, [QuotaLevel::Limit]);
        open.set_size(0).await.expect("cut");
        put(&*open, 0, 8).await.expect("write");
        assert_eq!(told().await, [QuotaLevel::Warning]);
    });
}

#[test]
fn rows_are_what_they_always_were() {
    use crate::quota_tally::{OwnLimits, Quotas, encode_own, encode_settings};
    let numbers = |all: &[u64]| all.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>();
    let wanted = settings(QuotaMode::Enforce, 0x0102);
    let row = [vec![1, 2], numbers(&[0x81, 0x0102])].concat();
    assert_eq!(encode_settings(&wanted), row);
    let own = OwnLimits { limits: QuotaLimits { warning: u64::MAX, limit: 5 }, changed: 7 };
    let own_row = [vec![1], numbers(&[u64::MAX, 5, 7])].concat();
    assert_eq!(encode_own(&own), own_row);
    let mut read = Quotas::default();
    read.take_row(&[], &row);
    read.take_row(owner(1).bytes(), &own_row);
    assert!(!read.unreadable);
    assert_eq!(
        (read.settings, read.limits(&owner(1)), read.limits(&owner(2))),
        (wanted, own.limits, wanted.default)
    );
    // Anything shorter, longer, or of another version.
    for (key, row) in [(&[][..], &row), (owner(1).bytes(), &own_row)] {
        let mut bad = vec![[&row[..], &[0]].concat(), [&[2], &row[1..]].concat()];
        bad.extend((0..row.len()).map(|cut| row[..cut].to_vec()));
        for row in bad {
            let mut read = Quotas::default();
            read.take_row(key, &row);
            assert!(read.unreadable, "{row:?}");
        }
    }
    let mut read = Quotas::default();
    read.take_row(&[9], &own_row);
    assert!(read.unreadable);
}

/// What a removed file still has is its owner's until it goes, however many other files were looked at meanwhile.
#[test]
fn a_file_that_goes_is_its_owners_to_the_end() {
    let mut quotas = crate::quota_tally::Quotas::default();
    quotas.set(settings(QuotaMode::Track, u64::MAX));
    let tally = quotas.tally.as_mut().expect("it counts");
    tally.counted = u64::MAX;
    tally.know(7, Some(owner(1)));
    tally.leave(7, Some(owner(1)));
    for other in 0..20_000 {
        tally.know(1000 + other, None);
    }
    assert_eq!(tally.known(7), Some(Some(owner(1))));
    quotas.has_left(7);
    assert_eq!(quotas.tally.as_ref().expect("it counts").known(7), None);
}

/// Whoever makes files as fast as they are counted does not keep the count from its end, and is charged.
#[test]
fn files_made_meanwhile_make_the_count_no_longer() {
    on_shard(async {
        let (_, volume) = fresh().await;
        let mut files = Vec::new();
        for at in 0..10 {
            let (file, open) = make(&volume, &format!("before-{at}"), 1).await;
            put(&*open, 0, 1).await.expect("write");
            files.push((file, 1));
        }
        let last = files.last().expect("made").0;
        // Not by the volume's own task, which would count in between.
        let on = |session: &mut crate::session::Session<'_>| {
            session.space.quotas.set(settings(QuotaMode::Enforce, u64::MAX));
            Ok(())
        };
        volume.core.metadata.look(on).await.expect("on");
        let mut rounds = 0;
        while volume.core.metadata.look(|session| session.count_quotas(2)).await.expect("round") {
            rounds += 1;
            assert!(rounds < 20, "the count does not end");
            for each in 0..2 {
                let (file, open) = make(&volume, &format!("meanwhile-{rounds}-{each}"), 2).await;
                put(&*open, 0, 2).await.expect("write");
                put(&*open, CLUSTER, 3).await.expect("write");
                files.push((file, 2));
            }
            // One that has not been counted yet goes, and one that was made meanwhile has another owner.
            if rounds == 1 {
                volume.remove(volume.root(), "before-9").await.expect("remove");
                files.retain(|(file, _)| *file != last);
                let (file, user) = files.last_mut().expect("made");
                volume.set_security(*file, descriptor(3)).await.expect("given away");
                *user = 3;
            }
        }
        agrees(&volume, &files, "the count").await;
    });
}
