//! Enumerating directories.

use std::collections::BTreeMap;

use file_store::{DirectoryCursor, FileId, FileKind, StoreErrorKind as Kind};

use crate::Outcome;
use crate::check::Probe;

/// All names of a directory, in pages of `limit`, with what happens `between` two pages.
async fn list(p: &Probe<'_>, directory: FileId, limit: usize) -> Outcome<Vec<String>> {
    let (store, mut cursor, mut names) = (p.store(), DirectoryCursor::default(), Vec::new());
    loop {
        let page = p.done("read_directory", store.read_directory(directory, cursor, limit).await)?;
        p.ensure("a page is not larger than asked for", page.entries.len() <= limit)?;
        p.ensure("a page that is not the last has entries", page.next.is_none() || !page.entries.is_empty())?;
        names.extend(page.entries.into_iter().map(|entry| entry.name));
        match page.next {
            Some(next) => cursor = next,
            None => return Ok(names),
        }
    }
}

pub(crate) async fn resumes(p: &Probe<'_>) -> Outcome {
    let (store, root) = (p.store(), p.root());
    p.equal("an empty directory", list(p, root, 3).await?, Vec::new())?;
    let mut wanted = Vec::new();
    for number in 0..57 {
        let name = format!("{}-{number}", ["x", "ß", "Zz", "日"][number % 4]);
        let kind = if number % 5 == 0 { FileKind::Directory } else { FileKind::File };
        let made = p.make(root, &name, kind).await?;
        // Neighbours in the store must not show up here.
        if kind == FileKind::Directory {
            p.make(made, "inside", FileKind::File).await?;
        }
        wanted.push(name);
    }
    wanted.sort();
    let first = list(p, root, 1000).await?;
    for limit in [1, 2, 7, 56, 57, 58, usize::MAX] {
        let names = list(p, root, limit).await?;
        p.equal("the order does not depend on the page", &names, &first)?;
    }
    let mut sorted = first;
    sorted.sort();
    p.equal("the names", sorted, wanted)?;
    let none = store.read_directory(root, DirectoryCursor::default(), 0).await;
    p.refused("a page of nothing", none, Kind::InvalidArgument)?;
    // Whatever comes from the wire as a cursor leads somewhere, or is refused.
    for odd in [vec![0xff, 0xfe], vec![0], vec![b'x'; 70_000], "ß".as_bytes()[..1].to_vec()] {
        if let Ok(page) = store.read_directory(root, DirectoryCursor(odd), 3).await {
            p.ensure("a page is not larger than asked for", page.entries.len() <= 3)?;
        }
    }
    Ok(())
}

pub(crate) async fn stable(p: &Probe<'_>) -> Outcome {
    let (store, root) = (p.store(), p.root());
    for number in 0..40 {
        p.file(&format!("stays-{number:02}")).await?;
        p.file(&format!("goes-{number:02}")).await?;
    }
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let mut cursor = Some(DirectoryCursor::default());
    let mut step = 0;
    while let Some(from) = cursor {
        let page = p.done("read_directory", store.read_directory(root, from, 5).await)?;
        for entry in page.entries {
            *seen.entry(entry.name).or_default() += 1;
        }
        cursor = page.next;
        // Among others, the entry that the cursor stands on goes.
        for number in [step, 39 - step] {
            let _ = store.remove(root, &format!("goes-{number:02}")).await;
        }
        let comes = format!("comes-{step}");
        p.file(&comes).await?;
        p.done("rename", store.rename((root, &comes), (root, &format!("zz-{step}")), false).await)?;
        step = (step + 1) % 40;
    }
    for number in 0..40 {
        let name = format!("stays-{number:02}");
        p.equal(&format!("how often {name} came"), seen.get(&name).copied(), Some(1))?;
    }
    p.ensure("nothing came twice", seen.values().all(|count| *count == 1))
}
