//! Looking for what is wrong: structures on every disk, the slab map, and whether mirrors agree.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use aligned_buffer::IoBuf;
use pool_format::{BLOCK, SUPERBLOCK_BYTES, Superblock};

use crate::at::At;
use crate::examine;
use crate::finding::{Finding, Severity};
use crate::pool::Pool;

impl Pool {
    /// Checks the pool while it is in use. `deep` also reads all data and compares it with its checksums, copies and parity.
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
            self.examine_data(&mut findings).await;
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
                // Being written when the power went, or refused for want of space: that is known, and tried again.
                let waits = disk.unsigned.load(Ordering::Acquire);
                findings.push(Finding {
                    severity: if waits { Severity::Warning } else { Severity::Error },
                    structure: "superblock",
                    detail: format!("the {which} superblock of disk {} {what}", disk.id),
                    todo: if waits {
                        "the other one serves; it is written anew as soon as the disk has room"
                    } else {
                        "it is written anew when the pool is opened next"
                    },
                });
            }
        }
    }

    async fn examine_data(&self, findings: &mut Vec<Finding>) {
        let mut places = Vec::new();
        self.core.for_each_column(|space, place, row| {
            if row.lead(place.column) == place.column {
                places.push((Arc::clone(space), place));
            }
        });
        for (space, place) in places {
            let Some(row) = space.row(place.row) else { continue };
            let at = At::new(&self.core, &space, &row, place);
            for region in 0..pool_format::REGIONS {
                let found = examine::examine(at, region, false).await;
                findings.extend(examine::findings(at, region, &found));
                if at.column().sums.is_none() {
                    compare_copies(at, region, findings).await;
                }
            }
        }
    }
}

/// Without checksums nobody knows which copy is right, but that they differ can be seen.
async fn compare_copies(at: At<'_>, region: u32, findings: &mut Vec<Finding>) {
    let size = at.space.striping.region_size();
    let (offset, mask) = (u64::from(region) * size, 1u64 << region);
    let _range = at.group().locks.lock(offset, size).await;
    if at.group().is_unsettled(mask) {
        return;
    }
    let mut first: Option<IoBuf> = None;
    for copy in at.column().copies().iter().filter(|copy| copy.is_good(mask)) {
        let Ok(data) = copy.disk.read(copy.start + offset, IoBuf::new(size as usize)).await else { continue };
        let Some(other) = &first else {
            first = Some(data);
            continue;
        };
        if let Some(differs) = data.iter().zip(other.iter()).position(|(a, b)| a != b) {
            let byte = offset + differs as u64;
            findings.push(Finding {
                severity: Severity::Critical,
                structure: "mirror",
                detail: format!("{at}: the copy on disk {} differs from the first at byte {byte}", copy.id()),
                todo: "retire the disk whose data is wrong; a space with checksums would know which",
            });
        }
    }
}
