//! What images promise: the contract of block devices, nothing flushed lost at any cut, damage refused by name.

mod behaves;
mod chains;
mod conforms;
mod crash;
mod damage;
mod full;
mod held;
mod meddled;
mod memory;
mod merges;
mod moves;
mod qemu;
mod resizes;
mod sealed;
mod sim_file;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aligned_buffer::IoBuf;
use block_device::{BlockDevice, Durability};
use file_store::{Access, Attributes, FileKind, FileStore, MemoryStore, NewFile, OpenFile, OpenOptions};
use shard_runtime::{Entropy, SeededEntropy};

use crate::{CreateOptions, Image, ImageError, Kind, Mode, Opening, create};

const MIB: u64 = 1 << 20;

/// Another one each time: two openings never give the same ids.
fn entropy() -> Arc<dyn Entropy> {
    static NEXT: AtomicU64 = AtomicU64::new(7);
    Arc::new(SeededEntropy::new(NEXT.fetch_add(1, Ordering::Relaxed)))
}

/// Runs as on a shard.
fn run<T>(future: impl Future<Output = T>) -> T {
    sim::on_shard(future).expect("an event loop")
}

/// Files in memory.
async fn memory_file(store: &MemoryStore, name: &str) -> Arc<dyn OpenFile> {
    let new = NewFile { kind: FileKind::File, attributes: Attributes::default(), security: Vec::new() };
    let id = store.create(store.root(), name, new).await.expect("made");
    store.open(id, OpenOptions::shared(Access::READ_WRITE)).await.expect("opened")
}

async fn open(file: &Arc<dyn OpenFile>, mode: Mode) -> Result<Image, ImageError> {
    open_over(file, mode, None).await
}

async fn open_over(file: &Arc<dyn OpenFile>, mode: Mode, parent: Option<Image>) -> Result<Image, ImageError> {
    Opening::read(Arc::clone(file), mode, &entropy()).await?.finish(parent).await
}

/// A new image of this kind, opened to be written, and its file.
async fn image(options: &CreateOptions) -> (Image, Arc<dyn OpenFile>) {
    let file = memory_file(&MemoryStore::new(1 << 50), "image").await;
    create(&file, options, &SeededEntropy::new(3)).await.expect("made");
    (open(&file, Mode::Write).await.expect("opened"), file)
}

fn dynamic(size: u64, block: u64) -> CreateOptions {
    CreateOptions { block_size: Some(block as u32), ..CreateOptions::new(size, Kind::Dynamic) }
}

async fn put(image: &Image, offset: u64, len: u64, fill: u8) {
    let data = IoBuf::copy_from(&vec![fill; len as usize]).freeze();
    image.write(offset, data, Durability::Volatile).await.expect("written");
}

async fn holds(image: &Image, offset: u64, len: u64, fill: u8) {
    let read = image.read(offset, IoBuf::new(len as usize)).await.expect("read");
    let wrong = read.iter().position(|byte| *byte != fill);
    assert_eq!(wrong.map(|at| (offset + at as u64, read[at])), None, "{offset}+{len} is not all {fill}");
}

async fn sound(file: &Arc<dyn OpenFile>) {
    let report = crate::check(file).await.expect("an image");
    assert_eq!((report.error_count, &report.errors, &report.warnings), (0, &vec![], &vec![]), "{report:?}");
}
