//! Which disks should vote on the pool's metadata, and how many votes are needed.

use std::collections::{BTreeMap, BTreeSet};

use pool_format::{BLOCK, DiskId, DiskRecord, DiskUse, PoolState, checkpoint_room};

/// Disks that carry metadata, at most.
const METADATA_DISKS_MAX: usize = 5;
/// Voters that a pool keeps if it has so many disks: the loss of one leaves a majority.
pub(crate) const METADATA_DISKS_LEAST: usize = 3;

/// Bytes of state that rows and spaces may fill of a checkpoint slot: an eighth is left to copies that are made.
pub(crate) fn room_for_rows(slot: u64) -> u64 {
    slot.saturating_sub(BLOCK) / 8 * 7
}

pub(crate) fn room_of(disk: &DiskRecord) -> u64 {
    room_for_rows(checkpoint_room(disk.size))
}

/// Up to five disks for metadata of so many bytes, and the room that each of them has at least: one of each node in turn, and of each
/// of its enclosures, the largest first. Where there is the choice, disks on which the state may double. Where there are several nodes,
/// none has half of all votes, so that whichever is lost, the others have a majority (two nodes: two disks each, and the witness), as far as that
/// leaves [`METADATA_DISKS_LEAST`] copies of the metadata.
pub(crate) fn choose_metadata_disks(state: &PoolState, bytes: u64) -> (Vec<DiskId>, u64) {
    let active = || state.disks.values().filter(|disk| disk.usage == DiskUse::Active);
    let mut rooms: Vec<u64> = active().map(room_of).collect();
    rooms.sort_unstable_by_key(|room| std::cmp::Reverse(*room));
    let possible = rooms.get(METADATA_DISKS_LEAST.min(rooms.len()).saturating_sub(1)).copied().unwrap_or(0);
    let room = possible.min(bytes.saturating_mul(2));
    (in_turn(active().filter(|disk| room_of(disk) >= room)), room)
}

pub(crate) fn in_turn<'a>(disks: impl Iterator<Item = &'a DiskRecord>) -> Vec<DiskId> {
    let mut nodes: BTreeMap<&str, BTreeMap<&str, Vec<DiskId>>> = BTreeMap::new();
    for disk in disks {
        nodes.entry(&disk.node).or_default().entry(&disk.enclosure).or_default().push(disk.id);
    }
    let nodes: Vec<Vec<DiskId>> =
        nodes.into_values().map(|enclosures| one_of_each(enclosures.into_values().collect())).collect();
    let mut voters = one_of_each(nodes.clone());
    voters.truncate(METADATA_DISKS_MAX);
    if nodes.len() > 1 {
        let of = |voters: &[DiskId], node: &[DiskId]| voters.iter().filter(|id| node.contains(id)).count();
        // But never for so few copies of the metadata that the loss of as many disks as a space promises takes them all.
        while voters.len() > METADATA_DISKS_LEAST
            && let Some(node) = nodes.iter().find(|node| 2 * of(&voters, node) >= votes(voters.len()))
        {
            let Some(last) = voters.iter().rposition(|id| node.contains(id)) else { break };
            voters.remove(last);
        }
    }
    voters
}

/// One of each list in turn, the longest lists first.
fn one_of_each(mut lists: Vec<Vec<DiskId>>) -> Vec<DiskId> {
    lists.sort_by_key(|list| std::cmp::Reverse(list.len()));
    let longest = lists.iter().map(Vec::len).max().unwrap_or(0);
    let in_turn = (0..longest).flat_map(|round| lists.iter().filter_map(move |list| list.get(round)));
    in_turn.copied().collect()
}

/// Voters whose node has more votes than it is to have, as many as are too many: those that are not wanted.
pub(crate) fn too_many_of_a_node(voters: &[DiskRecord], wanted: &[DiskRecord]) -> BTreeSet<DiskId> {
    let nodes: BTreeSet<&str> = voters.iter().chain(wanted).map(|disk| disk.node.as_str()).collect();
    if nodes.len() < 2 {
        return BTreeSet::new();
    }
    let of = |disks: &[DiskRecord], node: &str| disks.iter().filter(|disk| disk.node == node).count();
    let surplus = |node: &str| {
        let unwanted =
            voters.iter().filter(|disk| disk.node == node && wanted.iter().all(|to| to.id != disk.id));
        let many = of(voters, node).saturating_sub(of(wanted, node));
        unwanted.take(many).map(|disk| disk.id).collect::<Vec<DiskId>>()
    };
    nodes.iter().flat_map(|node| surplus(node)).collect()
}

/// All votes, that of the witness included if it has one.
pub(crate) fn votes(metadata_disks: usize) -> usize {
    metadata_disks + usize::from(has_witness_vote(metadata_disks))
}

/// With an even number of metadata disks the witness breaks the tie.
pub(crate) fn has_witness_vote(metadata_disks: usize) -> bool {
    metadata_disks.is_multiple_of(2)
}

/// How many of so many metadata disks open a pool, where the witness, if it has a vote, agrees with them.
#[must_use]
pub fn voters_needed(metadata_disks: usize) -> usize {
    votes_needed(metadata_disks) - usize::from(has_witness_vote(metadata_disks))
}

/// A majority of the metadata disks' votes and the witness's, if it has one.
pub(crate) fn votes_needed(metadata_disks: usize) -> usize {
    votes(metadata_disks) / 2 + 1
}
