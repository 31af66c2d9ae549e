//! Changes of names in flight together.

use file_store::{Access, DirectoryCursor, FileKind, OpenOptions, StoreErrorKind as Kind};
use futures_util::future::{join, join_all, try_join_all};

use crate::Outcome;
use crate::check::{Probe, bytes, new};

pub(crate) async fn names(p: &Probe<'_>) -> Outcome {
    let (store, root) = (p.store(), p.root());
    for round in 0..10 {
        let name = format!("wanted{round}");
        let made = join_all((0..8).map(|_| store.create(root, &name, new(FileKind::File)))).await;
        let mut winners = Vec::new();
        for made in made {
            match made {
                Ok(file) => winners.push(file),
                Err(error) => p.refused("create", Err::<(), _>(error), Kind::AlreadyExists)?,
            }
        }
        p.equal("how many made the name", winners.len(), 1)?;
        // All move the same file away: one does.
        let targets: Vec<String> = (0..8).map(|n| format!("moved{round}-{n}")).collect();
        let moved = targets.iter().map(|to| store.rename((root, &name), (root, to), false));
        let moved = join_all(moved).await;
        p.equal("how many moved it", moved.iter().filter(|moved| moved.is_ok()).count(), 1)?;
        let mut found = Vec::new();
        for target in &targets {
            if let Ok(entry) = store.lookup(root, target).await {
                found.push(entry.file);
            }
        }
        p.equal("where it is", &found, &winners)?;
        // Two directories, each moved into the other: one may go, never both.
        let (a, b) = (format!("a{round}"), format!("b{round}"));
        let (one, two) =
            (p.make(root, &a, FileKind::Directory).await?, p.make(root, &b, FileKind::Directory).await?);
        let (first, second) =
            join(store.rename((root, &a), (two, "x"), false), store.rename((root, &b), (one, "x"), false))
                .await;
        p.ensure("one directory moved into the other", first.is_ok() != second.is_ok())?;
        // A directory is removed while a name is made in it: either happens, not both.
        let d = p.make(root, &format!("d{round}"), FileKind::Directory).await?;
        let name = format!("d{round}");
        let (removed, made) =
            join(store.remove(root, &name), store.create(d, "x", new(FileKind::File))).await;
        p.ensure("a removed directory is empty", removed.is_ok() != made.is_ok())?;
    }
    let lanes = (0..10).map(|lane| {
        let store = &store;
        async move {
            for step in 0..10 {
                let (name, other) = (format!("lane{lane}"), format!("lane{lane} {step}"));
                let file = p.file(&name).await?;
                p.done("rename", store.rename((root, &name), (root, &other), false).await)?;
                p.equal("the file", p.done("lookup", store.lookup(root, &other).await)?.file, file)?;
                if step % 2 == 0 {
                    p.done("remove", store.remove(root, &other).await)?;
                }
            }
            Ok(())
        }
    });
    try_join_all(lanes).await?;
    let page = store.read_directory(root, DirectoryCursor::default(), 1000).await;
    let page = p.done("read_directory", page)?;
    let left = page.entries.iter().filter(|entry| entry.name.starts_with("lane")).count();
    p.equal("the names that are left", left, 50)
}

pub(crate) async fn removal(p: &Probe<'_>) -> Outcome {
    let (store, root, unit) = (p.store(), p.root(), p.unit());
    let lanes = (0..6u64).map(|lane| {
        let store = &store;
        async move {
            for step in 0..12 {
                let name = format!("f{lane}");
                let file = p.opened(&name).await?;
                let id = file.file();
                let content = bytes(0, 2 * unit, lane * 100 + step);
                p.write(&file, 0, &content).await?;
                drop(file);
                let (removed, opened) =
                    join(store.remove(root, &name), store.open(id, OpenOptions::shared(Access::READ_WRITE)))
                        .await;
                p.done("remove", removed)?;
                match opened {
                    // Whoever got it before it went keeps it: no one else's data, no one else's clusters.
                    Ok(open) => {
                        p.is("an open of a removed file", &open, &content).await?;
                        let more = bytes(unit, 3 * unit, lane * 100 + step + 50);
                        p.write(&open, unit, &more).await?;
                        p.holds("what was written", &open, unit, &more).await?;
                    }
                    Err(error) => p.refused("open", Err::<(), _>(error), Kind::NotFound)?,
                }
            }
            Ok(())
        }
    });
    try_join_all(lanes).await.map(drop)
}
