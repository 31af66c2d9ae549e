//! Snapshots and clones of trees in the store in memory: copies whose units are shared.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::state::{Node, State, error, invalid, not_found};
use super::{MemoryStore, UNIT, at_once, lock};
use crate::names::{check, fold};
use crate::{
    Difference, FileId, NewSnapshot, Snapshot, SnapshotId, SnapshotStore, SpaceUse, StoreError,
    StoreErrorKind, StoreFuture,
};

impl State {
    /// Copies a node and what is below it; the copy's number.
    fn copy(
        &mut self,
        from: FileId,
        parent: Option<FileId>,
        name: &str,
        frozen: bool,
        copies: &mut BTreeMap<FileId, FileId>,
    ) -> Result<FileId, StoreError> {
        let known = copies.get(&from).copied();
        if let (Some(file), Some(parent)) = (known, parent) {
            // One more name of what was copied already.
            self.node_mut(file)?.names.push((parent, name.to_owned()));
            return Ok(file);
        }
        self.last_file += 1;
        let file = FileId(self.last_file);
        let source = self.node(from)?;
        copies.insert(from, file);
        let entries: Vec<(String, FileId)> =
            source.entries.iter().map(|(key, file)| (key.clone(), *file)).collect();
        let node = Node {
            parent: parent.unwrap_or(file),
            names: vec![(parent.unwrap_or(file), name.to_owned())],
            entries: BTreeMap::new(),
            frozen,
            ..source.clone()
        };
        self.nodes.insert(file, node);
        for (key, child) in entries {
            let name = self.entry(from, child, &key)?.name;
            let copied = self.copy(child, Some(file), &name, frozen, copies)?;
            self.node_mut(file)?.entries.insert(key, copied);
        }
        Ok(file)
    }

    /// Copies a tree; the copy's number. Copied names are in the order in which the source has them.
    fn copy_all(
        &mut self,
        from: FileId,
        parent: Option<FileId>,
        name: &str,
        frozen: bool,
    ) -> Result<FileId, StoreError> {
        let mut copies = BTreeMap::new();
        let copied = self.copy(from, parent, name, frozen, &mut copies)?;
        for (source, copy) in &copies {
            let order = self.node(*source)?.names.clone();
            let node = self.node_mut(*copy)?;
            if node.names.len() > 1 {
                let is = |(of, known): &(FileId, String), (parent, name): &(FileId, String)| {
                    copies.get(of) == Some(parent) && known == name
                };
                node.names.sort_by_key(|copied| order.iter().position(|known| is(known, copied)));
                node.parent = node.names.first().map_or(node.parent, |(parent, _)| *parent);
            }
        }
        Ok(copied)
    }

    fn take_snapshot(&mut self, new: NewSnapshot) -> Result<Snapshot, StoreError> {
        check(&new.name)?;
        let source = self.node(new.source)?;
        if source.frozen {
            return Err(invalid("that is a snapshot's"));
        }
        if self.snapshots.iter().any(|known| fold(&known.name) == fold(&new.name)) {
            return Err(error(StoreErrorKind::AlreadyExists, new.name));
        }
        let Some((_, name)) = source.names.first().cloned() else {
            return Err(not_found("such file any more"));
        };
        let kind = source.kind;
        let root = self.copy_all(new.source, None, &name, true)?;
        self.last_file += 1;
        let snapshot = Snapshot {
            id: SnapshotId(self.last_file),
            name: new.name,
            source: new.source,
            root,
            kind,
            created: self.ticks,
            quiesced: new.quiesce,
            maker: new.maker,
            path: new.path,
        };
        self.snapshots.push(snapshot.clone());
        Ok(snapshot)
    }

    fn delete_snapshot(&mut self, id: SnapshotId) -> Result<(), StoreError> {
        let at = self.snapshots.iter().position(|known| known.id == id);
        let at = at.ok_or_else(|| not_found("such snapshot"))?;
        let mut left = vec![self.snapshots.remove(at).root];
        while let Some(file) = left.pop() {
            let Some(node) = self.nodes.get_mut(&file) else { continue };
            node.names.clear();
            left.extend(std::mem::take(&mut node.entries).into_values());
            self.forget_if_unused(file);
        }
        Ok(())
    }

    fn clone_tree(&mut self, source: FileId, directory: FileId, name: &str) -> Result<FileId, StoreError> {
        check(name)?;
        self.node(source)?;
        self.directory_with_name(directory)?;
        let mut above = directory;
        loop {
            if above == source {
                return Err(invalid("a directory cannot be cloned into itself"));
            }
            let parent = self.node(above)?.parent;
            if parent == above {
                break;
            }
            above = parent;
        }
        if self.find(directory, name).is_ok() {
            return Err(error(StoreErrorKind::AlreadyExists, name));
        }
        if self.node(source)?.names.is_empty() {
            return Err(not_found("such file any more"));
        }
        let copied = self.copy_all(source, Some(directory), name, false)?;
        self.node_mut(directory)?.entries.insert(fold(name), copied);
        self.touch(directory, true)?;
        Ok(copied)
    }

    fn differences(
        &self,
        (base, target): (FileId, FileId),
        stream: &str,
        from: u64,
        limit: usize,
    ) -> Result<Vec<Difference>, StoreError> {
        if limit == 0 {
            return Err(invalid("differences, at most none"));
        }
        self.node(base)?;
        let old = self.content(&(base, fold(stream))).cloned().unwrap_or_default();
        let new = self.content(&(target, fold(stream)))?;
        let mut found: Vec<Difference> = Vec::new();
        for unit in from / UNIT..new.size.div_ceil(UNIT) {
            let (was, is) = (old.units.get(&unit), new.units.get(&unit));
            let cut = old.size < new.size && (unit + 1) * UNIT > old.size && unit * UNIT < old.size;
            let same = match (was, is) {
                (Some(was), Some(is)) => Arc::ptr_eq(was, is) && !cut,
                (None, None) => true,
                _ => false,
            };
            let (start, end) = ((unit * UNIT).max(from), ((unit + 1) * UNIT).min(new.size));
            if same || start >= end {
                continue;
            }
            let (hole, full) = (is.is_none(), found.len() == limit);
            match found.last_mut() {
                Some(last) if last.hole == hole && last.offset + last.len == start => last.len += end - start,
                _ if full => break,
                _ => found.push(Difference { offset: start, len: end - start, hole }),
            }
        }
        Ok(found)
    }
}

impl SnapshotStore for MemoryStore {
    fn take_snapshot(&self, new: NewSnapshot) -> StoreFuture<'_, Snapshot> {
        at_once(lock(&self.state).take_snapshot(new))
    }

    fn snapshots(&self) -> StoreFuture<'_, Vec<Snapshot>> {
        at_once(Ok(lock(&self.state).snapshots.clone()))
    }

    fn delete_snapshot(&self, id: SnapshotId) -> StoreFuture<'_, ()> {
        at_once(lock(&self.state).delete_snapshot(id))
    }

    fn clone_tree<'a>(&'a self, source: FileId, directory: FileId, name: &'a str) -> StoreFuture<'a, FileId> {
        at_once(lock(&self.state).clone_tree(source, directory, name))
    }

    fn differences<'a>(
        &'a self,
        base: FileId,
        target: FileId,
        stream: &'a str,
        from: u64,
        limit: usize,
    ) -> StoreFuture<'a, Vec<Difference>> {
        at_once(lock(&self.state).differences((base, target), stream, from, limit))
    }

    fn space(&self, root: FileId) -> StoreFuture<'_, SpaceUse> {
        at_once(lock(&self.state).space(root))
    }
}
