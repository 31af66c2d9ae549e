//! Names and numbers within a domain (MS-SAMR 3.1.5.11.2, 3.1.5.11.3).

use smb_protocol::NtStatus;
use smb_protocol::security::sid::Sid;

use super::{aliases_of, domain, no_words, put_words, users_of};
use crate::error::{Fault, status::SOME_NOT_MAPPED};
use crate::interface::Call;
use crate::ndr::{NdrIn, NdrOut};
use crate::view::accounts::{NONE_NAME, PrincipalKind, RID_NONE};

/// Most names or numbers of a lookup (`range(0, 1000)` in the IDL).
const ELEMENTS_MAX: usize = 1000;

/// All accounts of a domain: number, name, kind.
fn accounts(call: &Call<'_>, domain: Sid) -> Vec<(u32, String, PrincipalKind)> {
    let rid = |sid: Sid| sid.rid().unwrap_or(0);
    let users =
        users_of(call, domain).into_iter().map(|user| (rid(user.sid), user.name, PrincipalKind::User));
    let aliases =
        aliases_of(call, domain).into_iter().map(|alias| (rid(alias.sid), alias.name, PrincipalKind::Alias));
    let none = (RID_NONE, NONE_NAME.to_owned(), PrincipalKind::Group);
    let none = Some(none).filter(|_| domain == call.view.machine());
    users.chain(aliases).chain(none).collect()
}

fn outcome(mapped: usize, all: usize) -> NtStatus {
    match mapped {
        mapped if mapped == all => NtStatus::SUCCESS,
        0 => NtStatus::NONE_MAPPED,
        _ => SOME_NOT_MAPPED,
    }
}

/// The count, and the begin of the conformant varying array that has as many elements.
fn begin(r: &mut NdrIn<'_>, least: usize) -> Result<usize, Fault> {
    let count = usize::try_from(r.u32()?).map_err(|_| Fault::BAD_STUB_DATA)?;
    if count > ELEMENTS_MAX || r.varying(least)? != count {
        return Err(Fault::BAD_STUB_DATA);
    }
    Ok(count)
}

/// SamrLookupNamesInDomain.
pub(super) fn names(call: &Call<'_>, r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    let domain = domain(call, r)?;
    let count = begin(r, 8)?;
    let names = r.unicodes(count)?;
    let known = domain.map(|domain| accounts(call, domain));
    let mut out = NdrOut::new();
    let status = match &known {
        Err(status) => *status,
        Ok(known) => {
            let known: std::collections::BTreeMap<String, (u32, PrincipalKind)> =
                known.iter().map(|(rid, name, kind)| (upcase::upper(name), (*rid, *kind))).collect();
            let found: Vec<_> = names.iter().map(|name| known.get(&upcase::upper(name))).collect();
            let rids: Vec<u32> = found.iter().map(|found| found.map_or(0, |found| found.0)).collect();
            let kinds: Vec<u32> = found
                .iter()
                .map(|found| u32::from(found.map_or(PrincipalKind::Unknown, |found| found.1) as u16))
                .collect();
            put_words(&mut out, &rids);
            put_words(&mut out, &kinds);
            outcome(found.iter().flatten().count(), names.len())
        }
    };
    if known.is_err() {
        no_words(&mut out);
        no_words(&mut out);
    }
    out.status(status);
    Ok(out)
}

/// SamrLookupIdsInDomain.
pub(super) fn ids(call: &Call<'_>, r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    let domain = domain(call, r)?;
    let count = begin(r, 4)?;
    let rids = (0..count).map(|_| r.u32()).collect::<Result<Vec<_>, _>>()?;
    let known = domain.map(|domain| accounts(call, domain));
    let found: Vec<_> = match &known {
        Ok(known) => rids.iter().map(|rid| known.iter().find(|known| known.0 == *rid)).collect(),
        Err(_) => Vec::new(),
    };
    let mut out = NdrOut::new();
    out.count(found.len());
    out.pointer(!found.is_empty());
    if !found.is_empty() {
        out.array(&found, |out, found| match found {
            Some((_, name, _)) => out.unicode(name),
            None => out.no_unicode(),
        });
    }
    let kind = |found: &Option<&(u32, String, PrincipalKind)>| {
        u32::from(found.map_or(PrincipalKind::Unknown, |found| found.2) as u16)
    };
    put_words(&mut out, &found.iter().map(kind).collect::<Vec<_>>());
    out.status(match known {
        Ok(_) => outcome(found.iter().flatten().count(), rids.len()),
        Err(status) => status,
    });
    Ok(out)
}
