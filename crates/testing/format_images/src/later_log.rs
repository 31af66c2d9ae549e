//! A log that was put before a volume in use, with data that the volume does not have yet.

use std::sync::Arc;

use aligned_buffer::IoBuf;
use block_device::{Device, Durability, MemoryDisk};
use file_store::{Access, Attributes, FileKind, FileStore, NewFile, OpenFile, OpenOptions};
use shard_runtime::{Entropy, SeededEntropy};
use volume::{FormatOptions, Volume};
use volume_format::{BLOCK, FEATURE_LOG, Superblock};
use write_log::OptionalLog;
use write_log_format::{LABELS_INSIDE, Label, Side};

use crate::check::{buffer, content, same_bytes};
use crate::log::{devices, options};
use crate::volumes::environment;
use crate::{Fallible, Image, ensure};

const FRONT: usize = 1 << 20;
const BACK: usize = 12 << 20;
/// What is written before there is a log, and after that, in bytes.
const BEFORE: u64 = 16 * BLOCK;
const AFTER: u64 = 4 * BLOCK;

async fn file(volume: &Volume) -> Fallible<Arc<dyn OpenFile>> {
    let id = volume.resolve("/f").await?;
    Ok(volume.open(id, OpenOptions::shared(Access::READ_WRITE)).await?)
}

/// The image.
///
/// # Errors
/// When a step fails.
pub async fn make() -> Fallible<Image> {
    let (front, back): (Device, Device) =
        (Arc::new(MemoryDisk::new(FRONT, 4096)), Arc::new(MemoryDisk::new(BACK, 512)));
    let entropy: Arc<dyn Entropy> = Arc::new(SeededEntropy::new(1));
    let named = FormatOptions { name: "golden".into() };
    Volume::format(Arc::clone(&back), named, environment(1)).await?;
    let device = Arc::new(OptionalLog::open(None, Arc::clone(&back), options(), &*entropy).await?);
    let volume = Volume::open(device.clone(), environment(1)).await?;
    let new = NewFile { kind: FileKind::File, attributes: Attributes(0x20), security: Vec::new() };
    volume.create(volume.root(), "f", new).await?;
    let opened = file(&volume).await?;
    opened.write(0, buffer("log", 1, 0, BEFORE), Durability::Durable).await?;
    device.prepare().await?;
    volume.set_logged(true).await?;
    device.attach(Arc::clone(&front), entropy).await.map_err(|failed| failed.error)?;
    opened.write(BLOCK, buffer("log", 2, BLOCK, AFTER), Durability::Durable).await?;
    ensure(device.status().is_some_and(|log| log.waiting_bytes > 0), || "nothing waits in the log".into())?;
    Image::take(&[("front", &front), ("back", &back)]).await
}

/// Opens the volume with its log, whether everything is there, takes the log away, and opens it without.
///
/// # Errors
/// What is not as it was.
pub async fn check(image: &Image) -> Fallible {
    let devices = devices(image).await?;
    let [front, back] = &devices[..] else { return Err("an image of a log has two disks".into()) };
    let entropy = SeededEntropy::new(2);
    let mut expected = content("log", 1, 0, BEFORE);
    expected[BLOCK as usize..][..AFTER as usize].copy_from_slice(&content("log", 2, BLOCK, AFTER));
    ensure(Volume::expects_log(back).await?, || "an older release would open it without its log".into())?;
    let alone = OptionalLog::open(None, Arc::clone(back), options(), &entropy).await;
    ensure(alone.is_err(), || "it opens without its log".into())?;
    for front in [Some(Arc::clone(front)), None] {
        let has_log = front.is_some();
        let device = Arc::new(OptionalLog::open(front, Arc::clone(back), options(), &entropy).await?);
        if let Some(status) = device.status() {
            ensure(status.replayed_batches > 0, || format!("nothing is replayed: {status:?}"))?;
        }
        let volume = Volume::open(device.clone(), environment(2)).await?;
        let opened = file(&volume).await?;
        let read = opened.read(0, IoBuf::new(BEFORE as usize)).await?;
        same_bytes("the file", &read, &expected)?;
        let found = volume.check().await?;
        ensure(found.is_empty(), || format!("the check finds {found:?}"))?;
        if has_log {
            device.detach().await?;
            volume.set_logged(false).await?;
        }
        drop(opened);
        volume.close().await?;
        device.close().await?;
    }
    Ok(())
}

/// What differs from a log that was there from the beginning: labels inside of the back, and its superblocks.
///
/// # Errors
/// Where other bytes come out.
pub fn rewrite(image: &Image) -> Fallible<usize> {
    let [(_, front), (_, back)] = &image.disks[..] else {
        return Err("an image of a log has two disks".into());
    };
    let mut structures = 0;
    for (side, bytes, first) in [(Side::Front, front, 0), (Side::Back, back, LABELS_INSIDE)] {
        for at in [first, first + BLOCK] {
            let block = &bytes[at as usize..][..BLOCK as usize];
            if let Ok(label) = Label::decode(side, block) {
                ensure(label.place(side) == at, || format!("a label at {at} belongs elsewhere"))?;
                same_bytes(&format!("the label at {at}"), &label.encode(side), block)?;
                structures += 1;
            }
        }
    }
    for offset in Superblock::OFFSETS {
        let block = &back[offset as usize..][..BLOCK as usize];
        let superblock = Superblock::decode(block)?;
        ensure(superblock.features & FEATURE_LOG != 0, || "the feature is missing".into())?;
        same_bytes("a superblock", &superblock.encode(), block)?;
    }
    Ok(structures)
}
