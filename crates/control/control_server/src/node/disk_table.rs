//! The disks that are known: found by discovery, files of the configuration, open ones.

use std::collections::BTreeMap;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;

use control_api::{DiskConfig, FaultRule};
use parking_lot::Mutex;

use crate::backend::{DiskContent, FoundDisk, OpenDisk};

/// A known disk.
#[derive(Clone)]
pub(super) struct Known {
    /// What discovery said, with overrides.
    pub(super) found: FoundDisk,
    /// Open, when the node has it.
    pub(super) open: Option<Arc<dyn OpenDisk>>,
    /// What was on it when it was last looked at.
    pub(super) content: Option<DiskContent>,
    /// Why it could not be opened or looked at.
    pub(super) trouble: Option<String>,
    /// Whether that was because somebody else has it open, so that it is worth another look.
    pub(super) busy: bool,
    /// Faults that were switched on.
    pub(super) faults: Vec<FaultRule>,
    /// Whether it was there at the last look.
    pub(super) present: bool,
    /// A look at it has begun and does not end.
    pub(super) hangs: bool,
    /// Its pool had it in use when somebody last looked.
    pub(super) served: bool,
    /// It is known to be a copy of a disk in use.
    pub(super) copy: bool,
    /// Held by whoever looks at it.
    pub(super) turn: Arc<tokio::sync::Mutex<()>>,
}

impl Known {
    /// A disk that is there and has not been looked at.
    pub(super) fn new(found: FoundDisk) -> Self {
        Self {
            found,
            open: None,
            content: None,
            trouble: None,
            busy: false,
            faults: Vec::new(),
            present: true,
            hangs: false,
            served: false,
            copy: false,
            turn: Arc::default(),
        }
    }
}

/// The table, by stable id.
#[derive(Default)]
pub(super) struct DiskTable {
    disks: Mutex<BTreeMap<String, Known>>,
}

impl DiskTable {
    /// Takes in what a look at the machine found; returns the ids of those that were not there before and of
    /// those that are gone.
    pub(super) fn update(
        &self,
        found: Vec<FoundDisk>,
        overrides: &[DiskConfig],
    ) -> (Vec<String>, Vec<String>) {
        let mut disks = self.disks.lock();
        let mut seen: BTreeMap<String, FoundDisk> =
            found.into_iter().map(|disk| (disk.id.clone(), disk)).collect();
        for wanted in overrides {
            if let Some(disk) = seen.get_mut(&wanted.id) {
                override_with(disk, wanted);
            }
        }
        let mut gone = Vec::new();
        for (id, known) in disks.iter_mut() {
            if known.present && !seen.contains_key(id) {
                known.present = false;
                gone.push(id.clone());
            }
        }
        // Those that nothing refers to any more are forgotten.
        disks.retain(|_, known| known.present || matches!(known.content, Some(DiskContent::Member { .. })));
        let mut new = Vec::new();
        for (id, found) in seen {
            match disks.get_mut(&id) {
                Some(known) => {
                    if !known.present {
                        new.push(id);
                    }
                    known.found = found;
                    known.present = true;
                }
                None => {
                    new.push(id.clone());
                    disks.insert(id, Known::new(found));
                }
            }
        }
        (new, gone)
    }

    /// All of them.
    pub(super) fn all(&self) -> Vec<Known> {
        self.disks.lock().values().cloned().collect()
    }

    /// The disk with this id or path, or at the end of this link.
    pub(super) fn find(&self, name: &str) -> Option<Known> {
        let find = |name: &str| {
            let disks = self.disks.lock();
            disks.get(name).or_else(|| disks.values().find(|known| known.found.path == name)).cloned()
        };
        let behind = || {
            let path = Path::new(name);
            let path = path.is_absolute().then(|| path.canonicalize().ok()).flatten()?;
            find(path.to_str()?)
        };
        find(name).or_else(behind)
    }

    /// Changes what is known of a disk.
    pub(super) fn change<T>(&self, id: &str, change: impl FnOnce(&mut Known) -> T) -> Option<T> {
        self.disks.lock().get_mut(id).map(change)
    }

    /// Forgets a disk that has another name now.
    pub(super) fn forget(&self, id: &str) {
        self.disks.lock().remove(id);
    }

    /// Forgets open handles.
    pub(super) fn close_all(&self) {
        self.disks.lock().values_mut().for_each(|known| known.open = None);
    }
}

fn override_with(disk: &mut FoundDisk, wanted: &DiskConfig) {
    disk.login.clone_from(&wanted.login);
    if let Some(media) = wanted.media {
        disk.media = media;
    }
    for (text, wanted) in [
        (&mut disk.enclosure, &wanted.enclosure),
        (&mut disk.slot, &wanted.slot),
        (&mut disk.model, &wanted.model),
        (&mut disk.serial, &wanted.serial),
    ] {
        if wanted.is_some() {
            text.clone_from(wanted);
        }
    }
}

/// A disk of the configuration that is a regular file.
pub(super) fn file_disk(config: &DiskConfig) -> Option<FoundDisk> {
    let path = Path::new(&config.id);
    if !path.is_absolute() {
        return None;
    }
    let meta = std::fs::metadata(path).ok()?;
    if !meta.is_file() || meta.file_type().is_block_device() {
        return None;
    }
    Some(FoundDisk {
        id: config.id.clone(),
        path: config.id.clone(),
        size_bytes: meta.len(),
        bus: Some("file".into()),
        ..FoundDisk::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(id: &str) -> FoundDisk {
        FoundDisk { id: id.into(), path: format!("/dev/{id}"), ..FoundDisk::default() }
    }

    #[test]
    fn new_gone_and_returned() {
        let table = DiskTable::default();
        assert_eq!(table.update(vec![found("a"), found("b")], &[]).0, ["a", "b"]);
        table.change("a", |known| {
            known.content = Some(DiskContent::Member {
                pool_name: "p".into(),
                pool: uuid::Uuid::from_u128(1),
                disk: uuid::Uuid::from_u128(2),
            });
        });
        let (new, gone) = table.update(vec![], &[]);
        assert_eq!((new.len(), gone), (0, vec!["a".to_owned(), "b".to_owned()]));
        assert!(table.find("b").is_none(), "an empty disk that left is forgotten");
        assert!(table.find("/dev/a").is_some_and(|known| !known.present), "a member is not");
        assert_eq!(table.update(vec![found("a")], &[]).0, ["a"]);
    }

    #[test]
    fn overrides_win() {
        let table = DiskTable::default();
        let over =
            DiskConfig { enclosure: Some("e".into()), model: Some("m".into()), ..DiskConfig::new("a") };
        let said = FoundDisk { model: Some("?".into()), serial: Some("s".into()), ..found("a") };
        table.update(vec![said], &[over]);
        let found = table.find("a").expect("known").found;
        let texts = (found.enclosure.as_deref(), found.model.as_deref(), found.serial.as_deref());
        assert_eq!(texts, (Some("e"), Some("m"), Some("s")));
    }
}
