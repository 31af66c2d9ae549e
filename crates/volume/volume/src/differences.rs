//! What differs between two streams, and what a tree takes: told from maps, without reading data.

use std::collections::BTreeSet;

use file_store::{Difference, SpaceUse, StoreError, StoreErrorKind};
use volume_format::CLUSTER;

use crate::core::Core;
use crate::extents::Extent;
use crate::free::Run;
use crate::session::Session;
use crate::tables::StreamKey;

impl Session<'_> {
    /// The extents of a stream of that name, and its size; `None` where there is none.
    fn stream_extents(
        &self,
        core: &Core,
        file: u64,
        name: &str,
    ) -> Result<Option<(Vec<Extent>, u64)>, StoreError> {
        let Some(record) = self.find_stream(file, name)? else { return Ok(None) };
        let key: StreamKey = (file, record.id);
        let size = core.known(key).map_or(record.size, |known| known.size);
        Ok(Some((self.extents(key)?, size)))
    }

    /// Same clusters hold the same, since clusters that several have are never written in place; others may differ.
    pub(crate) fn differences(
        &self,
        core: &Core,
        base: u64,
        target: u64,
        stream: &str,
        from: u64,
        limit: usize,
    ) -> Result<Vec<Difference>, StoreError> {
        if limit == 0 {
            return Err(StoreError::new(StoreErrorKind::InvalidArgument, "differences, at most none"));
        }
        let (old, old_size) = self.stream_extents(core, base, stream)?.unwrap_or_default();
        let Some((new, size)) = self.stream_extents(core, target, stream)? else {
            return Err(Session::no_stream(stream));
        };
        Ok(compare((&old, old_size), (&new, size), from, limit))
    }

    /// What a file or tree takes.
    pub(crate) fn space_of(&self, core: &Core, root: u64) -> Result<SpaceUse, StoreError> {
        let mut total = SpaceUse::default();
        let (mut left, mut seen) = (vec![root], BTreeSet::new());
        while let Some(file) = left.pop() {
            // A file with several names is there once.
            if !seen.insert(file) {
                continue;
            }
            let inode = self.inode(file)?;
            total.files += 1;
            if total.files > file_store::TREE_MAX as u64 {
                let detail = "there are too many files to add them up; ask for directories one by one";
                return Err(StoreError::new(StoreErrorKind::InvalidArgument, detail));
            }
            for record in &inode.streams {
                let key = (file, record.id);
                let size = core.known(key).map_or(record.size, |known| known.size);
                total.logical = total.logical.saturating_add(size);
                let (allocated, shared) = self.stream_space(key)?;
                total.allocated = total.allocated.saturating_add(allocated.saturating_mul(CLUSTER));
                total.shared = total.shared.saturating_add(shared.saturating_mul(CLUSTER));
            }
            if inode.directory {
                left.extend(self.entries(file)?.into_iter().map(|entry| entry.file));
            }
        }
        total.unique = total.allocated.saturating_sub(total.shared);
        Ok(total)
    }

    /// Clusters that a stream has, and those of them that others have, too.
    fn stream_space(&self, key: StreamKey) -> Result<(u64, u64), StoreError> {
        let (mut allocated, mut shared) = (0u64, 0u64);
        for extent in self.rows(self.own_map(key)?, 0, u64::MAX)? {
            allocated = allocated.saturating_add(extent.count);
            shared = shared.saturating_add(self.several(&extent)?);
        }
        for link in self.links(key, 0, u64::MAX)? {
            for (from, to, users) in self.uses(link.map, link.first, link.end)? {
                for row in self.rows(link.map, from, to)? {
                    let part = row.part(from, to);
                    allocated = allocated.saturating_add(part.count);
                    shared = shared.saturating_add(if users > 1 { part.count } else { self.several(&part)? });
                }
            }
        }
        Ok((allocated, shared))
    }

    /// Clusters of a row that are in other rows, too.
    fn several(&self, extent: &Extent) -> Result<u64, StoreError> {
        if !extent.shared {
            return Ok(0);
        }
        let users = self.users(Run { start: extent.device, count: extent.count })?;
        Ok(users.iter().filter(|(_, users)| *users > 1).map(|(run, _)| run.count).sum())
    }
}

/// The first extent of `extents` that ends behind `at`, by halving.
fn reaching(extents: &[Extent], at: u64) -> &[Extent] {
    &extents[extents.partition_point(|extent| extent.end() <= at)..]
}

/// What lies at a cluster: where on the device (`None`: nowhere), and how far it goes on like that.
fn segment(extents: &[Extent], at: u64) -> (Option<u64>, u64) {
    match extents.first() {
        Some(extent) if extent.first <= at => {
            (Some(extent.device.saturating_add(at - extent.first)), extent.end())
        }
        Some(extent) => (None, extent.first),
        None => (None, u64::MAX),
    }
}

/// Goes along both streams, a step where one of them changes.
fn compare(
    (old, old_size): (&[Extent], u64),
    (new, size): (&[Extent], u64),
    from: u64,
    limit: usize,
) -> Vec<Difference> {
    let mut found: Vec<Difference> = Vec::new();
    let (last, old_last) = (size.div_ceil(CLUSTER), old_size.div_ceil(CLUSTER));
    let mut at = from / CLUSTER;
    let (mut old, mut new) = (reaching(old, at), reaching(new, at));
    while at < last {
        (old, new) = (reaching_near(old, at), reaching_near(new, at));
        // Beyond its end the base holds nothing, and a cluster that its end cuts says nothing about what follows.
        let cut = old_size < size && old_size % CLUSTER != 0;
        let (was, was_end) = if at < old_last { segment(old, at) } else { (None, u64::MAX) };
        let (is, is_end) = segment(new, at);
        let edges = [old_last - u64::from(cut), old_last];
        let edge = edges.into_iter().find(|edge| *edge > at).unwrap_or(u64::MAX);
        let end = was_end.min(is_end).min(last).min(edge).max(at + 1);
        let same = was == is && !(cut && at + 1 == old_last && is.is_some());
        let (start, stop) = ((at * CLUSTER).max(from), (end * CLUSTER).min(size));
        if !same && start < stop {
            let (hole, full) = (is.is_none(), found.len() == limit);
            match found.last_mut() {
                Some(last) if last.hole == hole && last.offset + last.len == start => {
                    last.len += stop - start
                }
                _ if full => return found,
                _ => found.push(Difference { offset: start, len: stop - start, hole }),
            }
        }
        at = end;
    }
    found
}

/// As [`reaching`], where it is likely to be among the next.
fn reaching_near(extents: &[Extent], at: u64) -> &[Extent] {
    match extents.iter().take(4).position(|extent| extent.end() > at) {
        Some(near) => &extents[near..],
        None => reaching(extents, at),
    }
}
