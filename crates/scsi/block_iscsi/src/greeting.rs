//! What is asked of a unit before it is used, and again after each reconnect.

use block_device::spc;
use iscsi_client::{ClientError, CommandEnd, answer, status};
use scsi_defs::answer::{
    Capacity, Thin, blocks_per_physical, most_blocks, most_unmapped, rotates, thin, unit_names,
    unmapped_are_zeros, write_cache, write_protect_and_fua,
};
use scsi_defs::request;
use shard_runtime::sleep;

use crate::connection::Connection;
use crate::settings::Settings;
use crate::verdict::{Verdict, tells_of_start, verdict};

/// Bytes of an inquiry's answer that we take.
const INQUIRY: u16 = 252;
/// Bytes of a mode sense's answer that we take.
const MODES: u8 = 252;
/// How often a unit may have news before it is ready.
const NEWS: usize = 64;
/// How long a unit that is busy is left alone.
pub(crate) const PAUSE: std::time::Duration = std::time::Duration::from_millis(20);

/// What a unit says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) capacity: Capacity,
    pub(crate) physical: u32,
    /// What tells it from any other unit; empty when it does not say.
    pub(crate) identity: Vec<u8>,
    pub(crate) write_protected: bool,
    pub(crate) fua: bool,
    /// Whether writes may stay in a cache.
    pub(crate) write_cache: bool,
    pub(crate) thin: Thin,
    pub(crate) zeros: bool,
    pub(crate) rotates: bool,
    pub(crate) most_blocks: Option<u32>,
    pub(crate) most_unmapped: Option<u32>,
    pub(crate) most_same: Option<u64>,
}

/// A unit that is ready.
pub(crate) struct Greeting {
    pub(crate) facts: Facts,
    /// It says that it has started anew.
    pub(crate) started: bool,
}

/// Somebody who asks.
struct Asking<'a> {
    connection: &'a mut Connection,
    settings: &'a Settings,
    lun: [u8; 8],
}

/// Takes the news that wait for a new session, waits until the unit is ready, and asks what it is. Nothing of it is changed: it may be
/// others' who use it, and we may only look.
pub(crate) async fn greet(
    connection: &mut Connection,
    settings: &Settings,
    lun: [u8; 8],
) -> Result<Greeting, ClientError> {
    let mut asking = Asking { connection, settings, lun };
    let started = asking.ready().await?;
    let facts = asking.facts().await?;
    Ok(Greeting { facts, started })
}

/// The size of the unit now, when it says that it has changed.
pub(crate) fn capacity(answer: &[u8]) -> Option<Capacity> {
    Capacity::parse16(answer)
}

/// Whether somebody is registered under a key.
pub(crate) async fn is_registered(
    connection: &mut Connection,
    settings: &Settings,
    lun: [u8; 8],
    key: u64,
) -> Result<bool, ClientError> {
    let mut asking = Asking { connection, settings, lun };
    let command = spc::command_in(spc::In::Keys, spc::KEYS_BYTES);
    let answer = asking.optional(&command, u32::from(spc::KEYS_BYTES)).await?;
    Ok(answer.and_then(|answer| spc::keys(&answer)).is_some_and(|keys| keys.contains(&key)))
}

impl Asking<'_> {
    async fn ask(&mut self, cdb: &[u8], len: u32) -> Result<(CommandEnd, Vec<u8>), ClientError> {
        self.connection.call(self.settings, self.lun, (cdb, len)).await
    }

    /// The answer, if it is one.
    async fn optional(&mut self, cdb: &[u8], len: u32) -> Result<Option<Vec<u8>>, ClientError> {
        for _ in 0..NEWS {
            let (end, data) = self.ask(cdb, len).await?;
            match verdict(end) {
                Verdict::Done => return Ok(Some(data)),
                Verdict::Again(_) | Verdict::Cut(_) => {}
                Verdict::Busy(_) => sleep(PAUSE).await,
                Verdict::Failed(..) => return Ok(None),
            }
        }
        Ok(None)
    }

    async fn ready(&mut self) -> Result<bool, ClientError> {
        let begun = self.settings.clock.now();
        let (mut started, mut news) = (false, 0);
        loop {
            let (end, _) = self.ask(&request::TEST_UNIT_READY, 0).await?;
            match verdict(end) {
                Verdict::Done => return Ok(started),
                Verdict::Again(attention) if news < NEWS => {
                    started |= tells_of_start(attention);
                    news += 1;
                }
                Verdict::Cut(_) if news < NEWS => news += 1,
                Verdict::Busy(_) if self.settings.clock.now().since(begun) < self.settings.times.busy => {
                    sleep(PAUSE).await;
                }
                // Reading what a reserved unit is may be permitted all the same.
                Verdict::Failed(..) if end.status == status::RESERVATION_CONFLICT => return Ok(started),
                _ => {
                    return Err(ClientError::NotADisk(format!(
                        "it is not ready: {}",
                        answer(end.status, end.sense)
                    )));
                }
            }
        }
    }

    async fn facts(&mut self) -> Result<Facts, ClientError> {
        let not = |text: &str| ClientError::NotADisk(text.to_owned());
        let inquiry = self.optional(&request::inquiry(None, INQUIRY), u32::from(INQUIRY)).await?;
        match inquiry.unwrap_or_default().first() {
            Some(0) => {}
            Some(other) => {
                return Err(ClientError::NotADisk(format!("it is no disk (peripheral type {other:02x}h)")));
            }
            None => return Err(not("the unit does not say what it is")),
        }
        let sixteen = self.optional(&request::READ_CAPACITY_16, 32).await?.unwrap_or_default();
        let capacity = match Capacity::parse16(&sixteen) {
            Some(capacity) => Some(capacity),
            None => {
                self.optional(&request::READ_CAPACITY_10, 8).await?.as_deref().and_then(Capacity::parse10)
            }
        };
        let capacity = capacity.ok_or_else(|| not("the unit does not say how large it is"))?;
        if !matches!(capacity.block, 512 | 4096) {
            let text =
                format!("its blocks have {} bytes; disks with 512 or 4096 are supported", capacity.block);
            return Err(ClientError::NotADisk(text));
        }
        let limits = self.page(0xb0).await?;
        let mut identity = unit_names(&self.page(0x83).await?);
        if identity.is_empty() {
            identity = self.page(0x80).await?;
        }
        let modes = self.optional(&request::mode_sense(MODES), u32::from(MODES)).await?.unwrap_or_default();
        let (write_protected, fua) = write_protect_and_fua(&modes);
        let (most_unmapped, most_same) = most_unmapped(&limits);
        Ok(Facts {
            capacity,
            physical: blocks_per_physical(&sixteen).saturating_mul(capacity.block).min(1 << 20),
            identity,
            write_protected,
            fua,
            // One that does not say may have one.
            write_cache: write_cache(&modes).unwrap_or(true),
            thin: thin(&self.page(0xb2).await?),
            zeros: unmapped_are_zeros(&sixteen),
            rotates: rotates(&self.page(0xb1).await?),
            most_blocks: most_blocks(&limits),
            most_unmapped,
            most_same,
        })
    }

    async fn page(&mut self, page: u8) -> Result<Vec<u8>, ClientError> {
        let answer = self.optional(&request::inquiry(Some(page), INQUIRY), u32::from(INQUIRY)).await?;
        Ok(answer.unwrap_or_default())
    }
}
