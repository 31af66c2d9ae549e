//! Who may do what with a file (MS-DTYP 2.5.3), without files: descriptors and tokens in, decisions out.
//!
//! ```text
//!   Token ──┐
//!           ├─► access::check      may this user open the file with these rights?
//!   SD ─────┘
//!   parent's SD + creator's SD + Token ─► inherit::new_object     the descriptor of a new file
//!   SD + part of an SD ─► change::merge                           the descriptor after SET_INFO
//!   permissions of a share ─► preset::folder                      the descriptor of the share's folder
//! ```
//!
//! Invariants:
//! * What is not granted is denied; an entry that is not understood grants nothing, and a denying one of a kind that is
//!   not understood is never skipped silently in favour of a later grant: see [`access`].
//! * Nothing here fails on a hostile descriptor: those that decode have bounded lists.

pub mod access;
pub mod change;
pub mod inherit;
pub mod preset;
pub mod token;

pub use access::{Denied, Request, check, maximal};
pub use change::{ChangeError, merge, replaces, required_to_query, required_to_set};
pub use inherit::{NewObject, default_descriptor, new_object};
pub use preset::{Level, Permission, folder};
pub use token::{Privileges, Token};
