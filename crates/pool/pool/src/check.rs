//! Looking for what is wrong: structures on every disk, the slab map, and whether mirrors agree.

use std::sync::Arc;

use aligned_buffer::IoBuf;
use pool_format::{BLOCK, SUPERBLOCK_BYTES, Superblock};

use crate::pool::Pool;

/// How bad a finding is; the order is worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Data is wrong or cannot be read.
    Critical,
    /// A structure is damaged; another copy of it serves.
    Error,
    /// Less redundant than promised.
    Warning,
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad.
    pub severity: Severity,
    /// Which structure ("superblock", "slab map", "mirror" …).
    pub structure: &'static str,
    /// Where, and what is wrong.
    pub detail: String,
    /// What to do, or what will be done.
    pub todo: &'static str,
}

impl Pool {
    /// Checks the pool while it is in use. `deep` also reads all mirrors and compares their copies.
    pub async fn check(&self, deep: bool) -> Vec<Finding> {
        let mut findings = Vec::new();
        for problem in self.core.meta.with_state(|state| state.problems()) {
            findings.push(Finding {
                severity: Severity::Critical,
                structure: "slab map",
                detail: problem,
                todo: "keep the disks as they are and ask for help: this must not happen",
            });
        }
        self.check_superblocks(&mut findings).await;
        for disk in self.core.all_disks().iter().filter(|disk| !disk.is_online()) {
            findings.push(Finding {
                severity: Severity::Warning,
                structure: "disk",
                detail: format!("disk {} ({}) is offline: {}", disk.id, disk.guid, disk.why_offline()),
                todo: "attach it again, or retire it so that its copies are made anew elsewhere",
            });
        }
        if deep {
            self.compare_mirrors(&mut findings).await;
        }
        findings.sort_by_key(|finding| finding.severity);
        findings
    }

    async fn check_superblocks(&self, findings: &mut Vec<Finding>) {
        for disk in self.core.all_disks().iter().filter(|disk| disk.is_online()) {
            let end = disk.layout.read().disk_size - BLOCK;
            for (at, which) in [(0, "first"), (end, "last")] {
                let what = match disk.read(at, IoBuf::new(SUPERBLOCK_BYTES)).await {
                    Err(error) => error.to_string(),
                    Ok(block) => match Superblock::decode(&block) {
                        Ok(superblock)
                            if superblock.disk == disk.guid && superblock.pool == self.core.guid =>
                        {
                            continue;
                        }
                        Ok(_) => "names another disk or pool".to_owned(),
                        Err(error) => error.to_string(),
                    },
                };
                findings.push(Finding {
                    severity: Severity::Error,
                    structure: "superblock",
                    detail: format!("the {which} superblock of disk {} {what}", disk.id),
                    todo: "it is written anew when the pool is opened next",
                });
            }
        }
    }

    async fn compare_mirrors(&self, findings: &mut Vec<Finding>) {
        let mut places = Vec::new();
        self.core.for_each_column(|space, place, _| places.push((Arc::clone(space), place)));
        for (space, place) in places {
            let Some(row) = space.row(place.row) else { continue };
            let (column, group) = (row.column(place.column), row.group(place.column));
            let size = space.striping.region_size();
            for region in 0..u64::from(pool_format::REGIONS) {
                let (offset, mask) = (region * size, 1u64 << region);
                let _range = group.locks.lock(offset, size).await;
                if group.unsettled.load(std::sync::atomic::Ordering::Acquire) & mask != 0 {
                    continue;
                }
                let mut first: Option<IoBuf> = None;
                for copy in column.copies().iter().filter(|copy| copy.is_good(mask)) {
                    let read = copy.disk.read(copy.start + offset, IoBuf::new(size as usize)).await;
                    let trouble = match (read, &first) {
                        (Err(error), _) => Some(error.to_string()),
                        (Ok(data), None) => {
                            first = Some(data);
                            None
                        }
                        (Ok(data), Some(other)) => {
                            let differs = data.iter().zip(other.iter()).position(|(a, b)| a != b);
                            differs.map(|at| {
                                format!("differs from the first copy at byte {}", offset + at as u64)
                            })
                        }
                    };
                    if let Some(what) = trouble {
                        findings.push(Finding {
                            severity: Severity::Critical,
                            structure: "mirror",
                            detail: format!(
                                "space {} row {} column {}: the copy on disk {} {what}",
                                space.name(), place.row, place.column, copy.id()
                            ),
                            todo: "retire the disk whose data is wrong; checksums that tell which it is come with scrubbing",
                        });
                    }
                }
            }
        }
    }
}
