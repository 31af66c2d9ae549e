//! The server's side of NTLMv2 (MS-NLMP 3.2.5, 3.3.2).

use std::sync::Arc;

use smb_protocol::FileTime;
use smb_protocol::utf16::{Utf16, utf16};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use crate::acceptor::{MechStep, Mechanism};
use crate::account::{AccountState, Accounts, NtHash};
use crate::error::{AuthError, Failure};
use crate::ntlm::av_pairs::{self, AvPairs, FLAG_MIC, id};
use crate::ntlm::crypto::{
    Direction, Key, MessageSecurity, MessageSigner, mic, nt_proof, ntowf_v2, rc4, session_base_key,
};
use crate::ntlm::flag;
use crate::ntlm::message::{Authenticate, Challenge, MIC_AT, MIC_BYTES, Negotiate};
use crate::ntlm::policy::Policy;
use crate::spnego::oid;
use crate::{Authenticated, Identity, SessionKey};

/// Bytes of an NTLMv2 response before its attributes: proof, versions, time, client's challenge.
const RESPONSE_HEAD: usize = 16 + 28;
/// The length of an NTLMv1 response, which no NTLMv2 response has.
const NTLM_V1_BYTES: usize = 24;

/// What a server says of itself, and what it accepts.
#[derive(Clone, Debug, Default)]
pub struct NtlmServer {
    /// Its NetBIOS name.
    pub computer: String,
    /// Its workgroup or domain; its own name where it is in none.
    pub domain: String,
    /// Its name in DNS.
    pub dns_computer: String,
    /// Its domain in DNS; may be empty.
    pub dns_domain: String,
    /// What it accepts.
    pub policy: Policy,
}

impl NtlmServer {
    fn target_info(&self, now: FileTime) -> Vec<u8> {
        let mut pairs = Vec::new();
        av_pairs::put_text(id::NB_DOMAIN_NAME, &self.domain, &mut pairs);
        av_pairs::put_text(id::NB_COMPUTER_NAME, &self.computer, &mut pairs);
        av_pairs::put_text(id::DNS_DOMAIN_NAME, &self.dns_domain, &mut pairs);
        av_pairs::put_text(id::DNS_COMPUTER_NAME, &self.dns_computer, &mut pairs);
        // Its presence makes clients send an integrity code (MS-NLMP 3.1.5.1.2).
        av_pairs::put(id::TIMESTAMP, &now.0.to_le_bytes(), &mut pairs);
        av_pairs::put(id::EOL, &[], &mut pairs);
        pairs
    }
}

enum State {
    Start,
    Challenged { negotiate: Vec<u8>, challenge: Vec<u8>, offered: u32 },
    Done { session_key: Key, flags: u32 },
    Failed,
}

/// One authentication.
pub struct NtlmAcceptor {
    server: Arc<NtlmServer>,
    server_challenge: [u8; 8],
    target_info: Vec<u8>,
    state: State,
}

impl NtlmAcceptor {
    /// An authentication with a random challenge that is used for no other.
    #[must_use]
    pub fn new(server: Arc<NtlmServer>, server_challenge: [u8; 8], now: FileTime) -> Self {
        let target_info = server.target_info(now);
        Self { server, server_challenge, target_info, state: State::Start }
    }

    fn negotiate(&mut self, token: &[u8]) -> Result<Vec<u8>, AuthError> {
        let asked = Negotiate::decode(token)?.flags;
        if asked & flag::UNICODE == 0 || asked & flag::NTLM == 0 {
            return Err(AuthError::Options);
        }
        let common = asked
            & (flag::UNICODE
                | flag::REQUEST_TARGET
                | flag::SIGN
                | flag::SEAL
                | flag::NTLM
                | flag::ALWAYS_SIGN
                | flag::VERSION
                | flag::BITS_128
                | flag::KEY_EXCHANGE
                | flag::BITS_56);
        // Without extended session security there are no signatures worth the name; who does not know it is older
        // than NTLMv2.
        let offered = common | flag::EXTENDED_SESSION_SECURITY | flag::TARGET_INFO | flag::TARGET_TYPE_SERVER;
        let target = utf16(&self.server.computer);
        let challenge = Challenge {
            flags: offered,
            challenge: self.server_challenge,
            target: Utf16::new(&target).unwrap_or_default(),
            target_info: &self.target_info,
        }
        .encode();
        self.state = State::Challenged { negotiate: token.to_vec(), challenge: challenge.clone(), offered };
        Ok(challenge)
    }

    fn authenticate(
        &mut self,
        token: &[u8],
        messages: (&[u8], &[u8], u32),
        accounts: &dyn Accounts,
    ) -> Result<Authenticated, Failure> {
        let (negotiate, challenge, offered) = messages;
        let message = Authenticate::decode(token)?;
        let fail = |error| Failure {
            error,
            user: message.user.clone(),
            domain: message.domain.clone(),
            workstation: message.workstation.clone(),
        };
        let flags = message.flags & offered;
        if flags & flag::UNICODE == 0 || flags & flag::EXTENDED_SESSION_SECURITY == 0 {
            return Err(fail(AuthError::Options));
        }
        if message.is_anonymous() {
            return self.anonymous(&message, flags).map_err(fail);
        }
        let response = Response::decode(message.nt_response).map_err(fail)?;
        // An unknown user costs what a known one does: the proof is computed and compared all the same.
        let account = accounts.account(&message.domain, &message.user);
        let hash = account.as_ref().map_or(NtHash::new([0; 16]), |account| account.nt_hash.clone());
        let key = ntowf_v2(&hash, &message.user, &message.domain);
        let proof = nt_proof(&key, &self.server_challenge, response.temp);
        let right = bool::from(proof.ct_eq(response.proof));
        let Some(account) = account else { return Err(fail(AuthError::UnknownUser)) };
        if account.state == AccountState::LockedOut {
            return Err(fail(AuthError::Account(account.state)));
        }
        accounts.judged(&account, right);
        if !right {
            return Err(fail(AuthError::WrongPassword));
        }
        // From here on the response is known to be the user's, to our challenge.
        let base = session_base_key(&key, &proof);
        let session_key = exchanged(base, &message, flags).map_err(fail)?;
        self.check_mic(&session_key, [negotiate, challenge, token], &message, &response).map_err(fail)?;
        let target_name = self.check_attributes(response.pairs).map_err(fail)?;
        if account.state != AccountState::Active {
            return Err(fail(AuthError::Account(account.state)));
        }
        let identity = Identity::User { name: account.name, domain: message.domain, sid: account.sid };
        Ok(self.done(identity, session_key, flags, message.workstation, target_name))
    }

    /// Lets an anonymous client in: the key is known to everyone (MS-NLMP 3.3.2: the key exchange key is zero).
    fn anonymous(&mut self, message: &Authenticate<'_>, flags: u32) -> Result<Authenticated, AuthError> {
        if !self.server.policy.anonymous {
            return Err(AuthError::Anonymous);
        }
        let session_key = exchanged(Zeroizing::new([0; 16]), message, flags)?;
        Ok(self.done(Identity::Anonymous, session_key, flags, message.workstation.clone(), None))
    }

    fn done(
        &mut self,
        identity: Identity,
        session_key: Key,
        flags: u32,
        workstation: String,
        target_name: Option<String>,
    ) -> Authenticated {
        let exported = SessionKey::new(session_key.to_vec());
        self.state = State::Done { session_key, flags };
        Authenticated { identity, groups: Vec::new(), session_key: exported, workstation, target_name }
    }

    fn check_mic(
        &self,
        session_key: &Key,
        [negotiate, challenge, token]: [&[u8]; 3],
        message: &Authenticate<'_>,
        response: &Response<'_>,
    ) -> Result<(), AuthError> {
        let said = response.pairs.get_array(id::FLAGS).map_or(0, u32::from_le_bytes);
        if said & FLAG_MIC == 0 {
            return if self.server.policy.require_mic { Err(AuthError::MicMissing) } else { Ok(()) };
        }
        let claimed = message.mic.ok_or(AuthError::MicMissing)?;
        let mut zeroed = token.to_vec();
        zeroed.iter_mut().skip(MIC_AT).take(MIC_BYTES).for_each(|byte| *byte = 0);
        let computed = mic(session_key, [negotiate, challenge, &zeroed]);
        if bool::from(computed.ct_eq(&claimed)) { Ok(()) } else { Err(AuthError::Mic) }
    }

    /// What the client returns of our attributes must be ours: otherwise it was given another challenge message than we
    /// sent. Then its own remarks are checked against the policy.
    fn check_attributes(&self, pairs: AvPairs<'_>) -> Result<Option<String>, AuthError> {
        let ours = AvPairs::decode(&self.target_info)?;
        let same = ours
            .iter()
            .all(|(attribute, value)| pairs.get(attribute).is_none_or(|returned| returned == value));
        if !same {
            return Err(AuthError::TargetInfo);
        }
        let target_name = pairs.get_text(id::TARGET_NAME);
        if !self.server.policy.target_names.allow(target_name.as_deref()) {
            return Err(AuthError::TargetName);
        }
        let bindings = pairs.get_array(id::CHANNEL_BINDINGS);
        if !self.server.policy.channel_bindings.allow(bindings) {
            return Err(AuthError::ChannelBindings);
        }
        Ok(target_name.filter(|name| !name.is_empty()))
    }
}

/// The session key: the client's, decrypted, or the base key itself.
fn exchanged(base: Key, message: &Authenticate<'_>, flags: u32) -> Result<Key, AuthError> {
    if flags & flag::KEY_EXCHANGE == 0 {
        return Ok(base);
    }
    let mut key: Key =
        Zeroizing::new(message.encrypted_key.try_into().map_err(|_| AuthError::Malformed("session key"))?);
    rc4(&base, key.as_mut_slice());
    Ok(key)
}

/// An NTLMv2 response (MS-NLMP 2.2.2.8).
struct Response<'a> {
    proof: &'a [u8],
    temp: &'a [u8],
    pairs: AvPairs<'a>,
}

impl<'a> Response<'a> {
    fn decode(bytes: &'a [u8]) -> Result<Self, AuthError> {
        if bytes.len() <= NTLM_V1_BYTES {
            return Err(AuthError::OldResponse);
        }
        let malformed = AuthError::Malformed("NTLMv2 response");
        let (proof, temp) = bytes.split_at_checked(16).ok_or(malformed)?;
        // Versions of the response: 1 is NTLMv2's, and there is no other.
        if !matches!(temp, [1, 1, ..]) {
            return Err(malformed);
        }
        let pairs = AvPairs::decode(bytes.get(RESPONSE_HEAD..).ok_or(malformed)?)?;
        Ok(Self { proof, temp, pairs })
    }
}

impl Mechanism for NtlmAcceptor {
    fn supports(&self, mechanism: &[u8]) -> bool {
        mechanism == oid::NTLMSSP
    }

    fn step(&mut self, token: &[u8], accounts: &dyn Accounts) -> MechStep {
        match std::mem::replace(&mut self.state, State::Failed) {
            State::Start => match self.negotiate(token) {
                Ok(challenge) => MechStep::Continue(challenge),
                Err(error) => MechStep::Failed(error.into()),
            },
            State::Challenged { negotiate, challenge, offered } => {
                match self.authenticate(token, (&negotiate, &challenge, offered), accounts) {
                    Ok(who) => MechStep::Done(None, who),
                    Err(failure) => MechStep::Failed(failure),
                }
            }
            State::Done { .. } | State::Failed => MechStep::Failed(AuthError::OutOfTurn.into()),
        }
    }

    fn sign(&mut self, message: &[u8]) -> Option<Vec<u8>> {
        let State::Done { session_key, flags } = &self.state else { return None };
        Some(MessageSigner::new(session_key, Direction::ToClient, *flags).sign(message).to_vec())
    }

    fn verify(&mut self, message: &[u8], signature: &[u8]) -> bool {
        let State::Done { session_key, flags } = &self.state else { return false };
        let computed = MessageSigner::new(session_key, Direction::ToServer, *flags).sign(message);
        bool::from(computed.ct_eq(signature))
    }

    fn message_security(&mut self, list_proven: bool) -> Option<MessageSecurity> {
        let State::Done { session_key, flags } = &self.state else { return None };
        (flags & flag::SIGN != 0).then(|| MessageSecurity::server(session_key, *flags, list_proven))
    }
}

#[cfg(test)]
mod tests;
