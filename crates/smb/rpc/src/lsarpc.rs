//! The local security authority: who has a name or a SID (MS-LSAT), and the little of its policy that clients read
//! (MS-LSAD).

mod lookup_names;
mod lookup_sids;
mod policy;
mod rights;
mod translated;

use smb_protocol::NtStatus;

use crate::error::Fault;
use crate::handles::Object;
use crate::interface::{Call, Operation, operations};
use crate::ndr::NdrIn;

/// What is answered.
pub(crate) const OPERATIONS: &[Operation] = operations! {
    0 LsarClose => |call, r| call.close(r);
    6 LsarOpenPolicy => |call, r| policy::open(call, r, false);
    7 LsarQueryInformationPolicy => |call, r| policy::query(call, r);
    11 LsarEnumerateAccounts => |call, r| rights::enumerate_accounts(call, r);
    13 LsarEnumerateTrustedDomains => |call, r| policy::no_trusted_domains(call, r);
    14 LsarLookupNames => |call, r| lookup_names::lookup(call, r, lookup_names::Version::Names);
    15 LsarLookupSids => |call, r| lookup_sids::lookup(call, r, lookup_sids::Version::Sids);
    36 LsarEnumerateAccountRights => |call, r| rights::enumerate_rights(call, r);
    44 LsarOpenPolicy2 => |call, r| policy::open(call, r, true);
    45 LsarGetUserName => |call, r| policy::user_name(call, r);
    46 LsarQueryInformationPolicy2 => |call, r| policy::query(call, r);
    50 LsarEnumerateTrustedDomainsEx => |call, r| policy::no_trusted_domains(call, r);
    57 LsarLookupSids2 => |call, r| lookup_sids::lookup(call, r, lookup_sids::Version::Sids2);
    58 LsarLookupNames2 => |call, r| lookup_names::lookup(call, r, lookup_names::Version::Names2);
    68 LsarLookupNames3 => |call, r| lookup_names::lookup(call, r, lookup_names::Version::Names3);
    76 LsarLookupSids3 => |call, r| lookup_sids::lookup(call, r, lookup_sids::Version::Sids3);
    77 LsarLookupNames4 => |call, r| lookup_names::lookup(call, r, lookup_names::Version::Names4);
};

/// Changes that are not served.
pub(crate) const UNSERVED_CHANGES: &[(u16, &str)] = &[
    (4, "LsarSetSecurityObject"),
    (8, "LsarSetInformationPolicy"),
    (10, "LsarCreateAccount"),
    (19, "LsarAddPrivilegesToAccount"),
    (20, "LsarRemovePrivilegesFromAccount"),
    (24, "LsarSetSystemAccessAccount"),
    (34, "LsarDeleteObject"),
    (37, "LsarAddAccountRights"),
    (38, "LsarRemoveAccountRights"),
    (47, "LsarSetInformationPolicy2"),
];

/// Takes a handle of the policy; another one is a client's mistake that has a status.
fn policy_handle(call: &Call<'_>, r: &mut NdrIn<'_>) -> Result<Result<(), NtStatus>, Fault> {
    Ok(match call.object(r)? {
        Object::Policy => Ok(()),
        _ => Err(NtStatus::INVALID_HANDLE),
    })
}
