//! Why a session, or a command, failed.

use std::io;

use iscsi_protocol::FrameError;
use iscsi_protocol::login::LoginStatus;
use iscsi_protocol::login_client::LoginError;
use scsi_defs::Reported;

/// What can go wrong with a session. None of these is the failure of a single command: that is its [`crate::CommandEnd`].
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The socket failed, was closed, or nothing comes from it.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    /// We are not let in.
    #[error(transparent)]
    Login(#[from] LoginError),
    /// What came is damaged.
    #[error("the {0} digest of what the target sent is wrong")]
    Digest(&'static str),
    /// The target could not take what we sent.
    #[error("the target rejects what we sent, reason {0:02x}h")]
    Rejected(u8),
    /// The target has not carried a command out, for no reason of the unit's.
    #[error("the target failed while it carried out a command")]
    TargetFailure,
    /// The target ends the session.
    #[error("the target ends the session")]
    Ended,
    /// A data segment is longer than we said we take.
    #[error("the target sends too much: {0}")]
    Frame(#[from] FrameError),
    /// Something else that a target must not do.
    #[error("the target breaks the rules of iSCSI: {0}")]
    Protocol(&'static str),
    /// The unit does not answer a question that every disk answers.
    #[error("{what} is answered with {}", answer(*status, *sense))]
    Unit {
        /// What was asked.
        what: &'static str,
        /// The SCSI status.
        status: u8,
        /// Its sense data.
        sense: Option<Reported>,
    },
    /// The unit is not what we can use.
    #[error("{0}")]
    NotADisk(String),
}

impl ClientError {
    /// Whether a new session may get over it: the network or the target went away, or is not there yet.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        match self {
            Self::Io(_) | Self::Digest(_) | Self::Rejected(_) | Self::TargetFailure | Self::Ended => true,
            Self::Login(LoginError::Refused(status)) => *status != LoginStatus::AUTHENTICATION_FAILURE,
            _ => false,
        }
    }
}

/// A status with its sense data, in words.
#[must_use]
pub fn answer(status: u8, sense: Option<Reported>) -> String {
    match (status, sense) {
        (status::CHECK_CONDITION, Some(sense)) => sense.to_string(),
        (status::CHECK_CONDITION, None) => "CHECK CONDITION without a reason".to_owned(),
        (status::BUSY, _) => "BUSY".to_owned(),
        (status::RESERVATION_CONFLICT, _) => {
            "RESERVATION CONFLICT: another initiator has reserved it".to_owned()
        }
        (status::TASK_SET_FULL, _) => "TASK SET FULL".to_owned(),
        (status::TASK_ABORTED, _) => "TASK ABORTED".to_owned(),
        _ => format!("status {status:02x}h"),
    }
}

/// Status bytes (SAM-5 5.3.1).
pub mod status {
    #![allow(missing_docs, reason = "the names are the standard's")]
    pub const GOOD: u8 = 0x00;
    pub const CHECK_CONDITION: u8 = 0x02;
    pub const BUSY: u8 = 0x08;
    pub const RESERVATION_CONFLICT: u8 = 0x18;
    pub const TASK_SET_FULL: u8 = 0x28;
    pub const TASK_ABORTED: u8 = 0x40;
}
