//! The workstation service (MS-WKST): only what the server is.

use crate::error::Fault;
use crate::interface::{Call, Operation, operations};
use crate::ndr::{NdrIn, NdrOut};
use crate::server_info;

/// What is answered.
pub(crate) const OPERATIONS: &[Operation] = operations! {
    0 NetrWkstaGetInfo => |call, r| get_info(call, r);
};

/// NetrWkstaGetInfo (3.2.4.1).
fn get_info(call: &Call<'_>, r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    r.wide_pointer()?;
    server_info::answer(call, r, |server, level, out| {
        out.wide(&server.domain);
        out.u32(server.version.0);
        out.u32(server.version.1);
        if level > 100 {
            // The root of LAN Manager's files, of which there are none.
            out.wide("");
        }
        if level == 102 {
            out.count(call.view.sessions().len());
        }
    })
}
