//! Who is it? The tokens inside SESSION_SETUP, and what proves them, without sockets, clocks or databases.
//!
//! ```text
//!   token ──► Acceptor (acceptor)     SPNEGO: chooses a mechanism, checks that nobody changed the choice
//!               spnego, der           its tokens, in strict DER
//!               Mechanism             the seam: NTLM today, Kerberos when there is a directory
//!               ntlm                  NTLMv2: NEGOTIATE ─► CHALLENGE ─► AUTHENTICATE
//!                  Accounts (account) who has which NT hash: asked through a trait
//!           ◄── Step                  another token, or who it is with a session key, or why not
//!   Initiator (initiator)             the client's side, for tests, the load generator and our own clients
//! ```
//!
//! What is refused, always: LM, NTLMv1 (with or without extended session security), LMv2 without NTLMv2, guest, names
//! that are not UTF-16, a response to another challenge, a message integrity code or mechanism list code that does not
//! match. A session without a user (anonymous) only exists where [`Policy::anonymous`] says so.
//!
//! Invariants:
//! * The proof of the password is checked before anything else that the client said is believed, and the message
//!   integrity code after it, whenever the client says that it sent one. The client says so inside what the proof
//!   covers, so nobody can say otherwise for it.
//! * An unknown user takes the same path, with a hash that nobody has, as one with a wrong password; all comparisons of
//!   secrets are in constant time.
//! * No secret appears in a `Debug` output, an error or a log line; keys and hashes are wiped when dropped.
//! * No input panics, loops for long, or makes anything here hold more than a few times its length.
//!
//! Time, challenges and random keys come in as arguments.

pub mod acceptor;
pub mod account;
mod der;
pub mod error;
pub mod fuzz;
#[cfg(test)]
mod hex;
pub mod initiator;
pub mod ntlm;
pub mod spnego;

pub use acceptor::{Acceptor, MechStep, Mechanism, Step};
pub use account::{Account, AccountState, Accounts, NoAccounts, NtHash};
pub use error::{AuthError, Failure};
pub use initiator::Initiator;
pub use ntlm::acceptor::{NtlmAcceptor, NtlmServer};
pub use ntlm::crypto::MessageSecurity;
pub use ntlm::policy::{ChannelBindings, Policy, TargetNames};

use smb_protocol::security::sid::Sid;
use subtle::ConstantTimeEq as _;
use zeroize::Zeroize as _;

/// The key that both sides have when an authentication succeeded; never printed, wiped when dropped.
#[derive(Clone)]
pub struct SessionKey(Vec<u8>);

impl SessionKey {
    /// Wraps the bytes.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// The bytes: sixteen with NTLM, up to 32 with Kerberos.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl PartialEq for SessionKey {
    fn eq(&self, other: &Self) -> bool {
        bool::from(self.0.ct_eq(&other.0))
    }
}

impl Eq for SessionKey {}

impl Drop for SessionKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl std::fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SessionKey(redacted)")
    }
}

/// Who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// A user that the account database knows, by the name that it has there.
    User {
        /// The account's name.
        name: String,
        /// The domain that the client named; may be empty.
        domain: String,
        /// Who that is, in security descriptors and tokens.
        sid: Sid,
    },
    /// An anonymous client.
    Anonymous,
}

/// An authentication that succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authenticated {
    /// Who it is.
    pub identity: Identity,
    /// Groups that the authentication itself proves, as a Kerberos ticket does; with NTLM none, the account database
    /// knows them.
    pub groups: Vec<Sid>,
    /// The key.
    pub session_key: SessionKey,
    /// The client's name for its machine; not proven by anything.
    pub workstation: String,
    /// The service that the client believes to talk to, if it said so: `cifs/server`.
    pub target_name: Option<String>,
}
