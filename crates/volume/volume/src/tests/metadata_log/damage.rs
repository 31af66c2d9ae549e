//! A metadata log that is damaged, that cannot be read in places, or that holds what only looks like its batches.

use byte_codec::xxh3;
use volume_format::{BatchId, BatchWriter, Table};

use super::*;
use crate::metadata_log::{Appended, Mark, MetadataLog, Newer};
use crate::replay;

#[test]
fn damage_in_the_middle_is_named_and_what_follows_is_not_taken_as_good() {
    on_shard(async {
        let device = three().await;
        let all = batches(&device).await;
        for (lost, left) in [(0, vec![]), (1, vec!["a".to_owned()])] {
            let damaged = crashed(&device).await;
            let (at, sequence) = all[lost];
            put(&damaged, at, &[0xa5; BLOCK as usize]).await;
            let before = damaged.read(0, IoBuf::new(SIZE)).await.expect("read");
            let refused = Volume::open(Arc::clone(&damaged), environment()).await.err().expect("refused");
            assert_eq!(refused.kind(), StoreErrorKind::Corrupt);
            let text = refused.to_string();
            for word in [&format!("batch {sequence} at byte {at}"), "metadata log", "volume check --repair"] {
                assert!(text.contains(word), "{text}");
            }
            let planned = look(&damaged, Repair::Plan).await;
            assert_eq!(planned.len(), 1, "{planned:?}");
            assert_eq!((planned[0].severity, planned[0].structure), (Severity::Critical, LOG));
            assert!(planned[0].repair.is_some() && planned[0].detail.contains(&sequence.to_string()));
            assert_eq!(look(&damaged, Repair::No).await, planned);
            let after = damaged.read(layout(&device).await.data_start, IoBuf::new(4 << 20)).await;
            assert!(
                after.expect("read")[..] == before[layout(&device).await.data_start as usize..][..4 << 20]
            );
            assert_eq!(look(&damaged, Repair::Apply).await, planned);
            assert_eq!(look(&damaged, Repair::No).await, Vec::new());
            let volume = opened(&damaged).await;
            assert_eq!(listing(&volume).await, left);
            assert_eq!(volume.check_deep().await.expect("check"), Vec::new());
        }
    });
}

/// A disk of which one block cannot be read until it is written.
struct Bad {
    disk: Device,
    at: std::sync::Mutex<Option<u64>>,
}

impl test_layers::DeviceLayer for Bad {
    fn below(&self) -> &dyn block_device::BlockDevice {
        &*self.disk
    }

    fn read(&self, offset: u64, buf: IoBuf) -> block_device::BlockFuture<'_, IoBuf> {
        let bad =
            self.at.lock().expect("lock").is_some_and(|at| (offset..offset + buf.len() as u64).contains(&at));
        Box::pin(async move {
            match bad {
                true => Err(block_device::BlockError::new(block_device::BlockErrorKind::Media, "read")),
                false => self.disk.read(offset, buf).await,
            }
        })
    }

    fn write(
        &self,
        offset: u64,
        data: aligned_buffer::SharedBuf,
        durability: Durability,
    ) -> block_device::BlockFuture<'_, ()> {
        let mut at = self.at.lock().expect("lock");
        *at = at.filter(|at| !(offset..offset + data.len() as u64).contains(at));
        self.disk.write(offset, data, durability)
    }
}

/// What cannot be read may have been answered for, where the next batch would be; elsewhere it is of no account.
#[test]
fn a_block_that_cannot_be_read_is_not_taken_for_the_end() {
    on_shard(async {
        let device = three().await;
        let all = batches(&device).await;
        let (start, _) = all[0];
        for (block, refused) in [(0, true), (2, true), (3, true), (4, false)] {
            let at = start + block * BLOCK;
            let disk = crashed(&device).await;
            let bad = Arc::new(test_layers::Layered(Bad { disk, at: std::sync::Mutex::new(Some(at)) }));
            let device: Device = bad.clone();
            let opened = Volume::open(Arc::clone(&device), environment()).await;
            assert_eq!(opened.is_err(), refused, "block {block}");
            let Err(error) = opened else { continue };
            assert_eq!(error.kind(), StoreErrorKind::Corrupt, "{error}");
            assert!(error.to_string().contains(&format!("at byte {at}")), "{error}");
            let found = look(&device, Repair::Apply).await;
            assert_eq!((found.len(), found[0].structure), (1, LOG), "{found:?}");
            // The log begins anew at its start: a bad block there is whole when it is written.
            let volume = Volume::open(device, environment()).await.expect("open");
            let left = ["a", "b", "c"].into_iter().take(block as usize);
            assert!(listing(&volume).await.iter().map(String::as_str).eq(left), "block {block}");
        }
    });
}

/// A batch of a version that is still to come, in a block.
fn of_version_2(id: BatchId) -> Vec<u8> {
    let mut writer = BatchWriter::new(BLOCK as usize);
    writer.put(Table::Orphans, &9u64, &());
    let mut bytes = writer.seal(&id).expect("it fits").to_vec();
    bytes[16] = 2;
    let sum = xxh3(&bytes[16..]).to_le_bytes();
    bytes[8..16].copy_from_slice(&sum);
    bytes.resize(BLOCK as usize, 0);
    bytes
}

/// What clients store in a batch can look like a newer one; and one that a newer release wrote and committed is old news.
#[test]
fn only_the_batch_that_is_next_can_be_a_newer_releases() {
    on_shard(async {
        let device = three().await;
        let (at, _) = *batches(&device).await.last().expect("three");
        let last = decode(&block(&device, at).await).expect("sound").id;
        let next = BatchId { sequence: last.sequence + 1, ..last };
        let others = [
            BatchId { guid: [1; 16], ..next },
            BatchId { epoch: next.epoch - 1, ..next },
            BatchId { epoch: next.epoch + 1, ..next },
            BatchId { nonce: !next.nonce, ..next },
            BatchId { sequence: last.sequence - 1, ..next },
        ];
        for other in others {
            for blocks in [1, 2] {
                let image = crashed(&device).await;
                put(&image, at + blocks * BLOCK, &of_version_2(other)).await;
                assert_eq!(look(&image, Repair::No).await, Vec::new(), "{other:?}");
                assert_eq!(listing(&opened(&image).await).await, ["a", "b", "c"], "{other:?}");
            }
        }
        put(&device, at + BLOCK, &of_version_2(next)).await;
        let refused = Volume::open(Arc::clone(&device), environment()).await.err().expect("refused");
        assert!(refused.to_string().contains("needs a newer release"), "{refused}");
        let found = look(&device, Repair::Plan).await;
        assert!(found.len() == 1 && found[0].repair.is_none(), "{found:?}");
        // Behind a gap it is as good as any: something was answered for.
        put(&device, at + BLOCK, &[0; BLOCK as usize]).await;
        let later = BatchId { sequence: last.sequence + 2, ..last };
        put(&device, at + 2 * BLOCK, &of_version_2(later)).await;
        let refused = Volume::open(device, environment()).await.err().expect("refused");
        assert!(refused.to_string().contains("is damaged"), "{refused}");
    });
}

/// A device of which the first block of the log cannot be read until it is written.
async fn without_first_block(disk: &Device) -> Device {
    let (start, _) = layout(disk).await.metadata_log().expect("a log");
    let at = std::sync::Mutex::new(Some(start));
    Arc::new(test_layers::Layered(Bad { disk: crashed(disk).await, at }))
}

/// What the database says of its log.
fn said_by(device: &Device) -> Mark {
    let (sender, found) = std::sync::mpsc::channel();
    super::super::check::damage(device, move |txn| {
        sender.send(replay::read_mark(txn).expect("read")).expect("somebody waits");
    });
    found.recv().expect("an answer").expect("a mark")
}

#[test]
fn what_cannot_be_read_of_a_log_that_was_closed_is_no_damage() {
    on_shard(async {
        let (device, volume) = fresh().await;
        make(&volume, ["a"]).await;
        commit(&volume).await;
        // Nothing is left to be committed, and the closing says all the same that it is one.
        volume.close().await.expect("close");
        let closed = without_first_block(&device).await;
        assert_eq!(look(&closed, Repair::No).await, Vec::new());
        let volume = opened(&closed).await;
        // It may be a batch from here on, so it is whole again before.
        let crash = crashed(&closed).await;
        assert_eq!(listing(&opened(&crash).await).await, ["a"]);
        make(&volume, ["b"]).await;
        // In use: what cannot be read may have been answered for.
        let used = without_first_block(&closed).await;
        assert_eq!(look(&used, Repair::No).await.len(), 1);
        assert!(Volume::open(Arc::clone(&used), environment()).await.is_err());
        assert_eq!(look(&used, Repair::Apply).await.len(), 1);
        // A repair closes the log, too.
        let repaired = without_first_block(&used).await;
        assert_eq!(look(&repaired, Repair::No).await, Vec::new());
        assert_eq!(listing(&opened(&repaired).await).await, ["a"]);
        volume.close().await.expect("close");
        let closed = without_first_block(&closed).await;
        assert_eq!(listing(&opened(&closed).await).await, ["a", "b"]);
        // Nobody has opened it yet.
        let device: Device = Arc::new(MemoryDisk::new(SIZE, 4096));
        let options = FormatOptions { name: "v".into() };
        Volume::format(Arc::clone(&device), options, environment()).await.expect("format");
        assert_eq!(listing(&opened(&without_first_block(&device).await).await).await, Vec::<String>::new());
    });
}

/// None is written behind the mark; and should one be there, it counts as any other.
#[test]
fn a_batch_behind_the_mark_of_a_closing_is_never_ignored() {
    on_shard(async {
        let (device, volume) = fresh().await;
        make(&volume, ["a"]).await;
        volume.close().await.expect("close");
        drop(volume);
        let (superblock, mark) = (layout(&device).await, said_by(&device));
        assert!(mark.closed, "{mark:?}");
        let change = |writer: &mut BatchWriter| {
            writer.clear();
            writer.put(Table::State, &("t", &b"k"[..]), &&b"v"[..]);
        };
        // An opening goes on without having taken the mark back: nothing goes to the log before a commit has.
        let used = crashed(&device).await;
        let log_of =
            |device: &Device| MetadataLog::new(Arc::clone(device), &superblock, mark).expect("a log");
        let (log, below) = (log_of(&used), Arc::clone(&used));
        std::thread::spawn(move || {
            let (mut log, mut writer) = (log, BatchWriter::new(BLOCK as usize));
            change(&mut writer);
            let before = Newer::read(&below, &superblock, mark).expect("read");
            assert_eq!(log.append(&mut writer).expect("no failure"), Appended::CommitInstead);
            let after = Newer::read(&below, &superblock, mark).expect("read");
            assert!(before.is_empty() && after.is_empty());
            assert!(!log.mark().closed && log.closing_mark().is_none());
            log.committed();
            change(&mut writer);
            assert_eq!(log.append(&mut writer).expect("written"), Appended::Durable);
            assert_eq!(Newer::read(&below, &superblock, mark).expect("read").sequence, mark.sequence + 1);
            assert!(log.closing_mark().is_some_and(|mark| mark.closed));
        })
        .join()
        .expect("the thread");
        // There it is, with the mark.
        assert!(said_by(&used).closed);
        let volume = opened(&used).await;
        assert_eq!(volume.state_get("t", b"k").await.expect("state"), Some(b"v".to_vec()));
    });
}

/// What takes hours to look into is not looked into: batches do not overlap, and there is room for few.
#[test]
fn heads_that_claim_the_same_bytes_are_not_all_looked_into() {
    on_shard(async {
        let (device, volume) = fresh().await;
        volume.close().await.expect("close");
        drop(volume);
        let (superblock, mark) = (layout(&device).await, said_by(&device));
        let (start, size) = superblock.metadata_log().expect("a log");
        let id = BatchId {
            guid: superblock.guid,
            epoch: mark.epoch,
            nonce: mark.nonce,
            sequence: mark.sequence + 7,
        };
        let mut writer = BatchWriter::new(1 << 20);
        for n in 0..100_u8 {
            writer.put(Table::State, &("t", &[n][..]), &&[n; 4000][..]);
        }
        let head = writer.seal(&id).expect("a batch")[..BLOCK as usize].to_vec();
        // One is what a torn write leaves, and none is sound.
        for (heads, damaged) in [(1, false), (size / BLOCK - 1, true)] {
            for n in 1..=heads {
                put(&device, start + n * BLOCK, &head).await;
            }
            let (device, superblock) = (Arc::clone(&device), superblock.clone());
            let look =
                std::thread::spawn(move || Newer::read(&device, &superblock, mark).expect("read").damage);
            assert_eq!(look.join().expect("the thread").is_some(), damaged, "{heads} heads");
        }
    });
}

#[test]
fn numbers_that_no_volume_reaches_are_refused() {
    on_shard(async {
        let device = three().await;
        super::super::check::damage(&device, |txn| {
            let mut counters = txn.open_table(crate::tables::COUNTERS.definition).expect("table");
            counters.insert("log_sequence", u64::MAX - 1).expect("insert");
        });
        let refused = Volume::open(Arc::clone(&device), environment()).await.err().expect("refused");
        assert_eq!(refused.kind(), StoreErrorKind::Corrupt);
        assert!(refused.to_string().contains("does not say which part"), "{refused}");
        let found = look(&device, Repair::Apply).await;
        assert_eq!(found[0].structure, LOG, "{found:?}");
        assert_eq!(look(&device, Repair::No).await, Vec::new());
        opened(&device).await;
    });
}

/// Data whose mapping is lost with the log is not what the next file shows.
#[test]
fn clusters_whose_mapping_is_lost_are_zeroed() {
    on_shard(async {
        let (device, volume) = fresh().await;
        make(&volume, ["a"]).await;
        let lost = volume.create(volume.root(), "lost", file()).await.expect("create");
        let handle = open(&volume, lost).await;
        write(&handle, 0, &[7; 1 << 20], Durability::Durable).await;
        let damaged = crashed(&device).await;
        let all = batches(&damaged).await;
        put(&damaged, all[1].0, &[0; BLOCK as usize]).await;
        assert!(!look(&damaged, Repair::Apply).await.is_empty());
        assert_eq!(look(&damaged, Repair::No).await, Vec::new(), "no free cluster holds anything");
        let volume = opened(&damaged).await;
        let next = volume.create(volume.root(), "next", file()).await.expect("create");
        let next = open(&volume, next).await;
        next.set_size(8 << 20).await.expect("size");
        for at in (0..8 << 20).step_by(1 << 20) {
            // In the background, clusters are zeroed meanwhile, and none is free before.
            let byte = || IoBuf::copy_from(b"x").freeze();
            while next.write(at + 5, byte(), Durability::Durable).await.is_err() {
                shard_runtime::sleep(std::time::Duration::from_millis(20)).await;
            }
        }
        assert!(!read(&next, 0, 8 << 20).await.contains(&7));
        assert_eq!(volume.check_deep().await.expect("check"), Vec::new());
    });
}

#[test]
fn a_database_that_does_not_say_what_it_has_is_named_and_repaired() {
    on_shard(async {
        let device = three().await;
        super::super::check::damage(&device, |txn| {
            let mut counters = txn.open_table(crate::tables::COUNTERS.definition).expect("table");
            counters.remove("log_epoch").expect("remove");
        });
        let refused = Volume::open(Arc::clone(&device), environment()).await.err().expect("refused");
        assert!(refused.to_string().contains("metadata log"), "{refused}");
        let found = look(&device, Repair::Apply).await;
        assert_eq!(found[0].structure, LOG, "{found:?}");
        assert_eq!(look(&device, Repair::No).await, Vec::new());
        assert_eq!(listing(&opened(&device).await).await, Vec::<String>::new());
    });
}
