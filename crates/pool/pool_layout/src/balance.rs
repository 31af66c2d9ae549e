//! Which slabs to move so that disks are equally full and fault domains are used: the plan of a rebalancing.
//!
//! Two rules, in this order, and each move obeys the first before the second:
//! 1. A slab goes to where it has fewer of those that stand in for it in its node, then in its enclosure.
//! 2. A slab goes from a fuller disk to an emptier one, if that one is not the fuller afterwards.
//!
//! Every move makes one of the two sums smaller and never the first larger, so a plan ends, and carrying it out twice moves
//! nothing the second time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use pool_format::DiskId;

use crate::choose::{Candidate, best, nearness};

/// Where the slabs of a row lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowSlabs {
    /// The disks of the copies of each column.
    pub columns: Vec<Vec<DiskId>>,
    /// Whether the columns stand in for each other (parity), or the copies of each column do.
    pub parity: bool,
    /// Whether it has checksums: not every disk has room for those.
    pub sums: bool,
}

/// A slab to be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Index of its row, as given.
    pub row: usize,
    /// Its column.
    pub column: usize,
    /// Where it is.
    pub from: DiskId,
    /// Where it should be.
    pub to: DiskId,
}

/// What should be moved. Slabs on disks that are not among `disks`, or not here, stay where they are.
///
/// `fills`: whether the second rule is applied, too. `has_sums` tells the disks with room for checksums.
#[must_use]
pub fn plan_moves(
    disks: &[Candidate],
    rows: &[RowSlabs],
    fills: bool,
    has_sums: impl Fn(DiskId) -> bool,
) -> Vec<Move> {
    let disks = disks.iter().filter(|disk| disk.online).cloned().collect();
    let mut plan = Plan { disks, rows: rows.to_vec(), changes: 0, has_sums };
    loop {
        // What one rule moves can make room for what the other could not move before.
        let before = plan.changes;
        plan.spread();
        if fills {
            plan.level();
        }
        if plan.changes == before {
            break;
        }
    }
    moves_between(rows, &plan.rows)
}

/// The fewest moves that lead from one placement to another: copies of a column are all the same.
fn moves_between(before: &[RowSlabs], after: &[RowSlabs]) -> Vec<Move> {
    let mut moves = Vec::new();
    for (row, (before, after)) in before.iter().zip(after).enumerate() {
        for (column, (before, after)) in before.columns.iter().zip(&after.columns).enumerate() {
            let leaving = before.iter().filter(|disk| !after.contains(disk));
            let coming = after.iter().filter(|disk| !before.contains(disk));
            moves.extend(leaving.zip(coming).map(|(from, to)| Move { row, column, from: *from, to: *to }));
        }
    }
    moves
}

struct Plan<S> {
    /// As they will be after the moves.
    disks: Vec<Candidate>,
    rows: Vec<RowSlabs>,
    /// How often a slab has moved.
    changes: usize,
    has_sums: S,
}

impl<S: Fn(DiskId) -> bool> Plan<S> {
    /// The disks that stand in for a slab, as far as they are known.
    fn peers(&self, (row, column): (usize, usize), slab: DiskId) -> Vec<&Candidate> {
        let row = &self.rows[row];
        let columns = if row.parity { row.columns.as_slice() } else { &row.columns[column..=column] };
        let others = columns.iter().flatten().filter(|disk| **disk != slab);
        others.filter_map(|id| self.disks.iter().find(|disk| disk.disk == *id)).collect()
    }

    fn may_take(&self, disk: DiskId, row: usize) -> bool {
        let row = &self.rows[row];
        row.columns.iter().flatten().all(|used| *used != disk) && (!row.sums || (self.has_sums)(disk))
    }

    fn go(&mut self, (row, column): (usize, usize), from: DiskId, to: DiskId) {
        for disk in &mut self.disks {
            if disk.disk == from {
                disk.free += 1;
            } else if disk.disk == to {
                disk.free -= 1;
            }
        }
        let slab = self.rows[row].columns[column].iter_mut().find(|disk| **disk == from);
        if let Some(slab) = slab {
            *slab = to;
        }
        self.changes += 1;
    }

    /// The first rule.
    fn spread(&mut self) {
        let domains: BTreeSet<_> = self.disks.iter().map(|disk| (&disk.node, &disk.enclosure)).collect();
        if domains.len() < 2 {
            return;
        }
        for row in 0..self.rows.len() {
            for column in 0..self.rows[row].columns.len() {
                for from in self.rows[row].columns[column].clone() {
                    let place = (row, column);
                    let Some(source) = self.disks.iter().find(|disk| disk.disk == from) else { continue };
                    let peers = self.peers(place, from);
                    let target = best(&self.disks, &peers, |disk| self.may_take(disk.disk, row));
                    let better = |target: &&Candidate| nearness(target, &peers) < nearness(source, &peers);
                    if let Some(to) = target.filter(better).map(|target| target.disk) {
                        self.go(place, from, to);
                    }
                }
            }
        }
    }

    /// The second rule.
    fn level(&mut self) {
        let mut on: BTreeMap<DiskId, Vec<(usize, usize)>> = BTreeMap::new();
        for (row, slabs) in self.rows.iter().enumerate() {
            for (column, copies) in slabs.columns.iter().enumerate() {
                copies.iter().for_each(|disk| on.entry(*disk).or_default().push((row, column)));
            }
        }
        // Pairs of disks between which nothing can go.
        let mut stuck: BTreeSet<(DiskId, DiskId)> = BTreeSet::new();
        while let Some((from, to, index)) = self.next(&on, &mut stuck) {
            let Some(slabs) = on.get_mut(&from) else { return };
            let place = slabs.swap_remove(index);
            on.entry(to).or_default().push(place);
            self.go(place, from, to);
        }
    }

    /// The next slab for the second rule, by its index among those of the disk that it is on: from the fullest disk that has
    /// one to the emptiest that may take it.
    fn next(
        &self,
        on: &BTreeMap<DiskId, Vec<(usize, usize)>>,
        stuck: &mut BTreeSet<(DiskId, DiskId)>,
    ) -> Option<(DiskId, DiskId, usize)> {
        let mut by_fill: Vec<&Candidate> = self.disks.iter().collect();
        by_fill.sort_by_key(|disk| (Reverse(disk.used_share()), disk.disk));
        for source in &by_fill {
            for target in by_fill.iter().rev() {
                if !evens_out(source, target) {
                    // Those that follow are fuller.
                    break;
                }
                if stuck.contains(&(source.disk, target.disk)) {
                    continue;
                }
                let slabs = on.get(&source.disk).map(Vec::as_slice).unwrap_or_default();
                let found = slabs.iter().position(|place| {
                    let peers = self.peers(*place, source.disk);
                    self.may_take(target.disk, place.0)
                        && nearness(target, &peers) <= nearness(source, &peers)
                });
                match found {
                    Some(index) => return Some((source.disk, target.disk, index)),
                    None => stuck.insert((source.disk, target.disk)),
                };
            }
        }
        None
    }
}

/// Whether a slab that goes from one disk to another leaves the first at least as full as the second.
fn evens_out(source: &Candidate, target: &Candidate) -> bool {
    let used = |disk: &Candidate| u64::from(disk.total.saturating_sub(disk.free));
    let after = (used(source).saturating_sub(1)) * u64::from(target.total);
    target.free > 0 && used(source) > 0 && after >= (used(target) + 1) * u64::from(source.total)
}

/// How many percent points lie between the fullest and the emptiest of the disks that are here.
#[must_use]
pub fn unevenness(disks: &[Candidate]) -> u32 {
    let shares = || disks.iter().filter(|disk| disk.online).map(Candidate::used_share);
    match (shares().max(), shares().min()) {
        (Some(most), Some(least)) => ((most - least) / 10_000) as u32,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn disk(disk: u32, used: u32, total: u32, enclosure: &str) -> Candidate {
        Candidate {
            disk: DiskId(disk),
            online: true,
            free: total - used,
            total,
            node: String::new(),
            enclosure: enclosure.into(),
        }
    }

    fn mirror(rows: &[[u32; 2]]) -> Vec<RowSlabs> {
        let row = |disks: &[u32; 2]| RowSlabs {
            columns: vec![disks.iter().copied().map(DiskId).collect()],
            parity: false,
            sums: false,
        };
        rows.iter().map(row).collect()
    }

    fn used(disks: &[Candidate], moves: &[Move]) -> Vec<u32> {
        let count = |id, pick: fn(&Move) -> DiskId| moves.iter().filter(|m| pick(m) == id).count() as u32;
        disks.iter().map(|d| d.total - d.free + count(d.disk, |m| m.to) - count(d.disk, |m| m.from)).collect()
    }

    #[test]
    fn a_new_disk_gets_its_share_and_no_more() {
        let disks = [disk(0, 6, 10, ""), disk(1, 6, 10, ""), disk(2, 0, 10, "")];
        let rows = mirror(&[[0, 1]; 6]);
        let moves = plan_moves(&disks, &rows, true, |_| true);
        assert_eq!((moves.len(), used(&disks, &moves)), (4, vec![4, 4, 4]));
        // A disk of twice the size takes twice as much.
        let disks = [disk(0, 8, 10, ""), disk(1, 8, 10, ""), disk(2, 0, 20, "")];
        let moves = plan_moves(&disks, &mirror(&[[0, 1]; 8]), true, |_| true);
        assert_eq!(used(&disks, &moves), [4, 4, 8]);
    }

    #[test]
    fn a_copy_goes_to_the_other_enclosure_before_disks_are_made_even() {
        let disks = [disk(0, 2, 10, "a"), disk(1, 2, 10, "a"), disk(2, 0, 4, "b")];
        let moves = plan_moves(&disks, &mirror(&[[0, 1], [0, 1]]), false, |_| true);
        assert_eq!(moves.len(), 2, "one copy of each row: {moves:?}");
        assert!(moves.iter().all(|m| m.to == DiskId(2)), "{moves:?}");
        // What is in two enclosures stays there, however full they are.
        let disks = [disk(0, 9, 10, "a"), disk(1, 0, 10, "b"), disk(2, 9, 10, "b")];
        let moves = plan_moves(&disks, &mirror(&[[0, 2]; 9]), true, |_| true);
        assert!(moves.iter().all(|m| (m.from, m.to) == (DiskId(2), DiskId(1))), "{moves:?}");
        assert_eq!(used(&disks, &moves), [9, 4, 5]);
    }

    #[test]
    fn a_disk_that_is_away_or_has_no_room_for_checksums_takes_nothing() {
        let mut disks = [disk(0, 6, 10, ""), disk(1, 6, 10, ""), disk(2, 0, 10, ""), disk(3, 0, 10, "")];
        disks[2].online = false;
        let mut rows = mirror(&[[0, 1]; 6]);
        rows.iter_mut().for_each(|row| row.sums = true);
        assert_eq!(plan_moves(&disks, &rows, true, |id| id != DiskId(3)), []);
        assert_eq!(unevenness(&disks), 60);
    }

    proptest! {
        #[test]
        fn a_plan_keeps_every_rule_and_done_twice_moves_nothing(
            sizes in proptest::collection::vec(1u32..30, 2..9),
            rows in proptest::collection::vec((1usize..4, 1usize..3, any::<bool>()), 0..40),
        ) {
            let mut disks: Vec<_> = sizes.iter().enumerate().map(|(i, size)| disk(i as u32, 0, *size, ["a", "b", "c"][i % 3])).collect();
            let mut placed = Vec::new();
            for (columns, copies, parity) in rows {
                // In the order of their numbers: as uneven as can be.
                let mut free = disks.iter_mut().filter(|d| d.free > 0);
                let take: Vec<_> = free.by_ref().take(columns * copies).collect();
                if take.len() < columns * copies {
                    continue;
                }
                let ids: Vec<_> = take.into_iter().map(|d| { d.free -= 1; d.disk }).collect();
                placed.push(RowSlabs { columns: ids.chunks(copies).map(<[_]>::to_vec).collect(), parity, sums: false });
            }
            let total_near = |rows: &[RowSlabs], disks: &[Candidate]| -> (usize, usize) {
                let plan = Plan { disks: disks.to_vec(), rows: rows.to_vec(), changes: 0, has_sums: |_| true };
                let mut sum = (0, 0);
                for (row, slabs) in rows.iter().enumerate() {
                    for (column, copies) in slabs.columns.iter().enumerate() {
                        for id in copies {
                            let own = disks.iter().find(|d| d.disk == *id).expect("known");
                            let near = nearness(own, &plan.peers((row, column), *id));
                            sum = (sum.0 + near.0, sum.1 + near.1);
                        }
                    }
                }
                sum
            };
            let moves = plan_moves(&disks, &placed, true, |_| true);
            let (before, mut after, mut then) = (total_near(&placed, &disks), placed.clone(), disks.clone());
            for step in &moves {
                let slab = after[step.row].columns[step.column].iter_mut().find(|d| **d == step.from);
                *slab.expect("it was there") = step.to;
            }
            for d in &mut then {
                let used = after.iter().flat_map(|row| &row.columns).flatten().filter(|id| **id == d.disk).count() as u32;
                prop_assert!(used <= d.total);
                d.free = d.total - used;
            }
            for row in &after {
                let all: Vec<_> = row.columns.iter().flatten().collect();
                prop_assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "a disk is used twice");
            }
            prop_assert!(total_near(&after, &then) <= before);
            prop_assert_eq!(plan_moves(&then, &after, true, |_| true), vec![]);
        }
    }
}
