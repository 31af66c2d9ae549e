//! What is known of a domain (MS-SAMR 2.2.3, 3.1.5.5.1).

use smb_protocol::NtStatus;
use smb_protocol::security::sid::Sid;

use super::{aliases_of, domain, users_of};
use crate::error::Fault;
use crate::interface::Call;
use crate::ndr::{NdrIn, NdrOut};
use crate::view::accounts::BUILTIN_NAME;

/// A span that never ends.
const FOREVER: u64 = 0x8000_0000_0000_0000;

/// SamrQueryInformationDomain and its second version.
pub(super) fn query(call: &Call<'_>, r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    let domain = domain(call, r)?;
    let class = r.u16()?;
    let found = domain.and_then(|domain| {
        if matches!(class, 1..=9 | 11..=13) { Ok(domain) } else { Err(NtStatus::INVALID_INFO_CLASS) }
    });
    let mut out = NdrOut::new();
    out.pointer(found.is_ok());
    if let Ok(domain) = found {
        out.u16(class);
        put(&mut out, class, call, domain);
    }
    out.status(found.err().unwrap_or(NtStatus::SUCCESS));
    Ok(out)
}

fn put(out: &mut NdrOut, class: u16, call: &Call<'_>, domain: Sid) {
    match class {
        // Rules for passwords, which are not set here: none.
        1 => {
            out.align(4);
            out.u16(0);
            out.u16(0);
            out.u32(0);
            out.old_large(FOREVER);
            out.old_large(0);
        }
        2 => put_general(out, call, domain),
        // Nobody is logged off by force.
        3 => out.old_large(FOREVER),
        4 | 6 => out.unicode(""),
        5 => out.unicode(&name(call, domain)),
        // DomainServerRolePrimary.
        7 => out.u32(3),
        8 => put_modified(out),
        // DomainServerEnabled.
        9 => out.u32(1),
        11 => {
            // A structure in a structure begins at the greatest alignment of its fields, which is 8 for the two times.
            out.align(8);
            put_general(out, call, domain);
            put_lockout(out);
        }
        12 => put_lockout(out),
        _ => {
            put_modified(out);
            // ModifiedCountAtLastPromotion.
            out.old_large(1);
        }
    }
}

fn name(call: &Call<'_>, domain: Sid) -> String {
    if domain == call.view.machine() { call.view.server().name } else { BUILTIN_NAME.to_owned() }
}

fn put_general(out: &mut NdrOut, call: &Call<'_>, domain: Sid) {
    out.old_large(FOREVER);
    out.unicode("");
    out.unicode(&name(call, domain));
    out.unicode("");
    // DomainModifiedCount; enabled; primary; and no uniform account naming.
    out.old_large(1);
    out.u32(1);
    out.u32(3);
    out.u8(0);
    out.count(users_of(call, domain).len());
    out.u32(u32::from(domain == call.view.machine()));
    out.count(aliases_of(call, domain).len());
}

fn put_lockout(out: &mut NdrOut) {
    // Duration, window, threshold: accounts are locked by the server's own rules, which are not shown here.
    out.u64(FOREVER);
    out.u64(FOREVER);
    out.u16(0);
}

fn put_modified(out: &mut NdrOut) {
    // DomainModifiedCount, CreationTime.
    out.old_large(1);
    out.old_large(0);
}
