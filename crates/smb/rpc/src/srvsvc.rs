//! The server service (MS-SRVS): shares, sessions, opens, connections, the server itself, and helpers for names.
//!
//! Who may ask for what is as on Windows: anybody may list shares and read what every client needs to know of them;
//! paths, descriptors, other users' sessions and files are for administrators, and so is every change.

mod enumeration;
mod files;
mod paths;
mod server;
mod sessions;
mod share_info;
mod shares;

use crate::error::{Fault, Win32};
use crate::interface::Call;
use crate::ndr::{NdrIn, NdrOut};

pub(crate) fn dispatch(call: &mut Call<'_>, operation: u16, r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    // The first argument of almost all is the server's name, as the client knows it; nothing depends on it.
    let r = match operation {
        8..=28 | 30..=38 => {
            if operation != 38 {
                r.wide_pointer()?;
            }
            r
        }
        _ => return Err(Fault::OP_RANGE),
    };
    match operation {
        8 => sessions::connection_enum(call, r),
        9 => files::file_enum(call, r),
        10 => files::file_get_info(call, r),
        11 => files::file_close(call, r),
        12 => sessions::session_enum(call, r),
        13 => sessions::session_del(call, r),
        14 => shares::add(call, r),
        15 | 36 => shares::enumerate(call, r, operation == 36),
        16 => shares::get_info(call, r),
        17 => shares::set_info(call, r),
        18 | 19 => shares::delete(call, r),
        20 => shares::check(call, r),
        21 => server::get_info(call, r),
        23 => server::disk_enum(call, r),
        26 => server::transport_enum(call, r),
        28 => Ok(server::remote_tod(call)),
        30 => paths::path_type(r),
        31 => paths::path_canonicalize(r),
        32 => paths::path_compare(r),
        33 => paths::name_validate(r),
        34 => paths::name_canonicalize(r),
        35 => paths::name_compare(r),
        37 => shares::delete_start(call, r),
        38 => shares::delete_commit(call, r),
        _ => Err(Fault::OP_RANGE),
    }
}

/// The results of an operation that has none but what it returns.
fn only(result: Result<(), Win32>) -> NdrOut {
    let mut out = NdrOut::new();
    out.win32(result.err().unwrap_or(Win32::SUCCESS));
    out
}
