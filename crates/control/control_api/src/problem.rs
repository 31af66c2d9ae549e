//! Errors as they travel: RFC 9457 problem details with a stable code.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a client can decide on. Codes never change their meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Code {
    /// The request is not well-formed or its values make no sense.
    InvalidRequest,
    /// There is no such thing.
    NotFound,
    /// There is already a thing of that name.
    AlreadyExists,
    /// Something else uses it.
    InUse,
    /// The request destroys something and has to be repeated with `confirm`.
    ConfirmationRequired,
    /// A disk carries data that is not ours; repeat with `overwrite_foreign` to destroy it.
    ForeignData,
    /// The pool has too few disks left to do this.
    NotEnoughDisks,
    /// There is no space for it; nothing was half-done.
    NoSpace,
    /// The thing is in a state in which this can't be done.
    WrongState,
    /// Nobody knows who asks: a token or a session is missing, wrong, or has ended.
    Unauthenticated,
    /// The caller may not do this.
    Forbidden,
    /// Too much was asked at once, or guessed too often.
    TooMany,
    /// Another node of the cluster has it: the request is for that one.
    OtherNode,
    /// Data cannot be read back or a structure is damaged.
    Damaged,
    /// This is not offered.
    Unsupported,
    /// The node is stopping or not ready yet.
    Unavailable,
    /// A failure of the system below.
    Io,
    /// A fault of Holdfast itself.
    Internal,
}

impl Code {
    /// The HTTP status that goes with it.
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Self::InvalidRequest | Self::Unsupported => 400,
            Self::Unauthenticated => 401,
            Self::Forbidden => 403,
            Self::TooMany => 429,
            // Misdirected Request.
            Self::OtherNode => 421,
            Self::NotFound => 404,
            Self::AlreadyExists
            | Self::InUse
            | Self::ConfirmationRequired
            | Self::ForeignData
            | Self::NotEnoughDisks
            | Self::WrongState => 409,
            Self::NoSpace => 507,
            Self::Unavailable => 503,
            Self::Damaged | Self::Io | Self::Internal => 500,
        }
    }

    /// A short title that is the same for all problems of this code.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::InvalidRequest => "The request makes no sense",
            Self::NotFound => "There is no such thing",
            Self::AlreadyExists => "The name is taken",
            Self::InUse => "It is in use",
            Self::ConfirmationRequired => "This destroys something and must be confirmed",
            Self::ForeignData => "The disk carries data that is not Holdfast's",
            Self::NotEnoughDisks => "There are too few disks",
            Self::NoSpace => "There is no space for it",
            Self::WrongState => "This can't be done in this state",
            Self::Unauthenticated => "Nobody is logged in",
            Self::Forbidden => "This is not allowed",
            Self::TooMany => "This was asked too often",
            Self::OtherNode => "Another node has it",
            Self::Damaged => "Data is damaged",
            Self::Unsupported => "This is not offered",
            Self::Unavailable => "The node is not ready",
            Self::Io => "The system below failed",
            Self::Internal => "A fault of Holdfast itself",
        }
    }

    /// The code as text, as it travels.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvalidRequest => "invalid-request",
            Self::NotFound => "not-found",
            Self::AlreadyExists => "already-exists",
            Self::InUse => "in-use",
            Self::ConfirmationRequired => "confirmation-required",
            Self::ForeignData => "foreign-data",
            Self::NotEnoughDisks => "not-enough-disks",
            Self::NoSpace => "no-space",
            Self::WrongState => "wrong-state",
            Self::Unauthenticated => "unauthenticated",
            Self::Forbidden => "forbidden",
            Self::TooMany => "too-many",
            Self::OtherNode => "other-node",
            Self::Damaged => "damaged",
            Self::Unsupported => "unsupported",
            Self::Unavailable => "unavailable",
            Self::Io => "io",
            Self::Internal => "internal",
        }
    }
}

/// What went wrong: what, where, what to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// `urn:holdfast:problem:` and the code.
    #[serde(rename = "type")]
    pub kind: String,
    /// Short, the same for all problems of the code.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What was wrong here, and with what.
    pub detail: String,
    /// What a program decides on.
    pub code: Code,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub todo: Option<String>,
    /// For `confirmation-required` and `foreign-data`: what would be destroyed, one sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub destroys: Vec<String>,
    /// For `confirmation-required`: the name that `confirm` must repeat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm: Option<String>,
    /// With [`Code::OtherNode`], the node to ask, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

impl Problem {
    /// A problem with a sentence on what was wrong.
    #[must_use]
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self {
            kind: format!("urn:holdfast:problem:{}", code.as_str()),
            title: code.title().into(),
            status: code.status(),
            detail: detail.into(),
            code,
            todo: None,
            destroys: Vec::new(),
            confirm: None,
            node: None,
        }
    }

    /// Adds what to do.
    #[must_use]
    pub fn todo(mut self, todo: impl Into<String>) -> Self {
        self.todo = Some(todo.into());
        self
    }

    /// Asks for confirmation: `name` must be repeated, `destroys` says what would be lost.
    #[must_use]
    pub fn confirmation(name: &str, destroys: Vec<String>) -> Self {
        let mut problem = Self::new(Code::ConfirmationRequired, destroys.join(" "));
        problem.todo = Some(format!("If you want this, repeat the request with \"confirm\": \"{name}\"."));
        problem.confirm = Some(name.into());
        problem.destroys = destroys;
        problem
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)?;
        match &self.todo {
            Some(todo) => write!(f, "\n  {todo}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Problem {}
