//! The group "None", which all users of a machine are in (MS-SAMR 3.1.5.1.7, 3.1.5.5.3, 3.1.5.8.3).

use smb_protocol::NtStatus;

use super::domain;
use crate::error::{Fault, status::NO_SUCH_GROUP};
use crate::handles::Object;
use crate::interface::Call;
use crate::ndr::{NdrIn, NdrOut};
use crate::view::accounts::{NONE_NAME, RID_NONE};

/// SE_GROUP_MANDATORY, ENABLED_BY_DEFAULT, ENABLED.
pub(super) const ATTRIBUTES: u32 = 7;
/// What it is for, in Windows' words.
pub(super) const COMMENT: &str = "Ordinary users";

/// SamrOpenGroup.
pub(super) fn open(call: &mut Call<'_>, r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    let domain = domain(call, r)?;
    let (_access, rid) = (r.u32()?, r.u32()?);
    let object = domain.and_then(|domain| {
        let is_none = domain == call.view.machine() && rid == RID_NONE;
        domain.child(rid).filter(|_| is_none).map(Object::SamGroup).ok_or(NO_SUCH_GROUP)
    });
    Ok(call.opened(object))
}

fn is_group(call: &Call<'_>, r: &mut NdrIn<'_>) -> Result<Result<(), NtStatus>, Fault> {
    Ok(match call.object(r)? {
        Object::SamGroup(_) => Ok(()),
        _ => Err(NtStatus::OBJECT_TYPE_MISMATCH),
    })
}

/// SamrQueryInformationGroup: general, name, attributes, comment; 5 is general once more.
pub(super) fn query(call: &Call<'_>, r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    let handle = is_group(call, r)?;
    let class = r.u16()?;
    let status = match handle {
        Ok(()) if (1..=5).contains(&class) => NtStatus::SUCCESS,
        Ok(()) => NtStatus::INVALID_INFO_CLASS,
        Err(status) => status,
    };
    let mut out = NdrOut::new();
    out.pointer(status == NtStatus::SUCCESS);
    if status == NtStatus::SUCCESS {
        out.u16(class);
        match class {
            2 => out.unicode(NONE_NAME),
            3 => out.u32(ATTRIBUTES),
            4 => out.unicode(COMMENT),
            _ => {
                out.unicode(NONE_NAME);
                out.u32(ATTRIBUTES);
                out.count(call.view.users().len());
                out.unicode(COMMENT);
            }
        }
    }
    out.status(status);
    Ok(out)
}

/// SamrGetMembersInGroup.
pub(super) fn members(call: &Call<'_>, r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    let handle = is_group(call, r)?;
    let mut out = NdrOut::new();
    out.pointer(handle.is_ok());
    if handle.is_ok() {
        let rids: Vec<u32> = call.view.users().iter().filter_map(|user| user.sid.rid()).collect();
        out.count(rids.len());
        if rids.is_empty() {
            out.pointer(false);
            out.pointer(false);
        } else {
            out.words(&rids);
            out.words(&vec![ATTRIBUTES; rids.len()]);
        }
    }
    out.status(handle.err().unwrap_or(NtStatus::SUCCESS));
    Ok(out)
}
