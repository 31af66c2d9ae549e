//! Writing and reading.

use aligned_buffer::IoBuf;
use block_device::Durability;
use file_store::{FILE_SIZE_MAX, StoreErrorKind as Kind};

use crate::Outcome;
use crate::check::{Probe, buffer, bytes};

pub(crate) async fn unaligned(p: &Probe<'_>) -> Outcome {
    let file = p.opened("f").await?;
    let mut wanted = bytes(0, 300_000, 1);
    p.write(&file, 0, &wanted).await?;
    let places = [(0, 1), (1, 1), (4095, 2), (4096, 4096), (65_535, 2), (65_536, 65_536), (511, 8193)];
    for ((offset, len), generation) in places.into_iter().zip(2..) {
        let data = bytes(offset, len, generation);
        p.write(&file, offset, &data).await?;
        wanted[offset as usize..(offset + len) as usize].copy_from_slice(&data);
        p.is("after an unaligned write", &file, &wanted).await?;
    }
    for (offset, len) in places.into_iter().chain([(299_999, 1), (123_457, 76_543)]) {
        p.holds("part", &file, offset, &wanted[offset as usize..(offset + len) as usize]).await?;
    }
    p.equal("a read across the end", p.read(&file, 299_990, 100).await?, wanted[299_990..].to_vec())?;
    p.equal("a read at the end", p.read(&file, 300_000, 100).await?, Vec::new())?;
    p.equal("a read beyond the end", p.read(&file, 1 << 40, 100).await?, Vec::new())?;
    p.done("flush", file.flush().await)?;
    drop(file);
    if p.reopen().await? {
        let found = p.done("lookup", p.store().lookup(p.root(), "f").await)?;
        let file = p.open(found.file).await?;
        p.is("after reopening", &file, &wanted).await?;
    }
    Ok(())
}

pub(crate) async fn sparse(p: &Probe<'_>) -> Outcome {
    let file = p.opened("f").await?;
    let far = 1 << 40;
    let data = bytes(far, 5000, 1);
    p.write(&file, far, &data).await?;
    p.equal("the size", file.size(), far + 5000)?;
    p.holds("a hole", &file, 0, &[0; 70_000]).await?;
    p.holds("just before the data", &file, far - 70_000, &[0; 70_000]).await?;
    p.holds("the data", &file, far, &data).await?;
    p.write(&file, far / 2 + 7, b"middle").await?;
    p.holds("around the middle", &file, far / 2, b"\0\0\0\0\0\0\0middle\0\0\0").await?;
    let info = p.done("info", p.store().info(file.file()).await)?;
    p.equal("the size of info", info.size, far + 5000)?;
    p.ensure("holes take no space", info.allocated < p.done("usage", p.store().usage().await)?.capacity)
}

pub(crate) async fn compare(p: &Probe<'_>) -> Outcome {
    let file = p.opened("f").await?;
    let mut wanted = bytes(0, 20_000, 1);
    p.write(&file, 0, &wanted).await?;
    for (offset, len) in [(0, 512), (4096, 4096), (4000, 5000), (19_999, 1)] {
        let range = offset as usize..(offset + len) as usize;
        let (old, new) = (buffer(&wanted[range.clone()]), bytes(offset, len, 2));
        let equal = file.compare_and_write(offset, old, buffer(&new)).await;
        p.equal("the difference", p.done("compare and write", equal)?, None)?;
        wanted[range.clone()].copy_from_slice(&new);
        let mut other = new.clone();
        let at = len / 3;
        other[at as usize] ^= 1;
        let differs =
            file.compare_and_write(offset, buffer(&other), buffer(&[0; 5000][..len as usize])).await;
        p.equal("the difference", p.done("compare and write", differs)?, Some(at))?;
        p.is("after comparing", &file, &wanted).await?;
    }
    let beyond = file.compare_and_write(19_999, buffer(&[0; 2]), buffer(&[0; 2])).await;
    p.refused("compare beyond the end", beyond, Kind::InvalidArgument)?;
    let lengths = file.compare_and_write(0, buffer(&[0; 2]), buffer(&[0; 3])).await;
    p.refused("compare of other lengths", lengths, Kind::InvalidArgument)?;
    // In a hole, zeros are what is compared.
    p.done("set_size", file.set_size(1 << 20).await)?;
    let hole = file.compare_and_write(1 << 19, buffer(&[0; 512]), buffer(&[9; 512])).await;
    p.equal("the difference", p.done("compare and write in a hole", hole)?, None)?;
    p.holds("the hole", &file, (1 << 19) - 1, &[&[0][..], &[9; 512], &[0]].concat()).await
}

pub(crate) async fn bad_ranges(p: &Probe<'_>) -> Outcome {
    let file = p.opened("f").await?;
    p.write(&file, 0, b"data").await?;
    let durable = Durability::Durable;
    for offset in [FILE_SIZE_MAX, FILE_SIZE_MAX + 1, i64::MAX as u64, u64::MAX - 1, u64::MAX] {
        let at = format!(" at {offset}");
        let two = || buffer(&[1; 2]);
        p.refused(&format!("read{at}"), file.read(offset, IoBuf::new(2)).await, Kind::InvalidArgument)?;
        p.refused(&format!("write{at}"), file.write(offset, two(), durable).await, Kind::InvalidArgument)?;
        let compared = file.compare_and_write(offset, two(), two()).await;
        p.refused(&format!("compare{at}"), compared, Kind::InvalidArgument)?;
        for len in [2, u64::MAX] {
            p.refused("allocate", file.allocate(offset, len, true).await, Kind::InvalidArgument)?;
            p.refused("allocate", file.allocate(offset, len, false).await, Kind::InvalidArgument)?;
            p.refused("punch_hole", file.punch_hole(offset, len).await, Kind::InvalidArgument)?;
            p.refused("zero_range", file.zero_range(offset, len, durable).await, Kind::InvalidArgument)?;
            let ranges = file.allocated_ranges(offset, len, 3).await;
            p.refused("allocated_ranges", ranges, Kind::InvalidArgument)?;
            let id = file.file();
            for (from, to) in [(offset, 0), (0, offset)] {
                let cloned = p.store().clone_range((id, from), (id, to), len).await;
                p.refused("clone_range", cloned, Kind::InvalidArgument)?;
            }
        }
        if offset > FILE_SIZE_MAX {
            p.refused("set_size", file.set_size(offset).await, Kind::InvalidArgument)?;
        }
    }
    p.is("after all that", &file, b"data").await?;
    p.done("the largest size", file.set_size(FILE_SIZE_MAX).await)?;
    p.holds("the last bytes", &file, FILE_SIZE_MAX - 9, &[0; 9]).await?;
    p.write(&file, FILE_SIZE_MAX - 9, b"last byte").await?;
    p.holds("the last bytes", &file, FILE_SIZE_MAX - 9, b"last byte").await?;
    p.done("and small again", file.set_size(4).await)?;
    p.is("after all that", &file, b"data").await
}

pub(crate) async fn empty(p: &Probe<'_>) -> Outcome {
    let file = p.opened("f").await?;
    p.write(&file, 0, b"data").await?;
    for offset in [0, 1, 4, 5, 4096, 1 << 40, FILE_SIZE_MAX] {
        p.write(&file, offset, b"").await?;
        p.done("zero_range", file.zero_range(offset, 0, Durability::Durable).await)?;
        p.done("punch_hole", file.punch_hole(offset, 0).await)?;
        p.done("allocate", file.allocate(offset, 0, true).await)?;
        p.equal("read", p.read(&file, offset, 0).await?, Vec::new())?;
        let ranges = p.done("allocated_ranges", file.allocated_ranges(offset, 0, 9).await)?;
        p.equal("ranges of nothing", ranges, Vec::new())?;
    }
    let none = file.compare_and_write(2, buffer(b""), buffer(b"")).await;
    p.equal("compare nothing", p.done("compare", none)?, None)?;
    p.is("nothing changed", &file, b"data").await
}
