//! Connecting, and finding and opening domains (MS-SAMR 3.1.5.1, 3.1.5.2.1, 3.1.5.11.1).

use smb_protocol::NtStatus;
use smb_protocol::security::sid::Sid;

use crate::error::Fault;
use crate::handles::Object;
use crate::interface::Call;
use crate::ndr::{NdrIn, NdrOut};
use crate::view::accounts::{BUILTIN_NAME, builtin};

fn server(call: &mut Call<'_>) -> NdrOut {
    let allowed = call.view.may_read_accounts(call.client);
    call.opened(if allowed { Ok(Object::SamServer) } else { Err(NtStatus::ACCESS_DENIED) })
}

/// SamrConnect, SamrConnect2 and SamrConnect4, which differ in how they write the server's name and what they add.
pub(super) fn connect(call: &mut Call<'_>, r: &mut NdrIn<'_>, operation: u16) -> Result<NdrOut, Fault> {
    if operation != 0 {
        r.wide_pointer()?;
    } else if r.pointer()? {
        // A pointer to one character, as the IDL has it.
        r.u16()?;
    }
    Ok(server(call))
}

/// SamrConnect5: with versions of both sides.
pub(super) fn connect5(call: &mut Call<'_>, r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    r.wide_pointer()?;
    let (_access, version) = (r.u32()?, r.u32()?);
    let opened = server(call);
    let mut out = NdrOut::new();
    // SAMPR_REVISION_INFO version 1: revision 3, as everything after Windows 2000, and no features.
    out.u32(1);
    out.u32(1);
    out.u32(3);
    out.u32(0);
    if version == 1 {
        out.raw(&opened.finish());
    } else {
        out.context_handle(&[0; 20]);
        out.status(NtStatus::NOT_SUPPORTED);
    }
    Ok(out)
}

/// The domains by name.
fn domains(call: &Call<'_>) -> [(String, Sid); 2] {
    [(call.view.server().name, call.view.machine()), (BUILTIN_NAME.to_owned(), builtin())]
}

fn is_server(call: &Call<'_>, r: &mut NdrIn<'_>) -> Result<Result<(), NtStatus>, Fault> {
    Ok(match call.object(r)? {
        Object::SamServer => Ok(()),
        _ => Err(NtStatus::OBJECT_TYPE_MISMATCH),
    })
}

/// SamrEnumerateDomainsInSamServer.
pub(super) fn enumerate(call: &Call<'_>, r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    let handle = is_server(call, r)?;
    let (start, _preferred) = (r.u32()?, r.u32()?);
    let domains = domains(call);
    let rest = match handle {
        Ok(()) => domains.get(start as usize..).unwrap_or_default(),
        Err(_) => &[],
    };
    // Domains have no numbers.
    let rest: Vec<(u32, &str)> = rest.iter().map(|(name, _)| (0, name.as_str())).collect();
    let mut out = NdrOut::new();
    out.count((start as usize).saturating_add(rest.len()));
    super::enumerate::put_buffer(&mut out, handle.is_ok(), &rest);
    out.status(handle.err().unwrap_or(NtStatus::SUCCESS));
    Ok(out)
}

/// SamrLookupDomainInSamServer.
pub(super) fn lookup_domain(call: &Call<'_>, r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    let handle = is_server(call, r)?;
    let wanted = r.unicode()?;
    let found = handle.and_then(|()| {
        let known = domains(call).into_iter().find(|(name, _)| upcase::same(name, &wanted));
        known.map(|(_, sid)| sid).ok_or(NtStatus::NO_SUCH_DOMAIN)
    });
    Ok(sid_or(found))
}

/// SamrOpenDomain.
pub(super) fn open(call: &mut Call<'_>, r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    let handle = is_server(call, r)?;
    let _access = r.u32()?;
    let sid = r.sid()?;
    let known = domains(call).iter().any(|(_, known)| *known == sid);
    let domain = if known { Ok(Object::SamDomain(sid)) } else { Err(NtStatus::NO_SUCH_DOMAIN) };
    let object = handle.and(domain);
    Ok(call.opened(object))
}

/// SamrRidToSid.
pub(super) fn rid_to_sid(call: &Call<'_>, r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    let object = call.object(r)?;
    let rid = r.u32()?;
    let domain = match object {
        Object::SamDomain(domain) => Some(domain),
        Object::SamUser(sid) | Object::SamGroup(sid) | Object::SamAlias(sid) => sid.domain(),
        _ => None,
    };
    Ok(sid_or(domain.and_then(|domain| domain.child(rid)).ok_or(NtStatus::OBJECT_TYPE_MISMATCH)))
}

fn sid_or(found: Result<Sid, NtStatus>) -> NdrOut {
    let mut out = NdrOut::new();
    out.sid(found.ok());
    out.status(found.err().unwrap_or(NtStatus::SUCCESS));
    out
}
