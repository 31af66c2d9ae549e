//! The client's side of NTLMv2 (MS-NLMP 3.1.5).

use smb_protocol::FileTime;
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use crate::SessionKey;
use crate::account::NtHash;
use crate::error::AuthError;
use crate::ntlm::av_pairs::{self, AvPairs, FLAG_MIC, id};
use crate::ntlm::crypto::{Direction, Key, MessageSigner, mic, nt_proof, ntowf_v2, rc4, session_base_key};
use crate::ntlm::flag;
use crate::ntlm::message::{Authenticate, Challenge, MIC_AT, MIC_BYTES, Negotiate};

/// What a client asks for.
const FLAGS: u32 = flag::UNICODE
    | flag::REQUEST_TARGET
    | flag::SIGN
    | flag::SEAL
    | flag::NTLM
    | flag::ALWAYS_SIGN
    | flag::EXTENDED_SESSION_SECURITY
    | flag::VERSION
    | flag::BITS_128
    | flag::KEY_EXCHANGE
    | flag::BITS_56;

/// Who a client is.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// The user; empty stays anonymous.
    pub user: String,
    /// The user's domain; may be empty.
    pub domain: String,
    /// The password's hash.
    pub nt_hash: NtHash,
    /// The client's machine.
    pub workstation: String,
    /// The service, `cifs/server`.
    pub target_name: String,
}

/// What must not repeat, from the operating system's entropy, and the time.
#[derive(Clone, Debug)]
pub struct Randomness {
    /// The client's challenge.
    pub challenge: [u8; 8],
    /// The session key.
    pub session_key: [u8; 16],
    /// Used where the server does not tell the time.
    pub now: FileTime,
}

/// A client's authentication.
pub struct NtlmClient {
    credentials: Credentials,
    random: Randomness,
    negotiate: Vec<u8>,
    done: Option<(Key, u32)>,
}

impl NtlmClient {
    /// Begins; the first message is [`NtlmClient::negotiate`].
    #[must_use]
    pub fn new(credentials: Credentials, random: Randomness) -> Self {
        Self { credentials, random, negotiate: Negotiate { flags: FLAGS }.encode(), done: None }
    }

    /// The first message.
    #[must_use]
    pub fn negotiate(&self) -> &[u8] {
        &self.negotiate
    }

    /// The answer to a challenge.
    ///
    /// # Errors
    /// When the challenge is not one, or does not offer what NTLMv2 needs.
    pub fn authenticate(&mut self, challenge: &[u8]) -> Result<Vec<u8>, AuthError> {
        let told = Challenge::decode(challenge)?;
        let flags = told.flags & FLAGS;
        if flags & flag::UNICODE == 0 || flags & flag::EXTENDED_SESSION_SECURITY == 0 {
            return Err(AuthError::Options);
        }
        let anonymous = self.credentials.user.is_empty();
        let (response, base, with_mic) =
            if anonymous { (Vec::new(), Zeroizing::new([0; 16]), false) } else { self.respond(&told)? };
        let (session_key, encrypted) = if flags & flag::KEY_EXCHANGE == 0 {
            (base, Vec::new())
        } else {
            let mut encrypted = self.random.session_key.to_vec();
            rc4(&base, &mut encrypted);
            (Zeroizing::new(self.random.session_key), encrypted)
        };
        let mut message = Authenticate {
            // With a time in the challenge the answer of LM is 24 zeros (3.1.5.1.2).
            lm_response: if anonymous { &[0] } else { &[0; 24] },
            nt_response: &response,
            domain: self.credentials.domain.clone(),
            user: self.credentials.user.clone(),
            workstation: self.credentials.workstation.clone(),
            encrypted_key: &encrypted,
            flags: flags | if anonymous { flag::ANONYMOUS } else { 0 },
            mic: None,
        }
        .encode();
        if with_mic {
            let code = mic(&session_key, [&self.negotiate, challenge, &message]);
            message.iter_mut().skip(MIC_AT).take(MIC_BYTES).zip(code).for_each(|(to, from)| *to = from);
        }
        self.done = Some((session_key, flags));
        Ok(message)
    }

    /// The response, the base key, and whether there will be an integrity code.
    fn respond(&self, told: &Challenge<'_>) -> Result<(Vec<u8>, Key, bool), AuthError> {
        let theirs = AvPairs::decode(told.target_info)?;
        let time = theirs.get_array(id::TIMESTAMP).map(u64::from_le_bytes);
        let mut pairs = Vec::new();
        theirs.iter().for_each(|(attribute, value)| av_pairs::put(attribute, value, &mut pairs));
        if time.is_some() {
            av_pairs::put(id::FLAGS, &FLAG_MIC.to_le_bytes(), &mut pairs);
        }
        av_pairs::put(id::CHANNEL_BINDINGS, &[0; 16], &mut pairs);
        av_pairs::put_text(id::TARGET_NAME, &self.credentials.target_name, &mut pairs);
        av_pairs::put(id::EOL, &[], &mut pairs);
        let mut temp = vec![1, 1, 0, 0, 0, 0, 0, 0];
        temp.extend_from_slice(&time.unwrap_or(self.random.now.0).to_le_bytes());
        temp.extend_from_slice(&self.random.challenge);
        temp.extend_from_slice(&[0; 4]);
        temp.extend_from_slice(&pairs);
        temp.extend_from_slice(&[0; 4]);
        let who = &self.credentials;
        let key = ntowf_v2(&who.nt_hash, &who.user, &who.domain);
        let proof = nt_proof(&key, &told.challenge, &temp);
        let base = session_base_key(&key, &proof);
        Ok(([&proof[..], &temp].concat(), base, time.is_some()))
    }

    /// The session key, once the challenge has been answered.
    #[must_use]
    pub fn session_key(&self) -> Option<SessionKey> {
        self.done.as_ref().map(|(key, _)| SessionKey::new(key.to_vec()))
    }

    /// The code over bytes, for SPNEGO's list of mechanisms.
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        let (key, flags) = self.done.as_ref()?;
        Some(MessageSigner::new(key, Direction::ToServer, *flags).sign(message).to_vec())
    }

    /// Whether a code over bytes is the server's.
    #[must_use]
    pub fn verify(&self, message: &[u8], signature: &[u8]) -> bool {
        let Some((key, flags)) = self.done.as_ref() else { return false };
        let computed = MessageSigner::new(key, Direction::ToClient, *flags).sign(message);
        bool::from(computed.ct_eq(signature))
    }
}
