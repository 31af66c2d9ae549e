//! Persistent reservations over the disk's lanes. A registration is one of an initiator port, and each lane is one: it is made on all of
//! them. The first lane reserves and preempts.

use std::collections::BTreeSet;
use std::sync::Arc;

use aligned_buffer::IoBuf;
use block_device::spc::{self, In, Out};
use block_device::{BlockError, BlockErrorKind, BlockFuture, Reservation, Reservations};
use scsi_defs::answer::answering_aborted;
use scsi_defs::request;

use crate::disk::IscsiDisk;
use crate::lane::{Data, Failure, Lane, Order};
use crate::shared::{on, order_in};

/// A parameter list on its way.
fn order_out(action: Out, key: u64, action_key: u64, aptpl: bool) -> Order {
    let list = spc::parameters(key, action_key, aptpl);
    Order::new(&spc::command_out(action), Data::Out(IoBuf::copy_from(&list).freeze()))
}

impl IscsiDisk {
    fn failed(&self, failure: Failure, doing: &'static str) -> BlockError {
        BlockError::new(failure.kind, doing).on(self.name()).because(failure.why)
    }

    fn first(&self, doing: &'static str) -> Result<&Arc<Lane>, BlockError> {
        let gone = || BlockError::new(BlockErrorKind::Gone, doing).on(self.name());
        self.shared.lanes.first().ok_or_else(gone)
    }

    /// Registers one lane, or takes its registration back (key 0).
    async fn register_lane(&self, lane: &Arc<Lane>, key: u64) -> Result<(), Failure> {
        let lasting = on(lane, order_out(Out::RegisterAndIgnore, 0, key, key != 0)).await;
        match lasting {
            // A target that cannot keep registrations through a loss of power; that ours are there is looked at after each reconnect.
            Err(Failure { kind: BlockErrorKind::Unsupported, .. }) => {
                on(lane, order_out(Out::RegisterAndIgnore, 0, key, false)).await.map(drop)
            }
            other => other.map(drop),
        }
    }

    async fn register_all(&self, key: u64, doing: &'static str) -> Result<(), BlockError> {
        let _one = self.shared.registering.lock().await;
        // What is not known to be registered is not missed after a reconnect either.
        self.shared.registration.lock().key = None;
        for lane in &self.shared.lanes {
            self.register_lane(lane, key).await.map_err(|failure| self.failed(failure, doing))?;
        }
        let mut registration = self.shared.registration.lock();
        registration.key = (key != 0).then_some(key);
        registration.lost = false;
        Ok(())
    }

    /// It is ours now: where the unit can, it answers commands of ours that another initiator ends (TAS), as long as it runs. Where it
    /// cannot, or has forgotten it, we find out by ourselves, so nothing depends on how this ends.
    async fn have_aborted_answered(&self) {
        if self.geometry.read_only {
            return;
        }
        let Some(lane) = self.shared.lanes.first() else { return };
        let len = usize::from(request::CONTROL_MODE_BYTES);
        let page = async |changeable| match on(
            lane,
            order_in(&request::control_mode(changeable), len).short(),
        )
        .await
        {
            Ok((Data::In(buf), moved)) => Some(buf.get(..moved)?.to_vec()),
            _ => None,
        };
        if let Some(current) = page(false).await
            && let Some(changeable) = page(true).await
            && let Some(list) = answering_aborted(&current, &changeable)
        {
            let cdb = request::mode_select(list.len() as u8);
            let _ = on(lane, Order::new(&cdb, Data::Out(IoBuf::copy_from(&list).freeze()))).await;
        }
    }

    async fn step(&self, action: Out, keys: (u64, u64), doing: &'static str) -> Result<(), BlockError> {
        // A lost answer must not make it happen twice: the second time its condition holds no more, and it would be called failed.
        let order = order_out(action, keys.0, keys.1, false).once();
        on(self.first(doing)?, order).await.map(drop).map_err(|failure| self.failed(failure, doing))
    }

    async fn ask(&self, action: In, len: u16, doing: &'static str) -> Result<Vec<u8>, BlockError> {
        let order = order_in(&spc::command_in(action, len), usize::from(len)).short();
        match on(self.first(doing)?, order).await {
            Ok((Data::In(buf), moved)) => Ok(buf.get(..moved).unwrap_or_default().to_vec()),
            Ok(_) => Err(BlockError::new(BlockErrorKind::Io, doing).on(self.name())),
            Err(failure) => Err(self.failed(failure, doing)),
        }
    }
}

fn no_answer(doing: &'static str, disk: &IscsiDisk) -> BlockError {
    BlockError::new(BlockErrorKind::Io, doing)
        .on(disk.name())
        .because("the target's answer is none, or too long")
}

impl Reservations for IscsiDisk {
    fn register(&self, key: u64) -> BlockFuture<'_, ()> {
        Box::pin(self.register_all(key, "register"))
    }

    fn unregister(&self) -> BlockFuture<'_, ()> {
        Box::pin(self.register_all(0, "unregister"))
    }

    fn keys(&self) -> BlockFuture<'_, BTreeSet<u64>> {
        Box::pin(async move {
            let doing = "read keys";
            for len in [spc::KEYS_BYTES, u16::MAX - 7] {
                let answer = self.ask(In::Keys, len, doing).await?;
                if let Some(keys) = spc::keys(&answer) {
                    return Ok(keys.into_iter().collect());
                }
            }
            Err(no_answer(doing, self))
        })
    }

    fn reservation(&self) -> BlockFuture<'_, Option<Reservation>> {
        Box::pin(async move {
            let doing = "read the reservation";
            let answer = self.ask(In::Reservation, spc::RESERVATION_BYTES, doing).await?;
            spc::reservation(&answer).ok_or_else(|| no_answer(doing, self))
        })
    }

    fn reserve(&self, key: u64) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            self.step(Out::Reserve, (key, 0), "reserve").await?;
            self.have_aborted_answered().await;
            Ok(())
        })
    }

    fn preempt_and_abort(&self, key: u64, victim: u64) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            if victim == key {
                // It would take the registrations of our other lanes away.
                return Err(BlockError::new(BlockErrorKind::Unsupported, "preempt oneself").on(self.name()));
            }
            self.step(Out::PreemptAndAbort, (key, victim), "preempt and abort").await?;
            self.have_aborted_answered().await;
            Ok(())
        })
    }
}
