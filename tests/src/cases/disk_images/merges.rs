//! Children that become part of their parents, and those whose parents have moved.

use super::{MIB, Rig, ensure};
use crate::Result;

/// A child is larger than its parent and is merged into it; one finds a parent again that has another name. What QEMU cannot read (it
/// knows no parents) it reads when it is merged; children with content come from LUNs, in the case `image-lun`.
pub(super) fn run(rig: &Rig) -> Result {
    rig.raw("merged.raw", 20 * MIB)?;
    rig.ok("convert merged.raw bottom.vhdx --block-size 1M")?;
    rig.ok("create upper.vhdx --parent bottom.vhdx")?;
    rig.ok("create other.vhdx --parent bottom.vhdx")?;
    rig.ok("resize upper.vhdx 24MiB --yes")?;
    std::fs::rename(rig.folder.join("bottom.vhdx"), rig.folder.join("moved.vhdx"))?;
    rig.refused("merge upper.vhdx --yes", "missing")?;
    rig.refused("reparent moved.vhdx --parent upper.vhdx", "no differencing image")?;
    rig.ok("reparent upper.vhdx --parent moved.vhdx")?;
    rig.ok("reparent other.vhdx --parent moved.vhdx")?;
    let chain = rig.json("info upper.vhdx --chain")?;
    ensure(chain["items"].as_array().map(Vec::len) == Some(2), || chain.to_string())?;
    // A parent whose data is another's, and one that is not asked for.
    rig.ok("create stranger.vhdx --size 20MiB")?;
    rig.refused("reparent upper.vhdx --parent stranger.vhdx", "--other-data")?;
    rig.refused("merge upper.vhdx --into stranger.vhdx --yes", "its parent is")?;
    rig.refused("merge upper.vhdx", "--yes")?;
    rig.ok("merge upper.vhdx --into moved.vhdx --yes")?;
    ensure(!rig.folder.join("upper.vhdx").exists(), || "the child is still there".into())?;
    let raw = std::fs::OpenOptions::new().write(true).open(rig.folder.join("merged.raw"))?;
    raw.set_len(24 * MIB)?;
    rig.agree("moved.vhdx", "merged.raw")?;
    let told: serde_json::Value = serde_json::from_str(&rig.qemu("info --output=json moved.vhdx")?)
        .map_err(|error| error.to_string())?;
    ensure(told["virtual-size"] == 24 * MIB, || told.to_string())?;
    // Its other child is none any more, and says so.
    rig.refused("info other.vhdx --chain", "was changed after")
}
