//! From SIDs to names (MS-LSAT 3.1.4.9 to 3.1.4.11): what Windows' security page is made of.

use smb_protocol::NtStatus;
use smb_protocol::security::sid::Sid;

use super::policy_handle;
use super::translated::{Domains, is_level, outcome};
use crate::error::Fault;
use crate::interface::Call;
use crate::ndr::{MAX_ELEMENTS, NdrIn, NdrOut};
use crate::view::accounts::PrincipalKind;

/// Which of the three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    Sids,
    /// LsarLookupSids2: with flags, options and the client's version.
    Sids2,
    /// And without a handle.
    Sids3,
}

impl Version {
    fn has_flags(self) -> bool {
        self != Self::Sids
    }
}

/// LSAPR_SID_ENUM_BUFFER (MS-LSAT 2.2.18).
pub(super) fn take_sids(r: &mut NdrIn<'_>) -> Result<Vec<Sid>, Fault> {
    let count = usize::try_from(r.u32()?).map_err(|_| Fault::BAD_STUB_DATA)?;
    if count > MAX_ELEMENTS {
        return Err(Fault::BAD_STUB_DATA);
    }
    if !r.pointer()? {
        return if count == 0 { Ok(Vec::new()) } else { Err(Fault::BAD_STUB_DATA) };
    }
    r.conformance(count, 4)?;
    let pointers = (0..count).map(|_| r.pointer()).collect::<Result<Vec<_>, _>>()?;
    // A pointer to nothing is no SID (MS-LSAT 3.1.4.9 has it fail).
    pointers
        .into_iter()
        .map(|present| if present { Ok(r.sid()?) } else { Err(Fault::BAD_STUB_DATA) })
        .collect()
}

/// What the client has in the place of the names; they are empty as a rule.
fn skip_names(r: &mut NdrIn<'_>, flags: bool) -> Result<(), Fault> {
    let count = usize::try_from(r.u32()?).map_err(|_| Fault::BAD_STUB_DATA)?;
    if !r.pointer()? {
        return Ok(());
    }
    r.conformance(count, 16)?;
    let mut heads = Vec::new();
    for _ in 0..count {
        r.align(4)?;
        r.u16()?;
        heads.push(r.unicode_head()?);
        r.u32()?;
        if flags {
            r.u32()?;
        }
    }
    for head in heads {
        r.unicode_body(head)?;
    }
    Ok(())
}

struct Name {
    kind: PrincipalKind,
    name: String,
    domain: Option<u32>,
}

/// LsarLookupSids and its later versions.
pub(super) fn lookup(call: &Call<'_>, r: &mut NdrIn<'_>, version: Version) -> Result<NdrOut, Fault> {
    let handle = if version == Version::Sids3 { Ok(()) } else { policy_handle(call, r)? };
    let sids = take_sids(r)?;
    skip_names(r, version.has_flags())?;
    let level = r.u16()?;
    let mut domains = Domains::default();
    let mut mapped = 0;
    let failed = match handle {
        Err(status) => Some(status),
        Ok(()) if !is_level(level) => Some(NtStatus::INVALID_PARAMETER),
        Ok(()) => None,
    };
    let mut names = Vec::new();
    for sid in sids.iter().filter(|_| failed.is_none()) {
        names.push(match call.view.find_sid(*sid) {
            Some(found) => {
                mapped += 1;
                let domain = Some(domains.index(&found));
                // The name of a domain stands among the domains only (MS-LSAT 3.1.4.9).
                let name = if found.kind == PrincipalKind::Domain { String::new() } else { found.name };
                Name { kind: found.kind, name, domain }
            }
            None => Name { kind: PrincipalKind::Unknown, name: sid.to_string(), domain: None },
        });
    }
    let mut out = NdrOut::new();
    match failed {
        None => domains.put(&mut out),
        Some(_) => out.pointer(false),
    }
    out.count(names.len());
    out.pointer(!names.is_empty());
    if !names.is_empty() {
        out.array(&names, |out, name| {
            out.align(4);
            out.u16(name.kind as u16);
            out.unicode(&name.name);
            out.u32(name.domain.unwrap_or(u32::MAX));
            if version.has_flags() {
                out.u32(0);
            }
        });
    }
    out.count(mapped);
    out.status(failed.unwrap_or_else(|| outcome(mapped, sids.len())));
    Ok(out)
}
