//! A disk that several nodes reach, with SCSI persistent reservations of the type WRITE EXCLUSIVE, REGISTRANTS ONLY.
//!
//! Everything that a command does happens at one moment. Whoever is registered may write, whatever the key; the epoch in the key
//! is for nodes to look at.

use std::collections::{BTreeMap, BTreeSet};

/// Which vote of a pool's metadata, which copy.
pub(crate) type DiskIndex = usize;
pub(crate) type Block = usize;
pub(crate) type NodeIndex = usize;

/// What a pool keeps on each of its disks about all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Metadata {
    pub(crate) epoch: u64,
    pub(crate) sequence: u64,
    /// Blocks whose copies may differ.
    pub(crate) dirty: BTreeSet<Block>,
    /// Copies that lack something: the disk and the block.
    pub(crate) stale: BTreeSet<(DiskIndex, Block)>,
}

impl Metadata {
    pub(crate) fn age(&self) -> (u64, u64) {
        (self.epoch, self.sequence)
    }
}

/// A reservation key: `epoch << 16 | node`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReservationKey(pub(crate) u64);

impl ReservationKey {
    pub(crate) fn new(epoch: u64, node: NodeIndex) -> Self {
        Self(epoch << 16 | (node as u64 + 1))
    }

    pub(crate) fn epoch(self) -> u64 {
        self.0 >> 16
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Command {
    /// A new session of this node: nothing arrives any more that an older one carries.
    Login,
    /// READ KEYS and READ RESERVATION.
    ReadKeys,
    /// REGISTER AND IGNORE EXISTING KEY.
    Register(ReservationKey),
    /// REGISTER AND IGNORE EXISTING KEY with no key: whoever holds the reservation ends it.
    Unregister,
    /// RESERVE, with the key that is registered.
    Reserve(ReservationKey),
    /// PREEMPT AND ABORT: the own key, and that of whoever goes.
    Preempt(ReservationKey, ReservationKey),
    Read(Block),
    Write(Block, u64),
    ReadMetadata,
    WriteMetadata(Metadata),
}

#[derive(Clone, Debug)]
pub(crate) enum DiskReply {
    Done,
    /// RESERVATION CONFLICT.
    Conflict,
    Keys(BTreeMap<NodeIndex, ReservationKey>, Option<ReservationKey>),
    Value(u64),
    Metadata(Metadata),
}

#[derive(Debug, Default)]
pub(crate) struct Disk {
    blocks: BTreeMap<Block, u64>,
    metadata: Metadata,
    sessions: BTreeMap<NodeIndex, u64>,
    registered: BTreeMap<NodeIndex, ReservationKey>,
    holder: Option<ReservationKey>,
    /// The highest epoch whose owner has seen that it has the disk to itself.
    fenced: u64,
}

impl Disk {
    /// Carries out a command of a node's session, sent by the owner of an epoch; `None` when the session is over. An error is a
    /// broken promise.
    pub(crate) fn execute(
        &mut self,
        node: NodeIndex,
        session: u64,
        epoch: u64,
        command: Command,
    ) -> Result<Option<DiskReply>, String> {
        let present = self.sessions.entry(node).or_insert(session);
        if matches!(command, Command::Login) {
            *present = (*present).max(session);
        }
        if *present != session {
            return Ok(None);
        }
        Ok(Some(match command {
            Command::Login => DiskReply::Done,
            Command::ReadKeys => {
                if let Some(mine) = self.registered.get(&node).filter(|mine| self.holder == Some(**mine))
                    && self.registered.values().all(|key| key >= mine)
                {
                    self.fenced = self.fenced.max(mine.epoch());
                }
                DiskReply::Keys(self.registered.clone(), self.holder)
            }
            Command::Register(key) => {
                let before = self.registered.insert(node, key);
                // A node holds the reservation, not a key.
                if before.is_some() && self.holder == before {
                    self.holder = Some(key);
                }
                DiskReply::Done
            }
            Command::Unregister => {
                if let Some(key) = self.registered.remove(&node)
                    && self.holder == Some(key)
                {
                    self.holder = None;
                    if self.fenced > 0 {
                        return Err(format!(
                            "{key:?} ends the reservation of a disk that epoch {} has had to itself: all who were fenced may write again",
                            self.fenced
                        ));
                    }
                }
                DiskReply::Done
            }
            Command::Reserve(key) => {
                let free = self.holder.is_none_or(|holder| holder == key);
                if self.registered.get(&node) != Some(&key) || !free {
                    return Ok(Some(DiskReply::Conflict));
                }
                self.holder = Some(key);
                DiskReply::Done
            }
            Command::Preempt(mine, other) => {
                let known = self.registered.values().any(|key| *key == other);
                if self.registered.get(&node) != Some(&mine) || !(known || self.holder == Some(other)) {
                    return Ok(Some(DiskReply::Conflict));
                }
                self.registered.retain(|of, key| *of == node || *key != other);
                if self.holder == Some(other) {
                    self.holder = Some(mine);
                }
                DiskReply::Done
            }
            Command::Read(block) => DiskReply::Value(self.value(block)),
            Command::ReadMetadata => DiskReply::Metadata(self.metadata.clone()),
            Command::Write(..) | Command::WriteMetadata(_) if !self.may_write(node) => DiskReply::Conflict,
            Command::Write(block, value) => {
                self.check_epoch(epoch, "data")?;
                self.blocks.insert(block, value);
                DiskReply::Done
            }
            Command::WriteMetadata(metadata) => {
                self.check_epoch(epoch, "metadata")?;
                self.metadata = metadata;
                DiskReply::Done
            }
        }))
    }

    /// What a block holds.
    pub(crate) fn value(&self, block: Block) -> u64 {
        self.blocks.get(&block).copied().unwrap_or_default()
    }

    fn may_write(&self, node: NodeIndex) -> bool {
        self.holder.is_none() || self.registered.contains_key(&node)
    }

    fn check_epoch(&self, epoch: u64, what: &str) -> Result<(), String> {
        if epoch >= self.fenced {
            return Ok(());
        }
        Err(format!("{what} of epoch {epoch} is written to a disk that epoch {} has to itself", self.fenced))
    }
}
