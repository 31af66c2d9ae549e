//! Principals that exist everywhere under the same SID (MS-DTYP 2.4.2.4), and what a principal is.

use smb_protocol::security::sid::Sid;

/// What kind of principal a SID is: SID_NAME_USE of MS-SAMR 2.2.2.3, with its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum PrincipalKind {
    /// A user.
    User = 1,
    /// A group of a domain: here only a machine's group "None".
    Group = 2,
    /// A domain or machine.
    Domain = 3,
    /// A local group.
    Alias = 4,
    /// Well known.
    WellKnown = 5,
}

/// The domain of the principal: what stands before the backslash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authority {
    /// Nobody's: Everyone, CREATOR OWNER.
    None,
    /// This machine's, under its NetBIOS name.
    Machine,
    /// `BUILTIN`.
    Builtin,
    /// `NT AUTHORITY`.
    NtAuthority,
}

impl Authority {
    /// What is written before the backslash, on a machine of this name.
    #[must_use]
    pub fn name(self, machine: &str) -> &str {
        match self {
            Self::None => "",
            Self::Machine => machine,
            Self::Builtin => "BUILTIN",
            Self::NtAuthority => "NT AUTHORITY",
        }
    }
}

/// A principal with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// The SID.
    pub sid: Sid,
    /// The domain that it belongs to.
    pub authority: Authority,
    /// The name, without what stands before the backslash.
    pub name: String,
    /// What it is.
    pub kind: PrincipalKind,
}

/// The number of a machine's group "None", every local user's primary group.
pub const RID_NONE: u32 = 513;
/// Its name.
pub const NONE_NAME: &str = "None";

/// A SID of the NT authority that `Sid` has no constant for.
fn nt(subs: &[u32]) -> Sid {
    // The lists are written below and are short: `None` cannot happen.
    Sid::new(5, subs).unwrap_or(Sid::ANONYMOUS)
}

/// Who logged on with NTLM.
#[must_use]
pub fn ntlm_authentication() -> Sid {
    nt(&[64, 10])
}

/// Who is a user of the machine, not of a domain.
#[must_use]
pub fn local_account() -> Sid {
    nt(&[113])
}

/// Likewise, and an administrator.
#[must_use]
pub fn local_administrator() -> Sid {
    nt(&[114])
}

/// Groups that every machine has: number under `S-1-5-32`, name, comment.
pub(crate) const BUILT_IN: [(u32, &str, &str); 5] = [
    (544, "Administrators", "May do everything, whatever a file's permissions say of others"),
    (545, "Users", "All users of this machine"),
    (546, "Guests", "Nobody, unless somebody is put here"),
    (551, "Backup Operators", "May read and restore all files for backups"),
    (578, "Hyper-V Administrators", "May manage virtual machines"),
];

/// The SID of a built-in group.
pub(crate) fn built_in(rid: u32) -> Sid {
    nt(&[32, rid])
}

/// Well-known principals that entries of an ACL name.
pub(crate) fn principals() -> [(Sid, Authority, &'static str); 15] {
    use Authority::{None, NtAuthority};
    [
        (Sid::EVERYONE, None, "Everyone"),
        (Sid::CREATOR_OWNER, None, "CREATOR OWNER"),
        (Sid::CREATOR_GROUP, None, "CREATOR GROUP"),
        (Sid::OWNER_RIGHTS, None, "OWNER RIGHTS"),
        (Sid::NETWORK, NtAuthority, "NETWORK"),
        (nt(&[4]), NtAuthority, "INTERACTIVE"),
        (nt(&[6]), NtAuthority, "SERVICE"),
        (Sid::ANONYMOUS, NtAuthority, "ANONYMOUS LOGON"),
        (Sid::AUTHENTICATED_USERS, NtAuthority, "Authenticated Users"),
        (Sid::SYSTEM, NtAuthority, "SYSTEM"),
        (nt(&[19]), NtAuthority, "LOCAL SERVICE"),
        (nt(&[20]), NtAuthority, "NETWORK SERVICE"),
        (ntlm_authentication(), NtAuthority, "NTLM Authentication"),
        (local_account(), NtAuthority, "Local account"),
        (local_administrator(), NtAuthority, "Local account and member of Administrators group"),
    ]
}
