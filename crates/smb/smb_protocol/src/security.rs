//! Security descriptors: who may do what (MS-DTYP 2.4).

pub mod ace;
pub mod descriptor;
pub mod sid;

pub use ace::{Ace, AceFlags, AceType, Acl};
pub use descriptor::{Control, SecurityDescriptor};
pub use sid::Sid;
