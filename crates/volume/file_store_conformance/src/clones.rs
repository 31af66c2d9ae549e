//! Clones: sharing, and going separate ways.

use file_store::{FILE_SIZE_MAX, FileKind, StoreErrorKind as Kind};

use crate::Outcome;
use crate::check::{Probe, bytes};

pub(crate) async fn whole(p: &Probe<'_>) -> Outcome {
    let store = p.store();
    let source = p.opened("source").await?;
    let size = 20 * p.unit() + 777;
    let mut content = bytes(0, size, 1);
    p.write(&source, 0, &content).await?;
    let mut copies = Vec::new();
    for number in 0..5 {
        let copy = p.opened(&format!("copy{number}")).await?;
        p.done("clone", store.clone_range((source.file(), 0), (copy.file(), 0), size).await)?;
        p.is("a fresh clone", &copy, &content).await?;
        copies.push((copy, content.clone()));
        // The source goes on changing.
        let at = number * 3 * p.unit() + 100;
        let data = bytes(at, 10_000, 10 + number);
        p.write(&source, at, &data).await?;
        content[at as usize..at as usize + 10_000].copy_from_slice(&data);
    }
    for (number, (copy, wanted)) in copies.iter_mut().enumerate() {
        p.is("a clone while its source changes", copy, wanted).await?;
        let at = number * 5000 + 4000;
        p.write(copy, at as u64, &[number as u8 + 1; 9000]).await?;
        wanted[at..at + 9000].fill(number as u8 + 1);
        p.done("cut", copy.set_size(size - 5000 * number as u64).await)?;
        wanted.truncate(size as usize - 5000 * number);
    }
    p.is("the source while its clones change", &source, &content).await?;
    let ids: Vec<_> = copies.iter().map(|(copy, wanted)| (copy.file(), wanted.clone())).collect();
    drop((copies, source));
    p.done("remove the source", store.remove(p.root(), "source").await)?;
    drop(store);
    p.reopen().await?;
    for (id, wanted) in ids {
        let copy = p.open(id).await?;
        p.is("a clone after its source is gone", &copy, &wanted).await?;
    }
    Ok(())
}

pub(crate) async fn any_range(p: &Probe<'_>) -> Outcome {
    let (store, unit) = (p.store(), p.unit());
    let source = p.opened("source").await?;
    let size = 10 * unit + 123;
    let original = bytes(0, size, 1);
    p.write(&source, 0, &original).await?;
    p.done("a hole in the source", source.punch_hole(6 * unit, unit).await)?;
    let mut original = original;
    original[6 * unit as usize..7 * unit as usize].fill(0);
    let cases = [
        (0, 0, 1),
        (5, 5, 100),
        (5, 6, 3 * unit),
        (unit, 2 * unit, unit),
        (unit - 1, unit - 1, 2 * unit + 2),
        (3 * unit + 1, unit + 1, 4 * unit),
        (3 * unit, unit, size - 3 * unit),
        (100, 3 * unit + 100, size - 100),
        (4096, 8192, 5 * unit + 4096),
        (2 * unit, 9 * unit, 3 * unit + 10),
        // Beyond the end of the target, leaving a gap.
        (0, 12 * unit + 5, 2 * unit),
        (size - 1, 13 * unit, 1),
    ];
    for ((from, to, len), number) in cases.into_iter().zip(1..) {
        let target = p.opened(&format!("t{number}")).await?;
        let mut wanted = bytes(0, 8 * unit + 1000, 100 + number);
        p.write(&target, 0, &wanted).await?;
        // What was cut off must not come back in the gap before a clone.
        p.done("cut", target.set_size(8 * unit - 3000).await)?;
        wanted.truncate(8 * unit as usize - 3000);
        let cloned = store.clone_range((source.file(), from), (target.file(), to), len).await;
        p.done(&format!("clone {from}+{len} to {to}"), cloned)?;
        wanted.resize(wanted.len().max((to + len) as usize), 0);
        wanted[to as usize..(to + len) as usize]
            .copy_from_slice(&original[from as usize..(from + len) as usize]);
        p.is(&format!("clone {from}+{len} to {to}"), &target, &wanted).await?;
        p.is("its source", &source, &original).await?;
        p.done("remove", store.remove(p.root(), &format!("t{number}")).await)?;
    }
    Ok(())
}

pub(crate) async fn within(p: &Probe<'_>) -> Outcome {
    let (store, unit) = (p.store(), p.unit());
    let file = p.opened("f").await?;
    let mut wanted = bytes(0, 8 * unit, 1);
    p.write(&file, 0, &wanted).await?;
    let cases = [
        // Two parts of one unit; neighbours; the other way round; to the end and beyond.
        (0, unit / 2, unit / 2),
        (100, 5000, 4000),
        (0, 2 * unit, 2 * unit),
        (2 * unit, 0, 2 * unit),
        (4 * unit + 7, unit + 7, 2 * unit),
        (unit, 7 * unit, unit),
        (0, 8 * unit, 3 * unit),
        (3, 11 * unit + 3, 2 * unit + 5),
    ];
    for (from, to, len) in cases {
        let cloned = store.clone_range((file.file(), from), (file.file(), to), len).await;
        p.done(&format!("clone {from}+{len} to {to}"), cloned)?;
        wanted.resize(wanted.len().max((to + len) as usize), 0);
        wanted.copy_within(from as usize..(from + len) as usize, to as usize);
        p.is(&format!("clone {from}+{len} to {to} in one file"), &file, &wanted).await?;
        p.write(&file, from, b"changed").await?;
        wanted[from as usize..from as usize + 7].copy_from_slice(b"changed");
        p.is("changed afterwards", &file, &wanted).await?;
    }
    for (from, to, len) in [(0, 0, 1), (0, 10, 11), (10, 0, 11), (0, unit, unit + 1), (unit, 0, unit + 1)] {
        let cloned = store.clone_range((file.file(), from), (file.file(), to), len).await;
        p.refused(&format!("clone {from}+{len} to {to}"), cloned, Kind::InvalidArgument)?;
    }
    p.is("after overlapping ranges", &file, &wanted).await
}

pub(crate) async fn chain(p: &Probe<'_>) -> Outcome {
    let (store, unit) = (p.store(), p.unit());
    let mut last = p.opened("c0").await?;
    let mut wanted = bytes(0, 4 * unit, 1);
    p.write(&last, 0, &wanted).await?;
    let mut all = vec![(last.file(), wanted.clone())];
    for number in 1..30 {
        let next = p.opened(&format!("c{number}")).await?;
        let cloned = store.clone_range((last.file(), 0), (next.file(), 0), 4 * unit).await;
        p.done("clone", cloned)?;
        let at = number * 7919 % (4 * unit - 600);
        let data = bytes(at, 600, number + 5);
        p.write(&next, at, &data).await?;
        wanted[at as usize..at as usize + 600].copy_from_slice(&data);
        all.push((next.file(), wanted.clone()));
        last = next;
    }
    drop((store, last));
    p.reopen().await?;
    let store = p.store();
    // Every third goes; the others do not notice.
    for number in (0..30).step_by(3) {
        p.done("remove", store.remove(p.root(), &format!("c{number}")).await)?;
    }
    for (number, (id, wanted)) in all.iter().enumerate().filter(|(number, _)| number % 3 != 0) {
        let file = p.open(*id).await?;
        p.is(&format!("clone {number} of a chain"), &file, wanted).await?;
    }
    Ok(())
}

pub(crate) async fn refused(p: &Probe<'_>) -> Outcome {
    let (store, root) = (p.store(), p.root());
    let (a, b) = (p.opened("a").await?, p.opened("b").await?);
    let directory = p.make(root, "d", FileKind::Directory).await?;
    p.write(&a, 0, &bytes(0, 10_000, 1)).await?;
    p.write(&b, 0, b"target").await?;
    let (a, b_id) = (a.file(), b.file());
    let clone = async |from: u64, to: u64, len: u64| store.clone_range((a, from), (b_id, to), len).await;
    for (from, len) in [(0, 10_001), (10_000, 1), (1 << 40, 1), (9999, FILE_SIZE_MAX)] {
        let cloned = clone(from, 0, len).await;
        p.refused(&format!("a source of {from}+{len}"), cloned, Kind::InvalidArgument)?;
    }
    p.refused("a far target", clone(0, FILE_SIZE_MAX, 1).await, Kind::InvalidArgument)?;
    p.done("nothing", clone(10_000, 1 << 30, 0).await)?;
    let from = store.clone_range((directory, 0), (b_id, 0), 1).await;
    p.refused("from a directory", from, Kind::IsADirectory)?;
    let to = store.clone_range((a, 0), (directory, 0), 1).await;
    p.refused("to a directory", to, Kind::IsADirectory)?;
    p.is("the target", &b, b"target").await
}
