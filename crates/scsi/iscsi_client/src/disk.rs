//! A unit that has been asked what it is.

use scsi_core::WireLun;
use scsi_defs::answer::{Capacity, most_blocks, unit_names, write_protect_and_fua};
use scsi_defs::{SenseKey, asc, request};

use crate::error::{ClientError, status};
use crate::login::Options;
use crate::session::{Answer, Session};
use crate::state::{Command, Transfer};

/// How often a unit may say that something has happened (UNIT ATTENTION) or is busy before it answers the first question.
const ATTENTIONS: usize = 32;
/// Bytes of an inquiry's answer that we take.
const INQUIRY: u16 = 252;
/// Bytes of a mode sense's answer that we take.
const MODES: u8 = 192;

/// What a unit says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// How large it is.
    pub capacity: Capacity,
    /// Most blocks of one transfer, if it sets a limit.
    pub most_blocks: Option<u32>,
    /// What tells it from any other unit (vital product data page 83h or 80h); empty when it does not say.
    pub identity: Vec<u8>,
    /// Whether it refuses writes.
    pub write_protected: bool,
    /// Whether it knows writes that are durable when answered (FUA).
    pub fua: bool,
}

/// A session with a unit of a target.
pub struct Disk {
    /// The session.
    pub session: Session,
    /// The unit's number, as on the wire.
    pub lun: [u8; 8],
    /// What it is.
    pub facts: Facts,
}

impl Disk {
    /// Opens a session and asks the unit what it is.
    ///
    /// # Errors
    /// When the target does not let us in, or the unit is no disk, or not ready.
    pub fn open(options: &Options) -> Result<Self, ClientError> {
        let mut session = Session::open(options)?;
        let lun = WireLun::from_number(options.url.lun).0;
        let mut ask = Asking { session: &mut session, lun };
        ask.ready()?;
        ask.is_disk(options.url.lun)?;
        let facts = ask.facts()?;
        Ok(Self { session, lun, facts })
    }
}

struct Asking<'a> {
    session: &'a mut Session,
    lun: [u8; 8],
}

impl Asking<'_> {
    fn ask(&mut self, cdb: &[u8], len: u32) -> Result<Answer, ClientError> {
        let transfer = if len > 0 { Transfer::In(len) } else { Transfer::None };
        self.session.call(&Command { lun: self.lun, cdb, transfer }, &[])
    }

    /// The answer, if it is one.
    fn optional(&mut self, cdb: &[u8], len: u32) -> Result<Option<Vec<u8>>, ClientError> {
        let answer = self.ask(cdb, len)?;
        Ok((answer.end.status == status::GOOD).then_some(answer.data))
    }

    /// Takes the unit attentions that wait for a new session (SAM-5 5.14), until the unit is ready.
    fn ready(&mut self) -> Result<(), ClientError> {
        let mut last = None;
        for _ in 0..ATTENTIONS {
            let end = self.ask(&request::TEST_UNIT_READY, 0)?.end;
            match (end.status, end.sense) {
                (status::GOOD, _) => return Ok(()),
                (status::CHECK_CONDITION, Some(sense)) if sense.is(SenseKey::UnitAttention) => {}
                (status::BUSY | status::TASK_SET_FULL, _) => {}
                // Units of other kinds need not be ready to be told from disks.
                (status::CHECK_CONDITION, Some(sense)) if sense.code == asc::LUN_NOT_SUPPORTED => {
                    return Err(ClientError::NotADisk("the target has no unit of this number".into()));
                }
                _ => {
                    last = Some(end);
                    break;
                }
            }
            last = Some(end);
        }
        let (status, sense) = last.map_or((status::BUSY, None), |end| (end.status, end.sense));
        Err(ClientError::Unit { what: "TEST UNIT READY", status, sense })
    }

    fn is_disk(&mut self, number: u16) -> Result<(), ClientError> {
        let data = self.optional(&request::inquiry(None, INQUIRY), u32::from(INQUIRY))?.unwrap_or_default();
        match data.first() {
            Some(0) => Ok(()),
            Some(first) => Err(ClientError::NotADisk(format!(
                "unit {number} is no disk (peripheral qualifier and type {first:02x}h)"
            ))),
            None => Err(ClientError::NotADisk(format!("unit {number} does not say what it is"))),
        }
    }

    fn facts(&mut self) -> Result<Facts, ClientError> {
        let sixteen = self.ask(&request::READ_CAPACITY_16, 32)?;
        let capacity = match sixteen.end.status {
            status::GOOD => Capacity::parse16(&sixteen.data),
            _ => self.optional(&request::READ_CAPACITY_10, 8)?.as_deref().and_then(Capacity::parse10),
        };
        let capacity = capacity.ok_or_else(|| {
            ClientError::NotADisk("the unit does not say how large it is, or cannot be as it says".into())
        })?;
        let page = |asking: &mut Self, page| {
            asking.optional(&request::inquiry(Some(page), INQUIRY), u32::from(INQUIRY))
        };
        let limits = page(self, 0xb0)?.unwrap_or_default();
        let mut identity = unit_names(&page(self, 0x83)?.unwrap_or_default());
        if identity.is_empty() {
            identity = page(self, 0x80)?.unwrap_or_default();
        }
        let modes = self.optional(&request::mode_sense(MODES), u32::from(MODES))?.unwrap_or_default();
        let (write_protected, fua) = write_protect_and_fua(&modes);
        Ok(Facts { capacity, most_blocks: most_blocks(&limits), identity, write_protected, fua })
    }
}
