//! Accounts (MS-SAMR), to read only: users and groups are changed with the server's own commands.
//!
//! There are two domains: the machine's, with its users, its groups and the group "None" that all users have as their
//! primary one; and `Builtin`, with the groups that every machine has.

mod aliases;
mod display;
mod domain_info;
mod domains;
mod enumerate;
mod groups;
mod lookup;
mod user_info;
mod users;

use smb_protocol::NtStatus;
use smb_protocol::security::sid::Sid;

use crate::error::Fault;
use crate::handles::Object;
use crate::interface::Call;
use crate::ndr::{NdrIn, NdrOut};
use crate::view::accounts::{AliasView, UserView};

pub(crate) fn dispatch(call: &mut Call<'_>, operation: u16, r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    match operation {
        0 | 57 | 62 => domains::connect(call, r, operation),
        1 => call.close(r),
        5 => domains::lookup_domain(call, r),
        6 => domains::enumerate(call, r),
        7 => domains::open(call, r),
        8 | 46 => domain_info::query(call, r),
        11 => enumerate::groups(call, r),
        13 => enumerate::users(call, r),
        15 => enumerate::aliases(call, r),
        16 => aliases::membership(call, r),
        17 => lookup::names(call, r),
        18 => lookup::ids(call, r),
        19 => groups::open(call, r),
        20 => groups::query(call, r),
        25 => groups::members(call, r),
        27 => aliases::open(call, r),
        28 => aliases::query(call, r),
        33 => aliases::members(call, r),
        34 => users::open(call, r),
        36 | 47 => user_info::query(call, r),
        39 => users::groups(call, r),
        40 | 48 | 51 => display::query(call, r),
        44 => users::password_rules(call, r),
        56 => users::domain_password_rules(call, r),
        64 => domains::connect5(call, r),
        65 => domains::rid_to_sid(call, r),
        _ => Err(Fault::OP_RANGE),
    }
}

/// A handle's domain, or a status for one of another kind.
fn domain(call: &Call<'_>, r: &mut NdrIn<'_>) -> Result<Result<Sid, NtStatus>, Fault> {
    Ok(match call.object(r)? {
        Object::SamDomain(domain) => Ok(domain),
        _ => Err(NtStatus::OBJECT_TYPE_MISMATCH),
    })
}

/// A handle's user. One that was removed meanwhile has no answers.
fn user(call: &Call<'_>, r: &mut NdrIn<'_>) -> Result<Result<UserView, NtStatus>, Fault> {
    Ok(match call.object(r)? {
        Object::SamUser(sid) => {
            call.view.users().into_iter().find(|user| user.sid == sid).ok_or(NtStatus::NO_SUCH_USER)
        }
        _ => Err(NtStatus::OBJECT_TYPE_MISMATCH),
    })
}

/// The machine's users; `Builtin` has none.
fn users_of(call: &Call<'_>, domain: Sid) -> Vec<UserView> {
    if domain == call.view.machine() { call.view.users() } else { Vec::new() }
}

fn aliases_of(call: &Call<'_>, domain: Sid) -> Vec<AliasView> {
    call.view.aliases(domain)
}

/// The results of an operation that has none but a number's array, when it failed.
fn no_words(out: &mut NdrOut) {
    out.u32(0);
    out.pointer(false);
}

/// SAMPR_ULONG_ARRAY (MS-SAMR 2.2.7.5).
fn put_words(out: &mut NdrOut, words: &[u32]) {
    if words.is_empty() {
        return no_words(out);
    }
    out.count(words.len());
    out.words(words);
    out.flush();
}
