//! Disks of pools that do not answer: what the findings and the path of a pool look at.

use health_rules::DiskAnswers;
use observe::{IoTotals, KindTotals};
use uuid::Uuid;

use super::Node;
use crate::backend::DiskContent;

/// How many requests have ended, and how many wait.
fn answers(totals: IoTotals) -> (u64, u64) {
    let IoTotals { read, write, other, in_flight } = totals;
    let ended = |kind: KindTotals| kind.operations + kind.errors;
    (ended(read) + ended(write) + ended(other), in_flight)
}

impl Node {
    /// What the open disks of such pools have answered until now. Waits for no disk.
    pub(super) fn disk_answers(&self, is_meant: impl Fn(Uuid) -> bool) -> Vec<DiskAnswers> {
        let of = |known: &super::disk_table::Known| {
            let Some(DiskContent::Member { pool_name, pool, .. }) = &known.content else { return None };
            let (answered, waiting) = answers(known.open.as_ref()?.counters()?);
            let (disk, pool_name) = (known.found.id.clone(), pool_name.clone());
            is_meant(*pool).then_some(DiskAnswers { disk, pool: pool_name, answered, waiting })
        };
        self.disks.all().iter().filter_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_is_an_answer() {
        let kind = |operations, errors| KindTotals { operations, errors, ..KindTotals::default() };
        let totals = IoTotals { read: kind(1, 2), write: kind(4, 8), other: kind(16, 32), in_flight: 3 };
        assert_eq!(answers(totals), (63, 3));
    }
}
