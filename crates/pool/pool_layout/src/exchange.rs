//! Which slab to move so that a copy that finds no room gets some: the plan of an exchange.
//!
//! A copy that is lost or leaves needs a disk that its row does not use. All free slabs may be on disks that the row uses
//! already. Then a slab of another row can go to one of those, from a full disk that may take the copy:
//!
//! ```text
//!          disk 0     disk 1     disk 2     disk 3, leaving
//!   row 1  a          ·          ·          a        may go to disks 1 and 2: both are full
//!   row 2  ·          b          b          ·        may go to disk 0, which has a free slab
//!   then   a b        a          b          ·        row 2 from disk 1 to disk 0, row 1 from disk 3 to disk 1
//! ```
//! The hard rule holds for both: no disk is used twice by a row, and checksums need room. Fault domains are a wish here as they
//! are when a copy is placed: of all exchanges the one is taken after which the fewest slabs that stand in for each
//! other share a node, then an enclosure.
//!
//! One move for each copy, and no more. A single move that makes room is always found; where only a chain of moves would make
//! room, nothing is. The copy then waits for a free slab elsewhere, as it does on a full pool.
//!
//! That takes disks of different sizes. Say nothing moves from a full disk F to a disk R with room: then each row on F is on R,
//! too. (One that is not and has a copy that leaves would have gone to R itself.) The row that waits is on R and not on F, so R
//! has more slabs in use than F has in all, and one free besides: R is larger than F by two slabs at least. Among
//! disks of one size, with room for checksums on all or none, a copy waits only while nothing is free or its row is on all of them.
//!
//! It ends: a move is planned only for a copy that has no room, the slab that it frees goes to that copy, and only slabs
//! of sound columns move. So there are no more moves than copies without room. A rebalancing undoes none of it: it moves
//! nothing to a disk that leaves, and moves only while no copy waits.

use std::collections::{BTreeMap, BTreeSet};

use pool_format::DiskId;

use crate::balance::{Move, RowSlabs};
use crate::choose::{Candidate, nearness};

/// A slab to be moved, and for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Index of the column that gets the slab which becomes free, as given.
    pub need: usize,
    /// What moves; the further copy goes to where it comes from.
    pub step: Move,
}

/// How many slabs more than now share a node, and an enclosure, with one that stands in for them.
type Cost = (i64, i64);

/// For a disk that is full and one with a free slab (by their indices): what can best go from one to the other.
type Steps = BTreeMap<(usize, usize), (Cost, Move)>;

/// What should be moved for columns (`needs`: row and column, the most urgent first) that lack a copy and have found no room for
/// it; `most` exchanges at the most, and one for each row: what comes next is planned when they are done.
///
/// `disks` are those that are in use and not leaving, here or not. `has_sums` tells which have room for checksums, `movable`
/// which columns (by row and column) have all their copies, and so can spare one of them for another.
#[must_use]
pub fn plan_exchanges(
    disks: &[Candidate],
    rows: &[RowSlabs],
    needs: &[(usize, usize)],
    most: usize,
    has_sums: impl Fn(DiskId) -> bool,
    movable: impl Fn(usize, usize) -> bool,
) -> Vec<Exchange> {
    let mut plan = Plan { disks: disks.to_vec(), rows, touched: BTreeSet::new(), has_sums, movable };
    let mut exchanges = Vec::new();
    // Costs a look at every slab: made when there is a disk that it could help, and anew when something was taken from it.
    let mut steps: Option<Steps> = None;
    for (need, (row, column)) in needs.iter().copied().enumerate() {
        if exchanges.len() >= most || !plan.disks.iter().any(has_room) {
            break;
        }
        let takers = plan.takers(row);
        if takers.is_empty() {
            continue;
        }
        let known = steps.get_or_insert_with(|| plan.steps());
        if let Some(((_, to), step)) = plan.cheapest(known, (row, column), &takers) {
            plan.disks[to].free -= 1;
            plan.touched.extend([row, step.row]);
            exchanges.push(Exchange { need, step });
            steps = None;
        }
    }
    exchanges
}

fn has_room(disk: &Candidate) -> bool {
    disk.online && disk.free > 0
}

struct Plan<'a, S, M> {
    /// As they will be after the exchanges.
    disks: Vec<Candidate>,
    rows: &'a [RowSlabs],
    /// Rows that an exchange changes: they are not as given any more.
    touched: BTreeSet<usize>,
    has_sums: S,
    movable: M,
}

impl<S: Fn(DiskId) -> bool, M: Fn(usize, usize) -> bool> Plan<'_, S, M> {
    /// Whether a row may have a slab on a disk.
    fn may_take(&self, disk: &Candidate, row: &RowSlabs) -> bool {
        let unused = row.columns.iter().flatten().all(|used| *used != disk.disk);
        disk.online && unused && (!row.sums || (self.has_sums)(disk.disk))
    }

    /// The full disks that may take a copy of a row, by their indices. None when one that is not full may: then there is room
    /// without an exchange.
    fn takers(&self, row: usize) -> Vec<usize> {
        let Some(slabs) = self.rows.get(row).filter(|_| !self.touched.contains(&row)) else {
            return Vec::new();
        };
        let takers = (0..self.disks.len()).filter(|disk| self.may_take(&self.disks[*disk], slabs));
        let takers: Vec<usize> = takers.collect();
        if takers.iter().any(|disk| self.disks[*disk].free > 0) { Vec::new() } else { takers }
    }

    /// The disks of what stands in for a copy of a column, without the copy on `but`. Those that leave are not known, and don't
    /// count: what is on them goes.
    fn peers(&self, row: &RowSlabs, column: usize, but: Option<DiskId>) -> Vec<&Candidate> {
        let columns = if row.parity { row.columns.as_slice() } else { &row.columns[column..=column] };
        let others = columns.iter().flatten().filter(|disk| Some(**disk) != but);
        others.filter_map(|id| self.disks.iter().find(|disk| disk.disk == *id)).collect()
    }

    /// What can go from each full disk to each with room, at the least cost.
    fn steps(&self) -> Steps {
        let index: BTreeMap<DiskId, usize> =
            self.disks.iter().enumerate().map(|(index, disk)| (disk.disk, index)).collect();
        let rooms: Vec<usize> = (0..self.disks.len()).filter(|disk| has_room(&self.disks[*disk])).collect();
        let mut steps = Steps::new();
        for (row, slabs) in self.rows.iter().enumerate().filter(|(row, _)| !self.touched.contains(row)) {
            for (column, copies) in slabs.columns.iter().enumerate() {
                for id in copies {
                    let Some(from) = index.get(id).copied() else { continue };
                    let source = &self.disks[from];
                    if source.free > 0 || !(self.movable)(row, column) {
                        continue;
                    }
                    let peers = self.peers(slabs, column, Some(*id));
                    for to in rooms.iter().copied().filter(|to| self.may_take(&self.disks[*to], slabs)) {
                        let target = &self.disks[to];
                        let cost = difference(nearness(target, &peers), nearness(source, &peers));
                        let step = Move { row, column, from: *id, to: target.disk };
                        let known = steps.entry((from, to)).or_insert((cost, step));
                        if cost < known.0 {
                            *known = (cost, step);
                        }
                    }
                }
            }
        }
        steps
    }

    /// The exchange of least cost for a column. Among equals the slab goes to the emptiest disk, then to that with the lowest
    /// number.
    fn cheapest(
        &self,
        steps: &Steps,
        (row, column): (usize, usize),
        takers: &[usize],
    ) -> Option<((usize, usize), Move)> {
        let peers = self.peers(&self.rows[row], column, None);
        let of_takers = steps.iter().filter(|((from, _), _)| takers.contains(from));
        let best = of_takers.min_by_key(|((from, to), (cost, _))| {
            let (near, room) = (nearness(&self.disks[*from], &peers), &self.disks[*to]);
            let cost = (cost.0 + near.0 as i64, cost.1 + near.1 as i64);
            (cost, room.used_share(), room.disk, self.disks[*from].disk)
        });
        best.map(|(disks, (_, step))| (*disks, *step))
    }
}

fn difference(after: (usize, usize), before: (usize, usize)) -> Cost {
    (after.0 as i64 - before.0 as i64, after.1 as i64 - before.1 as i64)
}

#[cfg(test)]
mod tests;
