//! What can go wrong with users and groups, in words for who asked.

use std::io;
use std::path::PathBuf;

use byte_codec::DecodeError;

/// An error.
#[derive(Debug, thiserror::Error)]
pub enum UsersError {
    /// A name that no user or group can have; the rule that it breaks.
    #[error("{name:?} cannot be the name of a user or group: {rule}")]
    Name {
        /// The beginning of the name.
        name: String,
        /// The rule.
        rule: &'static str,
    },
    /// A text is too long.
    #[error("the {0} is too long")]
    TooLong(&'static str),
    /// A user or group with this name is there, or the name is well known.
    #[error("there is a user or group {0:?} already")]
    Exists(String),
    /// There is no such user.
    #[error("there is no user {0:?}")]
    NoUser(String),
    /// There is no such group.
    #[error("there is no group {0:?}")]
    NoGroup(String),
    /// A member that is nobody here.
    #[error("{0:?} is neither a user nor a group here")]
    NoPrincipal(String),
    /// It is a member already.
    #[error("{member} is a member of {group} already")]
    Member {
        /// The group.
        group: String,
        /// The member.
        member: String,
    },
    /// It would be a member of itself, directly or by way of other groups.
    #[error("{}", in_circle(group, chain))]
    Circle {
        /// The group.
        group: String,
        /// The groups from the one that cannot be its member down to the group itself, each of them a member of the one before.
        chain: Vec<String>,
    },
    /// It is no member.
    #[error("{member} is no member of {group}")]
    NotMember {
        /// The group.
        group: String,
        /// Who is not in it.
        member: String,
    },
    /// A built-in group keeps its name and stays.
    #[error("the group {0:?} is built in: it can be neither removed nor renamed")]
    BuiltIn(String),
    /// A password that cannot be one; the rule that it breaks.
    #[error("this cannot be a password: {0}")]
    Password(&'static str),
    /// The old password is wrong, or the account may not be used.
    #[error("the old password is wrong, or the account is disabled or locked out")]
    Refused,
    /// There are as many accounts or members as there can be.
    #[error("there are too many {0}")]
    Full(&'static str),
    /// The key is not usable; why, and what to do.
    #[error("key file {path}: {reason}")]
    Key {
        /// The file.
        path: PathBuf,
        /// Why, and what to do.
        reason: &'static str,
    },
    /// The database is not one, is damaged, or was changed without the key.
    #[error("user database {path}: {reason}; restore it, with its key, from a backup")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What it is.
        reason: DecodeError,
    },
    /// The system failed.
    #[error("{path}: cannot {what}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// The error.
        source: io::Error,
    },
    /// What several nodes have in common cannot be read or changed; why.
    #[error("the users of the cluster: {0}")]
    Shared(String),
    /// An earlier change may or may not be durable; only reading is safe.
    #[error(
        "an earlier change could not be made durable: users cannot be changed until the node starts again"
    )]
    Stopped,
}

/// Why a group cannot be a member of one that is in it.
fn in_circle(group: &str, chain: &[String]) -> String {
    let [member, _, ..] = chain else { return format!("group {group} cannot be a member of itself") };
    let links: Vec<String> = chain
        .windows(2)
        .filter_map(|pair| if let [outer, inner] = pair { Some(format!("{inner} in {outer}")) } else { None })
        .rev()
        .collect();
    format!("group {member} cannot be a member of {group}, which is in it already: {}", links.join(", "))
}
