//! Opening users, their groups, and the rules for passwords (MS-SAMR 3.1.5.1.9, 3.1.5.9.1, 3.1.5.13).

use smb_protocol::NtStatus;

use super::groups::ATTRIBUTES;
use super::{domain, user, users_of};
use crate::error::Fault;
use crate::handles::Object;
use crate::interface::Call;
use crate::ndr::{NdrIn, NdrOut};
use crate::view::accounts::RID_NONE;

/// SamrOpenUser.
pub(super) fn open(call: &mut Call<'_>, r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    let domain = domain(call, r)?;
    let (_access, rid) = (r.u32()?, r.u32()?);
    let object = domain.and_then(|domain| {
        let sid = domain.child(rid);
        let known = users_of(call, domain).into_iter().find(|user| Some(user.sid) == sid);
        known.map(|user| Object::SamUser(user.sid)).ok_or(NtStatus::NO_SUCH_USER)
    });
    Ok(call.opened(object))
}

/// SamrGetGroupsForUser: groups of the domain, which is the primary one; local groups are asked for otherwise.
pub(super) fn groups(call: &Call<'_>, r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    let user = user(call, r)?;
    let mut out = NdrOut::new();
    out.pointer(user.is_ok());
    if user.is_ok() {
        out.u32(1);
        out.pointer(true);
        out.array(&[(RID_NONE, ATTRIBUTES)], |out, (rid, attributes)| {
            out.u32(*rid);
            out.u32(*attributes);
        });
    }
    out.status(user.err().unwrap_or(NtStatus::SUCCESS));
    Ok(out)
}

/// SamrGetUserDomainPasswordInformation.
pub(super) fn password_rules(call: &Call<'_>, r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    let user = user(call, r)?;
    Ok(rules(user.err().unwrap_or(NtStatus::SUCCESS)))
}

/// SamrGetDomainPasswordInformation, which needs no handle.
pub(super) fn domain_password_rules(call: &Call<'_>, r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    if r.pointer()? {
        r.unicode()?;
    }
    let allowed = call.view.may_read_accounts(call.client);
    Ok(rules(if allowed { NtStatus::SUCCESS } else { NtStatus::ACCESS_DENIED }))
}

/// USER_DOMAIN_PASSWORD_INFORMATION: passwords are not set here, so no rules are shown.
fn rules(status: NtStatus) -> NdrOut {
    let mut out = NdrOut::new();
    out.u32(0);
    out.u32(0);
    out.status(status);
    out
}
