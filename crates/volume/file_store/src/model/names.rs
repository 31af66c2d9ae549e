//! Names that move, several names of one file, and new names of streams, in the store in memory.

use super::state::{ROOT, State, error, invalid, not_found};
use crate::names::{check, fold};
use crate::{FileId, NAMES_MAX, StoreError, StoreErrorKind};

impl State {
    pub(super) fn rename(
        &mut self,
        (from, from_name): (FileId, &str),
        (to, to_name): (FileId, &str),
        replace: bool,
    ) -> Result<(), StoreError> {
        check(to_name)?;
        let file = self.find(from, from_name)?;
        self.changeable(from)?;
        self.directory_with_name(to)?;
        self.may_move(file)?;
        let mut above = to;
        while above != ROOT {
            if above == file {
                return Err(invalid("a directory cannot be moved into itself"));
            }
            above = self.node(above)?.parent;
        }
        let same_name = from == to && fold(from_name) == fold(to_name);
        let old = self.find(to, to_name).ok().filter(|_| !same_name);
        if let Some(old) = old {
            let both_files = [old, file].iter().all(|f| self.directory(*f).is_err());
            if !replace || !both_files {
                return Err(error(StoreErrorKind::AlreadyExists, to_name));
            }
            self.may_delete(old)?;
            self.take_name(to, to_name, old)?;
        }
        self.node_mut(from)?.entries.remove(&fold(from_name));
        self.touch(from, true)?;
        self.node_mut(to)?.entries.insert(fold(to_name), file);
        self.touch(to, true)?;
        let node = self.node_mut(file)?;
        let moved = |known: &&mut (FileId, String)| known.0 == from && fold(&known.1) == fold(from_name);
        if let Some(name) = node.names.iter_mut().find(moved) {
            *name = (to, to_name.into());
        }
        node.parent = node.names.first().map_or(to, |(parent, _)| *parent);
        self.touch(file, false)
    }

    pub(super) fn link(
        &mut self,
        file: FileId,
        (to, name): (FileId, &str),
        replace: bool,
    ) -> Result<(), StoreError> {
        check(name)?;
        let node = self.node(file)?;
        if self.directory(file).is_ok() {
            return Err(error(StoreErrorKind::IsADirectory, "a directory has one name"));
        }
        if node.names.is_empty() {
            return Err(not_found("such file any more"));
        }
        let count = node.names.len();
        self.changeable(file)?;
        self.directory_with_name(to)?;
        let old = self.find(to, name).ok();
        if let Some(old) = old {
            if !replace || self.directory(old).is_ok() {
                return Err(error(StoreErrorKind::AlreadyExists, name));
            }
            self.may_delete(old)?;
        }
        if old != Some(file) {
            if count >= NAMES_MAX {
                return Err(error(StoreErrorKind::TooManyNames, name));
            }
            self.may_delete(file)?;
        }
        match old {
            Some(same) if same == file => {
                let known = |known: &&mut (FileId, String)| known.0 == to && fold(&known.1) == fold(name);
                if let Some(known) = self.node_mut(file)?.names.iter_mut().find(known) {
                    known.1 = name.to_owned();
                }
                self.touch(to, true)?;
                return self.touch(file, false);
            }
            Some(old) => self.take_name(to, name, old)?,
            None => {}
        }
        self.node_mut(to)?.entries.insert(fold(name), file);
        self.touch(to, true)?;
        self.node_mut(file)?.names.push((to, name.to_owned()));
        self.touch(file, false)
    }

    pub(super) fn names_of(&self, file: FileId) -> Result<Vec<(FileId, String)>, StoreError> {
        let names = &self.node(file)?.names;
        // A root is in no directory.
        Ok(names.iter().filter(|(parent, _)| *parent != file).cloned().collect())
    }

    pub(super) fn rename_stream(
        &mut self,
        file: FileId,
        from: &str,
        to: &str,
        replace: bool,
    ) -> Result<(), StoreError> {
        if from.is_empty() || to.is_empty() {
            return Err(invalid("the unnamed stream keeps its name"));
        }
        check(to)?;
        self.changeable(file)?;
        let (old, new) = (fold(from), fold(to));
        if !self.node(file)?.streams.contains_key(&old) {
            return Err(not_found("such named stream"));
        }
        if old != new && self.node(file)?.streams.contains_key(&new) {
            if !replace {
                return Err(error(StoreErrorKind::AlreadyExists, to));
            }
            let target = (file, new.clone());
            if self.opens_of(file).any(|open| open.stream == target) {
                return Err(error(StoreErrorKind::SharingViolation, "the stream is open"));
            }
        }
        let node = self.node_mut(file)?;
        if let Some((_, content)) = node.streams.remove(&old) {
            node.streams.insert(new.clone(), (to.to_owned(), content));
        }
        self.move_opens(&(file, old), &new);
        self.touch(file, false)
    }
}
