//! The workstation service (MS-WKST): only what the server is.

use crate::error::{Fault, Win32};
use crate::interface::Call;
use crate::ndr::{NdrIn, NdrOut};

/// PLATFORM_ID_NT.
const PLATFORM_NT: u32 = 500;

pub(crate) fn dispatch(call: &mut Call<'_>, operation: u16, r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    match operation {
        0 => get_info(call, r),
        _ => Err(Fault::OP_RANGE),
    }
}

/// NetrWkstaGetInfo (3.2.4.1): 100 and 101 for everybody, 102 for administrators.
fn get_info(call: &Call<'_>, r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    r.wide_pointer()?;
    let level = r.u32()?;
    let result = match level {
        100 | 101 => Win32::SUCCESS,
        102 if call.is_plain_user() => Win32::ACCESS_DENIED,
        102 => Win32::SUCCESS,
        _ => Win32::INVALID_LEVEL,
    };
    let mut out = NdrOut::new();
    out.u32(level);
    out.pointer(result == Win32::SUCCESS);
    if result != Win32::SUCCESS {
        out.win32(result);
        return Ok(out);
    }
    let server = call.view.server();
    out.u32(PLATFORM_NT);
    out.wide(&server.name);
    out.wide(&server.domain);
    out.u32(server.version.0);
    out.u32(server.version.1);
    if level > 100 {
        // The root of LAN Manager's files, of which there are none.
        out.wide("");
    }
    if level == 102 {
        let users = call.view.sessions().len();
        out.count(users);
    }
    out.win32(result);
    Ok(out)
}
