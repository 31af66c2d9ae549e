//! Lists of accounts (MS-SAMR 3.1.5.2): numbers and names, a part at a time.

use smb_protocol::NtStatus;
use smb_protocol::security::sid::Sid;

use super::{aliases_of, domain, users_of};
use crate::error::{Fault, status::MORE_ENTRIES};
use crate::interface::Call;
use crate::ndr::{NdrIn, NdrOut};
use crate::view::accounts::{NONE_NAME, RID_NONE};

/// Bytes of an entry without its name.
const ENTRY_BYTES: usize = 32;
/// The most that one answer holds, whatever the client prefers.
const BYTES_MAX: usize = 1 << 19;

/// Pointer to SAMPR_ENUMERATION_BUFFER, and how many entries it has (MS-SAMR 2.2.7.10).
pub(super) fn put_buffer(out: &mut NdrOut, present: bool, entries: &[(u32, &str)]) {
    out.pointer(present);
    if present {
        out.count(entries.len());
        out.pointer(!entries.is_empty());
        if !entries.is_empty() {
            out.array(entries, |out, (rid, name)| {
                out.u32(*rid);
                out.unicode(name);
            });
        }
    }
    out.count(entries.len());
}

/// How many of these names go into one answer, which is at least one.
pub(super) fn fitting<'a>(names: impl Iterator<Item = &'a str>, preferred: u32) -> usize {
    let limit = (preferred as usize).min(BYTES_MAX);
    let mut bytes = 0;
    names
        .enumerate()
        .take_while(|(at, name)| {
            bytes += ENTRY_BYTES + name.len() * 2;
            *at == 0 || bytes <= limit
        })
        .count()
}

fn page(start: u32, preferred: u32, entries: Result<Vec<(u32, String)>, NtStatus>) -> NdrOut {
    let all = entries.as_deref().unwrap_or_default();
    let rest = all.get(start as usize..).unwrap_or_default();
    let fits = fitting(rest.iter().map(|(_, name)| name.as_str()), preferred);
    let page: Vec<(u32, &str)> = rest.iter().take(fits).map(|(rid, name)| (*rid, name.as_str())).collect();
    let status = match &entries {
        Err(status) => *status,
        Ok(_) if fits < rest.len() => MORE_ENTRIES,
        Ok(_) => NtStatus::SUCCESS,
    };
    let mut out = NdrOut::new();
    out.count((start as usize).saturating_add(fits));
    put_buffer(&mut out, entries.is_ok(), &page);
    out.status(status);
    out
}

fn rid(sid: Sid) -> u32 {
    sid.rid().unwrap_or(0)
}

/// SamrEnumerateUsersInDomain. All accounts are of people: a filter that leaves these out leaves out all.
pub(super) fn users(call: &Call<'_>, r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    const NORMAL_ACCOUNT: u32 = 0x10;
    let domain = domain(call, r)?;
    let (start, filter, preferred) = (r.u32()?, r.u32()?, r.u32()?);
    let wanted = filter == 0 || filter & NORMAL_ACCOUNT != 0;
    let entries = domain.map(|domain| {
        let users = users_of(call, domain).into_iter().filter(|_| wanted);
        users.map(|user| (rid(user.sid), user.name)).collect()
    });
    Ok(page(start, preferred, entries))
}

/// SamrEnumerateGroupsInDomain.
pub(super) fn groups(call: &Call<'_>, r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    let domain = domain(call, r)?;
    let (start, preferred) = (r.u32()?, r.u32()?);
    let machine = call.view.machine();
    let entries = domain
        .map(|domain| if domain == machine { vec![(RID_NONE, NONE_NAME.to_owned())] } else { Vec::new() });
    Ok(page(start, preferred, entries))
}

/// SamrEnumerateAliasesInDomain.
pub(super) fn aliases(call: &Call<'_>, r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    let domain = domain(call, r)?;
    let (start, preferred) = (r.u32()?, r.u32()?);
    let entries = domain.map(|domain| {
        aliases_of(call, domain).into_iter().map(|alias| (rid(alias.sid), alias.name)).collect()
    });
    Ok(page(start, preferred, entries))
}
