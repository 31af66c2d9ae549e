//! SANITIZE: makes what was on the unit unreadable. BLOCK ERASE gives all blocks back, OVERWRITE writes a pattern.
//!
//! The work is a task of its own, which no abort, reset or loss of a nexus stops. While it runs the unit answers
//! little but how far it is. Until it has ended well a row of the store says so: a unit that starts with that row
//! is failed, and says so to everything until a further SANITIZE succeeds (or, if allowed, is waived).
//!
//! It takes everything from everybody, so whoever asks for it must have the unit for itself: no other initiator that is
//! there has read or written, or an exclusive reservation of the caller's keeps them out.
//!
//! What it does not reach: copies that the storage below keeps, such as snapshots or clones of the file.

use std::sync::Arc;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::Durability;
use scsi_core::ScsiStatus;
use scsi_defs::{Cdb, Op, Sense, SenseKey, asc, be};

use crate::limits::STEP_BYTES;
use crate::reply::{Failure, Outcome, Reply};
use crate::sanitize::Sanitize;
use crate::unit::{Inner, LogicalUnit};
use crate::view::Caller;

impl Inner {
    /// Whether no other initiator uses the unit: none that is there has read or written, or the caller's reservation keeps them
    /// all out, as exclusive access does. The paths of one host are one initiator.
    fn has_alone(&self, caller: &Caller<'_>) -> bool {
        let own = caller.nexus.initiator.to_lowercase();
        let mut others =
            self.nexuses.values().filter(|entry| entry.used && !entry.port.is_of(&own)).peekable();
        let legacy = self.legacy == Some(caller.nexus.id);
        others.peek().is_none()
            || legacy
            || self.port_of(caller.nexus.id).is_some_and(|port| self.reservations.holds(&port))
                && others.all(|entry| !self.reservations.allows(&entry.port, true))
    }
}

/// What is written.
enum Plan {
    Erase,
    Overwrite { pattern: SharedBuf, passes: u8, invert: bool },
}

impl Plan {
    fn parse(cdb: &Cdb, data: &SharedBuf, block: usize) -> Result<Self, Sense> {
        let length = cdb.length() as usize;
        if cdb.op == Op::SanitizeBlockErase {
            return if length == 0 { Ok(Self::Erase) } else { Err(Sense::cdb_field(7)) };
        }
        if !(5..=block + 4).contains(&length) {
            return Err(Sense::cdb_field(7));
        }
        let list = data.get(..length).ok_or(Sense::illegal(asc::PARAMETER_LIST_LENGTH_ERROR))?;
        let (passes, pattern) = (list[0] & 0x1f, be(list, 2, 2) as usize);
        // The standard wants INVALID FIELD IN CDB for fields of this list.
        if list[0] & 0x60 != 0 || passes == 0 || list[1] != 0 || pattern == 0 || pattern != length - 4 {
            return Err(Sense::cdb_field(7));
        }
        Ok(Self::Overwrite { pattern: data.slice(4..length), passes, invert: list[0] & 0x80 != 0 })
    }
}

impl LogicalUnit {
    pub(crate) async fn sanitize_command(
        self: &Arc<Self>,
        caller: &Caller<'_>,
        task: u64,
        cdb: &Cdb,
        data: &SharedBuf,
    ) -> Outcome {
        let length = cdb.length();
        let (at_once, may_exit) = (cdb.bit(1, 7), cdb.bit(1, 5));
        if cdb.op == Op::SanitizeExitFailure {
            return self.exit_failure(length).await;
        }
        let plan = Plan::parse(cdb, data, self.block() as usize)?;
        {
            let _one_at_a_time = self.changes.lock().await;
            let before = {
                let mut inner = self.inner.lock();
                // Another one may have begun since this one was admitted.
                inner.sanitize.allows(cdb.op)?;
                if !inner.has_alone(caller) {
                    return Err(Sense::illegal(asc::NOT_RESERVED).into());
                }
                // From here on nobody else gets in, whoever connects meanwhile.
                std::mem::replace(&mut inner.sanitize, Sanitize::Running(0))
            };
            let row = Some(Sanitize::row(may_exit));
            if let Err(error) = self.store().save(&Self::row_key(&self.config.id, b's'), row).await {
                self.inner.lock().sanitize = before;
                self.tasks.wake();
                return Err(error.into());
            }
        }
        let unit = self.clone();
        shard_runtime::detach(async move {
            unit.tasks.quiet(task).await;
            unit.sanitize(plan, may_exit).await;
        });
        loop {
            let changed = self.tasks.changed();
            tokio::pin!(changed);
            changed.as_mut().enable();
            self.still_wanted(task)?;
            let state = self.inner.lock().sanitize;
            match state {
                Sanitize::Running(_) if !at_once => changed.await,
                Sanitize::Failed { .. } => {
                    return Err(Sense::new(SenseKey::MediumError, asc::SANITIZE_FAILED).into());
                }
                _ => return Reply::good(u64::from(length)),
            }
        }
    }

    async fn exit_failure(&self, length: u32) -> Outcome {
        if length != 0 {
            return Err(Sense::cdb_field(7).into());
        }
        let _one_at_a_time = self.changes.lock().await;
        let state = self.inner.lock().sanitize;
        match state {
            Sanitize::Failed { may_exit: true } => {
                self.store().save(&Self::row_key(&self.config.id, b's'), None).await?;
                self.inner.lock().sanitize = Sanitize::Idle;
                Reply::good(0)
            }
            Sanitize::Failed { may_exit: false } => Err(Sense::cdb_field(1).into()),
            Sanitize::Idle => Reply::good(0),
            Sanitize::Running(_) => {
                Err(state.sense().map_or(Failure::Status(ScsiStatus::Busy), Failure::Sense))
            }
        }
    }

    async fn sanitize(&self, plan: Plan, may_exit: bool) {
        let mut done = self.replace_all(plan).await;
        if done.is_ok() {
            let _one_at_a_time = self.changes.lock().await;
            done =
                self.store().save(&Self::row_key(&self.config.id, b's'), None).await.map_err(Failure::from);
        }
        self.inner.lock().sanitize =
            if done.is_ok() { Sanitize::Idle } else { Sanitize::Failed { may_exit } };
        self.tasks.wake();
    }

    async fn replace_all(&self, plan: Plan) -> Result<(), Failure> {
        let passes = match &plan {
            Plan::Erase => 1,
            Plan::Overwrite { passes, .. } => u64::from(*passes),
        };
        for pass in 0..passes {
            let fill = match &plan {
                Plan::Erase => None,
                Plan::Overwrite { pattern, invert, .. } => {
                    let flip = if *invert && pass % 2 == 1 { 0xff } else { 0 };
                    let mut fill = IoBuf::new(STEP_BYTES as usize);
                    // The pattern begins anew in each block.
                    for block in fill.chunks_exact_mut(self.block() as usize) {
                        block.iter_mut().zip(pattern.iter().cycle()).for_each(|(to, from)| *to = from ^ flip);
                    }
                    Some(fill.freeze())
                }
            };
            let step = if fill.is_some() { STEP_BYTES } else { STEP_BYTES << 10 };
            let mut at = 0;
            loop {
                let end = self.blocks() * self.block();
                if at >= end {
                    break;
                }
                let step = step.min(end - at);
                self.tokens.changing(at, step);
                match &fill {
                    Some(fill) => {
                        self.backing().write(at, fill.slice(0..step as usize), Durability::Volatile).await?;
                    }
                    None if self.backing().unmap_zeroes() => self.backing().unmap(at, step).await?,
                    None => self.backing().write_zeroes(at, step, Durability::Volatile).await?,
                }
                at += step;
                let share = (u128::from(pass) * u128::from(end) + u128::from(at)) * 65535
                    / (u128::from(passes) * u128::from(end));
                self.inner.lock().sanitize = Sanitize::Running(share as u16);
                // The backing may never wait: others want the shard too.
                shard_runtime::yield_now().await;
            }
            self.backing().flush().await?;
        }
        Ok(())
    }
}
