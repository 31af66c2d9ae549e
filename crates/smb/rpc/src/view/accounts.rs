//! Users and groups as lsarpc and samr show them. No secret of a user comes here.

use smb_protocol::security::sid::Sid;

/// What a SID belongs to: SID_NAME_USE (MS-SAMR 2.2.2.3), with its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum PrincipalKind {
    /// A user.
    User = 1,
    /// A group of a domain, or a machine's group "None".
    Group = 2,
    /// A domain or machine.
    Domain = 3,
    /// A local group.
    Alias = 4,
    /// Well known.
    WellKnown = 5,
    /// The SID belongs to no account that is known.
    Unknown = 8,
}

/// Who has a SID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// The SID.
    pub sid: Sid,
    /// What stands before the backslash: the machine's name, `BUILTIN`, `NT AUTHORITY`, or nothing.
    pub domain: String,
    /// The name.
    pub name: String,
    /// What it is.
    pub kind: PrincipalKind,
}

/// A user of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserView {
    /// Its SID, which is the machine's and a number.
    pub sid: Sid,
    /// Its name.
    pub name: String,
    /// The person's name.
    pub full_name: String,
    /// What it is for.
    pub comment: String,
    /// Whether it may not be used.
    pub disabled: bool,
    /// Whether it may not be used for a while.
    pub locked_out: bool,
    /// When its password was set, as a FILETIME; 0 when that is not known.
    pub password_set: u64,
}

/// A local group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AliasView {
    /// Its SID.
    pub sid: Sid,
    /// Its name.
    pub name: String,
    /// What it is for.
    pub comment: String,
    /// Its members.
    pub members: Vec<Sid>,
}

/// The number of a machine's group "None", the primary group of all of its users.
pub const RID_NONE: u32 = 513;
/// Its name.
pub const NONE_NAME: &str = "None";

/// The domain of the groups that every machine has: `S-1-5-32`.
#[must_use]
pub fn builtin() -> Sid {
    // With one sub-authority of fifteen, `None` cannot happen.
    Sid::ADMINISTRATORS.domain().unwrap_or(Sid::ADMINISTRATORS)
}
/// Its name.
pub const BUILTIN_NAME: &str = "Builtin";
