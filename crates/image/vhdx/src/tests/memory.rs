//! What images hold in memory, and how much they read before they are open.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use aligned_buffer::IoBuf;
use file_store::{MemoryStore, OpenFile, StoreFuture};
use tokio::sync::Notify;
use vhdx_format::PayloadState;

use super::*;
use crate::{ImageErrorKind, Memory};

/// A file that counts what is read, and whose space is reserved only when it is told.
struct Counting {
    below: Arc<dyn OpenFile>,
    read: Arc<AtomicU64>,
    gate: Arc<Gate>,
}

#[derive(Default)]
struct Gate {
    closed: AtomicBool,
    asked: Notify,
    opened: Notify,
}

impl test_layers::FileLayer for Counting {
    fn below(&self) -> &dyn OpenFile {
        &*self.below
    }

    fn read(&self, offset: u64, buf: IoBuf) -> StoreFuture<'_, IoBuf> {
        self.read.fetch_add(buf.len() as u64, Ordering::Relaxed);
        self.below.read(offset, buf)
    }

    fn allocate(&self, offset: u64, len: u64, grow: bool) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            if self.gate.closed.load(Ordering::SeqCst) {
                self.gate.asked.notify_one();
                self.gate.opened.notified().await;
            }
            self.below.allocate(offset, len, grow).await
        })
    }
}

type Counted = (Arc<dyn OpenFile>, Arc<AtomicU64>, Arc<Gate>);

async fn counted() -> Counted {
    let below = memory_file(&MemoryStore::new(1 << 55), "image").await;
    let (read, gate) = (Arc::<AtomicU64>::default(), Arc::<Gate>::default());
    let counting = Counting { below, read: read.clone(), gate: gate.clone() };
    (Arc::new(test_layers::Layered(counting)), read, gate)
}

#[test]
fn the_table_of_the_largest_disk_is_not_read_where_it_is_empty() {
    run(async {
        let (file, read, _) = counted().await;
        create(&file, &dynamic(64 << 40, MIB), &SeededEntropy::new(3)).await.expect("made");
        let places = [0, 17 << 40, (64 << 40) - MIB];
        for round in 0..2 {
            read.store(0, Ordering::Relaxed);
            let image = open(&file, Mode::Write).await.expect("opened");
            let read = read.load(Ordering::Relaxed);
            assert!(read < 4 * MIB, "{read} bytes were read");
            for (index, place) in places.into_iter().enumerate() {
                if round == 1 {
                    holds(&image, place, 4096, index as u8 + 1).await;
                }
                // What the table says is marked: a block that is new does not get the place of another one.
                put(&image, place, 4096, index as u8 + 1).await;
                put(&image, (place + 9 * MIB) % (64 << 40), 4096, 9).await;
            }
            image.close().await.expect("closed");
        }
        sound(&file).await;
    });
}

#[test]
fn a_fixed_disk_is_used_while_it_grows() {
    run(async {
        let (file, _, gate) = counted().await;
        let options =
            CreateOptions { block_size: Some(MIB as u32), ..CreateOptions::new(4 * MIB, Kind::Fixed) };
        create(&file, &options, &SeededEntropy::new(3)).await.expect("made");
        let image = open(&file, Mode::Write).await.expect("opened");
        gate.closed.store(true, Ordering::SeqCst);
        let mut grows = std::pin::pin!(image.resize(8 * MIB));
        tokio::select! {
            _ = &mut grows => panic!("it did not wait"),
            () = gate.asked.notified() => {}
        }
        let uses = async {
            put(&image, MIB, 4096, 5).await;
            holds(&image, MIB, 4096, 5).await;
            image.flush().await.expect("flushed");
        };
        tokio::select! {
            biased;
            () = uses => {}
            () = turns(1000) => panic!("reads and writes wait for the growing"),
        }
        assert_eq!(image.size(), 4 * MIB);
        gate.closed.store(false, Ordering::SeqCst);
        gate.opened.notify_one();
        grows.await.expect("grown");
        assert_eq!(image.size(), 8 * MIB);
        holds(&image, MIB, 4096, 5).await;
        holds(&image, 4 * MIB, 4 * MIB, 0).await;
        image.close().await.expect("closed");
        sound(&file).await;
    });
}

async fn turns(count: u32) {
    for _ in 0..count {
        tokio::task::yield_now().await;
    }
}

/// So much, of which others need some at times.
#[derive(Default)]
struct Limited {
    limit: usize,
    used: AtomicUsize,
    most: AtomicUsize,
    tight: AtomicBool,
}

impl Memory for Limited {
    fn take(&self, bytes: usize) -> bool {
        let after = self.used.load(Ordering::SeqCst) + bytes;
        if after > self.limit {
            return false;
        }
        self.used.store(after, Ordering::SeqCst);
        self.most.fetch_max(after, Ordering::SeqCst);
        true
    }

    fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::SeqCst);
    }

    fn is_tight(&self) -> bool {
        self.tight.load(Ordering::SeqCst)
    }
}

async fn within(file: &Arc<dyn OpenFile>, mode: Mode, memory: &Arc<Limited>) -> Result<Image, ImageError> {
    Opening::read_within(file.clone(), mode, &entropy(), memory.clone()).await?.finish(None).await
}

/// An image takes what it may, gives back what others need, and works with what is its own.
#[test]
fn an_image_takes_no_more_memory_than_there_is() {
    run(async {
        let file = memory_file(&MemoryStore::new(1 << 55), "image").await;
        create(&file, &dynamic(8 << 40, MIB), &SeededEntropy::new(3)).await.expect("made");
        for limit in [0, 3 << 20, 64 << 20] {
            let memory = Arc::new(Limited { limit, ..Limited::default() });
            let image = within(&file, Mode::Write, &memory).await.expect("opened");
            // A sector of the table speaks of 512 blocks; each of these is of another one.
            for number in 0..6000 {
                holds(&image, number * 512 * MIB, 512, 0).await;
            }
            assert!(memory.most.load(Ordering::SeqCst) <= limit.min(16 << 20));
            assert!(limit == 0 || memory.used.load(Ordering::SeqCst) > 1 << 20);
            put(&image, 5 * 512 * MIB, 512, 4).await;
            memory.tight.store(true, Ordering::SeqCst);
            image.trim_memory();
            assert_eq!(memory.used.load(Ordering::SeqCst), 0);
            holds(&image, 5 * 512 * MIB, 512, 4).await;
            image.unmap(5 * 512 * MIB, MIB).await.expect("unmapped");
            image.close().await.expect("closed");
        }
        sound(&file).await;
    });
}

/// The log of a parent is held while the parent is open: where there is no memory for it, the image is refused, not the node.
#[test]
fn a_log_takes_memory_as_long_as_it_is_held() {
    run(async {
        let (image, file) = image(&dynamic(64 * MIB, MIB)).await;
        put(&image, 0, 512, 1).await;
        image.flush().await.expect("flushed");
        drop(image);
        let none = Arc::new(Limited { limit: MIB as usize, ..Limited::default() });
        let refused = within(&file, Mode::Read, &none).await.err().map(|error| error.kind());
        assert_eq!(refused, Some(ImageErrorKind::NoMemory));
        let some = Arc::new(Limited { limit: 4 * MIB as usize, ..Limited::default() });
        let read = within(&file, Mode::Read, &some).await.expect("opened");
        assert_eq!(some.used.load(Ordering::SeqCst), MIB as usize);
        drop(read);
        assert_eq!(some.used.load(Ordering::SeqCst), 0);
        let written = within(&file, Mode::Write, &some).await.expect("opened");
        assert_eq!(some.used.load(Ordering::SeqCst), 0, "its log is in place");
        holds(&written, 0, 512, 1).await;
    });
}

/// A file of a few MiB may say that blocks lie anywhere in 256 TiB.
#[test]
fn what_a_table_leads_to_takes_no_more_memory_than_there_is() {
    const PLACES: u64 = 1 << 17;
    run(async {
        let file = memory_file(&MemoryStore::new(1 << 55), "image").await;
        create(&file, &dynamic(1 << 40, MIB), &SeededEntropy::new(3)).await.expect("made");
        let image = open(&file, Mode::Read).await.expect("opened");
        let layout = image.inner.layout();
        let bat = image.info().await.regions.bat;
        drop(image);
        file.set_size(256 << 40).await.expect("sized");
        let mut table = vec![0; bat.length as usize];
        for place in 1..=PLACES {
            let entry = vhdx_format::BatEntry::payload(PayloadState::FullyPresent, place << 30);
            let at = layout.payload_entry(place) as usize * 8;
            table[at..at + 8].copy_from_slice(&entry.0.to_le_bytes());
        }
        let table = IoBuf::copy_from(&table).freeze();
        file.write(bat.offset, table, Durability::Durable).await.expect("written");
        let little = Arc::new(Limited { limit: 1 << 20, ..Limited::default() });
        let refused = within(&file, Mode::Write, &little).await.err().map(|error| error.kind());
        assert_eq!(refused, Some(ImageErrorKind::NoMemory));
        assert_eq!(little.used.load(Ordering::SeqCst), 0, "given back");
        let much = Arc::new(Limited { limit: 64 << 20, ..Limited::default() });
        let image = within(&file, Mode::Write, &much).await.expect("opened");
        assert!(much.used.load(Ordering::SeqCst) > PLACES as usize * 100, "all of it is counted");
        drop(image);
        assert_eq!(much.used.load(Ordering::SeqCst), 0);
    });
}
