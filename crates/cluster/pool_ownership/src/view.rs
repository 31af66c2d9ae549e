//! What a node knows of the shared state: always something that was true, seldom all that is.

use std::collections::BTreeMap;

use cluster_store::keys::{ClusterName, Key, NodeId, PoolId};
use cluster_store::values::{Beat, Home, Incarnation, Member, NodeEntry, NodeSees, Owner, PoolDisks, Value};
use cluster_store::{Change, Found, Revision, Snapshot};

use crate::time::BootTime;

/// A member as it was last seen.
#[derive(Clone, Debug)]
pub(crate) struct SeenMember {
    /// `None`: what stands there cannot be understood. Such a member counts, and nothing is known of it.
    pub(crate) member: Option<Member>,
    pub(crate) created: Revision,
    pub(crate) modified: Revision,
}

impl SeenMember {
    pub(crate) fn incarnation(&self) -> Option<Incarnation> {
        self.member.as_ref().map(|member| member.incarnation)
    }
}

/// A beat as it was last seen.
#[derive(Clone, Debug)]
pub(crate) struct SeenBeat {
    pub(crate) beat: Option<Beat>,
    pub(crate) modified: Revision,
    /// When this node learned of it, by its own clock.
    pub(crate) received: BootTime,
}

/// An owner as it was last seen.
#[derive(Clone, Debug)]
pub(crate) struct SeenOwner {
    pub(crate) owner: Option<Owner>,
    pub(crate) modified: Revision,
    /// When this node learned of it.
    pub(crate) received: BootTime,
}

#[derive(Debug)]
pub(crate) struct View {
    cluster: ClusterName,
    /// All changes up to here are known.
    pub(crate) revision: Revision,
    pub(crate) members: BTreeMap<NodeId, SeenMember>,
    pub(crate) beats: BTreeMap<NodeId, SeenBeat>,
    pub(crate) owners: BTreeMap<PoolId, SeenOwner>,
    pub(crate) homes: BTreeMap<PoolId, Home>,
    /// The disks that pools need, as their owners have said.
    pub(crate) disks: BTreeMap<PoolId, (Revision, PoolDisks)>,
    /// What nodes see of them; none where that is not understood.
    pub(crate) sees: BTreeMap<NodeId, (Revision, Option<NodeSees>)>,
    /// When the entries of nodes were changed, and whether they say that the node was removed.
    entries: BTreeMap<NodeId, (Revision, bool)>,
    /// When the last change of the membership was learned of.
    pub(crate) changed: BootTime,
}

impl View {
    pub(crate) fn new(cluster: ClusterName) -> Self {
        Self {
            cluster,
            revision: Revision(0),
            members: BTreeMap::new(),
            beats: BTreeMap::new(),
            owners: BTreeMap::new(),
            homes: BTreeMap::new(),
            disks: BTreeMap::new(),
            sees: BTreeMap::new(),
            entries: BTreeMap::new(),
            changed: BootTime(0),
        }
    }

    pub(crate) fn path(&self, key: &Key) -> String {
        key.path(&self.cluster)
    }

    /// Everything anew. What is unchanged keeps the time at which it was learned of.
    pub(crate) fn load(&mut self, now: BootTime, snapshot: &Snapshot) {
        if snapshot.revision < self.revision {
            return;
        }
        let there = |path: String| snapshot.found.iter().any(|found| found.key == path);
        let cluster = self.cluster.clone();
        self.members.retain(|node, _| there(Key::Member(*node).path(&cluster)));
        self.beats.retain(|node, _| there(Key::Beat(*node).path(&cluster)));
        self.owners.retain(|pool, _| there(Key::Owner(*pool).path(&cluster)));
        self.homes.retain(|pool, _| there(Key::Home(*pool).path(&cluster)));
        self.disks.retain(|pool, _| there(Key::PoolDisks(*pool).path(&cluster)));
        self.sees.retain(|node, _| there(Key::NodeSees(*node).path(&cluster)));
        self.entries.retain(|node, _| there(Key::Node(*node).path(&cluster)));
        for found in &snapshot.found {
            self.put(now, found);
        }
        self.revision = snapshot.revision;
        self.changed = now;
    }

    /// Changes of a watch that misses none.
    pub(crate) fn change(&mut self, now: BootTime, changes: &[Change]) {
        let known = self.revision;
        for change in changes.iter().filter(|change| change.revision > known) {
            match &change.now {
                Some(found) => self.put(now, found),
                None => self.gone(now, change),
            }
        }
        if let Some(last) = changes.last() {
            self.revision = self.revision.max(last.revision);
        }
    }

    /// What this node has put there itself, or has read: the watch may tell it later, and older things in between.
    pub(crate) fn put(&mut self, now: BootTime, found: &Found) {
        let modified = found.modified;
        match Key::parse(&self.cluster, &found.key) {
            Some(Key::Member(node))
                if self.members.get(&node).is_none_or(|seen| seen.modified < modified) =>
            {
                let member = Member::decode(&found.value).ok();
                self.members.insert(node, SeenMember { member, created: found.created, modified });
                self.changed = now;
            }
            Some(Key::Beat(node)) if self.beats.get(&node).is_none_or(|seen| seen.modified < modified) => {
                let beat = Beat::decode(&found.value).ok();
                self.beats.insert(node, SeenBeat { beat, modified, received: now });
            }
            Some(Key::Owner(pool)) if self.owners.get(&pool).is_none_or(|seen| seen.modified < modified) => {
                let owner = Owner::decode(&found.value).ok();
                self.owners.insert(pool, SeenOwner { owner, modified, received: now });
            }
            Some(Key::Node(node)) if self.entries.get(&node).is_none_or(|(seen, _)| *seen < modified) => {
                let removed = NodeEntry::decode(&found.value).is_ok_and(|entry| entry.removed);
                self.entries.insert(node, (modified, removed));
            }
            Some(Key::PoolDisks(pool)) if self.disks.get(&pool).is_none_or(|(seen, _)| *seen < modified) => {
                match PoolDisks::decode(&found.value) {
                    Ok(disks) => drop(self.disks.insert(pool, (modified, disks))),
                    Err(_) => drop(self.disks.remove(&pool)),
                }
            }
            Some(Key::NodeSees(node)) if self.sees.get(&node).is_none_or(|(seen, _)| *seen < modified) => {
                self.sees.insert(node, (modified, NodeSees::decode(&found.value).ok()));
            }
            Some(Key::Home(pool)) => {
                if let Ok(home) = Home::decode(&found.value) {
                    self.homes.insert(pool, home);
                }
            }
            _ => {}
        }
    }

    fn gone(&mut self, now: BootTime, change: &Change) {
        let revision = change.revision;
        match Key::parse(&self.cluster, &change.key) {
            Some(Key::Member(node))
                if self.members.get(&node).is_some_and(|seen| seen.modified < revision) =>
            {
                self.members.remove(&node);
                self.changed = now;
            }
            Some(Key::Beat(node)) if self.beats.get(&node).is_some_and(|seen| seen.modified < revision) => {
                self.beats.remove(&node);
            }
            Some(Key::Owner(pool)) if self.owners.get(&pool).is_some_and(|seen| seen.modified < revision) => {
                self.owners.remove(&pool);
            }
            Some(Key::PoolDisks(pool)) if self.disks.get(&pool).is_some_and(|(seen, _)| *seen < revision) => {
                self.disks.remove(&pool);
            }
            Some(Key::NodeSees(node)) if self.sees.get(&node).is_some_and(|(seen, _)| *seen < revision) => {
                self.sees.remove(&node);
            }
            Some(Key::Home(pool)) => {
                self.homes.remove(&pool);
            }
            Some(Key::Node(node)) if self.entries.get(&node).is_some_and(|(seen, _)| *seen < revision) => {
                self.entries.remove(&node);
            }
            _ => {}
        }
    }

    /// When the entry of a node was changed last, by which it belongs to the cluster; 0: there is none.
    pub(crate) fn entry_of(&self, node: NodeId) -> Revision {
        self.entries.get(&node).map_or(Revision(0), |(modified, _)| *modified)
    }

    /// Whether a node was removed from the cluster, or has left it.
    pub(crate) fn was_removed(&self, node: NodeId) -> bool {
        self.entries.get(&node).is_some_and(|(_, removed)| *removed)
    }

    /// After a stand-still: silence while this node did not listen is nobody's silence.
    pub(crate) fn heard_nothing_before(&mut self, now: BootTime) {
        for seen in self.beats.values_mut() {
            seen.received = seen.received.max(now);
        }
    }

    /// Whether the incarnation is the one that takes part as this node; `None` when what stands there is not understood.
    pub(crate) fn lives(&self, node: NodeId, incarnation: Incarnation) -> Option<bool> {
        match self.members.get(&node) {
            None => Some(false),
            Some(seen) => seen.incarnation().map(|present| present == incarnation),
        }
    }
}
