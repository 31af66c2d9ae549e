//! What is known of a user, at its levels (MS-SAMR 2.2.6, 3.1.5.5.6).

use smb_protocol::NtStatus;

use super::user;
use crate::error::Fault;
use crate::interface::Call;
use crate::ndr::{NdrIn, NdrOut};
use crate::view::accounts::{RID_NONE, UserView};

/// A time that never comes.
pub(super) const NEVER: u64 = 0x7fff_ffff_ffff_ffff;
/// Hours of a week, which are the units of logon hours.
const HOURS: u16 = 168;
/// The longest array of logon hours: one in units of minutes.
const HOURS_MOST: u32 = 1260;

/// Bits of a user (MS-SAMR 2.2.1.12).
pub(super) fn control(user: &UserView) -> u32 {
    const ACCOUNT_DISABLED: u32 = 0x0001;
    const NORMAL_ACCOUNT: u32 = 0x0010;
    const DONT_EXPIRE_PASSWORD: u32 = 0x0200;
    const LOCKED_OUT: u32 = 0x0400;
    NORMAL_ACCOUNT
        | DONT_EXPIRE_PASSWORD
        | if user.disabled { ACCOUNT_DISABLED } else { 0 }
        | if user.locked_out { LOCKED_OUT } else { 0 }
}

/// Classes that are answered: all but those that carry passwords, and those that are for a user's own settings.
fn is_known(class: u16) -> bool {
    matches!(class, 1..=14 | 16 | 17 | 20 | 21)
}

/// SamrQueryInformationUser and its second version.
pub(super) fn query(call: &Call<'_>, r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    let user = user(call, r)?;
    let class = r.u16()?;
    let found =
        user.and_then(|user| if is_known(class) { Ok(user) } else { Err(NtStatus::INVALID_INFO_CLASS) });
    let mut out = NdrOut::new();
    out.pointer(found.is_ok());
    if let Ok(user) = &found {
        out.u16(class);
        put(&mut out, class, user);
    }
    out.status(found.err().unwrap_or(NtStatus::SUCCESS));
    Ok(out)
}

fn texts(out: &mut NdrOut, texts: &[&str]) {
    texts.iter().for_each(|text| out.unicode(text));
}

/// Every hour of the week.
fn put_hours(out: &mut NdrOut) {
    out.align(4);
    out.u16(HOURS);
    out.varying_bytes(HOURS_MOST, &[0xff; HOURS as usize / 8]);
}

fn put(out: &mut NdrOut, class: u16, user: &UserView) {
    let rid = user.sid.rid().unwrap_or(0);
    let (name, full, comment) = (user.name.as_str(), user.full_name.as_str(), user.comment.as_str());
    match class {
        1 => {
            texts(out, &[name, full]);
            out.u32(RID_NONE);
            texts(out, &[comment, ""]);
        }
        2 => {
            // UserComment, Reserved1, country and code page.
            texts(out, &["", ""]);
            out.u16(0);
            out.u16(0);
        }
        3 => {
            texts(out, &[name, full]);
            out.u32(rid);
            out.u32(RID_NONE);
            // Home directory, its drive, script, profile, workstations.
            texts(out, &[""; 5]);
            // Last logon and logoff, which nobody writes down; then the password's times.
            [0, 0, user.password_set, user.password_set, NEVER]
                .into_iter()
                .for_each(|time| out.old_large(time));
            put_hours(out);
            // Wrong passwords, logons.
            out.u16(0);
            out.u16(0);
            out.u32(control(user));
        }
        4 => put_hours(out),
        5 => {
            texts(out, &[name, full]);
            out.u32(rid);
            out.u32(RID_NONE);
            texts(out, &["", "", "", "", comment, ""]);
            out.old_large(0);
            out.old_large(0);
            put_hours(out);
            out.u16(0);
            out.u16(0);
            out.old_large(user.password_set);
            out.old_large(NEVER);
            out.u32(control(user));
        }
        6 => texts(out, &[name, full]),
        7 => out.unicode(name),
        8 => out.unicode(full),
        9 => out.u32(RID_NONE),
        10 => texts(out, &["", ""]),
        11 | 12 | 14 | 20 => out.unicode(""),
        13 => out.unicode(comment),
        16 => out.u32(control(user)),
        17 => out.old_large(NEVER),
        _ => put_all(out, user, rid),
    }
}

/// SAMPR_USER_ALL_INFORMATION (MS-SAMR 2.2.6.6).
fn put_all(out: &mut NdrOut, user: &UserView, rid: u32) {
    // Fields that mean something: all that is read without a password (USER_ALL_READ_GENERAL and the like).
    const WHICH_FIELDS: u32 = 0x00ff_ffff;
    let set = user.password_set;
    // Last logon, last logoff, password set, account expires, password can and must change.
    [0, 0, set, NEVER, set, NEVER].into_iter().for_each(|time| out.old_large(time));
    texts(out, &[&user.name, &user.full_name, "", "", "", "", &user.comment, "", "", ""]);
    // Passwords' hashes, which are never given out, and private data.
    out.no_unicode();
    out.no_unicode();
    out.unicode("");
    // No security descriptor.
    out.u32(0);
    out.bytes(None);
    out.u32(rid);
    out.u32(RID_NONE);
    out.u32(control(user));
    out.u32(WHICH_FIELDS);
    put_hours(out);
    // Wrong passwords, logons, country, code page.
    [0; 4].into_iter().for_each(|value| out.u16(value));
    // Whether there are passwords (LM, NT), whether it has expired, whether private data is sensitive.
    out.raw(&[0, 1, 0, 0]);
}
