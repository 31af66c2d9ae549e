//! The users and groups that a node knows by itself, without a directory service.
//!
//! ```text
//!   Users (users)          what the server holds: a snapshot to read, changes that are durable when they return,
//!     │                    lock-out (lockout), the answers to smb_auth's questions
//!     ├─ Directory         users, groups, members, as a value; checks every change (directory, names)
//!     │    Token           user ─► the SIDs that access checks compare (token, well_known)
//!     └─ Files             the database, sealed, and the key, apart from it (files, format)
//! ```
//!
//! An NT hash is as good as its password, so it is nowhere on disk in the clear: the database is sealed with
//! AES-256-GCM under a key in a file of its own, mode 0600, so that a copy of the database alone, a backup of it or a
//! disk that was thrown away, tells nothing, and nobody without the key can make himself an administrator.
//!
//! Invariants:
//! * A change is durable before it takes effect; after a crash the file holds the old state or the new one.
//! * Numbers of accounts rise and are never given twice, so that no new user inherits the files of a removed one.
//! * Names are compared as Windows does; users and groups share one set of names.
//! * Wrong passwords are counted for each user and forgotten with the process: a guess costs no write.
//! * Neither secrets nor hashes appear in a `Debug` output or an error; keys and hashes are wiped when dropped.

pub mod directory;
pub mod error;
pub mod files;
pub mod format;
pub mod fuzz;
pub mod lockout;
pub mod names;
mod shared;
pub mod token;
mod users;
pub mod well_known;

pub use directory::{Directory, Group, Secret, User};
pub use error::UsersError;
pub use files::Files;
pub use format::SealingKey;
pub use lockout::Lockout;
pub use shared::SharedUsers;
pub use token::Token;
pub use users::{NewUser, Policy, UserChange, Users};
pub use well_known::{Authority, Principal, PrincipalKind};
