//! Fencing one disk: nobody of a lower epoch writes to it, or this node has to give up.

use std::collections::BTreeSet;

use crate::case::Sabotage;
use crate::disk::{Command, DiskReply, NodeIndex, ReservationKey};
use crate::life::Life;

/// Tries before a disk counts as unreachable: others fence it at the same time.
const TRIES: usize = 12;

/// What became of an access to a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// There is an owner of a higher epoch.
    Fenced,
    /// It does not answer.
    Away,
}

/// Takes a disk for an epoch over a session of its own, whose number comes back.
pub(crate) async fn fence(
    life: &Life,
    node: NodeIndex,
    disk: usize,
    epoch: u64,
    session: u64,
) -> Result<u64, Trouble> {
    let session = if life.sabotage == Sabotage::OldConnections { 0 } else { session };
    if life.sabotage == Sabotage::NoFence {
        ask(life, disk, session, epoch, Command::Login).await?;
        return Ok(session);
    }
    let mine = ReservationKey::new(epoch, node);
    ask(life, disk, session, epoch, Command::Login).await?;
    // Registering alone permits writing: who is late must not even begin.
    let (keys, _) = keys_of(life, disk, session, epoch).await?;
    if keys.iter().any(|key| key.epoch() > epoch) {
        return Err(Trouble::Fenced);
    }
    ask(life, disk, session, epoch, Command::Register(mine)).await?;
    for _ in 0..TRIES {
        let (keys, holder) = keys_of(life, disk, session, epoch).await?;
        if keys.iter().chain(&holder).any(|key| key.epoch() > epoch) {
            // Who holds the reservation keeps it until the later owner takes it: without it everybody writes, those who were fenced long
            // ago as well.
            if holder != Some(mine) || life.sabotage == Sabotage::HolderLetsGo {
                ask(life, disk, session, epoch, Command::Unregister).await?;
            }
            return Err(Trouble::Fenced);
        }
        if !keys.contains(&mine) {
            return Err(Trouble::Fenced);
        }
        match holder {
            None => {
                ask(life, disk, session, epoch, Command::Reserve(mine)).await?;
            }
            Some(holder) if holder != mine => {
                // A compare-and-set: it does nothing when the holder is another by now.
                ask(life, disk, session, epoch, Command::Preempt(mine, holder)).await?;
            }
            Some(_) => match keys.iter().find(|key| **key != mine) {
                None => return Ok(session),
                Some(other) => {
                    ask(life, disk, session, epoch, Command::Preempt(mine, *other)).await?;
                }
            },
        }
    }
    Err(Trouble::Away)
}

async fn keys_of(
    life: &Life,
    disk: usize,
    session: u64,
    epoch: u64,
) -> Result<(BTreeSet<ReservationKey>, Option<ReservationKey>), Trouble> {
    match ask(life, disk, session, epoch, Command::ReadKeys).await? {
        DiskReply::Keys(keys, holder) => Ok((keys.into_values().collect(), holder)),
        _ => Err(Trouble::Away),
    }
}

async fn ask(
    life: &Life,
    disk: usize,
    session: u64,
    epoch: u64,
    command: Command,
) -> Result<DiskReply, Trouble> {
    life.disk(disk, session, epoch, command).await.ok_or(Trouble::Away)
}
