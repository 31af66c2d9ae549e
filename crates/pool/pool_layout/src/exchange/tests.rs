//! Exchanges against examples, and on small pools against trying every single move.

use proptest::prelude::*;

use super::*;
use crate::balance::plan_moves;
use crate::choose::choose_copy;

fn disk(disk: u32, free: u32, total: u32, enclosure: &str) -> Candidate {
    Candidate {
        disk: DiskId(disk),
        online: true,
        free,
        total,
        node: String::new(),
        enclosure: enclosure.into(),
    }
}

/// A mirror's row of one column.
fn row(disks: &[u32]) -> RowSlabs {
    RowSlabs { columns: vec![disks.iter().copied().map(DiskId).collect()], parity: false, sums: false }
}

/// A row with parity: a disk for each column.
fn stripe(disks: &[u32]) -> RowSlabs {
    RowSlabs { columns: disks.iter().map(|disk| vec![DiskId(*disk)]).collect(), parity: true, sums: true }
}

fn plan(disks: &[Candidate], rows: &[RowSlabs], needs: &[(usize, usize)]) -> Vec<Exchange> {
    plan_exchanges(disks, rows, needs, 16, |_| true, |row, column| !needs.contains(&(row, column)))
}

fn step(row: usize, column: usize, from: u32, to: u32) -> Move {
    Move { row, column, from: DiskId(from), to: DiskId(to) }
}

/// The pool of the picture above; disk 3 leaves.
fn picture() -> (Vec<Candidate>, Vec<RowSlabs>) {
    (vec![disk(0, 1, 2, ""), disk(1, 0, 1, ""), disk(2, 0, 1, "")], vec![row(&[0, 3]), row(&[1, 2])])
}

#[test]
fn another_row_makes_room() {
    let (disks, rows) = picture();
    assert_eq!(plan(&disks, &rows, &[(0, 0)]), [Exchange { need: 0, step: step(1, 0, 1, 0) }]);
    // With parity, and the column in the middle.
    let disks = [disk(0, 1, 2, ""), disk(1, 0, 2, ""), disk(2, 0, 2, "")];
    let rows = [stripe(&[0, 3, 1]), stripe(&[2, 1, 4])];
    assert_eq!(plan(&disks, &rows, &[(0, 1)]), [Exchange { need: 0, step: step(1, 0, 2, 0) }]);
}

#[test]
fn nothing_moves_where_there_is_room_or_no_move_makes_any() {
    let (mut disks, rows) = picture();
    // One that may take the copy is not full.
    disks[2].free = 1;
    assert_eq!(plan(&disks, &rows, &[(0, 0)]), []);
    // Nothing is free.
    let (mut disks, rows) = picture();
    disks[0].free = 0;
    assert_eq!(plan(&disks, &rows, &[(0, 0)]), []);
    // The other row is on the disk with room, too.
    let (disks, mut rows) = picture();
    rows[1] = row(&[1, 0]);
    assert_eq!(plan(&disks, &rows, &[(0, 0)]), []);
    // All full disks are in the row that needs one.
    let (disks, mut rows) = picture();
    rows[0] = RowSlabs { columns: [[0, 3], [1, 2]].map(|c| c.map(DiskId).to_vec()).to_vec(), ..row(&[]) };
    assert_eq!(plan(&disks, &rows, &[(0, 0)]), []);
    // Two moves would do: of row 1 to disk 2, once row 2 has gone from there to disk 0. That is not looked for.
    let disks = [disk(0, 1, 2, ""), disk(1, 0, 1, ""), disk(2, 0, 1, "")];
    let rows = [row(&[0, 2, 4]), row(&[0, 1]), row(&[2, 5])];
    assert_eq!(plan(&disks, &rows, &[(0, 0)]), []);
}

#[test]
fn what_is_away_leaves_or_is_not_whole_takes_no_part() {
    let (mut disks, rows) = picture();
    disks[1].online = false;
    assert_eq!(plan(&disks, &rows, &[(0, 0)]), [Exchange { need: 0, step: step(1, 0, 2, 0) }]);
    disks[2].online = false;
    assert_eq!(plan(&disks, &rows, &[(0, 0)]), []);
    let (mut disks, rows) = picture();
    disks[0].online = false;
    assert_eq!(plan(&disks, &rows, &[(0, 0)]), []);
    // Disks that leave are not among those given.
    let (disks, rows) = picture();
    assert_eq!(plan(&disks[..1], &rows, &[(0, 0)]), []);
    assert_eq!(plan(&disks[1..], &rows, &[(0, 0)]), []);
    assert_eq!(plan_exchanges(&disks, &rows, &[(0, 0)], 16, |_| true, |_, _| false), []);
    assert_eq!(plan_exchanges(&disks, &rows, &[(0, 0)], 0, |_| true, |_, _| true), []);
}

#[test]
fn checksums_go_only_where_there_is_room_for_them() {
    let (disks, mut rows) = picture();
    let planned = |rows: &[RowSlabs], without| {
        plan_exchanges(&disks, rows, &[(0, 0)], 16, |id| id != DiskId(without), |_, _| true)
    };
    // The slab that moves has checksums: not to disk 0.
    rows[1].sums = true;
    assert_eq!(planned(&rows, 0), []);
    // The copy that needs room has them: not to disk 1, but to disk 2.
    rows[1].sums = false;
    rows[0].sums = true;
    assert_eq!(planned(&rows, 1), [Exchange { need: 0, step: step(1, 0, 2, 0) }]);
}

#[test]
fn the_safest_exchange_is_taken_but_any_is_before_none() {
    // Row 0 has a copy in enclosure a, so its other one goes to b. Row 1 would be in a twice, row 2 would not.
    let disks = [disk(0, 2, 9, "a"), disk(1, 0, 9, "a"), disk(2, 0, 9, "b"), disk(3, 0, 9, "b")];
    let rows = [row(&[0, 9]), row(&[1, 2]), row(&[2, 3])];
    assert_eq!(plan(&disks, &rows, &[(0, 0)]), [Exchange { need: 0, step: step(2, 0, 2, 0) }]);
    // Without row 2 one of them has to be in an enclosure twice: better than a copy that has no disk.
    assert_eq!(plan(&disks, &rows[..2], &[(0, 0)]).len(), 1);
}

#[test]
fn every_copy_gets_a_slab_of_its_own() {
    let disks = [disk(0, 2, 9, ""), disk(1, 0, 9, ""), disk(2, 0, 9, "")];
    let rows = [row(&[0, 3]), row(&[0, 4]), row(&[0, 5]), row(&[1, 2]), row(&[1, 2]), row(&[1, 2])];
    let exchanges = plan(&disks, &rows, &[(2, 0), (0, 0), (1, 0)]);
    assert_eq!(exchanges.iter().map(|exchange| exchange.need).collect::<Vec<_>>(), [0, 1], "two are free");
    assert_ne!(exchanges[0].step.row, exchanges[1].step.row);
}

/// A small pool: disks and rows, and which disks leave.
#[derive(Clone, Debug)]
struct Small {
    disks: Vec<Candidate>,
    rows: Vec<RowSlabs>,
    leaving: Vec<DiskId>,
    /// Without room for checksums.
    without_sums: Vec<DiskId>,
}

/// A disk: slabs, enclosure, and dice for what it is.
type DiskSeed = (u32, usize, u8);
/// A row: dice for its disks, columns, copies, whether it has parity and checksums.
type RowSeed = (Vec<u32>, usize, usize, bool, bool);

impl Small {
    fn new(seeds: &[DiskSeed], rows: Vec<RowSeed>) -> Self {
        let enclosures = ["a", "b", "c"];
        let mut all: Vec<Candidate> =
            (0..).zip(seeds).map(|(id, (size, at, _))| disk(id, *size, *size, enclosures[*at])).collect();
        let with = |pick: fn(u8) -> bool| -> Vec<DiskId> {
            all.iter().zip(seeds).filter(|(_, seed)| pick(seed.2)).map(|(disk, _)| disk.disk).collect()
        };
        let (leaving, away, without_sums) =
            (with(|dice| dice < 3), with(|dice| dice == 3), with(|dice| dice == 4));
        let mut placed = Vec::new();
        for (dice, columns, copies, parity, sums) in rows {
            let copies = if parity { 1 } else { copies };
            let mut open: Vec<DiskId> =
                all.iter().filter(|disk| disk.free > 0).map(|disk| disk.disk).collect();
            open.retain(|disk| !sums || !without_sums.contains(disk));
            if open.len() < columns * copies {
                continue;
            }
            let mut chosen = Vec::new();
            for dice in dice.iter().take(columns * copies) {
                chosen.push(open.swap_remove(*dice as usize % open.len()));
            }
            all.iter_mut().filter(|disk| chosen.contains(&disk.disk)).for_each(|disk| disk.free -= 1);
            placed.push(RowSlabs {
                columns: chosen.chunks(copies).map(<[_]>::to_vec).collect(),
                parity,
                sums,
            });
        }
        all.retain(|disk| !leaving.contains(&disk.disk));
        all.iter_mut().for_each(|disk| disk.online = !away.contains(&disk.disk));
        Self { disks: all, rows: placed, leaving, without_sums }
    }

    fn has_sums(&self, disk: DiskId) -> bool {
        !self.without_sums.contains(&disk)
    }

    /// A column none of whose copies leaves, and whose disks are here.
    fn is_sound(&self, row: usize, column: usize) -> bool {
        let here = |id: &DiskId| self.disks.iter().any(|disk| disk.disk == *id && disk.online);
        self.rows[row].columns[column].iter().all(here)
    }

    /// Where repair would put a further copy of a column.
    fn room_for(&self, (row, column): (usize, usize)) -> Option<DiskId> {
        let slabs = &self.rows[row];
        let used: Vec<DiskId> = slabs.columns.iter().flatten().copied().collect();
        let may = |disk: &&Candidate| disk.online && (!slabs.sums || self.has_sums(disk.disk));
        let candidates: Vec<Candidate> = self.disks.iter().filter(may).cloned().collect();
        choose_copy(&candidates, &self.peers((row, column), None), &used)
    }

    fn peers(&self, (row, column): (usize, usize), but: Option<DiskId>) -> Vec<Candidate> {
        let slabs = &self.rows[row];
        let columns = if slabs.parity { &slabs.columns[..] } else { &slabs.columns[column..=column] };
        let others = columns.iter().flatten().filter(|id| Some(**id) != but);
        others.filter_map(|id| self.disks.iter().find(|disk| disk.disk == *id).cloned()).collect()
    }

    /// Moves a slab from one disk to another, as a move or a repair does.
    fn go(&mut self, step: Move) {
        let slab = self.rows[step.row].columns[step.column].iter_mut().find(|disk| **disk == step.from);
        *slab.expect("it is there") = step.to;
        for disk in &mut self.disks {
            disk.free += u32::from(disk.disk == step.from);
            disk.free -= u32::from(disk.disk == step.to);
        }
    }

    /// Copies on disks that leave: row, column and disk.
    fn leaving(&self) -> Vec<((usize, usize), DiskId)> {
        let mut leaving = Vec::new();
        for (row, slabs) in self.rows.iter().enumerate() {
            for (column, copies) in slabs.columns.iter().enumerate() {
                let go = copies.iter().filter(|disk| self.leaving.contains(disk));
                leaving.extend(go.map(|disk| ((row, column), *disk)));
            }
        }
        leaving
    }

    /// Gives new disks to all copies that leave and find room. How many.
    fn repair(&mut self) -> usize {
        let mut moved = 0;
        for ((row, column), from) in self.leaving() {
            if let Some(to) = self.room_for((row, column)) {
                self.go(Move { row, column, from, to });
                moved += 1;
            }
        }
        moved
    }

    fn exchanges(&self, needs: &[(usize, usize)], most: usize) -> Vec<Exchange> {
        let sums = |disk| self.has_sums(disk);
        plan_exchanges(&self.disks, &self.rows, needs, most, sums, |row, column| self.is_sound(row, column))
    }

    /// How many pairs of slabs that stand in for each other share a node, and an enclosure, counted once for each of the two.
    fn nearness(&self) -> (usize, usize) {
        let mut sum = (0, 0);
        for (row, slabs) in self.rows.iter().enumerate() {
            for (column, copies) in slabs.columns.iter().enumerate() {
                for id in copies {
                    let Some(own) = self.disks.iter().find(|disk| disk.disk == *id) else { continue };
                    let peers = self.peers((row, column), Some(*id));
                    let near = nearness(own, &peers.iter().collect::<Vec<_>>());
                    sum = (sum.0 + near.0, sum.1 + near.1);
                }
            }
        }
        sum
    }

    /// What every placement obeys.
    fn check(&self) -> Result<(), TestCaseError> {
        for slabs in &self.rows {
            let all: Vec<_> = slabs.columns.iter().flatten().collect();
            prop_assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "a disk is used twice");
            prop_assert!(
                !slabs.sums || all.iter().all(|disk| self.has_sums(**disk)),
                "checksums without room"
            );
        }
        for disk in &self.disks {
            let used = self.rows.iter().flat_map(|row| &row.columns).flatten().filter(|id| **id == disk.disk);
            prop_assert_eq!(used.count() as u32, disk.total - disk.free, "disk {}", disk.disk);
        }
        Ok(())
    }

    /// All single moves of sound columns after which a column has room, with what comes of each.
    fn every_way(&self, need: (usize, usize)) -> Vec<Self> {
        let mut ways = Vec::new();
        for row in 0..self.rows.len() {
            for column in (0..self.rows[row].columns.len()).filter(|column| self.is_sound(row, *column)) {
                for from in self.rows[row].columns[column].clone() {
                    let here = self.disks.iter().filter(|disk| disk.online && disk.free > 0);
                    for to in here.map(|disk| disk.disk) {
                        let taken = self.rows[row].columns.iter().flatten().any(|disk| *disk == to);
                        if taken || self.rows[row].sums && !self.has_sums(to) {
                            continue;
                        }
                        let mut then = self.clone();
                        then.go(Move { row, column, from, to });
                        if then.room_for(need).is_some() {
                            ways.push(then);
                        }
                    }
                }
            }
        }
        ways
    }
}

fn row_seed() -> impl Strategy<Value = RowSeed> {
    let dice = proptest::collection::vec(any::<u32>(), 9);
    (dice, 1usize..4, 1usize..4, any::<bool>(), any::<bool>())
}

fn small() -> impl Strategy<Value = Small> {
    let disks = proptest::collection::vec((1u32..5, 0usize..3, 0u8..12), 2..8);
    let rows = proptest::collection::vec(row_seed(), 4..20);
    (disks, rows).prop_map(|(disks, rows)| Small::new(&disks, rows))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_single_move_that_makes_room_is_found_and_none_is_safer(mut pool in small()) {
        pool.repair();
        pool.check()?;
        for (need, leaves) in pool.leaving() {
            let ways = pool.every_way(need);
            let found = pool.exchanges(&[need], 16);
            prop_assert_eq!(found.len(), usize::from(!ways.is_empty()));
            let Some(Exchange { step, .. }) = found.first().copied() else { continue };
            prop_assert!(pool.is_sound(step.row, step.column));
            let after = |mut then: Small| {
                let to = then.room_for(need).expect("the move makes room");
                then.go(Move { row: need.0, column: need.1, from: leaves, to });
                then
            };
            let mut taken = pool.clone();
            taken.go(step);
            prop_assert_eq!(taken.room_for(need), Some(step.from), "the slab that it frees is the one that is taken");
            let taken = after(taken);
            taken.check()?;
            let safest = ways.into_iter().map(|way| after(way).nearness()).min();
            prop_assert_eq!(Some(taken.nearness()), safest);
        }
    }

    /// See the proof at the head of the page.
    #[test]
    fn among_disks_of_one_size_one_move_is_always_enough(
        size in 1u32..6,
        disks in proptest::collection::vec((0usize..3, 0u8..12), 2..8),
        rows in proptest::collection::vec(row_seed(), 4..24),
    ) {
        let seeds: Vec<DiskSeed> = disks.into_iter().map(|(at, dice)| (size, at, if dice < 3 { dice } else { 9 })).collect();
        let mut pool = Small::new(&seeds, rows);
        pool.repair();
        for (need, _) in pool.leaving() {
            let row: Vec<_> = pool.rows[need.0].columns.iter().flatten().collect();
            let possible = pool.disks.iter().any(|disk| disk.free > 0)
                && pool.disks.iter().any(|disk| !row.contains(&&disk.disk));
            prop_assert_eq!(pool.exchanges(&[need], 1).len(), usize::from(possible));
        }
    }

    #[test]
    fn it_ends_and_a_rebalancing_undoes_nothing(mut pool in small(), most in 1usize..4) {
        let mut left = pool.leaving().len();
        // Each round of exchanges empties as many slabs of disks that leave, so this ends.
        loop {
            left -= pool.repair();
            prop_assert_eq!(pool.leaving().len(), left);
            let needs: Vec<_> = pool.leaving().into_iter().map(|(need, _)| need).collect();
            let exchanges = pool.exchanges(&needs, most);
            prop_assert!(exchanges.len() <= most);
            if exchanges.is_empty() {
                break;
            }
            // All begin before the first has ended.
            for exchange in &exchanges {
                pool.go(exchange.step);
                pool.check()?;
            }
            for exchange in &exchanges {
                let (need, to) = (needs[exchange.need], exchange.step.from);
                let from = pool.leaving().into_iter().find(|(place, _)| *place == need).map(|(_, disk)| disk);
                let Some(from) = from else { continue };
                pool.go(Move { row: need.0, column: need.1, from, to });
                pool.check()?;
                left -= 1;
            }
        }
        // Then everything that a rebalancing wants is moved, repair and exchanges have their turn again, and so on: not for ever.
        for _ in 0..=left {
            let before = pool.leaving().len();
            for step in plan_moves(&pool.disks, &pool.rows, true, |disk| pool.has_sums(disk)) {
                // As the pool does: void where what it relies on has not come to pass.
                let free = pool.disks.iter().any(|disk| disk.disk == step.to && disk.free > 0);
                let taken = pool.rows[step.row].columns.iter().flatten().any(|disk| *disk == step.to);
                if free && !taken && pool.is_sound(step.row, step.column) {
                    pool.go(step);
                    pool.check()?;
                }
            }
            prop_assert_eq!(pool.leaving().len(), before, "it moves nothing to a disk that leaves");
            let mut moved = pool.repair();
            let needs: Vec<_> = pool.leaving().into_iter().map(|(need, _)| need).collect();
            for exchange in pool.exchanges(&needs, usize::MAX) {
                pool.go(exchange.step);
                moved += pool.repair();
            }
            pool.check()?;
            prop_assert_eq!(pool.leaving().len() + moved, before);
            if moved == 0 {
                return Ok(());
            }
        }
        prop_assert!(pool.leaving().is_empty());
    }
}
