//! What srvsvc and wkssvc have in common: the server's own information, at levels 100 to 102.

use crate::error::{Fault, Win32};
use crate::interface::Call;
use crate::ndr::{NdrIn, NdrOut};
use crate::view::ServerInfo;

/// PLATFORM_ID_NT.
const PLATFORM_NT: u32 = 500;

/// An answer: levels 100 and 101 for everybody, 102 for administrators. All begin with the platform and the server's name;
/// `put` appends what the interface has after it.
pub(crate) fn answer(
    call: &Call<'_>,
    r: &mut NdrIn<'_>,
    put: impl FnOnce(&ServerInfo, u32, &mut NdrOut),
) -> Result<NdrOut, Fault> {
    let level = r.u32()?;
    let result = match level {
        100 | 101 => Win32::SUCCESS,
        102 if call.is_plain_user() => Win32::ACCESS_DENIED,
        102 => Win32::SUCCESS,
        _ => Win32::INVALID_LEVEL,
    };
    let mut out = NdrOut::new();
    out.u32(level);
    // The union has nothing for other levels, or one that we do not give away: a pointer to nothing serves both.
    out.pointer(result == Win32::SUCCESS);
    if result == Win32::SUCCESS {
        let server = call.view.server();
        out.u32(PLATFORM_NT);
        out.wide(&server.name);
        put(&server, level, &mut out);
    }
    out.win32(result);
    Ok(out)
}
