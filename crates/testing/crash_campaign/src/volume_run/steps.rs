//! Volatile changes: what a crash may take back, and only from the end.
//!
//! Each worker's metadata goes from one *step* to the next: its names, its row of state, attributes and descriptors of its files. A
//! volatile change that was answered leaves the step before it as one that a crash may show. A change that is durable when it is
//! answered, of whichever worker, takes away all steps that were left before it was asked for. So after a crash all that a worker
//! has is one of its steps, whole.
//!
//! What several workers have is of one order, too: a change that is there had been asked for when others were answered, and those are
//! there as well ([`places`]).

use std::collections::BTreeMap;
use std::rc::Rc;

use file_store::{FileId, FileStore};
use volume::Volume;

use super::Run;
use super::checked::{Checked, broken, ended, matches};
use super::model::{Names, Part, Register, Step, TABLE};

/// What a worker's metadata are on the volume.
struct Seen<'a> {
    names: &'a BTreeMap<String, u64>,
    state: u64,
    /// By number of the file.
    files: BTreeMap<u64, (u32, Vec<u8>)>,
}

impl Seen<'_> {
    fn is_now(&self, part: &Part) -> bool {
        let pending = part.pending.borrow();
        let admitted = |names: &Names| {
            matches(names, self.names)
                && names.iter().all(|(name, file)| {
                    self.names.get(name).and_then(|id| self.files.get(id)).is_some_and(
                        |(attributes, security)| {
                            file.attributes.borrow().admits(attributes)
                                && file.security.borrow().admits(security)
                        },
                    )
                })
        };
        part.state.borrow().admits(&self.state)
            && (admitted(&part.names.borrow()) || pending.as_ref().is_some_and(admitted))
    }

    fn is(&self, step: &Step) -> bool {
        self.state == step.state
            && matches(&step.names, self.names)
            && step.names.iter().all(|(name, file)| {
                self.names.get(name).and_then(|id| self.files.get(id)) == step.files.get(&file.owner)
            })
    }
}

/// A worker's volatile changes that a crash may have taken back, in order, and what it can have now.
struct Places {
    /// When each was asked for, and its number.
    changes: Vec<(u64, u64)>,
    /// How many of them may be there by what is seen, ascending.
    may: Vec<usize>,
}

/// How many of each worker's changes are there: as many as can be by what is seen of it, and of the others. A worker's number if it
/// has what it changed after something of another had been answered that is gone.
///
/// What is seen may fit several places of a worker. Taking the last ones leaves least to be missing, so a change that is there and
/// may not be by these is there by no others.
fn places(workers: &[Places]) -> Result<Vec<usize>, usize> {
    let last = |worker: &Places| worker.may.last().copied().unwrap_or(worker.changes.len());
    let mut chosen: Vec<usize> = workers.iter().map(last).collect();
    loop {
        let missing = workers.iter().zip(&chosen).filter_map(|(worker, there)| worker.changes.get(*there));
        let first = missing.map(|(_, number)| *number).min().unwrap_or(u64::MAX);
        let too_late = |(worker, there): (&Places, &usize)| {
            there
                .checked_sub(1)
                .and_then(|at| worker.changes.get(at))
                .is_some_and(|(asked, _)| *asked >= first)
        };
        let Some(late) = workers.iter().zip(&chosen).position(too_late) else { return Ok(chosen) };
        let earlier = workers[late].may.iter().rev().find(|there| **there < chosen[late]);
        chosen[late] = *earlier.ok_or(late)?;
    }
}

/// What of a worker is seen after an opening, and where that can be.
async fn look(
    run: &Rc<Run>,
    volume: &Volume,
    (number, part): (usize, &Part),
    there: &BTreeMap<String, u64>,
) -> Checked<Places> {
    let row = ended(run, "a row of state", volume.state_get(TABLE, &[number as u8]).await)?;
    let state = row.and_then(|row| row.try_into().ok()).map_or(0, u64::from_le_bytes);
    let mut files = BTreeMap::new();
    for id in there.values() {
        let info = ended(run, "looking at a file", volume.info(FileId(*id)).await)?;
        let security = ended(run, "a security descriptor", volume.security(FileId(*id)).await)?;
        files.insert(*id, (info.attributes.0, security));
    }
    let seen = Seen { names: there, state, files };
    let steps = part.steps.borrow();
    let mut may: Vec<usize> = (0..steps.len()).filter(|at| seen.is(&steps[*at])).collect();
    if seen.is_now(part) {
        may.push(steps.len());
    }
    Ok(Places { changes: steps.iter().map(|step| (step.asked, step.left)).collect(), may })
}

/// After an opening: workers whose metadata are those of an earlier step that a crash may show have them from now on. Whether they
/// are of one order; what fits no step is for others to say.
pub(super) async fn roll_back(run: &Rc<Run>, volume: &Volume, there: &[BTreeMap<String, u64>]) -> Checked {
    let mut workers = Vec::new();
    for ((number, part), names) in run.model.parts.iter().enumerate().zip(there) {
        workers.push(look(run, volume, (number, part), names).await?);
    }
    let chosen = places(&workers).or_else(|late| {
        broken(run, format!("worker {late} has a change, and one that was answered before it is gone"))
    })?;
    for ((number, part), there) in run.model.parts.iter().enumerate().zip(chosen) {
        let mut steps = std::mem::take(&mut *part.steps.borrow_mut());
        if there >= steps.len() {
            continue;
        }
        let mut stats = run.rig.stats.borrow_mut();
        stats.taken_back += (steps.len() - there) as u64;
        drop(stats);
        let step = steps.swap_remove(there);
        run.rig.trace(|| format!("worker {number} is back at what was before change {}", step.left));
        *part.pending.borrow_mut() = None;
        *part.state.borrow_mut() = Register::new(step.state);
        for file in step.names.values() {
            if let Some((attributes, security)) = step.files.get(&file.owner) {
                file.attributes.borrow_mut().settle(*attributes);
                file.security.borrow_mut().settle(security.clone());
            }
        }
        *part.names.borrow_mut() = step.names;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Places, places};

    fn worker(changes: &[(u64, u64)], may: &[usize]) -> Places {
        Places { changes: changes.to_vec(), may: may.to_vec() }
    }

    #[test]
    fn what_is_there_is_the_first_of_one_order() {
        // Change 2 was asked for when 1 had been answered, and 3 when 2 had been.
        let one = |may: &[usize]| worker(&[(0, 1), (2, 3)], may);
        let two = |may: &[usize]| worker(&[(1, 2)], may);
        for (first, second, all) in [(&[2][..], &[1][..], [2, 1]), (&[1], &[1], [1, 1]), (&[1], &[0], [1, 0])]
        {
            assert_eq!(places(&[one(first), two(second)]), Ok(all.to_vec()));
        }
        assert_eq!(places(&[one(&[0]), two(&[1])]), Err(1), "2 without 1");
        assert_eq!(places(&[one(&[2]), two(&[0])]), Err(0), "3 without 2");
        // At the same time: either may be first.
        assert_eq!(places(&[worker(&[(0, 1)], &[0]), worker(&[(0, 2)], &[1])]), Ok(vec![0, 1]));
        // What is seen fits several places.
        assert_eq!(places(&[one(&[0, 2]), two(&[0])]), Ok(vec![0, 0]));
        assert_eq!(places(&[one(&[1, 2]), two(&[0, 1])]), Ok(vec![2, 1]));
    }
}
