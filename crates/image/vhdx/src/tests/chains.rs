//! Differencing disks: what is read through, what is not, and which parents are refused.

use std::collections::BTreeMap;
use std::sync::Arc;

use block_device::{BlockDevice, Durability};
use file_store::{MemoryStore, OpenFile};
use shard_runtime::SeededEntropy;

use super::{MIB, dynamic, entropy, holds, memory_file, put, run, sound};
use crate::{
    CreateOptions, Finder, Finding, Found, Image, ImageError, ImageErrorKind, Kind, Mode, ParentLocator,
    create, open_chain,
};

/// Files by name.
#[derive(Default)]
struct Files {
    store: Option<MemoryStore>,
    by_name: BTreeMap<String, Arc<dyn OpenFile>>,
}

impl Finder for Files {
    fn find<'a>(&'a self, _child: &'a str, path: &'a str) -> Finding<'a> {
        Box::pin(async move {
            let missing = || ImageError::new(ImageErrorKind::Parent, "the parent is missing");
            let file = self.by_name.get(path).ok_or_else(missing)?;
            Ok(Found { name: path.to_owned(), file: Arc::clone(file) })
        })
    }
}

impl Files {
    async fn make(&mut self, name: &str, options: &CreateOptions) {
        let file = memory_file(self.store.get_or_insert_with(|| MemoryStore::new(1 << 50)), name).await;
        create(&file, options, &SeededEntropy::new(self.by_name.len() as u64)).await.expect("made");
        self.by_name.insert(name.to_owned(), file);
    }

    async fn open(&self, name: &str, mode: Mode) -> Result<Image, ImageError> {
        let first = Found { name: name.to_owned(), file: Arc::clone(&self.by_name[name]) };
        open_chain(first, mode, self, &entropy()).await
    }

    /// A child of `parent`, with blocks of 1 MiB.
    async fn child(&mut self, name: &str, parent: &str, size: u64) {
        let id = self.open(parent, Mode::Read).await.expect("opened").data_write_guid().await;
        let kind = Kind::Differencing(ParentLocator::new(id, parent, None));
        self.make(name, &CreateOptions { block_size: Some(1 << 20), ..CreateOptions::new(size, kind) }).await;
    }
}

async fn family() -> Files {
    let mut files = Files::default();
    files.make("base", &dynamic(20 * MIB, 2 * MIB)).await;
    let base = files.open("base", Mode::Write).await.expect("opened");
    put(&base, 0, 10 * MIB, 1).await;
    base.close().await.expect("closed");
    files.child("middle", "base", 20 * MIB).await;
    let middle = files.open("middle", Mode::Write).await.expect("opened");
    put(&middle, MIB + 4096, 4096, 2).await;
    put(&middle, 4 * MIB, MIB, 2).await;
    middle.unmap(6 * MIB, MIB).await.expect("unmapped");
    middle.unmap(7 * MIB + 512, 512).await.expect("unmapped");
    middle.close().await.expect("closed");
    files.child("top", "middle", 20 * MIB).await;
    files
}

#[test]
fn what_a_child_has_not_comes_from_its_parents() {
    run(async {
        let files = family().await;
        let top = files.open("top", Mode::Write).await.expect("opened");
        put(&top, MIB + 512, 512, 3).await;
        put(&top, 19 * MIB, 512, 3).await;
        for disk in [top, files.open("top", Mode::Read).await.expect("opened")] {
            if !disk.geometry().read_only {
                holds(&disk, MIB, 512, 1).await;
                holds(&disk, MIB + 512, 512, 3).await;
                holds(&disk, MIB + 1024, 3072, 1).await;
                disk.flush().await.expect("flushed");
            }
            holds(&disk, 0, MIB, 1).await;
            holds(&disk, MIB + 4096, 4096, 2).await;
            holds(&disk, MIB + 8192, 3 * MIB - 8192, 1).await;
            holds(&disk, 4 * MIB, MIB, 2).await;
            holds(&disk, 5 * MIB, MIB, 1).await;
            holds(&disk, 6 * MIB, MIB, 0).await;
            holds(&disk, 7 * MIB, 512, 1).await;
            holds(&disk, 7 * MIB + 512, 512, 0).await;
            holds(&disk, 7 * MIB + 1024, MIB, 1).await;
            holds(&disk, 10 * MIB, 9 * MIB, 0).await;
            disk.close().await.expect("closed");
        }
        let top = files.open("top", Mode::Read).await.expect("opened");
        holds(&top, MIB + 512, 512, 3).await;
        holds(&top, 19 * MIB, 512, 3).await;
        for name in ["base", "middle", "top"] {
            sound(&files.by_name[name]).await;
        }
    });
}

#[test]
fn zeros_of_a_child_hide_its_parent_whatever_comes_then() {
    run(async {
        let files = family().await;
        let top = files.open("top", Mode::Write).await.expect("opened");
        top.write_zeroes(0, MIB, Durability::Volatile).await.expect("zeroed");
        put(&top, 4096, 512, 5).await;
        holds(&top, 0, 4096, 0).await;
        holds(&top, 4096, 512, 5).await;
        holds(&top, 4608, MIB - 4608, 0).await;
        // A block that was partially present, then zeros, then written in part.
        put(&top, 2 * MIB, 512, 6).await;
        top.unmap(2 * MIB, MIB).await.expect("unmapped");
        put(&top, 2 * MIB + 1024, 512, 7).await;
        holds(&top, 2 * MIB, 1024, 0).await;
        holds(&top, 2 * MIB + 1536, MIB - 1536, 0).await;
        top.close().await.expect("closed");
        sound(&files.by_name["top"]).await;
    });
}

#[test]
fn a_child_may_have_another_size_than_its_parent() {
    run(async {
        let mut files = family().await;
        files.child("large", "middle", 40 * MIB).await;
        let large = files.open("large", Mode::Write).await.expect("opened");
        holds(&large, 9 * MIB, MIB, 1).await;
        holds(&large, 20 * MIB - 4096, 20 * MIB, 0).await;
        put(&large, 20 * MIB - 512, 1024, 4).await;
        holds(&large, 20 * MIB - 512, 1024, 4).await;
        files.child("small", "middle", 5 * MIB + 512).await;
        let small = files.open("small", Mode::Write).await.expect("opened");
        holds(&small, 5 * MIB, 512, 1).await;
        // What the parent has behind the end does not come back when the disk grows, nor what was cut off.
        put(&small, 4 * MIB, 512, 9).await;
        small.resize(3 * MIB + 512).await.expect("shrunk");
        small.resize(20 * MIB).await.expect("grown");
        holds(&small, 3 * MIB, 512, 1).await;
        holds(&small, 3 * MIB + 512, 16 * MIB, 0).await;
        small.close().await.expect("closed");
        sound(&files.by_name["small"]).await;
    });
}

#[test]
fn a_parent_that_was_changed_is_refused() {
    run(async {
        let files = family().await;
        let middle = files.open("middle", Mode::Write).await.expect("opened");
        put(&middle, 0, 512, 9).await;
        middle.close().await.expect("closed");
        let refused = files.open("top", Mode::Read).await.err().expect("refused");
        assert_eq!(refused.kind(), ImageErrorKind::Parent);
        assert!(refused.to_string().contains("was changed"), "{refused}");
    });
}

#[test]
fn a_parent_that_is_only_opened_stays_the_parent() {
    run(async {
        let files = family().await;
        files.open("middle", Mode::Write).await.expect("opened").close().await.expect("closed");
        let middle = files.open("middle", Mode::Write).await.expect("opened");
        middle.compact(Box::new(|_, _| {})).await.expect("compacted");
        middle.close().await.expect("closed");
        let top = files.open("top", Mode::Read).await.expect("opened");
        holds(&top, 4 * MIB, MIB, 2).await;
        holds(&top, MIB + 4096, 4096, 2).await;
        holds(&top, MIB + 8192, 4096, 1).await;
    });
}

#[test]
fn parents_that_lead_back_or_are_missing_are_refused() {
    run(async {
        let mut files = family().await;
        // The ids that the next images get: they come from the number of those that there are.
        let mut next = Files { store: None, by_name: files.by_name.clone() };
        let mut ids = Vec::new();
        for name in ["ring1", "ring2", "self"] {
            next.make(name, &dynamic(MIB, MIB)).await;
            ids.push(next.open(name, Mode::Read).await.expect("opened").data_write_guid().await);
        }
        let own = |name: &str, id| {
            let kind = Kind::Differencing(ParentLocator::new(id, name, None));
            CreateOptions { block_size: Some(1 << 20), ..CreateOptions::new(MIB, kind) }
        };
        files.make("ring1", &own("ring2", ids[1])).await;
        files.make("ring2", &own("ring1", ids[0])).await;
        files.make("self", &own("self", ids[2])).await;
        files.make("orphan", &own("nobody", ids[0])).await;
        for (name, told) in [
            ("ring1", "its parents lead back to ring1"),
            ("self", "its parents lead back to self"),
            ("orphan", "missing"),
        ] {
            let refused = files.open(name, Mode::Read).await.err().expect("refused");
            assert_eq!(refused.kind(), ImageErrorKind::Parent);
            assert!(refused.to_string().contains(told), "{refused}");
        }
        // Sectors of another size.
        let base = files.open("base", Mode::Read).await.expect("opened").data_write_guid().await;
        let kind = Kind::Differencing(ParentLocator::new(base, "base", None));
        files.make("4k", &CreateOptions { logical_sector: 4096, ..CreateOptions::new(MIB, kind) }).await;
        let refused = files.open("4k", Mode::Read).await.err().expect("refused");
        assert!(refused.to_string().contains("sectors of 512 bytes"), "{refused}");
    });
}

#[test]
fn another_path_is_tried_when_one_does_not_lead_to_the_parent() {
    run(async {
        let mut files = family().await;
        files.make("stranger", &dynamic(20 * MIB, 2 * MIB)).await;
        let spoiled = memory_file(files.store.as_ref().expect("a store"), "spoiled").await;
        files.by_name.insert("spoiled".into(), spoiled);
        let id = files.open("middle", Mode::Read).await.expect("opened").data_write_guid().await;
        for wrong in ["stranger", "spoiled", "nobody", "child of itself"] {
            let kind = Kind::Differencing(ParentLocator::new(id, wrong, Some("middle")));
            let name =
                if wrong == "child of itself" { wrong.to_owned() } else { format!("child of {wrong}") };
            files.make(&name, &CreateOptions::new(20 * MIB, kind)).await;
            let disk = files.open(&name, Mode::Read).await.expect("opened");
            holds(&disk, 4 * MIB, MIB, 2).await;
        }
        let kind = Kind::Differencing(ParentLocator::new(id, "stranger", Some("nobody")));
        files.make("lost", &CreateOptions::new(20 * MIB, kind)).await;
        let told = files.open("lost", Mode::Read).await.err().expect("refused").to_string();
        assert!(told.contains("was changed") && told.contains("missing"), "{told}");
    });
}

#[test]
fn where_a_disk_has_nothing_is_known_without_reading_it() {
    run(async {
        let files = family().await;
        let data = async |disk: &Image, until: u64| {
            let (mut at, mut found) = (0, Vec::new());
            while let Some(next) = disk.next_data(at, until).await.expect("asked") {
                found.push(next / MIB);
                at = (next / MIB + 1) * MIB;
            }
            found
        };
        // Of the base 0 to 10, of which the next has 6 as zeros.
        for name in ["middle", "top"] {
            let disk = files.open(name, Mode::Read).await.expect("opened");
            assert_eq!(data(&disk, u64::MAX).await, [0, 1, 2, 3, 4, 5, 7, 8, 9], "{name}");
            assert_eq!(data(&disk, 3 * MIB).await, [0, 1, 2], "{name}");
            assert_eq!(disk.next_data(6 * MIB + 512, 7 * MIB).await.expect("asked"), None);
        }
        let top = files.open("top", Mode::Write).await.expect("opened");
        put(&top, 15 * MIB, 512, 1).await;
        assert_eq!(top.next_data(10 * MIB, u64::MAX).await.expect("asked"), Some(15 * MIB));
    });
}
