//! The login phase from the initiator's side (RFC 7143 6.3): says what we want, checks that the answers are answers to it.
//!
//! ```text
//!   begin ── security: names, AuthMethod [, CHAP …] ──► operational: all keys at once ──► full feature
//! ```
//!
//! [`LoginClient::begin`] and [`LoginClient::response`] give the requests to send; sequence numbers are the caller's.
//! Targets need not answer every key: what is not answered, or answered with `Reject` or `Irrelevant`, has its default.

use crate::chap::{ChapError, ChapUser};
use crate::chap_client::ChapClient;
use crate::keys::{ConnectionParams, MAX_SEGMENT, MIN_SEGMENT, Offer, SessionParams};
use crate::login::LoginStatus;
use crate::name::IscsiName;
use crate::pdu::{Bhs, flag, opcode};
use crate::text::{TextBuffer, TextError, number, put};

/// Responses one login may take.
const MAX_RESPONSES: u32 = 32;
/// Our task tag; it means nothing and never changes.
const TAG: u32 = 1;

const SECURITY: u8 = 0;
const OPERATIONAL: u8 = 1;
const FULL_FEATURE: u8 = 3;

/// What an initiator wants.
#[derive(Clone, Debug)]
pub struct Wish {
    /// Our name.
    pub initiator: IscsiName,
    /// The target.
    pub target: IscsiName,
    /// Our port of the session: the same one again takes over a session that is still there.
    pub isid: [u8; 6],
    /// What we are ready to agree to; `allow_digests` and `require_digests` are not looked at.
    pub offer: Offer,
    /// Whether headers must carry a digest.
    pub header_digest: bool,
    /// Whether data must carry a digest.
    pub data_digest: bool,
    /// Who we are, if the target asks.
    pub user: Option<ChapUser>,
    /// Who the target must prove to be.
    pub target_user: Option<ChapUser>,
}

/// What both sides agreed on.
#[derive(Clone, Debug, Default)]
pub struct Agreed {
    /// What was negotiated for the session.
    pub session: SessionParams,
    /// What was negotiated for the connection.
    pub connection: ConnectionParams,
    /// The target's number of the session.
    pub tsih: u16,
}

/// One request: header and text.
#[derive(Clone, Debug)]
pub struct LoginRequest {
    /// The header; CmdSN and ExpStatSN are the caller's.
    pub bhs: Bhs,
    /// The text.
    pub data: Vec<u8>,
}

/// What comes after a response.
#[derive(Clone, Debug)]
pub enum Next {
    /// This is to be sent.
    Send(LoginRequest),
    /// We are in.
    Done(Agreed),
}

/// Why we are not in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    /// The target says no.
    #[error("the target refuses the login: {}", .0.text())]
    Refused(LoginStatus),
    /// The target sends us elsewhere: `host:port`.
    #[error("the target is at {0}")]
    Moved(String),
    /// Authentication failed on our side.
    #[error("authentication: {0}")]
    Chap(#[from] ChapError),
    /// The target should prove itself and did not.
    #[error("the target does not prove itself, though a secret for it was given")]
    Unproved,
    /// A key has a value that was not on offer.
    #[error("the target answers {0} with '{1}', which was not offered")]
    Key(&'static str, String),
    /// Text that is none.
    #[error("the target's text: {0}")]
    Text(#[from] TextError),
    /// Something else that a target must not do.
    #[error("the target breaks the rules of login: {0}")]
    Protocol(&'static str),
}

/// The initiator's side of one login.
#[derive(Debug)]
pub struct LoginClient {
    wish: Wish,
    stage: u8,
    chap: Option<ChapClient>,
    /// Whether CHAP is under way: the target asked for it.
    proving: bool,
    /// Whether our keys were said.
    offered: bool,
    responses: u32,
    text: TextBuffer,
    agreed: Agreed,
}

impl LoginClient {
    /// A login that has not begun.
    #[must_use]
    pub fn new(wish: Wish) -> Self {
        let chap = wish.user.clone().map(|user| ChapClient::new(user, wish.target_user.clone()));
        let mut agreed = Agreed::default();
        agreed.connection.max_recv = wish.offer.max_recv;
        Self {
            wish,
            stage: SECURITY,
            chap,
            proving: false,
            offered: false,
            responses: 0,
            text: TextBuffer::default(),
            agreed,
        }
    }

    /// The first request.
    #[must_use]
    pub fn begin(&mut self) -> LoginRequest {
        let mut data = Vec::new();
        put(&mut data, "InitiatorName", self.wish.initiator.as_str());
        put(&mut data, "SessionType", "Normal");
        put(&mut data, "TargetName", self.wish.target.as_str());
        // A target that must prove itself may not choose to go without.
        let method = match (&self.chap, &self.wish.target_user) {
            (Some(_), Some(_)) => "CHAP",
            (Some(_), None) => "CHAP,None",
            _ => "None",
        };
        put(&mut data, "AuthMethod", method);
        self.request(data, (self.chap.is_none()).then_some(OPERATIONAL))
    }

    fn request(&self, data: Vec<u8>, next: Option<u8>) -> LoginRequest {
        let flags = self.stage << 2 | next.map_or(0, |next| flag::TRANSIT | next);
        let mut bhs = Bhs::new(opcode::LOGIN | 0x40, flags);
        bhs.0[8..14].copy_from_slice(&self.wish.isid);
        bhs.set_u32(16, TAG);
        bhs.set_data_len(data.len());
        LoginRequest { bhs, data }
    }

    /// Takes a response.
    ///
    /// # Errors
    /// Ends the login; the connection is of no further use.
    pub fn response(
        &mut self,
        bhs: &Bhs,
        data: &[u8],
        random: &mut dyn FnMut(&mut [u8]),
    ) -> Result<Next, LoginError> {
        self.responses += 1;
        if bhs.opcode() != opcode::LOGIN_RESPONSE || bhs.itt() != TAG {
            return Err(LoginError::Protocol("something else than a login response came"));
        }
        if self.responses > MAX_RESPONSES {
            return Err(LoginError::Protocol("it goes on for too long"));
        }
        let status = bhs.u16_at(36);
        if status >> 8 > 1 {
            return Err(LoginError::Refused(LoginStatus(status)));
        }
        self.text.push(data)?;
        if bhs.flags() & flag::CONTINUE != 0 {
            // The rest comes when we say nothing.
            return Ok(Next::Send(self.request(Vec::new(), None)));
        }
        let pairs = self.text.take()?;
        if status >> 8 == 1 {
            let address = pairs.into_iter().find(|(key, _)| key == "TargetAddress").map(|(_, value)| value);
            let address = address.ok_or(LoginError::Protocol("it moves us without saying where to"))?;
            return Err(LoginError::Moved(address.split(',').next().unwrap_or_default().to_owned()));
        }
        let transit = bhs.flags() & flag::TRANSIT != 0;
        let (current, next) = (bhs.flags() >> 2 & 3, bhs.flags() & 3);
        if current != self.stage {
            return Err(LoginError::Protocol("it answers in another stage"));
        }
        if self.stage == SECURITY {
            return self.security(&pairs, transit, next, random);
        }
        self.operational(&pairs, transit, next, bhs.tsih())
    }

    fn security(
        &mut self,
        pairs: &[(String, String)],
        transit: bool,
        next: u8,
        random: &mut dyn FnMut(&mut [u8]),
    ) -> Result<Next, LoginError> {
        let method = pairs.iter().find(|(key, _)| key == "AuthMethod").map(|(_, value)| value.as_str());
        let may_do_without = self.wish.target_user.is_none();
        match (method, &self.chap) {
            (Some("CHAP"), Some(_)) if !self.proving => self.proving = true,
            (Some("None"), _) if !self.proving && may_do_without => self.chap = None,
            (None, _) => {}
            (Some(other), _) => return Err(LoginError::Key("AuthMethod", other.to_owned())),
        }
        let mut data = Vec::new();
        match &mut self.chap {
            Some(chap) if self.proving && !chap.done() => {
                for (key, value) in chap.step(pairs, random)? {
                    put(&mut data, key, &value);
                }
            }
            Some(_) if !self.proving && !may_do_without => return Err(LoginError::Unproved),
            _ => {}
        }
        let chap = self.chap.as_ref().filter(|_| self.proving);
        if transit {
            if chap.is_some_and(|chap| !chap.done()) || !data.is_empty() {
                return Err(LoginError::Protocol("it goes on before both sides have proved who they are"));
            }
            if next != OPERATIONAL {
                return Err(LoginError::Protocol("it leaves out the negotiation of parameters"));
            }
            self.stage = OPERATIONAL;
            return Ok(self.offer());
        }
        // Our proof and the wish to go on leave together.
        let last = chap.is_none_or(ChapClient::said_all);
        Ok(Next::Send(self.request(data, last.then_some(OPERATIONAL))))
    }

    /// All that we want to agree on.
    fn offer(&mut self) -> Next {
        let offer = &self.wish.offer;
        let yes = |flag: bool| if flag { "Yes" } else { "No" }.to_owned();
        let digest = |flag: bool| if flag { "CRC32C" } else { "None" }.to_owned();
        let mut data = Vec::new();
        for (key, value) in [
            ("HeaderDigest", digest(self.wish.header_digest)),
            ("DataDigest", digest(self.wish.data_digest)),
            ("MaxConnections", "1".to_owned()),
            ("InitialR2T", yes(offer.initial_r2t)),
            ("ImmediateData", yes(offer.immediate_data)),
            ("MaxRecvDataSegmentLength", offer.max_recv.to_string()),
            ("MaxBurstLength", offer.max_burst.to_string()),
            ("FirstBurstLength", offer.first_burst.min(offer.max_burst).to_string()),
            ("DefaultTime2Wait", offer.time2wait.to_string()),
            ("DefaultTime2Retain", offer.time2retain.to_string()),
            ("MaxOutstandingR2T", offer.max_outstanding_r2t.to_string()),
            ("DataPDUInOrder", "Yes".to_owned()),
            ("DataSequenceInOrder", "Yes".to_owned()),
            ("ErrorRecoveryLevel", "0".to_owned()),
        ] {
            put(&mut data, key, &value);
        }
        self.offered = true;
        Next::Send(self.request(data, Some(FULL_FEATURE)))
    }

    fn operational(
        &mut self,
        pairs: &[(String, String)],
        transit: bool,
        next: u8,
        tsih: u16,
    ) -> Result<Next, LoginError> {
        let mut data = Vec::new();
        for (key, value) in pairs {
            if !self.answer(key, value)? {
                put(&mut data, key, "NotUnderstood");
            }
        }
        if !transit {
            return Ok(Next::Send(self.request(data, Some(FULL_FEATURE))));
        }
        let (wish, agreed) = (&self.wish, &mut self.agreed);
        if next != FULL_FEATURE || !self.offered {
            return Err(LoginError::Protocol("it goes to a stage that there is not"));
        }
        for (key, wanted, got) in [
            ("HeaderDigest", wish.header_digest, agreed.connection.header_digest),
            ("DataDigest", wish.data_digest, agreed.connection.data_digest),
        ] {
            if wanted && !got {
                return Err(LoginError::Key(key, "None".to_owned()));
            }
        }
        agreed.session.first_burst = agreed.session.first_burst.min(agreed.session.max_burst);
        agreed.tsih = tsih;
        Ok(Next::Done(agreed.clone()))
    }

    /// Takes the answer to a key, or a declaration; `false` when the target offers something that we do not know.
    fn answer(&mut self, key: &str, value: &str) -> Result<bool, LoginError> {
        let (offer, session) = (&self.wish.offer, &mut self.agreed.session);
        let connection = &mut self.agreed.connection;
        if matches!(value, "Reject" | "Irrelevant" | "NotUnderstood") {
            return Ok(true);
        }
        let wrong = |key: &'static str| LoginError::Key(key, value.to_owned());
        let ranged = |key: &'static str, low: u32, high: u32| {
            let number = number(value).and_then(|number| u32::try_from(number).ok());
            number.filter(|number| (low..=high).contains(number)).ok_or_else(|| wrong(key))
        };
        let boolean = |key: &'static str| match value {
            "Yes" => Ok(true),
            "No" => Ok(false),
            _ => Err(wrong(key)),
        };
        match key {
            "MaxRecvDataSegmentLength" => {
                connection.peer_max_recv = ranged("MaxRecvDataSegmentLength", MIN_SEGMENT, MAX_SEGMENT)?;
            }
            "HeaderDigest" => {
                connection.header_digest =
                    digest(value, self.wish.header_digest).ok_or_else(|| wrong("HeaderDigest"))?;
            }
            "DataDigest" => {
                connection.data_digest =
                    digest(value, self.wish.data_digest).ok_or_else(|| wrong("DataDigest"))?;
            }
            "InitialR2T" => session.initial_r2t = boolean("InitialR2T")?,
            "ImmediateData" => session.immediate_data = boolean("ImmediateData")? && offer.immediate_data,
            "MaxBurstLength" => session.max_burst = ranged("MaxBurstLength", MIN_SEGMENT, offer.max_burst)?,
            "FirstBurstLength" => {
                session.first_burst = ranged("FirstBurstLength", MIN_SEGMENT, offer.first_burst)?;
            }
            "MaxOutstandingR2T" => {
                let most = u32::from(offer.max_outstanding_r2t);
                session.max_outstanding_r2t = ranged("MaxOutstandingR2T", 1, most)? as u16;
            }
            "MaxConnections" => session.max_connections = ranged("MaxConnections", 1, 1)? as u16,
            "DefaultTime2Wait" => session.time2wait = ranged("DefaultTime2Wait", 0, 3600)? as u16,
            "DefaultTime2Retain" => session.time2retain = ranged("DefaultTime2Retain", 0, 3600)? as u16,
            "ErrorRecoveryLevel" => drop(ranged("ErrorRecoveryLevel", 0, 0)?),
            "DataPDUInOrder" | "DataSequenceInOrder" => {
                if !boolean("DataPDUInOrder")? {
                    return Err(wrong("DataPDUInOrder or DataSequenceInOrder"));
                }
            }
            "TargetAlias" | "TargetPortalGroupTag" | "TargetAddress" => {}
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Whether a digest was agreed on, if that was on offer.
fn digest(value: &str, wanted: bool) -> Option<bool> {
    match (value, wanted) {
        ("CRC32C", true) => Some(true),
        ("None", false) => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
