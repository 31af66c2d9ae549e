//! The login phase: stages, authentication and negotiation, in the order RFC 7143 6.3 wants.
//!
//! ```text
//!   first request ── security (0) ── AuthMethod, CHAP … ── T ──► operational (1) ── keys … ── T ──► full feature (3)
//!        └────────── operational (1), only when no authentication is asked for ─┘
//! ```
//!
//! [`LoginMachine`] answers requests one by one. When it says [`Outcome::Done`] the caller finds or makes the
//! session, puts TSIH and sequence numbers into the response and sends it; a caller that cannot (too many
//! sessions …) turns the response into a refusal with [`LoginResponse::refuse`].

mod status;

use crate::chap::{ChapServer, ChapUser};
use crate::keys::{Answer, ConnectionParams, Negotiator, Offer, Phase, SessionParams};
use crate::name::IscsiName;
use crate::pdu::{Bhs, flag, opcode};
use crate::text::{TextBuffer, put};

pub use status::{LoginStatus, Refusal};

/// Requests one login may take. The longest honest one (CHAP, keys split over PDUs) has below ten.
pub const MAX_LOGIN_REQUESTS: u32 = 64;
/// Longest data segment during login (RFC 7143 6.3: the default applies).
pub const MAX_LOGIN_DATA: usize = 8192;

/// Who wants what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginSubject {
    /// InitiatorName.
    pub initiator: IscsiName,
    /// InitiatorAlias.
    pub alias: Option<String>,
    /// TargetName; `None` for a discovery session.
    pub target: Option<IscsiName>,
    /// The initiator's part of the session identifier.
    pub isid: [u8; 6],
    /// 0 for a new session, else the session to join.
    pub tsih: u16,
    /// Connection identifier.
    pub cid: u16,
}

/// What an initiator has to prove.
#[derive(Clone, Debug)]
pub enum Auth {
    /// Nothing.
    None,
    /// One of the users; we prove ourselves as `mutual` when asked.
    Chap {
        /// Who may come in.
        users: Vec<ChapUser>,
        /// Who we are.
        mutual: Option<ChapUser>,
    },
}

/// The way in, once names are known.
#[derive(Clone, Debug)]
pub struct Access {
    /// Tag of the portal group over which the connection came.
    pub portal_group: u16,
    /// TargetAlias.
    pub alias: Option<String>,
    /// What has to be proved.
    pub auth: Auth,
}

/// Decides who may come in; asked once per login.
pub trait LoginPolicy {
    /// Looks target and initiator up.
    ///
    /// # Errors
    /// The status to refuse with, and why.
    fn access(&self, subject: &LoginSubject) -> Result<Access, Refusal>;
}

/// A login response: header and text.
#[derive(Clone, Debug)]
pub struct LoginResponse {
    /// The header; TSIH and sequence numbers are the caller's.
    pub bhs: Bhs,
    /// The text.
    pub data: Vec<u8>,
}

impl LoginResponse {
    /// Turns the response into a refusal.
    pub fn refuse(&mut self, status: LoginStatus) {
        self.bhs.0[1] &= !(flag::TRANSIT | flag::CONTINUE | 0x03);
        self.bhs.set_u16(36, status.0);
        self.data.clear();
        self.bhs.set_data_len(0);
    }
}

/// Where the login stands after a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// More requests are expected.
    Continue,
    /// The response moves to full feature phase.
    Done,
    /// The response refuses; close after sending it.
    Refused(LoginStatus),
}

/// Answer to one request.
#[derive(Clone, Debug)]
pub struct LoginStep {
    /// What to send.
    pub response: LoginResponse,
    /// What comes then.
    pub outcome: Outcome,
}

impl LoginStep {
    /// Whether no further request is expected.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.outcome != Outcome::Continue
    }
}

/// What a finished login agreed on.
#[derive(Clone, Debug)]
pub struct LoginResult {
    /// Who and what.
    pub subject: LoginSubject,
    /// Tag of the portal group.
    pub portal_group: u16,
    /// Who the initiator has proved to be, if it had to.
    pub user: Option<ChapUser>,
    /// Session parameters; meaningful when the connection led its session.
    pub session: SessionParams,
    /// Connection parameters.
    pub connection: ConnectionParams,
}

const SECURITY: u8 = 0;
const OPERATIONAL: u8 = 1;
const FULL_FEATURE: u8 = 3;

#[derive(Debug)]
enum AuthState {
    /// AuthMethod not yet agreed; `true` when we ask for CHAP.
    Open {
        required: bool,
    },
    Chap,
    Done,
}

/// The target's side of one login.
#[derive(Debug)]
pub struct LoginMachine {
    stage: Option<u8>,
    requests: u32,
    text: TextBuffer,
    negotiator: Negotiator,
    /// The initiator's name, as soon as it has said one.
    initiator: Option<IscsiName>,
    subject: Option<LoginSubject>,
    access: Option<Access>,
    auth: AuthState,
    chap: Option<ChapServer>,
    identity: Option<([u8; 6], u16, u16, u32)>,
    said_group: bool,
    declared: bool,
    refusal: Option<Refusal>,
}

impl LoginMachine {
    /// Waits for the first request.
    #[must_use]
    pub fn new(offer: Offer) -> Self {
        Self {
            stage: None,
            requests: 0,
            text: TextBuffer::default(),
            negotiator: Negotiator::new(offer),
            initiator: None,
            subject: None,
            access: None,
            refusal: None,
            auth: AuthState::Open { required: true },
            chap: None,
            identity: None,
            said_group: false,
            declared: false,
        }
    }

    /// The name that the initiator gives itself, as soon as it has said one.
    #[must_use]
    pub fn initiator(&self) -> Option<&IscsiName> {
        self.initiator.as_ref()
    }

    /// Who wants what, as soon as it is known; also of a login that is refused for it.
    #[must_use]
    pub fn subject(&self) -> Option<&LoginSubject> {
        self.subject.as_ref()
    }

    /// The CHAP user that the initiator says it is, whether or not it has proved that. It may hold any characters.
    #[must_use]
    pub fn claimed_user(&self) -> Option<&str> {
        self.chap.as_ref().and_then(ChapServer::claimed)
    }

    /// Why it was refused, after [`Outcome::Refused`].
    #[must_use]
    pub fn refusal(&self) -> Option<Refusal> {
        self.refusal
    }

    /// What was agreed on; meaningful after [`Outcome::Done`].
    #[must_use]
    pub fn result(&self) -> Option<LoginResult> {
        Some(LoginResult {
            subject: self.subject.clone()?,
            portal_group: self.access.as_ref()?.portal_group,
            user: self.chap.as_ref().and_then(ChapServer::user).cloned(),
            session: self.negotiator.session.clone(),
            connection: self.negotiator.connection.clone(),
        })
    }

    /// Answers one request PDU.
    pub fn request(
        &mut self,
        bhs: &Bhs,
        data: &[u8],
        policy: &dyn LoginPolicy,
        random: &mut dyn FnMut(&mut [u8]),
    ) -> LoginStep {
        let mut response = Bhs::new(opcode::LOGIN_RESPONSE, bhs.flags() & 0x0c);
        response.0[8..20].copy_from_slice(&bhs.0[8..20]);
        let mut response = LoginResponse { bhs: response, data: Vec::new() };
        match self.advance(bhs, data, policy, random, &mut response.data) {
            Ok(next) => {
                if let Some(stage) = next {
                    response.bhs.0[1] |= flag::TRANSIT | stage;
                }
                response.bhs.set_data_len(response.data.len());
                let outcome = if next == Some(FULL_FEATURE) { Outcome::Done } else { Outcome::Continue };
                LoginStep { response, outcome }
            }
            Err(refusal) => {
                self.refusal = Some(refusal);
                response.refuse(refusal.status);
                LoginStep { response, outcome: Outcome::Refused(refusal.status) }
            }
        }
    }

    /// The next stage, if the response moves there.
    fn advance(
        &mut self,
        bhs: &Bhs,
        data: &[u8],
        policy: &dyn LoginPolicy,
        random: &mut dyn FnMut(&mut [u8]),
        out: &mut Vec<u8>,
    ) -> Result<Option<u8>, Refusal> {
        if bhs.opcode() != opcode::LOGIN {
            return Err(LoginStatus::INVALID_REQUEST.because("what it sends is no login request"));
        }
        self.requests += 1;
        if self.requests > MAX_LOGIN_REQUESTS || data.len() > MAX_LOGIN_DATA {
            return Err(malformed("too many login requests, or too long ones"));
        }
        if bhs.0[3] > 0 {
            return Err(LoginStatus::VERSION.because("no common version of the protocol"));
        }
        let (current, next) = (bhs.flags() >> 2 & 3, bhs.flags() & 3);
        let transit = bhs.flags() & flag::TRANSIT != 0;
        let more = bhs.flags() & flag::CONTINUE != 0;
        let stage = *self.stage.get_or_insert(current);
        let stage_ok = current == stage && stage <= OPERATIONAL;
        let next_ok = !transit || (next > current && matches!(next, OPERATIONAL | FULL_FEATURE));
        if !stage_ok || !next_ok || (transit && more) {
            return Err(malformed("its stages of the login are out of order"));
        }
        let identity = (bhs.isid(), bhs.tsih(), bhs.u16_at(20), bhs.itt());
        if *self.identity.get_or_insert(identity) != identity {
            return Err(malformed("it changes its identifiers during the login"));
        }
        self.text.push(data).map_err(|_| malformed("its text is too long"))?;
        if more {
            return Ok(None);
        }
        let pairs = self.text.take().map_err(|_| malformed("its text is malformed"))?;
        if self.subject.is_none() {
            self.introduce(&pairs, identity, policy)?;
        }
        self.greet(out);
        if stage == SECURITY {
            self.security(&pairs, random, out)?;
        } else {
            if !matches!(self.auth, AuthState::Done | AuthState::Open { required: false }) {
                return Err(unproved("it does not log in with CHAP, which is asked for"));
            }
            self.operational(&pairs, out)?;
        }
        if !transit {
            return Ok(None);
        }
        match self.auth {
            AuthState::Done | AuthState::Open { required: false } => {}
            // The initiator wants on, but has not proved itself: it said nothing at all, or is in the middle.
            AuthState::Open { required: true } => {
                return Err(unproved("it does not log in with CHAP, which is asked for"));
            }
            AuthState::Chap => return Ok(None),
        }
        if next == FULL_FEATURE {
            if !self.negotiator.digests_suffice() {
                return Err(malformed(
                    "header and data digests are asked for, and it does not agree to them",
                ));
            }
            self.negotiator.settle();
        }
        self.stage = Some(next);
        Ok(Some(next))
    }

    fn introduce(
        &mut self,
        pairs: &[(String, String)],
        (isid, tsih, cid, _): ([u8; 6], u16, u16, u32),
        policy: &dyn LoginPolicy,
    ) -> Result<(), Refusal> {
        let get = |name: &str| pairs.iter().find(|(k, _)| k == name).map(|(_, v)| v.as_str());
        let missing = |why| LoginStatus::MISSING_PARAMETER.because(why);
        let initiator = get("InitiatorName").ok_or(missing("it does not say its name"))?;
        let initiator = IscsiName::parse(initiator).map_err(|_| malformed("its name is no iSCSI name"))?;
        self.initiator = Some(initiator.clone());
        let target = match get("SessionType") {
            Some("Discovery") => None,
            None | Some("Normal") => {
                let wanted = get("TargetName").ok_or(missing("it does not say which target it wants"))?;
                // A name that cannot exist is a target that does not.
                let none = |_| LoginStatus::NOT_FOUND.because("the name of the target is no iSCSI name");
                Some(IscsiName::parse(wanted).map_err(none)?)
            }
            Some(_) => return Err(LoginStatus::SESSION_TYPE.because("there is no such type of session")),
        };
        let alias = get("InitiatorAlias").map(|a| a.chars().take(255).collect());
        let subject = LoginSubject { initiator, alias, target, isid, tsih, cid };
        let access = policy.access(self.subject.insert(subject))?;
        if let Auth::Chap { users, mutual } = &access.auth {
            self.chap = Some(ChapServer::new(users.clone(), mutual.clone()));
            self.auth = AuthState::Open { required: true };
        } else {
            self.auth = AuthState::Open { required: false };
        }
        self.access = Some(access);
        Ok(())
    }

    /// TargetPortalGroupTag belongs into the first response of a normal session (RFC 7143 13.9).
    fn greet(&mut self, out: &mut Vec<u8>) {
        let normal = self.subject.as_ref().is_some_and(|s| s.target.is_some());
        if self.said_group || !normal {
            return;
        }
        self.said_group = true;
        if let Some(access) = &self.access {
            if let Some(alias) = &access.alias {
                put(out, "TargetAlias", alias);
            }
            put(out, "TargetPortalGroupTag", &access.portal_group.to_string());
        }
    }

    fn security(
        &mut self,
        pairs: &[(String, String)],
        random: &mut dyn FnMut(&mut [u8]),
        out: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        if let Some((_, list)) = pairs.iter().find(|(k, _)| k == "AuthMethod") {
            let AuthState::Open { required } = self.auth else {
                return Err(malformed("it asks twice how to authenticate"));
            };
            let wanted = if required { "CHAP" } else { "None" };
            if !list.split(',').any(|method| method == wanted) {
                return Err(unproved(match required {
                    true => "it does not offer CHAP, which is asked for",
                    false => "it wants to authenticate, and nothing is asked for",
                }));
            }
            put(out, "AuthMethod", wanted);
            self.auth = if required { AuthState::Chap } else { AuthState::Done };
        }
        let chap_keys: Vec<(String, String)> =
            pairs.iter().filter(|(k, _)| k.starts_with("CHAP_")).cloned().collect();
        if !chap_keys.is_empty() {
            let (AuthState::Chap, Some(chap)) = (&self.auth, &mut self.chap) else {
                return Err(unproved("it speaks CHAP out of turn"));
            };
            let answer = chap.step(&chap_keys, random).map_err(|error| unproved(error.text()))?;
            for (key, value) in answer {
                put(out, key, &value);
            }
            if chap.done() {
                self.auth = AuthState::Done;
            }
        }
        // Some initiators say operational keys here already; the RFC allows to answer them.
        let rest: Vec<_> =
            pairs.iter().filter(|(k, _)| !k.starts_with("CHAP_") && k != "AuthMethod").cloned().collect();
        self.answer(&rest, out)
    }

    fn operational(&mut self, pairs: &[(String, String)], out: &mut Vec<u8>) -> Result<(), Refusal> {
        self.answer(pairs, out)?;
        if !self.declared {
            self.declared = true;
            put(out, "MaxRecvDataSegmentLength", &self.negotiator.our_offer().max_recv.to_string());
            self.negotiator.declared();
        }
        Ok(())
    }

    fn answer(&mut self, pairs: &[(String, String)], out: &mut Vec<u8>) -> Result<(), Refusal> {
        let phase = match &self.subject {
            Some(LoginSubject { target: None, .. }) => Phase::Discovery,
            Some(LoginSubject { tsih: 0, .. }) => Phase::Leading,
            _ => Phase::Joining,
        };
        // Whatever the order in which they come: the longest burst bounds the first one, so it is settled first.
        let (bounds, others): (Vec<_>, Vec<_>) = pairs.iter().partition(|(key, _)| key == "MaxBurstLength");
        for (key, value) in bounds.into_iter().chain(others) {
            match self.negotiator.handle(key, value, phase) {
                Ok(Answer::Silent) => {}
                Ok(Answer::Value(answer)) => put(out, key, &answer),
                Err(_) => return Err(malformed("it negotiates a key that must not be there, or twice")),
            }
        }
        Ok(())
    }
}

fn malformed(why: &'static str) -> Refusal {
    LoginStatus::INITIATOR_ERROR.because(why)
}

fn unproved(why: &'static str) -> Refusal {
    LoginStatus::AUTHENTICATION_FAILURE.because(why)
}

#[cfg(test)]
mod tests;
