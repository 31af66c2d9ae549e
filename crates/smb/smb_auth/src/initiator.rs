//! The client's side of SPNEGO, with NTLM inside.

use crate::SessionKey;
use crate::error::AuthError;
use crate::ntlm::client::{Credentials, NtlmClient, Randomness};
use crate::spnego::{NegState, NegTokenResp, init, mech_list, oid};

/// What to do with a token of the server.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// Send this and wait for more.
    Continue(Vec<u8>),
    /// Done: the server is who we have a key with, and it saw the list that we sent.
    Done,
}

/// One authentication with a server.
pub struct Initiator {
    ntlm: NtlmClient,
    offered: Vec<&'static [u8]>,
    mic_due: bool,
}

impl Initiator {
    /// Offers NTLM; with `decoy` another mechanism before it, without a token, as a client with Kerberos that has no
    /// ticket does. The server must then choose NTLM and prove the list.
    #[must_use]
    pub fn new(credentials: Credentials, random: Randomness, decoy: Option<&'static [u8]>) -> Self {
        let offered = decoy.into_iter().chain([oid::NTLMSSP]).collect();
        Self { ntlm: NtlmClient::new(credentials, random), offered, mic_due: decoy.is_some() }
    }

    /// The first token.
    #[must_use]
    pub fn first(&self) -> Vec<u8> {
        let token = if self.offered.len() == 1 { Some(self.ntlm.negotiate()) } else { None };
        init(&self.offered, token)
    }

    /// Takes a token of the server.
    ///
    /// # Errors
    /// When it is not one, the server refuses, or its code over the list is missing or wrong.
    pub fn step(&mut self, token: &[u8]) -> Result<Answer, AuthError> {
        let told = NegTokenResp::decode(token)?;
        if told.mechanism.is_some_and(|mechanism| mechanism != oid::NTLMSSP) {
            return Err(AuthError::NoMechanism);
        }
        let list = mech_list(&self.offered);
        let answered = self.ntlm.session_key().is_some();
        match (told.state, told.token) {
            (Some(NegState::Reject), _) => Err(AuthError::NoMechanism),
            (Some(NegState::AcceptCompleted), None) if answered => match told.mic {
                Some(mic) if self.ntlm.verify(&list, mic) => Ok(Answer::Done),
                None if !self.mic_due => Ok(Answer::Done),
                _ => Err(AuthError::MechListMic),
            },
            // What comes after our answer is the end, and nothing else is.
            (Some(NegState::AcceptCompleted), _) => Err(AuthError::OutOfTurn),
            _ if answered => Err(AuthError::OutOfTurn),
            (_, None) => {
                let token = Some(self.ntlm.negotiate());
                Ok(Answer::Continue(NegTokenResp { token, ..NegTokenResp::default() }.encode()))
            }
            (_, Some(challenge)) => {
                let token = self.ntlm.authenticate(challenge)?;
                let mic = self.ntlm.sign(&list);
                Ok(Answer::Continue(
                    NegTokenResp { token: Some(&token), mic: mic.as_deref(), ..NegTokenResp::default() }
                        .encode(),
                ))
            }
        }
    }

    /// The session key, once a challenge has been answered.
    #[must_use]
    pub fn session_key(&self) -> Option<SessionKey> {
        self.ntlm.session_key()
    }
}
