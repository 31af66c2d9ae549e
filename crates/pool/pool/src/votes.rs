//! Which disks vote on the pool's metadata, and how much of it their areas hold.
//!
//! Every voter keeps the whole state, and the area for it is a part of *its* size, while the state describes what is on all
//! disks. So votes go where there is room: a disk whose area the state could outgrow hands its vote on to a larger one
//! before. What the third largest disk has room for (the smallest of two, or the only one) bounds a pool: more is never
//! taken, since fewer voters would make the metadata less redundant than what it describes. A part of each area is left to
//! what repair needs while it makes copies.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::Ordering;

use block_device::{BlockError, BlockErrorKind};
use pool_format::{BLOCK, Change, CopyRecord, DiskId, DiskRecord, DiskUse, Guid, PoolState, RowRecord, Seq};

use crate::commit::CommitFailed;
use crate::core::Core;
use crate::error::{PoolError, PoolErrorKind};
use crate::meta::Meta;
use crate::open::{Member, Probe, clear_metadata};
use crate::row::Shape;
use crate::voters::{
    METADATA_DISKS_LEAST, choose_metadata_disks, has_witness_vote, in_turn, room_for_rows, room_of,
    too_many_of_a_node, votes_needed,
};
use crate::witness::Vote;

/// What a client is told whose write needs more metadata than there is room for.
pub(crate) const AREA_FULL: &str = "the pool's metadata area is full: add a larger disk";

/// Bytes of state that fit a slot, with a little to spare for what is committed at the same time.
fn room_for_all(slot: u64) -> u64 {
    slot.saturating_sub(4 * BLOCK)
}

impl Meta {
    /// Whether what these disks have durably is promised: a majority has it, with the witness where it has a vote.
    pub(crate) async fn count_votes(&self, reached: &BTreeSet<DiskId>, seq: Seq) -> Result<(), CommitFailed> {
        if self.is_superseded() {
            return Err(self.failed());
        }
        let (guid, voters) = self.with_state(|state| {
            (state.guid, state.metadata_disks().map(|disk| disk.id).collect::<BTreeSet<DiskId>>())
        });
        let lagging: BTreeSet<DiskId> = voters.difference(reached).copied().collect();
        let (votes, needed) = (voters.len() - lagging.len(), votes_needed(voters.len()));
        let asks = !lagging.is_empty() && has_witness_vote(voters.len());
        if votes + usize::from(asks) < needed {
            // Not to be promised, so the witness must not hear of it either: it would be ahead of all disks.
            return Err(self.failed());
        }
        {
            let mut told = self.told.lock();
            told.retain(|disk| lagging.contains(disk));
            if votes >= needed && lagging.is_subset(&told) {
                return Ok(());
            }
        }
        // A disk missed this: the witness must know, or that disk could be believed alone later.
        match self.witness.store(guid, self.epoch(), seq).await {
            Ok(Vote::Given) => {
                *self.told.lock() = lagging;
                Ok(())
            }
            Ok(Vote::Refused(epoch)) => {
                tracing::error!("the quorum witness knows an owner of epoch {epoch}");
                self.superseded.store(true, Ordering::Release);
                Err(self.failed())
            }
            Err(error) => {
                tracing::error!("the quorum witness cannot be written: {error}");
                Err(self.failed())
            }
        }
    }
}

impl Core {
    /// Bytes of the smallest checkpoint slot of those who vote.
    fn smallest_slot(&self) -> u64 {
        let ids: Vec<DiskId> =
            self.meta.with_state(|state| state.metadata_disks().map(|disk| disk.id).collect());
        let slots = ids.into_iter().filter_map(|id| self.disk(id));
        slots.map(|disk| disk.layout.read().checkpoint_size).min().unwrap_or(0)
    }

    /// Bytes of the metadata, and how many rows and spaces may make of it with the voters of now.
    pub(crate) fn metadata_use(&self) -> (u64, u64) {
        (self.meta.state_bytes(), room_for_rows(self.smallest_slot()))
    }

    /// Makes sure that so many more bytes of rows or spaces fit the areas of those who vote. Votes move for it.
    pub(crate) async fn check_metadata_room(&self, bytes: u64) -> Result<(), BlockError> {
        let fits = || {
            let (used, room) = self.metadata_use();
            used + bytes <= room
        };
        if fits() {
            return Ok(());
        }
        self.spread_metadata(bytes).await?;
        if fits() {
            return Ok(());
        }
        Err(BlockError::new(BlockErrorKind::NoSpace, "describe more data").on(&self.name).because(AREA_FULL))
    }

    /// Whether the record of a further copy fits, beside those that are being made.
    pub(crate) fn has_metadata_room_for_a_copy(&self) -> bool {
        self.meta.state_bytes() + CopyRecord::ENCODED_LEN as u64 <= room_for_all(self.smallest_slot())
    }

    /// Whether the record of a further disk does.
    pub(crate) fn has_metadata_room_for_a_disk(&self, record: &DiskRecord) -> bool {
        self.meta.state_bytes() + record.encoded_len() as u64 <= room_for_all(self.smallest_slot())
    }

    /// Keeps the metadata on up to five disks of different fault domains that have room for it and `more` bytes, one change
    /// of the voters at a time: a disk gets the whole state before its vote counts.
    pub(crate) async fn spread_metadata(&self, more: u64) -> Result<(), CommitFailed> {
        let _one = self.voting.lock().await;
        let bytes = self.meta.state_bytes() + more;
        let (wanted, room) = self.meta.with_state(|state| choose_metadata_disks(state, bytes));
        let voters: Vec<DiskRecord> = self.meta.with_state(|state| state.metadata_disks().cloned().collect());
        let leaves = |disk: &DiskRecord| matches!(disk.usage, DiskUse::Retired | DiskUse::Draining);
        let missing = wanted.iter().filter(|id| voters.iter().all(|disk| disk.id != **id));
        let is_small = |disk: &DiskRecord| room_of(disk) < room;
        let to_be: Vec<DiskRecord> = self
            .meta
            .with_state(|state| wanted.iter().filter_map(|id| state.disks.get(id).cloned()).collect());
        let surplus = too_many_of_a_node(&voters, &to_be);
        let leaving =
            voters.iter().filter(|disk| leaves(disk) || is_small(disk) || surplus.contains(&disk.id));
        let mut count = voters.len();
        let mut leaving: VecDeque<DiskRecord> = leaving.cloned().collect();
        for id in missing {
            if count >= wanted.len() && leaving.is_empty() {
                break;
            }
            if !self.has_room(*id) {
                continue;
            }
            let record = self.meta.with_state(|state| state.disks.get(id).cloned());
            let Some(mut record) = record else { continue };
            record.metadata = true;
            self.meta.add_voter(record).await?;
            if !self.meta.with_state(|state| state.disks.get(id).is_some_and(|disk| disk.metadata)) {
                // It could not take the state.
                continue;
            }
            count += 1;
            if let Some(old) = leaving.pop_front() {
                self.take_vote(old).await?;
                count -= 1;
            }
        }
        // Of those that are too many on a node, what counts is who has become a voter: one without room may not have.
        let voters: Vec<DiskRecord> = self.meta.with_state(|state| state.metadata_disks().cloned().collect());
        let all_vote = wanted.iter().all(|id| voters.iter().any(|disk| disk.id == *id));
        let surplus = if all_vote { too_many_of_a_node(&voters, &to_be) } else { BTreeSet::new() };
        leaving.retain(|disk| leaves(disk) || is_small(disk) || surplus.contains(&disk.id));
        for old in leaving {
            let least = if leaves(&old) { 1 } else { METADATA_DISKS_LEAST.min(wanted.len()) };
            if count > least {
                self.take_vote(old).await?;
                count -= 1;
            }
        }
        Ok(())
    }

    async fn take_vote(&self, mut disk: DiskRecord) -> Result<(), CommitFailed> {
        disk.metadata = false;
        self.meta.commit(vec![Change::PutDisk(disk)]).await
    }

    /// Gives voters the state that had no room for it before: of those, the votes are missing.
    pub(crate) async fn bring_voters_up(&self) -> Result<(), BlockError> {
        let bytes = self.meta.state_bytes();
        let lags = |disk: &DiskRecord| {
            let disk = self.disk(disk.id).filter(|disk| disk.has_room());
            disk.is_some_and(|disk| {
                !disk.log_whole.load(Ordering::Acquire)
                    && room_for_all(disk.layout.read().checkpoint_size) >= bytes
            })
        };
        let voters: Vec<DiskRecord> = self.meta.with_state(|state| state.metadata_disks().cloned().collect());
        if voters.iter().any(lags) {
            self.meta.checkpoint().await?;
        }
        Ok(())
    }
}

/// At an opening: moves the votes of a pool whose metadata has outgrown the areas of its voters, so that no majority could
/// be given a checkpoint, to disks that are here and have room. Says who loses the vote.
///
/// The voters of before are here with a majority of their votes, or the loss was accepted: what they know is the newest
/// state. It goes to all new voters before anything is promised, and what the others have of it is cleared ([`clear_votes`]).
pub(crate) fn move_votes(
    state: &mut PoolState,
    here: &BTreeMap<DiskId, Member>,
) -> Result<Vec<Probe>, PoolError> {
    let bytes = state.encode().len() as u64;
    let fits = |disk: &DiskRecord| {
        let member = here.get(&disk.id);
        member.is_some_and(|member| room_for_all(member.probe.superblock.checkpoint_size) >= bytes)
    };
    let total = state.metadata_disks().count();
    let votes = state.metadata_disks().filter(|disk| fits(disk)).count();
    let outgrown = |disk: &&DiskRecord| here.contains_key(&disk.id) && !fits(disk);
    if !state.metadata_disks().any(|disk| outgrown(&disk))
        || votes + usize::from(has_witness_vote(total)) >= votes_needed(total)
    {
        return Ok(Vec::new());
    }
    let able = state.disks.values().filter(|disk| disk.usage == DiskUse::Active && fits(disk));
    let voters = in_turn(able);
    if voters.is_empty() {
        let detail = format!(
            "pool {}: its metadata of {bytes} bytes has outgrown the areas of the disks that are here; attach its larger disks",
            state.name
        );
        return Err(PoolError::new(PoolErrorKind::NoQuorum, detail));
    }
    tracing::warn!(
        "pool {}: its metadata of {bytes} bytes has outgrown the areas of its metadata disks; it moves to {} larger ones",
        state.name,
        voters.len()
    );
    let mut losers = Vec::new();
    for disk in state.disks.values_mut() {
        let votes = voters.contains(&disk.id);
        if disk.metadata && !votes {
            losers.extend(here.get(&disk.id).map(|member| member.probe.clone()));
        }
        disk.metadata = votes;
    }
    Ok(losers)
}

/// Makes sure that what disks have of the metadata, who have lost their votes, is never believed.
pub(crate) async fn clear_votes(pool: Guid, losers: &[Probe]) -> Result<(), PoolError> {
    for probe in losers {
        clear_metadata(&probe.device, &probe.superblock).await.map_err(|error| {
            let detail =
                format!("pool {pool}: old metadata of disk {} cannot be cleared", probe.superblock.disk_id);
            PoolError::new(PoolErrorKind::Io, detail).because(error)
        })?;
    }
    Ok(())
}

/// The bytes that a new row takes of the metadata.
pub(crate) fn row_bytes(columns: usize, shape: Shape) -> u64 {
    RowRecord::encoded_len_of(columns, shape.copies, shape.sums_pages) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::voters::votes;

    fn state(disks: &[(u64, &str)]) -> PoolState {
        let mut state = PoolState::default();
        for (index, (gib, enclosure)) in disks.iter().enumerate() {
            let disk = DiskRecord {
                id: DiskId(index as u32),
                guid: Guid([index as u8; 16]),
                usage: DiskUse::Active,
                metadata: false,
                slab_count: 1,
                data_start: 0,
                size: gib << 30,
                media: 0,
                enclosure: (*enclosure).to_owned(),
                slot: String::new(),
                node: String::new(),
                model: String::new(),
                serial: String::new(),
            };
            state.disks.insert(disk.id, disk);
        }
        state
    }

    /// Disks of nodes, by the number of each, and how many of each vote.
    fn of_nodes(counts: &[usize]) -> Vec<usize> {
        let disks: Vec<(u64, &str)> = counts.iter().flat_map(|count| vec![(10, "a"); *count]).collect();
        let mut state = state(&disks);
        let nodes: Vec<usize> =
            counts.iter().enumerate().flat_map(|(node, count)| vec![node; *count]).collect();
        for (disk, node) in state.disks.values_mut().zip(&nodes) {
            disk.node = format!("n{node}");
        }
        let voters = choose_metadata_disks(&state, 0).0;
        let mut votes = vec![0; counts.len()];
        voters.iter().for_each(|id| votes[nodes[id.0 as usize]] += 1);
        votes
    }

    #[test]
    fn no_node_has_half_of_the_votes() {
        for (disks, wanted) in [
            (&[1, 1][..], &[1, 1][..]),
            (&[3, 3], &[2, 2]),
            (&[1, 1, 1], &[1, 1, 1]),
            (&[2, 2, 2], &[2, 2, 1]),
            (&[5, 1, 1], &[2, 1, 1]),
            (&[1, 1, 1, 1], &[1, 1, 1, 1]),
            (&[3, 1, 1, 1], &[2, 1, 1, 1]),
            (&[1, 1, 1, 1, 1, 1], &[1, 1, 1, 1, 1, 0]),
        ] {
            let found = of_nodes(disks);
            assert_eq!(found, wanted, "{disks:?}");
            let all = votes(found.iter().sum());
            for lost in &found {
                assert!(2 * lost < all, "{disks:?}: the others have no majority without {lost}");
                let left = found.iter().sum::<usize>() - lost;
                let witness = usize::from(has_witness_vote(found.iter().sum()));
                assert!(left + witness >= votes_needed(found.iter().sum()));
            }
        }
        assert_eq!(of_nodes(&[6]), [5], "one node has them all");
        for (disks, wanted) in [(&[8, 1][..], &[2, 1][..]), (&[2, 1], &[2, 1])] {
            assert_eq!(
                of_nodes(disks),
                wanted,
                "three copies of the metadata come before a majority without a node"
            );
        }
    }

    #[test]
    fn votes_move_when_disks_of_another_node_join() {
        let mut state = state(&[(10, "a"), (10, "a"), (10, "a"), (10, "a"), (10, "a"), (10, "a")]);
        for disk in state.disks.values_mut() {
            disk.node = if disk.id.0 < 3 { "n1" } else { "n2" }.to_owned();
        }
        let all = |ids: &[u32]| ids.iter().map(|id| state.disks[&DiskId(*id)].clone()).collect::<Vec<_>>();
        let gone = too_many_of_a_node(&all(&[0, 1, 2]), &all(&[0, 1, 3, 4]));
        assert_eq!(gone, BTreeSet::from([DiskId(2)]));
        assert!(too_many_of_a_node(&all(&[0, 1, 3, 5]), &all(&[0, 2, 3, 4])).is_empty(), "as many as wanted");
        assert!(too_many_of_a_node(&all(&[0, 1, 2]), &all(&[0, 1])).is_empty(), "one node");
    }

    #[test]
    fn votes_are_where_the_state_may_double_if_three_disks_have_room() {
        let ids = |state: &PoolState, bytes| {
            choose_metadata_disks(state, bytes).0.iter().map(|id| id.0).collect::<Vec<_>>()
        };
        let mixed = state(&[(10, "a"), (10, "a"), (10, "b"), (1000, "a"), (1000, "b"), (1000, "b")]);
        assert_eq!(ids(&mixed, 1000).len(), 5, "small pools use fault domains first");
        assert_eq!(ids(&mixed, 2 << 20), [4, 3, 5], "beyond half a small area");
        let few = state(&[(10, "a"), (10, "a"), (1000, "b")]);
        assert_eq!(ids(&few, 3 << 20).len(), 3, "never fewer than three");
        let one = state(&[(10, "a")]);
        assert_eq!(ids(&one, 1 << 30), [0]);
        assert_eq!(choose_metadata_disks(&PoolState::default(), 1), (Vec::new(), 0));
    }
}
