//! Accounts (MS-SAMR), to read only: users and groups are changed with the server's own commands.
//!
//! There are two domains: the machine's, with its users, its groups and the group "None" that all users have as their
//! primary one; and `Builtin`, with the groups that every machine has.

mod aliases;
mod display;
mod domain_info;
mod domains;
mod enumerate;
mod groups;
mod lookup;
mod user_info;
mod users;

use smb_protocol::NtStatus;
use smb_protocol::security::sid::Sid;

use crate::error::Fault;
use crate::handles::Object;
use crate::interface::{Call, Operation, operations};
use crate::ndr::{NdrIn, NdrOut};
use crate::view::accounts::{AliasView, UserView};

/// What is answered.
pub(crate) const OPERATIONS: &[Operation] = operations! {
    0 SamrConnect => |call, r| domains::connect(call, r, 0);
    1 SamrCloseHandle => |call, r| call.close(r);
    5 SamrLookupDomainInSamServer => |call, r| domains::lookup_domain(call, r);
    6 SamrEnumerateDomainsInSamServer => |call, r| domains::enumerate(call, r);
    7 SamrOpenDomain => |call, r| domains::open(call, r);
    8 SamrQueryInformationDomain => |call, r| domain_info::query(call, r);
    11 SamrEnumerateGroupsInDomain => |call, r| enumerate::groups(call, r);
    13 SamrEnumerateUsersInDomain => |call, r| enumerate::users(call, r);
    15 SamrEnumerateAliasesInDomain => |call, r| enumerate::aliases(call, r);
    16 SamrGetAliasMembership => |call, r| aliases::membership(call, r);
    17 SamrLookupNamesInDomain => |call, r| lookup::names(call, r);
    18 SamrLookupIdsInDomain => |call, r| lookup::ids(call, r);
    19 SamrOpenGroup => |call, r| groups::open(call, r);
    20 SamrQueryInformationGroup => |call, r| groups::query(call, r);
    25 SamrGetMembersInGroup => |call, r| groups::members(call, r);
    27 SamrOpenAlias => |call, r| aliases::open(call, r);
    28 SamrQueryInformationAlias => |call, r| aliases::query(call, r);
    33 SamrGetMembersInAlias => |call, r| aliases::members(call, r);
    34 SamrOpenUser => |call, r| users::open(call, r);
    36 SamrQueryInformationUser => |call, r| user_info::query(call, r);
    39 SamrGetGroupsForUser => |call, r| users::groups(call, r);
    40 SamrQueryDisplayInformation => |call, r| display::query(call, r);
    44 SamrGetUserDomainPasswordInformation => |call, r| users::password_rules(call, r);
    46 SamrQueryInformationDomain2 => |call, r| domain_info::query(call, r);
    47 SamrQueryInformationUser2 => |call, r| user_info::query(call, r);
    48 SamrQueryDisplayInformation2 => |call, r| display::query(call, r);
    51 SamrQueryDisplayInformation3 => |call, r| display::query(call, r);
    56 SamrGetDomainPasswordInformation => |call, r| users::domain_password_rules(call, r);
    57 SamrConnect2 => |call, r| domains::connect(call, r, 57);
    62 SamrConnect4 => |call, r| domains::connect(call, r, 62);
    64 SamrConnect5 => |call, r| domains::connect5(call, r);
    65 SamrRidToSid => |call, r| domains::rid_to_sid(call, r);
};

/// Changes that are not served.
pub(crate) const UNSERVED_CHANGES: &[(u16, &str)] = &[
    (2, "SamrSetSecurityObject"),
    (9, "SamrSetInformationDomain"),
    (10, "SamrCreateGroupInDomain"),
    (12, "SamrCreateUserInDomain"),
    (14, "SamrCreateAliasInDomain"),
    (21, "SamrSetInformationGroup"),
    (22, "SamrAddMemberToGroup"),
    (23, "SamrDeleteGroup"),
    (24, "SamrRemoveMemberFromGroup"),
    (26, "SamrSetMemberAttributesOfGroup"),
    (29, "SamrSetInformationAlias"),
    (30, "SamrDeleteAlias"),
    (31, "SamrAddMemberToAlias"),
    (32, "SamrRemoveMemberFromAlias"),
    (35, "SamrDeleteUser"),
    (37, "SamrSetInformationUser"),
    (38, "SamrChangePasswordUser"),
    (45, "SamrRemoveMemberFromForeignDomain"),
    (50, "SamrCreateUser2InDomain"),
    (52, "SamrAddMultipleMembersToAlias"),
    (53, "SamrRemoveMultipleMembersFromAlias"),
    (54, "SamrOemChangePasswordUser2"),
    (55, "SamrUnicodeChangePasswordUser2"),
    (58, "SamrSetInformationUser2"),
    (66, "SamrSetDSRMPassword"),
];

/// A handle's domain, or a status for one of another kind.
fn domain(call: &Call<'_>, r: &mut NdrIn<'_>) -> Result<Result<Sid, NtStatus>, Fault> {
    Ok(match call.object(r)? {
        Object::SamDomain(domain) => Ok(domain),
        _ => Err(NtStatus::OBJECT_TYPE_MISMATCH),
    })
}

/// A handle's user. One that was removed meanwhile has no answers.
fn user(call: &Call<'_>, r: &mut NdrIn<'_>) -> Result<Result<UserView, NtStatus>, Fault> {
    Ok(match call.object(r)? {
        Object::SamUser(sid) => {
            call.view.users().into_iter().find(|user| user.sid == sid).ok_or(NtStatus::NO_SUCH_USER)
        }
        _ => Err(NtStatus::OBJECT_TYPE_MISMATCH),
    })
}

/// The machine's users; `Builtin` has none.
fn users_of(call: &Call<'_>, domain: Sid) -> Vec<UserView> {
    if domain == call.view.machine() { call.view.users() } else { Vec::new() }
}

fn aliases_of(call: &Call<'_>, domain: Sid) -> Vec<AliasView> {
    call.view.aliases(domain)
}

/// The results of an operation that has none but a number's array, when it failed.
fn no_words(out: &mut NdrOut) {
    out.u32(0);
    out.pointer(false);
}

/// SAMPR_ULONG_ARRAY (MS-SAMR 2.2.7.5).
fn put_words(out: &mut NdrOut, words: &[u32]) {
    if words.is_empty() {
        return no_words(out);
    }
    out.count(words.len());
    out.words(words);
    out.flush();
}
