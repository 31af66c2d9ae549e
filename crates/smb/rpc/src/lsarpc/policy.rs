//! The policy: opening it, and what the machine and its domain are called (MS-LSAD 3.1.4.4, MS-LSAT 3.1.4.4).

use smb_protocol::NtStatus;

use super::policy_handle;
use crate::error::Fault;
use crate::handles::Object;
use crate::interface::Call;
use crate::ndr::{NdrIn, NdrOut};

/// Rights that only administrators get: everything but to look at what is local, and to translate (MS-LSAD 2.2.1.1.2).
/// Deleting, changing permissions or owner, and generic rights that mean writing.
const ADMINISTRATORS_ONLY: u32 = 0x0000_07fe | 0x000d_0000 | 0x5000_0000;

/// LSAPR_OBJECT_ATTRIBUTES (MS-LSAD 2.2.2.4), of which nothing has a meaning.
fn skip_attributes(r: &mut NdrIn<'_>) -> Result<(), Fault> {
    r.u32()?;
    let root = r.pointer()?;
    let name = r.pointer()?;
    r.u32()?;
    let security = r.pointer()?;
    let quality = r.pointer()?;
    if root {
        r.u8()?;
    }
    if name {
        // A STRING: a counted, varying array of bytes.
        r.align(4)?;
        r.u32()?;
        if r.pointer()? {
            let len = r.varying(1)?;
            r.raw(len)?;
        }
    }
    if security {
        // No client has a descriptor for a policy that exists.
        return Err(Fault::BAD_STUB_DATA);
    }
    if quality {
        r.align(4)?;
        r.u32()?;
        r.u16()?;
        r.u8()?;
        r.u8()?;
    }
    Ok(())
}

/// LsarOpenPolicy and LsarOpenPolicy2, which differ in how they write the server's name.
pub(super) fn open(call: &mut Call<'_>, r: &mut NdrIn<'_>, second: bool) -> Result<NdrOut, Fault> {
    if second {
        r.wide_pointer()?;
    } else if r.pointer()? {
        // A pointer to one character, as the IDL has it.
        r.u16()?;
    }
    skip_attributes(r)?;
    let access = r.u32()?;
    let refused = call.is_plain_user() && access & ADMINISTRATORS_ONLY != 0;
    Ok(call.opened(if refused { Err(NtStatus::ACCESS_DENIED) } else { Ok(Object::Policy) }))
}

/// Classes of LsarQueryInformationPolicy (MS-LSAD 2.2.4.1).
mod class {
    pub(super) const PRIMARY_DOMAIN: u16 = 3;
    pub(super) const ACCOUNT_DOMAIN: u16 = 5;
    pub(super) const SERVER_ROLE: u16 = 6;
    pub(super) const DNS_DOMAIN: u16 = 12;
    pub(super) const DNS_DOMAIN_INT: u16 = 13;
    pub(super) const LOCAL_ACCOUNT_DOMAIN: u16 = 14;
}

/// LsarQueryInformationPolicy and its second version.
pub(super) fn query(call: &Call<'_>, r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    let handle = policy_handle(call, r)?;
    let class = r.u16()?;
    let known = matches!(
        class,
        class::PRIMARY_DOMAIN
            | class::ACCOUNT_DOMAIN
            | class::SERVER_ROLE
            | class::DNS_DOMAIN
            | class::DNS_DOMAIN_INT
            | class::LOCAL_ACCOUNT_DOMAIN
    );
    let status = match handle {
        Err(status) => status,
        Ok(()) if !known => NtStatus::INVALID_PARAMETER,
        Ok(()) => NtStatus::SUCCESS,
    };
    let mut out = NdrOut::new();
    out.pointer(status == NtStatus::SUCCESS);
    if status != NtStatus::SUCCESS {
        out.status(status);
        return Ok(out);
    }
    out.u16(class);
    let server = call.view.server();
    match class {
        class::PRIMARY_DOMAIN => {
            out.unicode(&server.domain);
            out.sid(server.domain_sid);
        }
        class::ACCOUNT_DOMAIN | class::LOCAL_ACCOUNT_DOMAIN => {
            out.unicode(&server.name);
            out.sid(Some(call.view.machine()));
        }
        // PolicyServerRolePrimary, in four bytes, which all clients expect.
        class::SERVER_ROLE => out.u32(3),
        _ => {
            out.unicode(&server.domain);
            // A workgroup has no names in DNS, nor a GUID; we know none of a domain's GUID.
            out.unicode(&server.dns_domain);
            out.unicode(&server.dns_domain);
            out.align(4);
            out.raw(&[0; 16]);
            out.sid(server.domain_sid);
        }
    }
    out.status(status);
    Ok(out)
}

/// LsarEnumerateTrustedDomains and its second version: a machine trusts none.
pub(super) fn no_trusted_domains(call: &Call<'_>, r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    let handle = policy_handle(call, r)?;
    let context = r.u32()?;
    let mut out = NdrOut::new();
    out.u32(context);
    out.u32(0);
    out.pointer(false);
    out.status(handle.err().unwrap_or(NtStatus::NO_MORE_ENTRIES));
    Ok(out)
}

/// LsarGetUserName: who calls (MS-LSAT 3.1.4.2).
pub(super) fn user_name(call: &Call<'_>, r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    r.wide_pointer()?;
    if r.pointer()? {
        r.unicode()?;
    }
    let with_domain = r.pointer()?;
    let mut out = NdrOut::new();
    out.pointer(true);
    out.unicode(&call.client.user);
    out.flush();
    out.pointer(with_domain);
    if with_domain {
        out.pointer(true);
        out.unicode(&call.client.domain);
        out.flush();
    }
    out.status(NtStatus::SUCCESS);
    Ok(out)
}
