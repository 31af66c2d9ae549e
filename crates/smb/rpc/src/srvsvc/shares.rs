//! Shares (MS-SRVS 3.1.4.7 to 3.1.4.14).

use super::enumeration::{Entry as _, Extent, Wanted, answer};
use super::only;
use super::share_info::{ENUM_LEVELS, Given, LEVELS, is_for_administrators, share_type};
use crate::error::{Fault, Win32};
use crate::handles::Object;
use crate::interface::Call;
use crate::ndr::{NdrIn, NdrOut};
use crate::view::Share;

/// NetrShareEnum; `sticky` asks for those that survive a restart, and leaves out what the server makes for itself.
pub(super) fn enumerate(call: &Call<'_>, r: &mut NdrIn<'_>, sticky: bool) -> Result<NdrOut, Fault> {
    let wanted = Wanted::take(r, &ENUM_LEVELS)?;
    let extent = Extent::take(r)?;
    let shares = if is_for_administrators(wanted.level()) && call.is_plain_user() {
        Err(Win32::ACCESS_DENIED)
    } else {
        let mut shares = call.view.shares(call.client);
        // Who administers sees what is hidden from those who browse.
        let browsing = !is_for_administrators(wanted.level());
        shares.retain(|share| !(sticky && share.special || browsing && share.hidden));
        Ok(shares)
    };
    Ok(answer(wanted, extent, shares))
}

fn find(call: &Call<'_>, name: &str) -> Result<Share, Win32> {
    let mut shares = call.view.shares(call.client).into_iter();
    shares.find(|share| upcase::same(&share.name, name)).ok_or(Win32::NET_NAME_NOT_FOUND)
}

/// NetrShareGetInfo.
pub(super) fn get_info(call: &Call<'_>, r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    let name = r.wide()?;
    let level = r.u32()?;
    let found = if !LEVELS.contains(&level) {
        Err(Win32::INVALID_LEVEL)
    } else if is_for_administrators(level) && call.is_plain_user() {
        Err(Win32::ACCESS_DENIED)
    } else {
        find(call, &name)
    };
    let mut out = NdrOut::new();
    out.u32(level);
    match found {
        Ok(share) => {
            out.pointer(true);
            share.put(level, &mut out);
            out.win32(Win32::SUCCESS);
        }
        Err(error) => {
            if LEVELS.contains(&level) {
                out.pointer(false);
            }
            out.win32(error);
        }
    }
    Ok(out)
}

/// Which parameter was wrong: we do not say, but give back what the client has there.
fn parameter_error(r: &mut NdrIn<'_>) -> Result<Option<u32>, Fault> {
    Ok(if r.pointer()? { Some(r.u32()?) } else { None })
}

fn changed(parameter: Option<u32>, result: Result<(), Win32>) -> NdrOut {
    let mut out = NdrOut::new();
    out.pointer(parameter.is_some());
    if parameter.is_some() {
        out.u32(0);
    }
    out.win32(result.err().unwrap_or(Win32::SUCCESS));
    out
}

/// NetrShareAdd: levels 2, 502 and 503.
pub(super) fn add(call: &Call<'_>, r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    let level = r.u32()?;
    let given = Given::take(r, level)?;
    let parameter = parameter_error(r)?;
    let name = given.as_ref().and_then(|given| given.name.clone()).unwrap_or_default();
    let wanted = if call.is_plain_user() {
        Err(Win32::ACCESS_DENIED)
    } else if !matches!(level, 2 | 502 | 503) {
        Err(Win32::INVALID_LEVEL)
    } else {
        given.ok_or(Win32::INVALID_PARAMETER).and_then(Given::into_new)
    };
    let result = wanted
        .map_err(|why| call.refused("NetrShareAdd", &name, why))
        .and_then(|share| call.view.add_share(call.client, &share).map(|()| share))
        .map(|share| tracing::info!(share = share.name, path = share.path, by = %call.sid(), "share added"));
    Ok(changed(parameter, result))
}

/// NetrShareSetInfo.
pub(super) fn set_info(call: &Call<'_>, r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    let name = r.wide()?;
    let level = r.u32()?;
    let given = Given::take(r, level)?;
    let parameter = parameter_error(r)?;
    let wanted = if call.is_plain_user() {
        Err(Win32::ACCESS_DENIED)
    } else if matches!(level, 0 | 501) || !LEVELS.contains(&level) {
        Err(Win32::INVALID_LEVEL)
    } else {
        find(call, &name).and_then(|share| match share.special {
            true => Err(Win32::ACCESS_DENIED),
            false => Ok((share.name, given.ok_or(Win32::INVALID_PARAMETER)?.into_change()?)),
        })
    };
    let result =
        wanted.map_err(|why| call.refused("NetrShareSetInfo", &name, why)).and_then(|(share, change)| {
            call.view.change_share(call.client, &share, &change)?;
            tracing::info!(share, by = %call.sid(), level, "share changed");
            Ok(())
        });
    Ok(changed(parameter, result))
}

fn remove(call: &Call<'_>, operation: &'static str, name: &str) -> Result<(), Win32> {
    let share = removable(call, operation, name)?;
    call.view.remove_share(call.client, &share.name)?;
    tracing::info!(share = share.name, by = %call.sid(), "share removed");
    Ok(())
}

fn removable(call: &Call<'_>, operation: &'static str, name: &str) -> Result<Share, Win32> {
    let found = if call.is_plain_user() {
        Err(Win32::ACCESS_DENIED)
    } else {
        // What the server has made for itself stays.
        find(call, name).and_then(|share| if share.special { Err(Win32::ACCESS_DENIED) } else { Ok(share) })
    };
    found.map_err(|why| call.refused(operation, name, why))
}

/// NetrShareDel and NetrShareDelSticky: no share of ours is one without being kept.
pub(super) fn delete(call: &Call<'_>, r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    let name = r.wide()?;
    r.u32()?;
    Ok(only(remove(call, "NetrShareDel", &name)))
}

/// NetrShareDelStart: the first half of a removal.
pub(super) fn delete_start(call: &mut Call<'_>, r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    let name = r.wide()?;
    r.u32()?;
    let opened = removable(call, "NetrShareDelStart", &name)
        .and_then(|share| call.open(Object::ShareRemoval(share.name)).map_err(|_| Win32::NOT_ENOUGH_MEMORY));
    let mut out = NdrOut::new();
    out.context_handle(&opened.unwrap_or([0; 20]));
    out.win32(opened.err().unwrap_or(Win32::SUCCESS));
    Ok(out)
}

/// NetrShareDelCommit: the second half.
pub(super) fn delete_commit(call: &mut Call<'_>, r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    let handle = r.context_handle()?;
    let Object::ShareRemoval(name) = call.handles.get(call.client.sid, &handle)? else {
        return Err(Fault::CONTEXT_MISMATCH);
    };
    call.handles.close(call.client.sid, &handle)?;
    let result = remove(call, "NetrShareDelCommit", &name);
    let mut out = NdrOut::new();
    out.context_handle(&[0; 20]);
    out.win32(result.err().unwrap_or(Win32::SUCCESS));
    Ok(out)
}

/// NetrShareCheck: whether a folder or device is shared, and as what. The argument is called a device and is compared
/// with the folders of shares.
pub(super) fn check(call: &Call<'_>, r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    let device = r.wide()?;
    let shares = call.view.shares(call.client);
    let found = shares.iter().find(|share| upcase::same(&share.path, &device));
    let mut out = NdrOut::new();
    out.u32(found.map_or(0, share_type));
    out.win32(if found.is_some() { Win32::SUCCESS } else { Win32::DEVICE_NOT_SHARED });
    Ok(out)
}
