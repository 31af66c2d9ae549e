//! Open files (MS-SRVS 3.1.4.2 to 3.1.4.4), for administrators only.

use super::enumeration::{Entry, Extent, Wanted, answer, size_of};
use super::only;
use crate::error::{Fault, Win32};
use crate::interface::Call;
use crate::ndr::{NdrIn, NdrOut};
use crate::view::Open;

impl Entry for Open {
    fn put(&self, level: u32, out: &mut NdrOut) {
        out.u32(self.id);
        if level == 2 {
            return;
        }
        out.u32(self.permissions);
        out.u32(self.locks);
        out.wide(&self.path);
        out.wide(&self.user);
    }

    fn size(&self, _: u32) -> usize {
        size_of(&[&self.path, &self.user])
    }
}

/// NetrFileEnum: those under a path and of a user, each only if named.
pub(super) fn file_enum(call: &Call<'_>, r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    let (path, user) = (r.wide_pointer()?, r.wide_pointer()?);
    let wanted = Wanted::take(r, &[2, 3])?;
    let extent = Extent::take(r)?;
    let found = if call.is_plain_user() {
        Err(Win32::ACCESS_DENIED)
    } else {
        let upper =
            |text: Option<String>| text.filter(|text| !text.is_empty()).map(|text| upcase::upper(&text));
        let (path, user) = (upper(path), upper(user));
        let mut opens = call.view.opens();
        opens.retain(|open| {
            path.as_deref().is_none_or(|path| upcase::upper(&open.path).starts_with(path))
                && user.as_deref().is_none_or(|user| upcase::upper(&open.user) == user)
        });
        Ok(opens)
    };
    Ok(answer(wanted, extent, found))
}

/// NetrFileGetInfo.
pub(super) fn file_get_info(call: &Call<'_>, r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    let (id, level) = (r.u32()?, r.u32()?);
    let known = matches!(level, 2 | 3);
    let found = if call.is_plain_user() {
        Err(Win32::ACCESS_DENIED)
    } else if !known {
        Err(Win32::INVALID_LEVEL)
    } else {
        call.view.opens().into_iter().find(|open| open.id == id).ok_or(Win32::FILE_ID_NOT_FOUND)
    };
    let mut out = NdrOut::new();
    out.u32(level);
    if known {
        out.pointer(found.is_ok());
    }
    if let Ok(open) = &found {
        open.put(level, &mut out);
    }
    out.win32(found.err().unwrap_or(Win32::SUCCESS));
    Ok(out)
}

/// NetrFileClose.
pub(super) fn file_close(call: &Call<'_>, r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    let id = r.u32()?;
    if call.is_plain_user() {
        return Ok(only(Err(call.refused("NetrFileClose", &format!("open {id}"), Win32::ACCESS_DENIED))));
    }
    let closed = call.view.close_open(call.client, id);
    if closed.is_ok() {
        tracing::info!(open = id, by = %call.sid(), "file closed");
    }
    Ok(only(closed))
}
