//! Authentication inside a pipe, and what protects fragments after it (MS-RPCE 2.2.1.1.7, 3.3.1.5.2).
//!
//! ```text
//!   bind          trailer with the first token  ──►  bind_ack with ours
//!   auth3, or     the client's second token     ──►  no answer, or alter_context_resp with ours (SPNEGO)
//!   request       trailer with a signature      ──►  response with a signature
//! ```
//! With NTLM a signature covers the whole PDU before it, header and trailer included, whether or not the client has asked
//! for that (PFC_SUPPORT_HEADER_SIGN); only the stub and its padding are encrypted.
//!
//! A client may authenticate more than once on a connection, under numbers of its own ("security contexts"); each
//! request says under which. What needs no signature (level "connect") comes under the last one, and has the rights of who
//! opened the pipe: nothing proves that it was sent by who logged in, whose login may have been relayed.

use std::collections::BTreeMap;

use smb_auth::{Acceptor, MessageSecurity, Step};

use crate::client::{Authenticator, RpcClient};
use crate::error::Fault;
use crate::pdu::answer::{self, RESPONSE_HEAD_BYTES};
use crate::pdu::{HEADER_BYTES, Pdu, TRAILER_BYTES, Trailer};

/// SPNEGO around one of the others, and NTLM alone (MS-RPCE 2.2.1.1.7).
const SPNEGO: u8 = 9;
const NTLM: u8 = 10;
/// Most authentications of a connection.
const CONTEXTS_MAX: usize = 8;
/// Bytes of a signature of NTLM.
const SIGNATURE_BYTES: usize = 16;
/// Stubs are padded to this before a trailer (MS-RPCE 2.2.2.11: 16 with protection).
const PAD: usize = 16;

/// How much is protected (MS-RPCE 2.2.1.1.8). Call and packet mean integrity with connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Connect,
    Integrity,
    Privacy,
}

/// Why an authentication does not begin or go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The mechanism or level is not one that we have.
    Mechanism,
    /// The client was not believed, or asked out of turn.
    Client,
}

enum State {
    Open(Box<Acceptor>),
    Done(RpcClient, Option<Box<MessageSecurity>>),
    Failed,
}

struct Protection {
    mechanism: u8,
    /// The level as the client named it: it comes back in each answer.
    level: u8,
    state: State,
}

impl Protection {
    fn level(&self) -> Level {
        match self.level {
            2 => Level::Connect,
            6 => Level::Privacy,
            _ => Level::Integrity,
        }
    }
}

/// A token to send.
pub(crate) struct Token {
    mechanism: u8,
    level: u8,
    context: u32,
    token: Vec<u8>,
}

impl Token {
    pub(crate) fn append_to(self, pdu: Vec<u8>) -> Vec<u8> {
        answer::with_token(pdu, self.mechanism, self.level, self.context, &self.token)
    }
}

/// All authentications of a connection.
#[derive(Default)]
pub(crate) struct Protections {
    known: BTreeMap<u32, Protection>,
    /// What counts for requests without a trailer.
    implied: Option<u32>,
}

impl Protections {
    /// A bind's trailer.
    pub(crate) fn begin(
        &mut self,
        trailer: Option<&Trailer<'_>>,
        authenticator: &dyn Authenticator,
    ) -> Result<Option<Token>, Refused> {
        // Level 1 is none at all, with a trailer that says so.
        let Some(trailer) = trailer.filter(|trailer| trailer.level > 1) else { return Ok(None) };
        if !matches!(trailer.kind, SPNEGO | NTLM) || trailer.level > 6 {
            return Err(Refused::Mechanism);
        }
        if self.known.len() >= CONTEXTS_MAX {
            return Err(Refused::Client);
        }
        let acceptor = authenticator.acceptor().ok_or(Refused::Mechanism)?;
        let state = State::Open(Box::new(acceptor));
        let protection = Protection { mechanism: trailer.kind, level: trailer.level, state };
        self.known.insert(trailer.context, protection);
        // From here on a request without a trailer would be one with less protection than was asked for.
        self.implied = Some(trailer.context);
        self.step(trailer, authenticator)
    }

    /// An alter_context's trailer: the next token, or another authentication.
    pub(crate) fn alter(
        &mut self,
        trailer: Option<&Trailer<'_>>,
        authenticator: &dyn Authenticator,
    ) -> Result<Option<Token>, Refused> {
        match trailer {
            Some(trailer) if self.known.contains_key(&trailer.context) => self.step(trailer, authenticator),
            trailer => self.begin(trailer, authenticator),
        }
    }

    /// An auth3's token.
    pub(crate) fn finish(&mut self, trailer: &Trailer<'_>, authenticator: &dyn Authenticator) {
        // Refusing is remembered in the state.
        let _ = self.step(trailer, authenticator);
    }

    fn step(
        &mut self,
        trailer: &Trailer<'_>,
        authenticator: &dyn Authenticator,
    ) -> Result<Option<Token>, Refused> {
        let protection = self.known.get_mut(&trailer.context).ok_or(Refused::Client)?;
        let same = protection.mechanism == trailer.kind && protection.level == trailer.level;
        let State::Open(mut acceptor) = std::mem::replace(&mut protection.state, State::Failed) else {
            return Err(Refused::Client);
        };
        if !same {
            return Err(Refused::Client);
        }
        let token = match acceptor.step(trailer.token, authenticator.accounts()) {
            Step::Continue(token) => {
                protection.state = State::Open(acceptor);
                token
            }
            Step::Done(token, who) => {
                let client = authenticator.client(&who).ok_or(Refused::Client)?;
                let security = acceptor.message_security();
                let enough = match protection.level() {
                    Level::Connect => true,
                    Level::Integrity => security.is_some(),
                    Level::Privacy => security.as_ref().is_some_and(|security| security.may_seal()),
                };
                if !enough {
                    return Err(Refused::Client);
                }
                protection.state = State::Done(client, security.map(Box::new));
                token
            }
            Step::Failed(failure) => {
                authenticator.refused(&failure);
                return Err(Refused::Client);
            }
        };
        let Trailer { kind: mechanism, level, context, .. } = *trailer;
        Ok((!token.is_empty()).then_some(Token { mechanism, level, context, token }))
    }

    /// Who calls: who authenticated itself in the pipe and signs its requests, or else who opened it. `None` while, or after,
    /// authentication failed.
    pub(crate) fn client<'a>(&'a self, context: Option<u32>, opener: &'a RpcClient) -> Option<&'a RpcClient> {
        let Some(context) = context else { return Some(opener) };
        let protection = self.known.get(&context)?;
        match &protection.state {
            State::Done(..) if protection.level() == Level::Connect => Some(opener),
            State::Done(client, _) => Some(client),
            State::Open(_) | State::Failed => None,
        }
    }

    /// The stub of a request's fragment, and under which authentication it came.
    pub(crate) fn open(&mut self, pdu: &Pdu<'_>, stub_at: usize) -> Result<(Vec<u8>, Option<u32>), Fault> {
        let stub = pdu.body.get(stub_at..).ok_or(Fault::PROTOCOL)?;
        let context = pdu.trailer.map_or(self.implied, |trailer| Some(trailer.context));
        let Some(context) = context else { return Ok((stub.to_vec(), None)) };
        let protection = self.known.get_mut(&context).ok_or(Fault::ACCESS_DENIED)?;
        let level = protection.level();
        let State::Done(_, security) = &mut protection.state else { return Err(Fault::ACCESS_DENIED) };
        let padding = usize::from(pdu.trailer.map_or(0, |trailer| trailer.padding));
        let len = stub.len().checked_sub(padding).ok_or(Fault::PROTOCOL)?;
        let security = match security {
            Some(security) if level != Level::Connect => security,
            _ => return Ok((stub.get(..len).unwrap_or_default().to_vec(), Some(context))),
        };
        let trailer = pdu.trailer.ok_or(Fault::ACCESS_DENIED)?;
        if (trailer.kind, trailer.level) != (protection.mechanism, protection.level) {
            return Err(Fault::ACCESS_DENIED);
        }
        let at = HEADER_BYTES + stub_at;
        let end = pdu.bytes.len().checked_sub(trailer.token.len()).ok_or(Fault::PROTOCOL)?;
        let mut message = pdu.bytes.get(..end).ok_or(Fault::PROTOCOL)?.to_vec();
        let part = at..at + stub.len();
        let sealed = (level == Level::Privacy).then(|| part.clone());
        if !security.accept(&mut message, sealed, trailer.token) {
            return Err(Fault::SEC_PKG_ERROR);
        }
        let stub = message.get(part).and_then(|stub| stub.get(..len)).unwrap_or_default();
        Ok((stub.to_vec(), Some(context)))
    }

    /// Who protects answers: which authentication, if it does.
    fn protecting(&mut self, context: Option<u32>) -> Option<(u32, &mut Protection)> {
        let context = context?;
        let protection = self.known.get_mut(&context)?;
        let protects =
            protection.level() != Level::Connect && matches!(protection.state, State::Done(_, Some(_)));
        protects.then_some((context, protection))
    }

    /// How much of a stub fits in a fragment of an answer.
    pub(crate) fn room(&mut self, context: Option<u32>, fragment: u16) -> usize {
        let around = match self.protecting(context) {
            Some(_) => RESPONSE_HEAD_BYTES + TRAILER_BYTES + SIGNATURE_BYTES,
            None => RESPONSE_HEAD_BYTES,
        };
        let room = usize::from(fragment).saturating_sub(around);
        (room - room % PAD).max(PAD)
    }

    /// A fragment of an answer with its protection.
    pub(crate) fn seal(&mut self, context: Option<u32>, mut pdu: Vec<u8>) -> Vec<u8> {
        let Some((context, protection)) = self.protecting(context) else { return pdu };
        let sealed = protection.level() == Level::Privacy;
        let (mechanism, level) = (protection.mechanism, protection.level);
        let State::Done(_, Some(security)) = &mut protection.state else { return pdu };
        let stub = pdu.len() - RESPONSE_HEAD_BYTES;
        let padded = stub.next_multiple_of(PAD);
        pdu.resize(RESPONSE_HEAD_BYTES + padded, 0);
        let end = pdu.len();
        answer::trailer(&mut pdu, mechanism, level, (padded - stub) as u8, context);
        let len = pdu.len() + SIGNATURE_BYTES;
        answer::set_lengths(&mut pdu, len, SIGNATURE_BYTES);
        let signature = security.protect(&mut pdu, sealed.then_some(RESPONSE_HEAD_BYTES..end));
        pdu.extend_from_slice(&signature);
        pdu
    }
}
