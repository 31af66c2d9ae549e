//! Lists with more than names, for people to look at (MS-SAMR 3.1.5.3).

use smb_protocol::NtStatus;
use smb_protocol::security::sid::Sid;

use super::enumerate::fitting;
use super::groups::{ATTRIBUTES, COMMENT};
use super::user_info::control;
use super::{domain, users_of};
use crate::error::{Fault, status::MORE_ENTRIES};
use crate::interface::Call;
use crate::ndr::{NdrIn, NdrOut};
use crate::view::accounts::{NONE_NAME, RID_NONE, UserView};

/// Classes (MS-SAMR 2.2.8.12): users, machines, groups.
const USERS: u16 = 1;
const MACHINES: u16 = 2;
const GROUPS: u16 = 3;

/// A line; `full` is there for users only.
struct Line {
    rid: u32,
    bits: u32,
    name: String,
    comment: String,
    full: Option<String>,
}

fn lines(call: &Call<'_>, domain: Sid, class: u16) -> Vec<Line> {
    let user = |user: UserView| Line {
        rid: user.sid.rid().unwrap_or(0),
        bits: control(&user),
        name: user.name,
        comment: user.comment,
        full: Some(user.full_name),
    };
    match class {
        USERS => users_of(call, domain).into_iter().map(user).collect(),
        GROUPS if domain == call.view.machine() => vec![Line {
            rid: RID_NONE,
            bits: ATTRIBUTES,
            name: NONE_NAME.to_owned(),
            comment: COMMENT.to_owned(),
            full: None,
        }],
        // No machine has an account here.
        _ => Vec::new(),
    }
}

/// SamrQueryDisplayInformation and its later versions, which are the same on the wire.
pub(super) fn query(call: &Call<'_>, r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    let domain = domain(call, r)?;
    let class = r.u16()?;
    let (start, entries, preferred) = (r.u32()?, r.u32()?, r.u32()?);
    let found = domain.and_then(|domain| match class {
        USERS | MACHINES | GROUPS => Ok(lines(call, domain, class)),
        _ => Err(NtStatus::INVALID_INFO_CLASS),
    });
    let all = found.as_deref().unwrap_or_default();
    let rest = all.get(start as usize..).unwrap_or_default();
    let fits = fitting(rest.iter().map(|line| line.name.as_str()), preferred).min(entries as usize);
    let page: Vec<(usize, &Line)> = rest.iter().enumerate().take(fits).collect();
    let mut out = NdrOut::new();
    out.count(all.len());
    out.count(page.len());
    out.u16(class);
    // The union has nothing for classes that it does not know.
    if (1..=5).contains(&class) {
        out.count(page.len());
        out.pointer(!page.is_empty());
    }
    if !page.is_empty() {
        out.array(&page, |out, (at, line)| {
            // Indices count from one.
            out.count((start as usize).saturating_add(at + 1));
            out.u32(line.rid);
            out.u32(line.bits);
            out.unicode(&line.name);
            out.unicode(&line.comment);
            if let Some(full) = &line.full {
                out.unicode(full);
            }
        });
    }
    out.status(match found {
        Err(status) => status,
        Ok(_) if page.len() < rest.len() => MORE_ENTRIES,
        Ok(_) => NtStatus::SUCCESS,
    });
    Ok(out)
}
