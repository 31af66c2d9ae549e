//! The server's side of SPNEGO (RFC 4178 3 to 5, MS-SPNG 3.3).
//!
//! ```text
//!   client: mechanisms, token of the first ──►  the first one that we have; if it is the client's first, its token
//!   ◄── mechanism, token                         goes to it, otherwise the client is asked for one, and for a code
//!   token, code over the list ──►                the code proves that nobody took a better mechanism off the list
//!   ◄── done, our code
//! ```
//! NTLM without SPNEGO around it, which the Linux kernel and others send, is understood too: with it there is no list
//! that could have been changed.

use crate::account::Accounts;
use crate::error::{AuthError, Failure};
use crate::ntlm::crypto::MessageSecurity;
use crate::ntlm::message::SIGNATURE;
use crate::spnego::{NegState, NegTokenInit, NegTokenResp, oid};
use crate::{Authenticated, Identity};

/// A mechanism, for one authentication. Kerberos comes in here: its tokens carry their own proof, and `Authenticated`
/// has place for the groups that its tickets name; `accounts` need not be asked.
pub trait Mechanism: Send {
    /// Whether this identifier is one of the mechanism's.
    fn supports(&self, mechanism: &[u8]) -> bool;

    /// Takes a token of the client.
    fn step(&mut self, token: &[u8], accounts: &dyn Accounts) -> MechStep;

    /// Our code over bytes, once it has succeeded; called at most once.
    fn sign(&mut self, message: &[u8]) -> Option<Vec<u8>>;

    /// Whether a code over bytes is the client's, once it has succeeded; called at most once.
    fn verify(&mut self, message: &[u8], signature: &[u8]) -> bool;

    /// What protects messages after it has succeeded; `list_proven` says whether [`Mechanism::sign`] and
    /// [`Mechanism::verify`] have used up the first number of each direction. `None` where it cannot protect any.
    fn message_security(&mut self, list_proven: bool) -> Option<MessageSecurity> {
        let _ = list_proven;
        None
    }
}

/// What a mechanism says to a token.
#[derive(Debug)]
pub enum MechStep {
    /// Send this and wait for more.
    Continue(Vec<u8>),
    /// It is proven who it is; a token may still have to be sent.
    Done(Option<Vec<u8>>, Authenticated),
    /// It is not.
    Failed(Failure),
}

/// What the acceptor says to a token.
#[derive(Debug)]
pub enum Step {
    /// Answer with MORE_PROCESSING_REQUIRED and this token.
    Continue(Vec<u8>),
    /// Answer with SUCCESS and this token.
    Done(Vec<u8>, Authenticated),
    /// Answer with the failure's status.
    Failed(Failure),
}

enum State {
    Start,
    /// The tokens come without SPNEGO around them; the number of the mechanism.
    Raw(usize),
    /// A mechanism is chosen.
    Chosen {
        which: usize,
        /// The list as the client sent it.
        mechanisms: Vec<u8>,
        /// Whether the list must be proven.
        mic_required: bool,
    },
    End,
}

/// One authentication of a client.
pub struct Acceptor {
    mechanisms: Vec<Box<dyn Mechanism>>,
    state: State,
    /// Who has succeeded, and whether the list was proven with codes.
    done: Option<(usize, bool)>,
}

impl Acceptor {
    /// An acceptor with the mechanisms that the server has; the client's order decides between them.
    #[must_use]
    pub fn new(mechanisms: Vec<Box<dyn Mechanism>>) -> Self {
        Self { mechanisms, state: State::Start, done: None }
    }

    /// Takes a token of SESSION_SETUP. After `Done` or `Failed` nothing more is taken.
    pub fn step(&mut self, token: &[u8], accounts: &dyn Accounts) -> Step {
        let result = match std::mem::replace(&mut self.state, State::End) {
            State::Start if token.starts_with(SIGNATURE) => self.raw(None, token, accounts),
            State::Start => self.first(token, accounts),
            State::Raw(which) => self.raw(Some(which), token, accounts),
            State::Chosen { which, mechanisms, mic_required } => NegTokenResp::decode(token)
                .map_err(Failure::from)
                .and_then(|token| self.later(which, mechanisms, mic_required, &token, accounts)),
            State::End => Err(AuthError::OutOfTurn.into()),
        };
        result.unwrap_or_else(|failure| {
            self.state = State::End;
            Step::Failed(failure)
        })
    }

    /// What protects messages of the layer above after `Done`, if it was negotiated. SMB needs none, as it derives keys of
    /// its own; remote procedure calls do.
    pub fn message_security(&mut self) -> Option<MessageSecurity> {
        let (which, list_proven) = self.done.take()?;
        self.mechanisms.get_mut(which)?.message_security(list_proven)
    }

    fn find(&self, mechanism: &[u8]) -> Option<usize> {
        self.mechanisms.iter().position(|ours| ours.supports(mechanism))
    }

    fn ask(&mut self, which: usize, token: &[u8], accounts: &dyn Accounts) -> Result<MechStep, Failure> {
        let mechanism = self.mechanisms.get_mut(which).ok_or(AuthError::NoMechanism)?;
        match mechanism.step(token, accounts) {
            MechStep::Failed(failure) => Err(failure),
            step => Ok(step),
        }
    }

    fn raw(&mut self, which: Option<usize>, token: &[u8], accounts: &dyn Accounts) -> Result<Step, Failure> {
        let which = which.or_else(|| self.find(oid::NTLMSSP)).ok_or(AuthError::NoMechanism)?;
        Ok(match self.ask(which, token, accounts)? {
            MechStep::Continue(answer) => {
                self.state = State::Raw(which);
                Step::Continue(answer)
            }
            MechStep::Done(answer, who) => {
                self.done = Some((which, false));
                Step::Done(answer.unwrap_or_default(), who)
            }
            MechStep::Failed(failure) => Step::Failed(failure),
        })
    }

    fn first(&mut self, token: &[u8], accounts: &dyn Accounts) -> Result<Step, Failure> {
        let init = NegTokenInit::decode(token)?;
        let (at, chosen, which) = init
            .mechanisms
            .iter()
            .enumerate()
            .find_map(|(at, mechanism)| Some((at, mechanism, self.find(mechanism)?)))
            .ok_or(AuthError::NoMechanism)?;
        let mechanisms = init.mechanisms.bytes().to_vec();
        match init.token.filter(|_| at == 0) {
            Some(token) => {
                let inner = NegTokenResp { token: Some(token), mic: init.mic, ..NegTokenResp::default() };
                self.advance(which, mechanisms, false, &inner, Some(chosen), accounts)
            }
            None => {
                // The client's guess was another mechanism, or it made none.
                let mic_required = at != 0;
                let state = if mic_required { NegState::RequestMic } else { NegState::AcceptIncomplete };
                self.state = State::Chosen { which, mechanisms, mic_required };
                let answer =
                    NegTokenResp { state: Some(state), mechanism: Some(chosen), ..NegTokenResp::default() };
                Ok(Step::Continue(answer.encode()))
            }
        }
    }

    fn later(
        &mut self,
        which: usize,
        mechanisms: Vec<u8>,
        mic_required: bool,
        token: &NegTokenResp<'_>,
        accounts: &dyn Accounts,
    ) -> Result<Step, Failure> {
        if token.state == Some(NegState::Reject) {
            return Err(AuthError::NoMechanism.into());
        }
        self.advance(which, mechanisms, mic_required, token, None, accounts)
    }

    /// Gives a token to the mechanism. `chosen` goes into the answer where it is the first one.
    fn advance(
        &mut self,
        which: usize,
        mechanisms: Vec<u8>,
        mic_required: bool,
        token: &NegTokenResp<'_>,
        chosen: Option<&[u8]>,
        accounts: &dyn Accounts,
    ) -> Result<Step, Failure> {
        let inner = token.token.ok_or(AuthError::Malformed("no token of the mechanism"))?;
        match self.ask(which, inner, accounts)? {
            MechStep::Continue(answer) => {
                let answer = NegTokenResp {
                    state: Some(NegState::AcceptIncomplete),
                    mechanism: chosen,
                    token: Some(&answer),
                    mic: None,
                }
                .encode();
                self.state = State::Chosen { which, mechanisms, mic_required };
                Ok(Step::Continue(answer))
            }
            MechStep::Done(answer, who) => {
                let mic = self.prove_list(which, &mechanisms, mic_required, token.mic, &who)?;
                self.done = Some((which, mic.is_some()));
                let answer = NegTokenResp {
                    state: Some(NegState::AcceptCompleted),
                    mechanism: chosen,
                    token: answer.as_deref(),
                    mic: mic.as_deref(),
                };
                Ok(Step::Done(answer.encode(), who))
            }
            MechStep::Failed(failure) => Err(failure),
        }
    }

    /// Checks the client's code over the list and makes ours. A code that is there is always checked; it must be there
    /// when the client's first choice was not taken, as somebody could have changed the order.
    fn prove_list(
        &mut self,
        which: usize,
        mechanisms: &[u8],
        mic_required: bool,
        mic: Option<&[u8]>,
        who: &Authenticated,
    ) -> Result<Option<Vec<u8>>, Failure> {
        let fail = |error| Failure {
            error,
            workstation: who.workstation.clone(),
            ..match &who.identity {
                Identity::User { name, domain, .. } => {
                    Failure { user: name.clone(), domain: domain.clone(), ..Failure::from(error) }
                }
                Identity::Anonymous => Failure::from(error),
            }
        };
        let mechanism = self.mechanisms.get_mut(which).ok_or(AuthError::NoMechanism)?;
        match mic {
            Some(mic) if mechanism.verify(mechanisms, mic) => Ok(mechanism.sign(mechanisms)),
            // Nobody in particular has no key that would prove anything.
            None if !mic_required || who.identity == Identity::Anonymous => Ok(None),
            _ => Err(fail(AuthError::MechListMic)),
        }
    }
}

#[cfg(test)]
mod clients;
#[cfg(test)]
mod tests;
