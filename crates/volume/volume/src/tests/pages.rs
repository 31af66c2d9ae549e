//! Damaged pages of the database under a volume in use: operations are refused, and the process goes on.

use volume_format::{BLOCK, Superblock};

use super::*;

/// Everything that may touch a table. What it comes to does not matter here.
async fn use_it(volume: &Volume) {
    let root = volume.root();
    let _ = volume.lookup(root, "file-3").await;
    let _ = volume.rename((root, "file-3"), (root, "renamed"), true).await;
    let _ = volume.remove(root, "file-1").await;
    if let Ok(made) = volume.create(root, "new", file()).await {
        let _ = volume.set_security(made, vec![1; 64]).await;
        if let Ok(open) = volume.open(made, OpenOptions::shared(Access::READ_WRITE)).await {
            let _ = open.write(0, IoBuf::copy_from(&[9; 4096]).freeze(), Durability::Durable).await;
        }
        let _ = volume.info(made).await;
        let _ = volume.clone_range((made, 0), (made, 1 << 20), 65536).await;
    }
    let rows = vec![StateChange { table: "t".into(), key: vec![1], value: Some(vec![9]) }];
    let _ = volume.state_write(rows).await;
    let _ = volume.read_directory(root, DirectoryCursor::default(), 100).await;
    let _ = volume.usage().await;
}

/// The page that says where tables are is damaged, a byte at a time.
#[test]
fn a_volume_with_a_damaged_list_of_tables_is_refused_or_stops() {
    on_shard(async {
        let (device, volume) = fresh().await;
        for i in 0..5 {
            volume.create(volume.root(), &format!("file-{i}"), file()).await.expect("create");
        }
        volume.close().await.expect("close");
        drop(volume);
        let block = device.read(0, IoBuf::new(BLOCK as usize)).await.expect("read");
        let layout = Superblock::decode(&block).expect("superblock");
        let len = (layout.data_start - layout.metadata_start).min(2 << 20) as usize;
        let sound = device.read(0, IoBuf::new(layout.metadata_start as usize + len)).await.expect("read");
        let mut places = Vec::new();
        for at in (layout.metadata_start as usize..sound.len()).step_by(BLOCK as usize) {
            let page = &sound[at..at + BLOCK as usize];
            let has = |name: &[u8]| page.windows(name.len()).any(|bytes| bytes == name);
            if has(b"orphans") && has(b"inodes") {
                places.extend((at..at + BLOCK as usize).filter(|byte| sound[*byte] != 0).step_by(61));
            }
        }
        assert!(places.len() > 10, "{}", places.len());
        let mut refused = 0;
        for place in places {
            let mut bytes = sound.to_vec();
            bytes[place] ^= 0xff;
            let put = async |bytes: &[u8]| {
                let written = device.write(0, IoBuf::copy_from(bytes).freeze(), Durability::Durable).await;
                written.expect("write");
            };
            put(&bytes).await;
            match Volume::open(Arc::clone(&device), environment()).await {
                Ok(volume) => {
                    use_it(&volume).await;
                    let _ = volume.close().await;
                }
                Err(_) => refused += 1,
            }
            put(&sound).await;
        }
        assert!(refused > 1, "{refused}");
    });
}

/// Pages that are met in the middle of a change are damaged: the volume refuses or stops, whatever else is open then.
#[test]
fn a_damaged_page_that_a_change_meets_stops_the_volume_at_most() {
    on_shard(async {
        let (device, volume) = fresh().await;
        for i in 0..200 {
            let made = volume.create(volume.root(), &format!("file-{i}"), file()).await.expect("create");
            volume.set_security(made, vec![1; 500]).await.expect("security");
        }
        let rows =
            (0..60).map(|key| StateChange { table: "t".into(), key: vec![key], value: Some(vec![9; 900]) });
        volume.state_write(rows.collect()).await.expect("state");
        volume.close().await.expect("close");
        drop(volume);
        let block = device.read(0, IoBuf::new(BLOCK as usize)).await.expect("read");
        let layout = Superblock::decode(&block).expect("superblock");
        let (start, len) = (layout.metadata_start as usize, 2 << 20);
        let sound = device.read(0, IoBuf::new(start + len)).await.expect("read");
        let mut stopped = 0;
        for at in (start + BLOCK as usize..sound.len()).step_by(BLOCK as usize) {
            if sound[at] == 0 {
                continue;
            }
            for damage in 0..4 {
                let mut bytes = sound.to_vec();
                let page = &mut bytes[at..at + BLOCK as usize];
                match damage {
                    0 => page.fill(0),
                    1 => page.fill(0xff),
                    2 => page[8..200].fill(0xff),
                    _ => page.reverse(),
                }
                let put = async |bytes: &[u8]| {
                    let written =
                        device.write(0, IoBuf::copy_from(bytes).freeze(), Durability::Durable).await;
                    written.expect("write");
                };
                let volume = Volume::open(Arc::clone(&device), environment()).await.expect("open");
                // The database has room for few of its pages in memory.
                device
                    .write(
                        at as u64,
                        IoBuf::copy_from(&bytes[at..at + BLOCK as usize]).freeze(),
                        Durability::Durable,
                    )
                    .await
                    .expect("write");
                use_it(&volume).await;
                stopped += usize::from(volume.why_stopped().is_some());
                let _ = volume.close().await;
                drop(volume);
                put(&sound).await;
            }
        }
        assert!(stopped > 10, "{stopped}");
    });
}

/// What a database does when it is dropped goes by pages that are damaged, too.
#[test]
fn nothing_is_written_to_a_database_that_cannot_be_used() {
    on_shard(async {
        let (device, volume) = fresh().await;
        let made = volume.create(volume.root(), "file", file()).await.expect("create");
        write(&open(&volume, made).await, 0, &[7; 1 << 20], Durability::Durable).await;
        volume.close().await.expect("close");
        drop(volume);
        // Clusters that are free and used: the pages are sound, and what they say cannot be.
        super::check::damage(&device, |txn| {
            let mut freed = txn.open_table(crate::tables::FREED.definition).expect("table");
            freed.insert(0, 1_000_000).expect("insert");
        });
        let block = device.read(0, IoBuf::new(BLOCK as usize)).await.expect("read");
        let layout = Superblock::decode(&block).expect("superblock");
        // Behind the header, which says that it is in use.
        let area = async || {
            let len = (layout.metadata_size - BLOCK) as usize;
            device.read(layout.metadata_start + BLOCK, IoBuf::new(len)).await.expect("read").to_vec()
        };
        let before = area().await;
        let refused = Volume::open(Arc::clone(&device), environment()).await.map(drop);
        assert_eq!(refused.map_err(|error| error.kind()), Err(StoreErrorKind::Corrupt));
        assert!(area().await == before, "pages were written");
    });
}
