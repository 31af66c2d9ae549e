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
use crate::interface::{Operation, operations};
use crate::ndr::{NdrIn, NdrOut};

/// What is answered.
pub(crate) const OPERATIONS: &[Operation] = operations! {
    8 NetrConnectionEnum => |call, r| sessions::connection_enum(call, named(r)?);
    9 NetrFileEnum => |call, r| files::file_enum(call, named(r)?);
    10 NetrFileGetInfo => |call, r| files::file_get_info(call, named(r)?);
    11 NetrFileClose => |call, r| files::file_close(call, named(r)?);
    12 NetrSessionEnum => |call, r| sessions::session_enum(call, named(r)?);
    13 NetrSessionDel => |call, r| sessions::session_del(call, named(r)?);
    14 NetrShareAdd => |call, r| shares::add(call, named(r)?);
    15 NetrShareEnum => |call, r| shares::enumerate(call, named(r)?, false);
    16 NetrShareGetInfo => |call, r| shares::get_info(call, named(r)?);
    17 NetrShareSetInfo => |call, r| shares::set_info(call, named(r)?);
    18 NetrShareDel => |call, r| shares::delete(call, named(r)?);
    19 NetrShareDelSticky => |call, r| shares::delete(call, named(r)?);
    20 NetrShareCheck => |call, r| shares::check(call, named(r)?);
    21 NetrServerGetInfo => |call, r| server::get_info(call, named(r)?);
    23 NetrServerDiskEnum => |call, r| server::disk_enum(call, named(r)?);
    26 NetrServerTransportEnum => |call, r| server::transport_enum(call, named(r)?);
    28 NetrRemoteTOD => |call, r| { named(r)?; Ok(server::remote_tod(call)) };
    30 NetprPathType => |_, r| paths::path_type(named(r)?);
    31 NetprPathCanonicalize => |_, r| paths::path_canonicalize(named(r)?);
    32 NetprPathCompare => |_, r| paths::path_compare(named(r)?);
    33 NetprNameValidate => |_, r| paths::name_validate(named(r)?);
    34 NetprNameCanonicalize => |_, r| paths::name_canonicalize(named(r)?);
    35 NetprNameCompare => |_, r| paths::name_compare(named(r)?);
    36 NetrShareEnumSticky => |call, r| shares::enumerate(call, named(r)?, true);
    37 NetrShareDelStart => |call, r| shares::delete_start(call, named(r)?);
    38 NetrShareDelCommit => |call, r| shares::delete_commit(call, r);
};

/// Changes that are not served.
pub(crate) const UNSERVED_CHANGES: &[(u16, &str)] = &[
    (22, "NetrServerSetInfo"),
    (25, "NetrServerTransportAdd"),
    (27, "NetrServerTransportDel"),
    (40, "NetrpSetFileSecurity"),
    (41, "NetrServerTransportAddEx"),
    (53, "NetrServerTransportDelEx"),
];

/// The arguments behind the server's name, which is the first of almost all; as the client knows it, and nothing depends on it.
fn named<'r, 'a>(r: &'r mut NdrIn<'a>) -> Result<&'r mut NdrIn<'a>, Fault> {
    r.wide_pointer()?;
    Ok(r)
}

/// The results of an operation that has none but what it returns.
fn only(result: Result<(), Win32>) -> NdrOut {
    let mut out = NdrOut::new();
    out.win32(result.err().unwrap_or(Win32::SUCCESS));
    out
}
