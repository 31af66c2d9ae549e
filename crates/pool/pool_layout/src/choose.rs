//! Which disks a new row or copy goes to.
//!
//! Hard rule: the slabs of a row never share a disk. Wish: the slabs that stand in for each other (the copies of a
//! column, or with parity all columns of a row) are in different nodes, then in different enclosures; where there are
//! too few of them, each has as few of those slabs as can be. A disk that is missing at the moment is taken only when too few are here: its copy
//! begins stale. Among equals the emptiest disk wins, then the lowest number: no chance involved.

use std::cmp::Reverse;

use pool_format::DiskId;

/// A disk that could take a slab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The disk.
    pub disk: DiskId,
    /// Whether it is here.
    pub online: bool,
    /// Free slabs.
    pub free: u32,
    /// All slabs.
    pub total: u32,
    /// Node, a fault domain.
    pub node: String,
    /// Enclosure, a fault domain.
    pub enclosure: String,
}

impl Candidate {
    /// How far this disk is from `other`: 2 another node, 1 another enclosure, 0 the same domains.
    fn distance(&self, other: &Self) -> u8 {
        if self.node != other.node { 2 } else { u8::from(self.enclosure != other.enclosure) }
    }

    /// Free share in thousandths.
    fn fill(&self) -> u64 {
        u64::from(self.free) * 1000 / u64::from(self.total.max(1))
    }

    /// Used share in millionths.
    pub(crate) fn used_share(&self) -> u64 {
        u64::from(self.total.saturating_sub(self.free)) * 1_000_000 / u64::from(self.total.max(1))
    }
}

/// How many of `peers` are in the disk's node, and how many of those in its enclosure, too.
pub(crate) fn nearness(disk: &Candidate, peers: &[&Candidate]) -> (usize, usize) {
    let within = |distance: u8| peers.iter().filter(|peer| disk.distance(peer) < distance).count();
    (within(2), within(1))
}

/// The disks of a new row, one list of copies per column; `None` when there are not enough disks with space, or
/// a column would have no disk that is here.
#[must_use]
pub fn choose_disks(candidates: &[Candidate], columns: usize, copies: usize) -> Option<Vec<Vec<DiskId>>> {
    let mut chosen: Vec<Vec<&Candidate>> = vec![Vec::with_capacity(copies); columns];
    // Copy by copy, so that every column gets a disk that is here before any gets two.
    for _ in 0..copies {
        for column in 0..columns {
            let free = |c: &Candidate| chosen.iter().flatten().all(|used| used.disk != c.disk);
            let next = best(candidates, &chosen[column], free)?;
            chosen[column].push(next);
        }
    }
    let served = chosen.iter().all(|column| column.iter().any(|c| c.online));
    served.then(|| chosen.iter().map(|column| column.iter().map(|c| c.disk).collect()).collect())
}

/// How many new rows find `width` disks each, on disks with so many free slabs.
#[must_use]
pub fn rows_that_fit(free: &[u32], width: usize) -> u64 {
    if width == 0 {
        return 0;
    }
    // A disk gives each row one slab at the most, and by taking the emptiest disks first each row finds its own.
    let fits = |rows: u64| {
        let slabs: u64 = free.iter().map(|free| u64::from(*free).min(rows)).sum();
        slabs >= rows.saturating_mul(width as u64)
    };
    let all: u64 = free.iter().map(|free| u64::from(*free)).sum();
    let (mut fit, mut too_many) = (0, all / width as u64 + 1);
    while too_many - fit > 1 {
        let middle = fit + (too_many - fit) / 2;
        if fits(middle) { fit = middle } else { too_many = middle }
    }
    fit
}

/// The disks of a new row with parity, one for each column; `None` when there are not enough with space, or more
/// than `parity` of them would not be here.
#[must_use]
pub fn choose_parity(candidates: &[Candidate], columns: usize, parity: usize) -> Option<Vec<Vec<DiskId>>> {
    let mut chosen: Vec<&Candidate> = Vec::with_capacity(columns);
    for _ in 0..columns {
        let free = |c: &Candidate| chosen.iter().all(|used| used.disk != c.disk);
        let next = best(candidates, &chosen, free)?;
        chosen.push(next);
    }
    let away = chosen.iter().filter(|c| !c.online).count();
    (away <= parity).then(|| chosen.iter().map(|c| vec![c.disk]).collect())
}

/// The disk of a further copy of a column whose present copies lie on `peers`; none of the disks in `used`.
#[must_use]
pub fn choose_copy(candidates: &[Candidate], peers: &[Candidate], used: &[DiskId]) -> Option<DiskId> {
    let peers: Vec<&Candidate> = peers.iter().collect();
    best(candidates, &peers, |c| !used.contains(&c.disk)).map(|c| c.disk)
}

pub(crate) fn best<'a>(
    candidates: &'a [Candidate],
    peers: &[&Candidate],
    allowed: impl Fn(&Candidate) -> bool,
) -> Option<&'a Candidate> {
    candidates
        .iter()
        .filter(|c| c.free > 0 && allowed(c))
        .max_by_key(|c| (c.online, Reverse(nearness(c, peers)), c.fill(), Reverse(c.disk)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn candidate(disk: u32, free: u32, enclosure: &str) -> Candidate {
        Candidate {
            disk: DiskId(disk),
            online: true,
            free,
            total: 10,
            node: String::new(),
            enclosure: enclosure.into(),
        }
    }

    #[test]
    fn copies_go_to_different_enclosures() {
        let all: Vec<_> = (0..4).map(|i| candidate(i, 5, if i < 2 { "a" } else { "b" })).collect();
        let row = choose_disks(&all, 2, 2).expect("four disks");
        for column in row {
            assert_ne!(column[0].0 < 2, column[1].0 < 2, "{column:?}");
        }
    }

    #[test]
    fn an_enclosure_has_no_more_columns_than_parity_can_make_up_for_where_that_is_possible() {
        let all: Vec<_> = (0..9).map(|i| candidate(i, 5 + i % 3, ["a", "b", "c"][i as usize / 3])).collect();
        for (columns, parity, most) in [(3, 1, 1), (6, 2, 2), (5, 1, 2)] {
            let row = choose_parity(&all, columns, parity).expect("nine disks");
            for enclosure in 0..3 {
                let here = row.iter().filter(|column| column[0].0 / 3 == enclosure).count();
                assert!(here <= most, "{row:?}");
            }
        }
        assert_eq!(choose_parity(&all[..4], 5, 1), None);
    }

    #[test]
    fn the_emptiest_disk_is_taken_and_a_full_one_never() {
        let all = [candidate(0, 0, ""), candidate(1, 3, ""), candidate(2, 9, "")];
        assert_eq!(choose_disks(&all, 1, 1), Some(vec![vec![DiskId(2)]]));
        assert_eq!(choose_disks(&all, 1, 3), None);
        assert_eq!(choose_copy(&all, &all[2..], &[DiskId(2)]), Some(DiskId(1)));
    }

    #[test]
    fn a_missing_disk_is_the_last_choice_and_never_the_only_copy() {
        let mut all: Vec<_> = (0..4).map(|i| candidate(i, 5, "")).collect();
        all[0].online = false;
        let row = choose_disks(&all, 2, 2).expect("degraded");
        assert_eq!(row.iter().filter(|column| column.contains(&DiskId(0))).count(), 1);
        assert!(!choose_disks(&all, 1, 3).expect("three are here")[0].contains(&DiskId(0)));
        (1..4).for_each(|i| all[i].online = false);
        assert_eq!(choose_disks(&all, 1, 2), None);
    }

    proptest! {
        #[test]
        fn so_many_rows_fit_as_can_be_chosen(free in proptest::collection::vec(0u32..10, 1..8), columns in 1usize..3, copies in 1usize..4) {
            // All in one enclosure: what is chosen is the emptiest disks, which is what makes most rows fit.
            let mut all: Vec<_> = free.iter().enumerate().map(|(i, f)| candidate(i as u32, *f, "a")).collect();
            let mut rows = 0;
            while let Some(row) = choose_disks(&all, columns, copies) {
                for disk in row.iter().flatten() {
                    all.iter_mut().filter(|one| one.disk == *disk).for_each(|one| one.free -= 1);
                }
                rows += 1;
            }
            let most = rows_that_fit(&free, columns * copies);
            prop_assert!(rows <= most, "{rows} rows were made, {most} fit");
            prop_assert_eq!(rows == 0, most == 0);
        }

        #[test]
        fn a_row_never_uses_a_disk_twice(free in proptest::collection::vec(0u32..10, 1..12), columns in 1usize..4, copies in 1usize..4) {
            let all: Vec<_> = free.iter().enumerate().map(|(i, f)| candidate(i as u32, *f, ["a", "b", "c"][i % 3])).collect();
            let enough = free.iter().filter(|f| **f > 0).count() >= columns * copies;
            match choose_disks(&all, columns, copies) {
                Some(row) => {
                    let used: BTreeSet<_> = row.iter().flatten().collect();
                    prop_assert_eq!(used.len(), columns * copies);
                    prop_assert!(row.iter().flatten().all(|d| free[d.0 as usize] > 0));
                }
                None => prop_assert!(!enough),
            }
        }
    }
}
