//! What changes a disk: writes, zeroing, unmapping, and the flush that makes them durable.

use std::sync::atomic::Ordering;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{BlockError, BlockErrorKind, Durability, UnmapBehavior};
use futures_util::future::join_all;
use scsi_defs::request;

use crate::disk::IscsiDisk;
use crate::lane::{Data, Failure, Order};

/// Bytes that one command zeroes or unmaps at the most: targets may take long for more.
const ZERO_PIECE: u64 = 64 << 20;

impl IscsiDisk {
    fn check_write(&self, doing: &'static str, offset: u64, len: u64) -> Result<(), BlockError> {
        self.check(offset, len)?;
        let kind = match (self.geometry.read_only, self.shared.registration.lock().lost) {
            (true, _) => BlockErrorKind::ReadOnly,
            (false, true) => BlockErrorKind::Fenced,
            (false, false) => return self.shared.check_poison(doing),
        };
        Err(BlockError::new(kind, doing).on(&self.shared.name).at(offset, len))
    }

    /// Runs commands that write, and sees to their durability; `fua` says that they do so themselves.
    async fn change(
        &self,
        doing: &'static str,
        durability: Durability,
        fua: bool,
        commands: impl Iterator<Item = (u64, u64, Order)>,
    ) -> Result<(), BlockError> {
        let cached = self.shared.facts.write_cache && !fua;
        let work = commands.map(|(at, len, order)| async move {
            let done = self.shared.carry_out(Order { cached, changes: true, ..order }).await;
            done.map(drop).map_err(|failure| self.error(failure, doing).at(at, len))
        });
        // All of them, also when one fails: what still runs could land behind the caller's next write of the same place.
        let done: Result<(), BlockError> = join_all(work).await.into_iter().collect();
        if durability == Durability::Volatile {
            return done;
        }
        if let Err(error) = done {
            // What a target without space or rights refuses has changed nothing; of anything else nobody knows what is lost.
            if !leaves_durable(error.kind()) {
                self.shared.poisoned.store(true, Ordering::Release);
            }
            return Err(error);
        }
        if cached { self.flush_cache().await } else { self.shared.check_poison(doing) }
    }

    pub(crate) async fn write_range(
        &self,
        offset: u64,
        data: SharedBuf,
        durability: Durability,
    ) -> Result<(), BlockError> {
        let len = data.len() as u64;
        self.check_write("write", offset, len)?;
        if len == 0 {
            return Ok(());
        }
        let durable = durability == Durability::Durable && self.shared.facts.write_cache;
        let fua = durable && self.shared.facts.fua;
        let commands = self.pieces(offset, len, self.piece()).map(|(at, len)| {
            let cdb = request::write(self.blocks(at), self.blocks(len) as u32, fua);
            let from = (at - offset) as usize;
            (at, len, Order::new(&cdb, Data::Out(data.slice(from..from + len as usize))))
        });
        self.change("write", durability, fua, commands).await
    }

    /// Makes a range read as zeros; with `unmap`, by giving its blocks up where that does.
    pub(crate) async fn zero(
        &self,
        doing: &'static str,
        (offset, len): (u64, u64),
        durability: Durability,
        unmap: bool,
    ) -> Result<(), BlockError> {
        self.check_write(doing, offset, len)?;
        let block = self.geometry.block_size as usize;
        if len == 0 {
            return Ok(());
        }
        if !self.shared.no_write_same.load(Ordering::Relaxed) {
            let zeros = IoBuf::zeroed(block).freeze();
            let most =
                self.shared.facts.most_same.unwrap_or(u64::MAX).saturating_mul(block as u64).min(ZERO_PIECE);
            let commands = self.pieces(offset, len, most).map(|(at, len)| {
                let cdb = request::write_same(self.blocks(at), self.blocks(len) as u32, unmap);
                (at, len, Order::new(&cdb, Data::Out(zeros.clone())))
            });
            // Volatile at first: that the target does not know the command is no failure of durability.
            match self.change(doing, Durability::Volatile, false, commands).await {
                Err(error) if error.kind() == BlockErrorKind::Unsupported => {
                    self.shared.no_write_same.store(true, Ordering::Relaxed);
                }
                done if durability == Durability::Volatile => return done,
                Ok(()) if self.shared.facts.write_cache => return self.flush_cache().await,
                Ok(()) => return self.shared.check_poison(doing),
                Err(error) => {
                    if !leaves_durable(error.kind()) {
                        self.shared.poisoned.store(true, Ordering::Release);
                    }
                    return Err(error);
                }
            }
        }
        let zeros = IoBuf::zeroed(self.piece().min(len) as usize).freeze();
        let commands = self.pieces(offset, len, self.piece()).map(|(at, len)| {
            let cdb = request::write(self.blocks(at), self.blocks(len) as u32, false);
            (at, len, Order::new(&cdb, Data::Out(zeros.slice(0..len as usize))))
        });
        self.change(doing, durability, false, commands).await
    }

    pub(crate) async fn give_back(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        if self.geometry.unmap == UnmapBehavior::Zeroes {
            return self.zero("unmap", (offset, len), Durability::Volatile, true).await;
        }
        self.check_write("unmap", offset, len)?;
        if self.geometry.unmap == UnmapBehavior::Ignored || len == 0 {
            return Ok(());
        }
        let most = self.shared.facts.most_unmapped.map_or(u64::MAX, u64::from);
        let most = most.saturating_mul(u64::from(self.geometry.block_size)).min(ZERO_PIECE);
        let commands = self.pieces(offset, len, most).map(|(at, len)| {
            let list = request::unmap_list(self.blocks(at), self.blocks(len) as u32);
            (at, len, Order::new(&request::UNMAP, Data::Out(IoBuf::copy_from(&list).freeze())))
        });
        self.change("unmap", Durability::Volatile, false, commands).await
    }

    pub(crate) async fn flush_cache(&self) -> Result<(), BlockError> {
        self.shared.check_poison("flush")?;
        let covered = self.shared.written.load(Ordering::Acquire);
        match self.shared.carry_out(Order::new(&request::SYNCHRONIZE_CACHE, Data::None)).await {
            Ok(_) => {
                self.shared.flushed.fetch_max(covered, Ordering::AcqRel);
                // The target may have started anew meanwhile.
                self.shared.check_poison("flush")
            }
            // One that has no cache need not know how to flush it.
            Err(Failure { kind: BlockErrorKind::Unsupported, .. }) if !self.shared.facts.write_cache => {
                Ok(())
            }
            Err(failure) => {
                if failure.kind != BlockErrorKind::Fenced {
                    self.shared.poisoned.store(true, Ordering::Release);
                }
                Err(self.error(failure, "flush"))
            }
        }
    }
}

/// Whether a durable write that failed so leaves what was durable before as it is, and known.
fn leaves_durable(kind: BlockErrorKind) -> bool {
    matches!(
        kind,
        BlockErrorKind::NoSpace
            | BlockErrorKind::ReadOnly
            | BlockErrorKind::Fenced
            | BlockErrorKind::OutOfRange
    )
}
