//! Errors of coming and going, as the API tells them.

use cluster_join::{JoinError, Kind};
use control_api::{Code, Problem};

/// Why a node that was removed takes no part.
pub(crate) fn removed() -> Problem {
    Problem::new(Code::WrongState, "The cluster has removed this node.")
        .todo("`holdfast cluster leave` makes it one on its own, which may join again.")
}

/// An error of coming and going, for who has asked.
pub(crate) fn told(error: JoinError) -> Problem {
    let code = match error.kind {
        Kind::Invalid => Code::InvalidRequest,
        Kind::Token => Code::Forbidden,
        Kind::Taken => Code::AlreadyExists,
        Kind::Release => Code::Unsupported,
        Kind::State => Code::WrongState,
        Kind::NotFound => Code::NotFound,
        Kind::Away => Code::Unavailable,
        Kind::Damaged => Code::Damaged,
    };
    Problem::new(code, error.what).todo(error.todo)
}
