//! A shared disk as one open has it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use aligned_buffer::SharedBuf;
use qos_gate::{Flow, Kind};
use scsi_core::{Nexus, ScsiCommand, ScsiDevice as _, ScsiStatus, TaskAttribute, WireLun};
use scsi_defs::{Cdb, Effect, Op, Sense, asc};
use shard_runtime::finish_anyway;
use smb_protocol::{Guid, NtStatus};
use smb_server::{DiskAnswer, DiskFacts, DiskFuture, SharedDisk};

use super::commands::Commands;
use super::told::{Data, data_of, finds_nothing, status_of_growing};
use super::{LUN, Shared, Slot};
use crate::images;

/// The disk as one open has it.
pub(super) struct Opened {
    slot: Arc<Slot>,
    shared: Arc<Shared>,
    initiator: Option<(Guid, Arc<Nexus>)>,
    /// What the open has under way. Whoever takes its place must not find that it comes after what they write.
    commands: Commands,
    closed: AtomicBool,
}

impl Opened {
    pub(super) fn new(slot: Arc<Slot>, shared: Arc<Shared>, initiator: Option<(Guid, Arc<Nexus>)>) -> Self {
        Self { slot, shared, initiator, commands: Commands::default(), closed: AtomicBool::new(false) }
    }

    /// Ends the open's use, once: first what it has under way. `gives_up`: what waits is given up, and what has begun to change something comes
    /// to its end; else all of it ends by itself.
    async fn leave(
        (slot, shared): (Arc<Slot>, Arc<Shared>),
        initiator: Option<(Guid, Arc<Nexus>)>,
        commands: Commands,
        gives_up: bool,
    ) {
        if gives_up {
            commands.end().await;
        } else {
            commands.have_ended().await;
        }
        shared.unit.dropped_have_ended().await;
        let mut place = slot.shared.lock().await;
        if shared.leave(initiator.as_ref()) {
            *place = None;
            shared.end().await;
            shared.say_closed();
        }
    }

    fn leaving(&self, gives_up: bool) -> Option<impl Future<Output = ()> + use<>> {
        let first = !self.closed.swap(true, Ordering::AcqRel);
        let of = (self.slot.clone(), self.shared.clone());
        first.then(|| Self::leave(of, self.initiator.clone(), self.commands.clone(), gives_up))
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if let Some(leaving) = self.leaving(true) {
            let shard = self.shared.shard;
            tcp_service::Spawner::spawn(
                &*self.shared.parts.shards,
                shard,
                Box::new(move || Box::pin(leaving)),
            );
        }
    }
}

impl SharedDisk for Opened {
    fn facts(&self) -> DiskFacts {
        let is_mounted = self.shared.disk.image().is_some() && self.shared.disk.problem().is_none();
        DiskFacts {
            size: self.shared.size(),
            file_size: self.shared.disk.file_size(),
            is_mounted,
            ..self.shared.facts
        }
    }

    fn moves(&self, cdb: &[u8]) -> Option<(Kind, u64)> {
        let cdb = Cdb::parse(cdb).ok()?;
        match data_of(&cdb) {
            Data::In(blocks) => Some((Kind::Read, self.shared.bytes(blocks))),
            Data::Out(blocks) => Some((Kind::Write, self.shared.bytes(blocks))),
            Data::Other if cdb.effect == Effect::Write => Some((Kind::Write, 0)),
            Data::Other => None,
        }
    }

    fn execute<'a>(
        &'a self,
        cdb: &'a [u8],
        data: SharedBuf,
        limit: u32,
        flow: Option<Arc<Flow>>,
    ) -> DiskFuture<'a, Result<Option<DiskAnswer>, NtStatus>> {
        Box::pin(async move {
            let (_, nexus) = self.initiator.as_ref().ok_or(NtStatus::INVALID_HANDLE)?;
            if let Ok(parsed) = Cdb::parse(cdb) {
                let fits = match data_of(&parsed) {
                    Data::In(blocks) => self.shared.bytes(blocks) <= u64::from(limit),
                    // A part of what a command writes would be answered as if it were all.
                    Data::Out(blocks) => self.shared.bytes(blocks) == data.len() as u64,
                    Data::Other => true,
                };
                if !fits {
                    return Err(NtStatus::INVALID_PARAMETER);
                }
                if matches!(parsed.op, Op::Reserve6 | Op::Reserve10) {
                    // It would end with the node, or with the way to it, and whoever relies on it would not hear of that. Those of PERSISTENT
                    // RESERVE OUT last.
                    let sense = Sense::illegal(asc::INVALID_OPCODE).encode(false);
                    let status = ScsiStatus::CheckCondition as u8;
                    return Ok(Some(DiskAnswer { status, sense, data: None }));
                }
            }
            let _under_way = self.commands.begin().ok_or(NtStatus::FILE_CLOSED)?;
            if self.shared.has_ended() {
                return Err(NtStatus::FILE_NOT_AVAILABLE);
            }
            self.shared.unit.queue_nexus_as(nexus, flow);
            let attribute = TaskAttribute::Simple;
            let command = ScsiCommand { cdb: cdb.to_vec(), data_out: data, data_in_limit: limit, attribute };
            // Dropped, it is given up where it waits; what has begun to change something goes on, and is waited for by who closes the open.
            let answer = tokio::select! {
                biased;
                answer = self.shared.device.execute(nexus, WireLun::from_number(LUN), command) => answer,
                () = self.commands.ending() => return Err(NtStatus::FILE_CLOSED),
            };
            match answer {
                // What has ended well is durable, wherever the disk is by now.
                Some(answer) if answer.status == ScsiStatus::Good => Ok(Some(answer)),
                Some(answer) if finds_nothing(&answer) => Err(NtStatus::FILE_NOT_AVAILABLE),
                None if self.shared.has_ended() => Err(NtStatus::FILE_NOT_AVAILABLE),
                other => Ok(other),
            }
            .map(|answer| {
                answer.map(|answer| DiskAnswer {
                    status: answer.status as u8,
                    sense: answer.sense,
                    data: answer.data_in,
                })
            })
        })
    }

    fn grow(&self, size: u64) -> DiskFuture<'_, Result<(), NtStatus>> {
        Box::pin(async move {
            let under_way = self.commands.begin().ok_or(NtStatus::FILE_CLOSED)?;
            let change = self.shared.growing.begin().ok_or(NtStatus::FILE_NOT_AVAILABLE)?;
            let image = self.shared.disk.image().ok_or(NtStatus::FILE_NOT_AVAILABLE)?;
            let (open, disk) = (self.commands.clone(), self.shared.growing.clone());
            let growing = move || async move {
                let grown = image.grow(size, move || !open.are_ending() && !disk.are_ending()).await;
                // Nothing of it holds the file when whoever waits for its end goes on.
                drop(image);
                drop((under_way, change));
                grown.map_err(|error| images::problem(&error))
            };
            let grown = self.shared.parts.shards.run(self.shared.shard, growing).await;
            grown.map_err(|problem| status_of_growing(&problem))
        })
    }

    fn close(&self) -> DiskFuture<'_, ()> {
        let leaving = self.leaving(true);
        Box::pin(async move {
            if let Some(leaving) = leaving {
                finish_anyway(leaving).await;
            }
        })
    }

    fn release(&self) -> DiskFuture<'_, ()> {
        let leaving = self.leaving(false);
        Box::pin(async move {
            if let Some(leaving) = leaving {
                finish_anyway(leaving).await;
            }
        })
    }
}
