//! Changes of names, attributes and durable state: each is there whole or not at all, and surely once answered.

use std::rc::Rc;
use std::sync::Arc;

use aligned_buffer::IoBuf;
use file_store::{
    Attributes, FileId, FileKind, FileStore, InfoChange, NewFile, StateChange, StoreError, StoreErrorKind,
};
use sim::SECTOR;

use super::model::{FileModel, INNER, Names, TABLE};
use super::worker::{Stop, Worker};
use crate::case::Sabotage;
use crate::rig::Mark;

/// Names a worker has at most.
const NAMES: u64 = 6;

impl Worker<'_> {
    pub(super) fn name(&self) -> String {
        let number = self.dice.below(NAMES);
        if number.is_multiple_of(3) { format!("{INNER}/f{number}") } else { format!("f{number}") }
    }

    /// Notes what the names are to be; until the answer both are possible.
    pub(super) fn ask(&self, change: impl FnOnce(&mut Names)) -> Mark {
        let mut after = self.part.names.borrow().clone();
        change(&mut after);
        *self.part.pending.borrow_mut() = Some(after);
        self.begin_change();
        self.run.mark()
    }

    /// A change is asked for, a durable one unless [`Worker::store`] has said otherwise.
    fn begin_change(&self) {
        self.began.set(self.run.model.changes());
        let before = self.is_volatile.get().then(|| self.part.before(self.began.get()));
        *self.before.borrow_mut() = before;
    }

    /// The change was answered. The number that it has if it is volatile, else 0.
    fn change_is_done(&self, since: &Mark) -> u64 {
        self.is_volatile.set(false);
        let before = self.before.borrow_mut().take();
        match before {
            Some(before) => self.run.model.left(self.part, before),
            None => {
                self.run.flushed(since);
                self.run.model.durable(self.began.get());
                0
            }
        }
    }

    /// The volume for the next change: with volatile ones now and then, or mostly.
    fn store(&self) -> Arc<dyn FileStore> {
        let chosen = if self.hardly_durable { !self.dice.one_in(30) } else { self.dice.one_in(2) };
        self.is_volatile.set(chosen);
        // A build that is broken on purpose makes all of them so.
        let takes = chosen || self.run.rig.case.sabotage == Sabotage::VolumeAnswersEarly;
        match self.volume.volatile().filter(|_| takes) {
            Some(store) => store,
            None => Arc::clone(self.volume) as Arc<dyn FileStore>,
        }
    }

    pub(super) fn answered(
        &self,
        what: &str,
        result: Result<(), StoreError>,
        since: &Mark,
    ) -> Result<(), Stop> {
        match result {
            Ok(()) => {
                self.run.rig.answered();
                self.change_is_done(since);
                if let Some(after) = self.part.pending.borrow_mut().take() {
                    *self.part.names.borrow_mut() = after;
                }
                Ok(())
            }
            Err(error) => {
                self.is_volatile.set(false);
                self.judge(what, &error, since)?;
                *self.part.pending.borrow_mut() = None;
                Ok(())
            }
        }
    }

    pub(super) async fn create(&self) -> Result<(), Stop> {
        let name = self.name();
        let taken = self.part.names.borrow().contains_key(&name);
        let security = vec![self.dice.below(256) as u8; self.dice.below(200) as usize];
        let attributes = self.dice.below(1 << 7) as u32;
        let new =
            NewFile { kind: FileKind::File, attributes: Attributes(attributes), security: security.clone() };
        let file = self.run.model.new_file(attributes, security);
        let store = self.store();
        let since = self.ask(|names| {
            names.entry(name.clone()).or_insert_with(|| Rc::clone(&file));
        });
        let (directory, within) = self.part.place(&name);
        let made = store.create(directory, within, new).await;
        match made {
            Err(error) if taken && error.kind() == StoreErrorKind::AlreadyExists => {
                self.is_volatile.set(false);
                *self.part.pending.borrow_mut() = None;
                Ok(())
            }
            made => {
                if let Ok(id) = &made {
                    file.id.set(Some(id.0));
                    if taken {
                        self.run.rig.broken(format!("{name} could be made although it is there"));
                    }
                }
                let is_volatile = made.is_ok() && self.is_volatile.get();
                self.answered("making a file", made.map(drop), &since)?;
                file.made.set(if is_volatile { self.run.model.changes() } else { 0 });
                Ok(())
            }
        }
    }

    /// Removes a name; now and then the file is open still, and must be readable to the end.
    pub(super) async fn remove(&self, name: &str, file: &Rc<FileModel>) -> Result<(), Stop> {
        let kept = self.close(file).filter(|_| self.dice.one_in(2));
        let store = self.store();
        let since = self.ask(|names| {
            names.remove(name);
        });
        let (directory, within) = self.part.place(name);
        let removed = store.remove(directory, within).await;
        self.answered("removing a file", removed, &since)?;
        if let Some(open) = kept {
            self.run.model.ghosts.borrow_mut().push(Rc::clone(file));
            let size = file.sizes.borrow().live;
            self.read_and_compare(file, &open, 0, size.min(64)).await?;
            self.run.model.ghosts.borrow_mut().retain(|ghost| !Rc::ptr_eq(ghost, file));
        }
        Ok(())
    }

    pub(super) async fn rename(&self, name: &str) -> Result<(), Stop> {
        let to = self.name();
        let taken = to != name && self.part.names.borrow().contains_key(&to);
        let replace = self.dice.one_in(2);
        let store = self.store();
        let since = self.ask(|names| {
            if let Some(file) = names.remove(name) {
                names.insert(to.clone(), file);
            }
        });
        match store.rename(self.part.place(name), self.part.place(&to), replace).await {
            Err(error) if taken && !replace && error.kind() == StoreErrorKind::AlreadyExists => {
                self.is_volatile.set(false);
                *self.part.pending.borrow_mut() = None;
                Ok(())
            }
            renamed => self.answered("renaming a file", renamed, &since),
        }
    }

    /// Gives a file one more name, now and then in place of another file's.
    pub(super) async fn link(&self, name: &str, file: &Rc<FileModel>) -> Result<(), Stop> {
        let to = self.name();
        let taken = self.part.names.borrow().contains_key(&to);
        let replace = self.dice.one_in(2);
        let id = FileId(file.id.get().unwrap_or_default());
        self.run.rig.trace(|| format!("{name} is to be {to}, too"));
        let store = self.store();
        let since = self.ask(|names| drop(names.insert(to.clone(), Rc::clone(file))));
        match store.link(id, self.part.place(&to), replace).await {
            Err(error) if taken && !replace && error.kind() == StoreErrorKind::AlreadyExists => {
                self.is_volatile.set(false);
                *self.part.pending.borrow_mut() = None;
                Ok(())
            }
            linked => self.answered("giving a file another name", linked, &since),
        }
    }

    /// Attributes or security descriptor.
    pub(super) async fn set_attributes(&self, file: &Rc<FileModel>) -> Result<(), Stop> {
        let id = FileId(file.id.get().unwrap_or_default());
        let (since, store) = (self.run.mark(), self.store());
        self.begin_change();
        if self.dice.one_in(2) {
            let attributes = self.dice.below(1 << 7) as u32;
            file.attributes.borrow_mut().begin(attributes);
            let change = InfoChange { attributes: Some(Attributes(attributes)), ..InfoChange::default() };
            match store.set_info(id, change).await {
                Ok(()) => {
                    self.change_is_done(&since);
                    file.attributes.borrow_mut().done();
                }
                Err(error) => {
                    self.is_volatile.set(false);
                    self.judge("setting attributes", &error, &since)?;
                    file.attributes.borrow_mut().refused();
                }
            }
        } else {
            let security = vec![self.dice.below(256) as u8; self.dice.below(5000) as usize];
            file.security.borrow_mut().begin(security.clone());
            match store.set_security(id, security).await {
                Ok(()) => {
                    self.change_is_done(&since);
                    file.security.borrow_mut().done();
                }
                Err(error) => {
                    self.is_volatile.set(false);
                    self.judge("setting a security descriptor", &error, &since)?;
                    file.security.borrow_mut().refused();
                }
            }
        }
        self.run.rig.answered();
        Ok(())
    }

    /// A row of durable state.
    pub(super) async fn set_state(&self) -> Result<(), Stop> {
        let (since, store) = (self.run.mark(), self.store());
        self.begin_change();
        let value = u64::from(self.run.model.next_generation());
        self.part.state.borrow_mut().begin(value);
        let change = StateChange {
            table: TABLE.into(),
            key: vec![self.number as u8],
            value: Some(value.to_le_bytes().to_vec()),
        };
        match store.state_write(vec![change]).await {
            Ok(()) => {
                self.run.rig.answered();
                self.change_is_done(&since);
                self.part.state.borrow_mut().done();
            }
            Err(error) => {
                self.is_volatile.set(false);
                self.judge("writing state", &error, &since)?;
                self.part.state.borrow_mut().refused();
            }
        }
        Ok(())
    }

    /// Reads sectors and compares them with what may be seen.
    pub(super) async fn read_and_compare(
        &self,
        file: &Rc<FileModel>,
        open: &Arc<dyn file_store::OpenFile>,
        first: u64,
        count: u64,
    ) -> Result<(), Stop> {
        let since = self.run.mark();
        let expected = file.sizes.borrow().live.saturating_sub(first).min(count) * SECTOR as u64;
        let reading = file.history.borrow_mut().begin_read(first as usize..(first + count) as usize);
        let read = open.read(first * SECTOR as u64, IoBuf::new(count as usize * SECTOR)).await;
        let bytes = read.as_ref().ok().map(|buf| &buf[..]);
        let judged = file.history.borrow_mut().end_read(&reading, bytes);
        if let Err(what) = judged {
            self.run.rig.broken(format!("file of owner {}: a read: {what}", file.owner));
        }
        match read {
            Ok(bytes) => {
                self.run.rig.answered();
                self.run.rig.stats.borrow_mut().sectors += count;
                if bytes.len() as u64 != expected {
                    let (owner, len) = (file.owner, bytes.len());
                    self.run
                        .rig
                        .broken(format!("file of owner {owner}: a read gave {len} bytes, not {expected}"));
                }
                Ok(())
            }
            Err(error) => self.judge("a read", &error, &since),
        }
    }
}
