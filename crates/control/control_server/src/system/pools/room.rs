//! What a pool without room for a new space lacks, in numbers.

use control_api::{Code, Problem, human_bytes, many};
use pool::{DiskUse, Pool, Provisioning, SpaceSpec};

/// The problem of a space that could not be made: where room is what it lacks, how much, instead of what failed first.
pub(super) fn explain_no_room(pool: &Pool, problem: Problem, spec: &SpaceSpec) -> Problem {
    if problem.code != Code::NoSpace {
        return problem;
    }
    let (slab, status) = (pool.slab_size(), pool.status());
    let active = status.disks.iter().filter(|disk| disk.record.usage == DiskUse::Active);
    let with_room = active.filter(|disk| disk.used_slabs < disk.record.slab_count).count() as u64;
    let (columns, parity) = (u64::from(spec.columns), u64::from(spec.resiliency.parity()));
    let slabs_in_row = columns * spec.resiliency.copies() as u64;
    let data_in_row = slab * columns.saturating_sub(parity).max(1);
    let rows = match spec.provisioning {
        Provisioning::Fixed => spec.size.div_ceil(data_in_row),
        // What a volume is made of lies in its first row.
        Provisioning::Thin => 1,
    };
    // The journal of a space with parity has a slab for each of its copies.
    let journal = if parity > 0 { parity + 1 } else { 0 };
    let needed = rows.saturating_mul(slabs_in_row).saturating_add(journal).saturating_mul(slab);
    let free = status.free.saturating_sub(status.reserved);
    if free >= needed && with_room >= slabs_in_row {
        // Something else is short: what failed says it.
        return problem;
    }
    let kept = match status.reserved.min(status.free) {
        0 => String::new(),
        kept => format!(" ({} more are kept for repair)", human_bytes(kept)),
    };
    let detail = format!(
        "Pool {} has no room for {}: it takes at least {}, in slabs of {} on {}; {} are free for new data{kept}, and {} a free slab.",
        pool.name(),
        spec.name,
        human_bytes(needed),
        human_bytes(slab),
        many(slabs_in_row, "different disk"),
        human_bytes(free),
        if with_room == 1 { "1 disk has".to_owned() } else { format!("{with_room} disks have") },
    );
    let todo = "Add disks to the pool (`holdfast pool add-disk`), or delete volumes. Nothing was made.";
    Problem::new(Code::NoSpace, detail).todo(todo)
}
