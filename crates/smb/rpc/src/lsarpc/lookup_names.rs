//! From names to SIDs (MS-LSAT 3.1.4.5 to 3.1.4.8).

use smb_protocol::NtStatus;

use super::policy_handle;
use super::translated::{Domains, is_level, outcome};
use crate::error::Fault;
use crate::interface::Call;
use crate::ndr::{NdrIn, NdrOut};
use crate::view::accounts::{Principal, PrincipalKind};

/// Most names of a lookup (`range(0, 1000)` in the IDL).
const NAMES_MAX: usize = 1000;

/// Which of the four.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    Names,
    /// LsarLookupNames2: with flags, options and the client's version.
    Names2,
    /// LsarLookupNames3: it answers whole SIDs.
    Names3,
    /// And without a handle.
    Names4,
}

impl Version {
    fn has_flags(self) -> bool {
        self != Self::Names
    }

    fn has_sids(self) -> bool {
        matches!(self, Self::Names3 | Self::Names4)
    }
}

/// What the client has in the place of the SIDs; they are empty as a rule.
fn skip_sids(r: &mut NdrIn<'_>, version: Version) -> Result<(), Fault> {
    let count = usize::try_from(r.u32()?).map_err(|_| Fault::BAD_STUB_DATA)?;
    if !r.pointer()? {
        return Ok(());
    }
    r.conformance(count, 12)?;
    let mut pointers = 0;
    for _ in 0..count {
        r.align(4)?;
        r.u16()?;
        let second = r.u32()?;
        pointers += usize::from(version.has_sids() && second != 0);
        r.u32()?;
        if version.has_flags() {
            r.u32()?;
        }
    }
    for _ in 0..pointers {
        r.sid()?;
    }
    Ok(())
}

/// LsarLookupNames and its later versions.
pub(super) fn lookup(call: &Call<'_>, r: &mut NdrIn<'_>, version: Version) -> Result<NdrOut, Fault> {
    let handle = if version == Version::Names4 { Ok(()) } else { policy_handle(call, r)? };
    let count = usize::try_from(r.u32()?).map_err(|_| Fault::BAD_STUB_DATA)?;
    if count > NAMES_MAX {
        return Err(Fault::BAD_STUB_DATA);
    }
    r.conformance(count, 8)?;
    let names = r.unicodes(count)?;
    skip_sids(r, version)?;
    let level = r.u16()?;
    let failed = match handle {
        Err(status) => Some(status),
        Ok(()) if !is_level(level) => Some(NtStatus::INVALID_PARAMETER),
        Ok(()) => None,
    };
    let mut domains = Domains::default();
    let mut mapped = 0;
    let mut found: Vec<Option<(Principal, u32)>> = Vec::new();
    for name in names.iter().filter(|_| failed.is_none()) {
        let principal = find(call, name).map(|principal| {
            mapped += 1;
            let domain = domains.index(&principal);
            (principal, domain)
        });
        found.push(principal);
    }
    let mut out = NdrOut::new();
    match failed {
        None => domains.put(&mut out),
        Some(_) => out.pointer(false),
    }
    out.count(found.len());
    out.pointer(!found.is_empty());
    if !found.is_empty() {
        out.array(&found, |out, entry| put(out, version, entry.as_ref()));
    }
    out.count(mapped);
    out.status(failed.unwrap_or_else(|| outcome(mapped, names.len())));
    Ok(out)
}

/// Whom a name means; the name of the machine alone is the machine.
fn find(call: &Call<'_>, name: &str) -> Option<Principal> {
    let found = call.view.find_name(name).filter(|_| !name.is_empty());
    found.or_else(|| {
        let machine = call.view.server().name;
        let name = name.strip_suffix('\\').unwrap_or(name);
        if upcase::same(&machine, name) { call.view.find_sid(call.view.machine()) } else { None }
    })
}

fn put(out: &mut NdrOut, version: Version, found: Option<&(Principal, u32)>) {
    out.align(4);
    let kind = found.map_or(PrincipalKind::Unknown, |(principal, _)| principal.kind);
    out.u16(kind as u16);
    let sid = found.map(|(principal, _)| principal.sid);
    if version.has_sids() {
        out.sid(sid);
    } else {
        // A domain has no number within itself.
        let rid = if kind == PrincipalKind::Domain { None } else { sid.and_then(|sid| sid.rid()) };
        out.u32(rid.unwrap_or(if kind == PrincipalKind::Domain { u32::MAX } else { 0 }));
    }
    out.u32(found.map_or(u32::MAX, |(_, domain)| *domain));
    if version.has_flags() {
        out.u32(0);
    }
}
