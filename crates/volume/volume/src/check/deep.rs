//! The deep look: free clusters are zero, and data can be read.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use aligned_buffer::IoBuf;
use block_device::Device;
use file_store::StoreError;
use volume_format::{CLUSTER, Superblock};

use super::database::read_here;
use super::{Layout, Repair};
use crate::clear::clear;
use crate::core::Core;
use crate::finding::{Finding, Severity};
use crate::free::{Free, Run};

/// Bytes read at a time.
const PIECE: u64 = 1 << 20;
/// Findings of one kind before the look ends: with more, something larger is wrong.
const FINDINGS_MAX: usize = 100;

fn not_zero(run: Run, repair: Option<String>) -> Finding {
    Finding {
        severity: Severity::Critical,
        structure: "free clusters",
        place: place_of(run),
        detail: "are free, but not zero: a file that gets them would show what others left there".into(),
        repair,
    }
}

fn place_of(run: Run) -> String {
    format!("clusters {}..{}", run.start, run.start + run.count)
}

fn unreadable(what: &str, place: String, error: &impl std::fmt::Display) -> Finding {
    Finding {
        severity: Severity::Critical,
        structure: "data",
        place,
        detail: format!("{what} cannot be read: {error}"),
        repair: None,
    }
}

/// Pieces of a run of clusters: start and count.
fn pieces(run: Run) -> impl Iterator<Item = Run> {
    let step = PIECE / CLUSTER;
    (run.start..run.start + run.count)
        .step_by(step as usize)
        .map(move |start| Run { start, count: step.min(run.start + run.count - start) })
}

/// The clusters of a piece that are not zero.
fn dirty(piece: Run, bytes: &[u8]) -> Vec<Run> {
    let clusters = (piece.start..).zip(bytes.chunks(CLUSTER as usize));
    let dirty = clusters.filter(|(_, content)| content.iter().any(|byte| *byte != 0));
    dirty.map(|(start, _)| Run { start, count: 1 }).collect()
}

async fn read(device: &Device, superblock: &Superblock, piece: Run) -> Result<IoBuf, StoreError> {
    let at = superblock.data_start + piece.start * CLUSTER;
    Ok(device.read(at, IoBuf::new((piece.count * CLUSTER) as usize)).await?)
}

/// Reads free clusters; those that are not zero, one by one, and what cannot be read.
async fn free_space(
    device: &Device,
    superblock: &Superblock,
    free: &Free,
) -> Result<(Vec<Run>, Vec<Finding>), StoreError> {
    let (mut found, mut findings) = (Vec::new(), Vec::new());
    for piece in free.runs().flat_map(pieces) {
        if found.len() + findings.len() >= FINDINGS_MAX {
            break;
        }
        match read(device, superblock, piece).await {
            Ok(bytes) => found.extend(dirty(piece, &bytes)),
            Err(error) => findings.push(unreadable("free space", place_of(piece), &error)),
        }
    }
    Ok((found, findings))
}

/// Reads all data; what several files share is read once.
async fn data(device: &Device, superblock: &Superblock, layout: &Layout) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut used: Vec<_> = layout.used.iter().collect();
    used.sort_by_key(|(_, extent)| extent.device);
    let mut done = 0;
    for ((file, stream), extent) in used {
        let start = extent.device.max(done);
        let end = extent.device.saturating_add(extent.count).min(layout.clusters);
        if start >= end {
            continue;
        }
        done = end;
        for piece in pieces(Run { start, count: end - start }) {
            if findings.len() >= FINDINGS_MAX {
                return findings;
            }
            if let Err(error) = read(device, superblock, piece).await {
                let offset = extent.first.saturating_add(piece.start - extent.device).saturating_mul(CLUSTER);
                let name = layout.names.get(file).map(String::as_str).unwrap_or_default();
                let place = format!("file {file} ({name}), stream {stream}, from byte {offset}");
                findings.push(unreadable("a part", place, &error));
            }
        }
    }
    findings
}

/// Reads everything of a closed volume. Free clusters that are not zero are made so when told.
pub(super) async fn closed_volume(
    device: &Device,
    superblock: &Superblock,
    layout: Layout,
    repair: Repair,
) -> Result<Vec<Finding>, StoreError> {
    let (found, mut findings) = free_space(device, superblock, &layout.free).await?;
    if repair == Repair::Apply && !found.is_empty() {
        for run in &found {
            let at = superblock.data_start + run.start * CLUSTER;
            clear(device, at, run.count * CLUSTER).await?;
        }
        device.flush().await?;
    }
    findings.extend(found.into_iter().map(|run| not_zero(run, Some("they are zeroed".into()))));
    findings.extend(data(device, superblock, &layout).await);
    Ok(findings)
}

/// Reads the free clusters of an open volume, and its data. What is given out meanwhile is left out.
pub(super) async fn open_volume(core: &Arc<Core>) -> Result<Vec<Finding>, StoreError> {
    let clusters = core.clusters.load(Ordering::Acquire);
    let layout = core.metadata.look(move |session| {
        let mut layout = session.layout(clusters)?;
        layout.free = session.space.free.clone();
        Ok(layout)
    });
    let layout = layout.await?;
    let (found, mut findings) = free_space(&core.device, &core.superblock, &layout.free).await?;
    for run in found {
        let device = Arc::clone(&core.device);
        let at = core.at(run.start * CLUSTER);
        // Another look on the metadata thread, which alone gives clusters out.
        let still = core.metadata.look(move |session| {
            if !session.space.free.contains(run) {
                return Ok(false);
            }
            let bytes = read_here(&device, at, run.count * CLUSTER);
            Ok(bytes.is_ok_and(|bytes| bytes.iter().any(|byte| *byte != 0)))
        });
        if still.await? {
            findings.push(not_zero(run, Some("they are zeroed".into())));
        }
    }
    findings.extend(data(&core.device, &core.superblock, &layout).await);
    Ok(findings)
}
