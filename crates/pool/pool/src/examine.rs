//! A region is read from everything that holds it, and compared: for a scrub, a check, and whoever suspects it.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use futures_util::future::join_all;
use pool_format::{BLOCK, DiskId};
use pool_layout::parity;

use crate::at::At;
use crate::careful::{self, Bad, Content, heal, read_column};
use crate::finding::{Finding, Severity};
use crate::sums;

/// What reading a region found.
#[derive(Default)]
pub(crate) struct Examined {
    /// Bytes read from disks.
    pub(crate) bytes: u64,
    /// Damaged blocks by disk, pages of checksums among them.
    pub(crate) damaged: BTreeMap<DiskId, u64>,
    /// Blocks of the group that cannot be restored.
    pub(crate) hopeless: u64,
    /// The first and the last of them, as blocks of their column.
    pub(crate) between: Option<(u64, u64)>,
    /// Blocks of copies that fit their own checksums, and differ from another copy that fits its own, by disk: first and last.
    pub(crate) disputed: BTreeMap<(DiskId, u8), (u64, u64)>,
    /// Data and parity are each what was written, but do not belong together.
    pub(crate) parity_differs: bool,
}

/// Reads a region of a group from every copy that should be good, compares, and heals when told to.
pub(crate) async fn examine(at: At<'_>, region: u32, healing: bool) -> Examined {
    let size = at.space.striping.region_size();
    let (offset, mask) = (u64::from(region) * size, 1u64 << region);
    let _range = at.group().locks.lock(offset, size).await;
    let mut examined = Examined::default();
    // After a crash there is nothing to compare with until it is settled.
    if at.group().is_unsettled(mask) {
        return examined;
    }
    let columns = (0..at.row.columns.len()).filter(|index| at.row.lead(*index as u8) == at.place.column);
    let columns: Vec<At<'_>> = columns.map(|index| at.other(index)).collect();
    let mut row: Vec<Content> = Vec::new();
    for column in columns.iter().copied() {
        let mut bad: Vec<Bad> = Vec::new();
        for copy in column.column().copies().iter().filter(|copy| copy.is_good(mask)) {
            let content = careful::from_one_copy(column, offset, size, copy, &mut bad).await;
            examined.bytes += size;
            row.push(content);
        }
        for bad in &bad {
            *examined.damaged.entry(bad.copy.id()).or_default() += bad.count();
            if let (Some(first), Some(last)) = (bad.disputed.first(), bad.disputed.last()) {
                examined.disputed.insert((bad.copy.id(), column.place.column), (*first, *last));
            }
        }
        if !bad.is_empty() {
            let content = read_column(column, offset, size, &[], &mut Vec::new()).await;
            let lacking = (offset / BLOCK..).zip(&content.have).filter(|(_, have)| !**have);
            for (block, _) in lacking {
                examined.hopeless += 1;
                let (first, last) = examined.between.unwrap_or((block, block));
                examined.between = Some((first.min(block), last.max(block)));
            }
            if healing {
                heal(column, offset, &content, &bad).await;
            }
        }
    }
    let disputed: Vec<DiskId> = examined.disputed.keys().map(|(disk, _)| *disk).collect();
    let pages = columns.iter().map(|column| sums::damaged_pages(*column, (offset, size), healing, &disputed));
    for disk in join_all(pages).await.into_iter().flatten() {
        *examined.damaged.entry(disk).or_default() += 1;
    }
    let forgotten = at.group().forgotten.load(Ordering::Acquire) & mask != 0;
    if at.row.shape.parity > 0
        && !forgotten
        && row.len() == at.row.columns.len()
        && row.iter().all(Content::is_complete)
    {
        examined.parity_differs = !differences(at, offset, &row).is_empty();
    }
    examined
}

/// The blocks of parity in a region that are not those of the data: column, block of the region, what it should be.
pub(crate) fn differences(at: At<'_>, offset: u64, row: &[Content]) -> Vec<(usize, u64, Vec<u8>)> {
    let striping = &at.space.striping;
    let blocks = row.first().map_or(0, |column| column.have.len()) as u64;
    let mut differences = Vec::new();
    for block in 0..blocks {
        let stripe = striping.stripe_at(offset + block * BLOCK);
        let range = (block * BLOCK) as usize..((block + 1) * BLOCK) as usize;
        let unit = |unit: usize| &row[striping.column_of(stripe, unit)].data[range.clone()];
        let data: Vec<&[u8]> = (0..striping.data()).map(unit).collect();
        let (mut p, mut q) = (vec![0; BLOCK as usize], vec![0; BLOCK as usize]);
        parity::generate(&data, &mut p, Some(&mut q));
        for (which, sum) in [p, q].into_iter().enumerate().take(striping.parity()) {
            if unit(striping.data() + which) != sum {
                differences.push((striping.column_of(stripe, striping.data() + which), block, sum));
            }
        }
    }
    differences
}

/// What a check says of what a region showed.
pub(crate) fn findings(at: At<'_>, region: u32, found: &Examined) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (disk, blocks) in &found.damaged {
        findings.push(Finding {
            severity: if found.hopeless > 0 { Severity::Critical } else { Severity::Error },
            structure: "data",
            detail: format!("{at}: {blocks} blocks of region {region} on disk {disk} are not what was written"),
            todo: "a scrub, or the next read, restores them from what is intact; a disk with many of them should be replaced",
        });
    }
    if let Some((first, last)) = found.between {
        findings.push(Finding {
            severity: Severity::Critical,
            structure: "data",
            detail: format!(
                "{at}: {} blocks of region {region}, bytes {} to {}, are damaged in everything that holds them",
                found.hopeless,
                first * BLOCK,
                (last + 1) * BLOCK
            ),
            todo: "restore the files they belong to; writing the blocks makes them readable again",
        });
    }
    for ((disk, column), (first, last)) in &found.disputed {
        findings.push(Finding {
            severity: Severity::Critical,
            structure: "mirror",
            detail: format!(
                "{}: bytes {} to {} on disk {disk} differ from another copy, and both fit their own checksums: which is newer \
                 is not known, and neither is overwritten",
                at.other(usize::from(*column)),
                first * BLOCK,
                (last + 1) * BLOCK
            ),
            todo: "retire the disk whose data is older, or write the blocks again from a backup",
        });
    }
    if found.parity_differs {
        findings.push(Finding {
            severity: Severity::Critical,
            structure: "parity",
            detail: format!("{at}: the parity of region {region} is not that of its data"),
            todo: "keep the disks as they are and ask for help: a disk has lost writes that it acknowledged",
        });
    }
    findings
}
