//! Why somebody is not let in.

use smb_protocol::NtStatus;

use crate::account::AccountState;

/// What went wrong. The client is told as little as [`AuthError::status`] says; the log may know all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// A token is not what its specification says.
    #[error("the token is malformed: {0}")]
    Malformed(&'static str),
    /// A token came when none of its kind was due.
    #[error("the token is out of turn")]
    OutOfTurn,
    /// The client offers no mechanism that we have.
    #[error("no common mechanism")]
    NoMechanism,
    /// The client does not offer what NTLMv2 needs (Unicode, extended session security).
    #[error("the client does not offer what NTLMv2 needs")]
    Options,
    /// LM, NTLMv1 or LMv2.
    #[error("the client answered with LM or NTLMv1, which are not accepted")]
    OldResponse,
    /// The client is anonymous, and that is not allowed.
    #[error("anonymous, which is not allowed")]
    Anonymous,
    /// No such user. The client is told the same as with a wrong password.
    #[error("no such user")]
    UnknownUser,
    /// A wrong password.
    #[error("wrong password")]
    WrongPassword,
    /// The password is right, or is not even looked at, but the account may not be used.
    #[error("the account is {0}")]
    Account(AccountState),
    /// The message integrity code does not match: somebody changed a message.
    #[error("the message integrity code does not match")]
    Mic,
    /// The message integrity code is missing, and required.
    #[error("there is no message integrity code")]
    MicMissing,
    /// The code over the list of mechanisms does not match or is missing: somebody changed the list.
    #[error("the code over the list of mechanisms does not match or is missing")]
    MechListMic,
    /// The client was given another challenge than ours.
    #[error("the client answered a challenge with another target than ours")]
    TargetInfo,
    /// The client believes to talk to another service.
    #[error("the client means another server")]
    TargetName,
    /// The client is on another channel than we are: somebody is between.
    #[error("the channel bindings do not match")]
    ChannelBindings,
}

impl AuthError {
    /// What the client is told.
    #[must_use]
    pub fn status(self) -> NtStatus {
        match self {
            Self::Malformed(_) | Self::OutOfTurn => NtStatus::INVALID_PARAMETER,
            Self::Account(state) => match state {
                AccountState::Active => NtStatus::LOGON_FAILURE,
                AccountState::Disabled => NtStatus::ACCOUNT_DISABLED,
                AccountState::LockedOut => NtStatus::ACCOUNT_LOCKED_OUT,
                AccountState::Expired => NtStatus::ACCOUNT_EXPIRED,
                AccountState::PasswordExpired => NtStatus::PASSWORD_EXPIRED,
            },
            Self::Anonymous => NtStatus::ACCESS_DENIED,
            Self::NoMechanism
            | Self::Options
            | Self::OldResponse
            | Self::UnknownUser
            | Self::WrongPassword
            | Self::Mic
            | Self::MicMissing
            | Self::MechListMic
            | Self::TargetInfo
            | Self::TargetName
            | Self::ChannelBindings => NtStatus::LOGON_FAILURE,
        }
    }

    /// Whether this was a guess at a password, to be counted against the client.
    /// [`Accounts::judged`](crate::Accounts::judged) has counted it against the account already.
    #[must_use]
    pub fn is_guess(self) -> bool {
        matches!(self, Self::UnknownUser | Self::WrongPassword)
    }
}

/// A failed authentication, with what is known for the log and for counting guesses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What went wrong.
    pub error: AuthError,
    /// The user that the client claimed to be; empty when it did not come so far.
    pub user: String,
    /// The domain that it named.
    pub domain: String,
    /// The client's name for its machine.
    pub workstation: String,
}

impl From<AuthError> for Failure {
    fn from(error: AuthError) -> Self {
        Self { error, user: String::new(), domain: String::new(), workstation: String::new() }
    }
}
