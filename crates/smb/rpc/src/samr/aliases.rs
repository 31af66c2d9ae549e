//! Local groups (MS-SAMR 3.1.5.1.8, 3.1.5.5.4, 3.1.5.8.4, 3.1.5.9.2).

use smb_protocol::NtStatus;
use smb_protocol::security::sid::Sid;

use super::{aliases_of, domain, no_words, put_words};
use crate::error::{Fault, status::NO_SUCH_ALIAS};
use crate::handles::Object;
use crate::interface::Call;
use crate::ndr::{MAX_ELEMENTS, NdrIn, NdrOut};
use crate::view::accounts::AliasView;

/// SamrOpenAlias.
pub(super) fn open(call: &mut Call<'_>, r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    let domain = domain(call, r)?;
    let (_access, rid) = (r.u32()?, r.u32()?);
    let object = domain.and_then(|domain| {
        let sid = domain.child(rid);
        let known = aliases_of(call, domain).into_iter().find(|alias| Some(alias.sid) == sid);
        known.map(|alias| Object::SamAlias(alias.sid)).ok_or(NO_SUCH_ALIAS)
    });
    Ok(call.opened(object))
}

fn alias(call: &Call<'_>, r: &mut NdrIn<'_>) -> Result<Result<AliasView, NtStatus>, Fault> {
    Ok(match call.object(r)? {
        Object::SamAlias(sid) => {
            let known = sid.domain().map(|domain| aliases_of(call, domain)).unwrap_or_default();
            known.into_iter().find(|alias| alias.sid == sid).ok_or(NO_SUCH_ALIAS)
        }
        _ => Err(NtStatus::OBJECT_TYPE_MISMATCH),
    })
}

/// SamrQueryInformationAlias: general, name, comment.
pub(super) fn query(call: &Call<'_>, r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    let alias = alias(call, r)?;
    let class = r.u16()?;
    let found =
        alias.and_then(
            |alias| {
                if (1..=3).contains(&class) { Ok(alias) } else { Err(NtStatus::INVALID_INFO_CLASS) }
            },
        );
    let mut out = NdrOut::new();
    out.pointer(found.is_ok());
    if let Ok(alias) = &found {
        out.u16(class);
        match class {
            2 => out.unicode(&alias.name),
            3 => out.unicode(&alias.comment),
            _ => {
                out.unicode(&alias.name);
                out.count(alias.members.len());
                out.unicode(&alias.comment);
            }
        }
    }
    out.status(found.err().unwrap_or(NtStatus::SUCCESS));
    Ok(out)
}

/// SamrGetMembersInAlias.
pub(super) fn members(call: &Call<'_>, r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    let alias = alias(call, r)?;
    let members = alias.as_ref().map(|alias| alias.members.as_slice()).unwrap_or_default();
    let mut out = NdrOut::new();
    out.count(members.len());
    out.pointer(!members.is_empty());
    if !members.is_empty() {
        out.array(members, |out, sid| out.sid(Some(*sid)));
    }
    out.status(alias.err().unwrap_or(NtStatus::SUCCESS));
    Ok(out)
}

/// SAMPR_PSID_ARRAY (MS-SAMR 2.2.7.6).
fn take_sids(r: &mut NdrIn<'_>) -> Result<Vec<Sid>, Fault> {
    let count = usize::try_from(r.u32()?).map_err(|_| Fault::BAD_STUB_DATA)?;
    // `range(0, 1024)` in the IDL.
    if count > MAX_ELEMENTS.min(1024) {
        return Err(Fault::BAD_STUB_DATA);
    }
    if !r.pointer()? {
        return if count == 0 { Ok(Vec::new()) } else { Err(Fault::BAD_STUB_DATA) };
    }
    r.conformance(count, 4)?;
    let pointers = (0..count).map(|_| r.pointer()).collect::<Result<Vec<_>, _>>()?;
    pointers
        .into_iter()
        .map(|present| if present { Ok(r.sid()?) } else { Err(Fault::BAD_STUB_DATA) })
        .collect()
}

/// SamrGetAliasMembership: in which groups of a domain any of these is.
pub(super) fn membership(call: &Call<'_>, r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    let domain = domain(call, r)?;
    let sids = take_sids(r)?;
    let mut out = NdrOut::new();
    match domain {
        Ok(domain) => {
            let mut found = aliases_of(call, domain);
            found.retain(|alias| alias.members.iter().any(|member| sids.contains(member)));
            let rids: Vec<u32> = found.iter().filter_map(|alias| alias.sid.rid()).collect();
            put_words(&mut out, &rids);
        }
        Err(_) => no_words(&mut out),
    }
    out.status(domain.err().unwrap_or(NtStatus::SUCCESS));
    Ok(out)
}
