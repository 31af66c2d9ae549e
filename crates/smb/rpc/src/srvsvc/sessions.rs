//! Sessions and connections (MS-SRVS 3.1.4.1, 3.1.4.5, 3.1.4.6), all for administrators only.

use super::enumeration::{Entry, Extent, Wanted, answer, size_of};
use super::only;
use super::share_info::kind;
use crate::error::{Fault, Win32};
use crate::interface::Call;
use crate::ndr::{NdrIn, NdrOut};
use crate::view::{Connection, Session};

/// SESS_GUEST.
const GUEST: u32 = 1;

impl Entry for Session {
    fn put(&self, level: u32, out: &mut NdrOut) {
        out.wide(&self.client);
        if level == 0 {
            return;
        }
        out.wide(&self.user);
        if level != 10 {
            out.u32(self.opens);
        }
        out.u32(self.seconds);
        out.u32(self.idle_seconds);
        if level == 10 {
            return;
        }
        out.u32(if self.guest { GUEST } else { 0 });
        if matches!(level, 2 | 502) {
            // The client's kind, which no client says any more.
            out.wide("");
        }
        if level == 502 {
            // The transport.
            out.wide("");
        }
    }

    fn size(&self, _: u32) -> usize {
        size_of(&[&self.client, &self.user])
    }
}

fn same(one: &str, other: &str) -> bool {
    upcase::same(one, other)
}

/// Whether a client has this name; clients write backslashes before it.
fn is_client(name: &str, client: &str) -> bool {
    same(name.trim_start_matches('\\'), client)
}

/// Sessions of a client and a user, each only if named.
fn chosen(call: &Call<'_>, client: Option<&str>, user: Option<&str>) -> Vec<Session> {
    let client = client.filter(|name| !name.is_empty());
    let user = user.filter(|name| !name.is_empty());
    let mut sessions = call.view.sessions();
    sessions.retain(|session| {
        client.is_none_or(|name| is_client(name, &session.client))
            && user.is_none_or(|name| same(name, &session.user))
    });
    sessions
}

/// NetrSessionEnum.
pub(super) fn session_enum(call: &Call<'_>, r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    let (client, user) = (r.wide_pointer()?, r.wide_pointer()?);
    let wanted = Wanted::take(r, &[0, 1, 2, 10, 502])?;
    let extent = Extent::take(r)?;
    let named = client.as_deref().is_some_and(|name| !name.is_empty());
    let found = if call.is_plain_user() {
        Err(Win32::ACCESS_DENIED)
    } else {
        let sessions = chosen(call, client.as_deref(), user.as_deref());
        if named && sessions.is_empty() { Err(Win32::CLIENT_NAME_NOT_FOUND) } else { Ok(sessions) }
    };
    Ok(answer(wanted, extent, found))
}

/// NetrSessionDel: all sessions of a client, of a user, or of both.
pub(super) fn session_del(call: &Call<'_>, r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    let (client, user) = (r.wide_pointer()?, r.wide_pointer()?);
    let said: Vec<&str> =
        [&user, &client].into_iter().flatten().map(String::as_str).filter(|name| !name.is_empty()).collect();
    let refused = |why| Ok(only(Err(call.refused("NetrSessionDel", &said.join(" "), why))));
    if call.is_plain_user() {
        return refused(Win32::ACCESS_DENIED);
    }
    if said.is_empty() {
        return refused(Win32::INVALID_PARAMETER);
    }
    let sessions = chosen(call, client.as_deref(), user.as_deref());
    if sessions.is_empty() {
        return refused(Win32::CLIENT_NAME_NOT_FOUND);
    }
    let mut closed = 0;
    for session in &sessions {
        // One that has just ended is what was asked for.
        if call.view.close_session(call.client, session.id).is_ok() {
            tracing::info!(client = session.client, user = session.user, by = %call.sid(), "session closed");
            closed += 1;
        }
    }
    Ok(only(if closed > 0 { Ok(()) } else { Err(Win32::CLIENT_NAME_NOT_FOUND) }))
}

impl Entry for Connection {
    fn put(&self, level: u32, out: &mut NdrOut) {
        out.u32(self.id);
        if level == 0 {
            return;
        }
        out.u32(kind(self.kind));
        out.u32(self.opens);
        // Users of the connection: a session has one.
        out.u32(1);
        out.u32(self.seconds);
        out.wide(&self.user);
        out.wide(&self.share);
    }

    fn size(&self, _: u32) -> usize {
        size_of(&[&self.user, &self.share])
    }
}

/// NetrConnectionEnum: connections to a share, or of a client, which is written with two backslashes.
pub(super) fn connection_enum(call: &Call<'_>, r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    let qualifier = r.wide_pointer()?;
    let wanted = Wanted::take(r, &[0, 1])?;
    let extent = Extent::take(r)?;
    let found = match qualifier.as_deref() {
        _ if call.is_plain_user() => Err(Win32::ACCESS_DENIED),
        None | Some("") => Err(Win32::INVALID_PARAMETER),
        Some(name) => {
            let mut connections = call.view.connections();
            connections.retain(|connection| match name.strip_prefix("\\\\") {
                Some(client) => is_client(client, &connection.client),
                None => same(name, &connection.share),
            });
            if !name.starts_with("\\\\") && !shared(call, name) {
                Err(Win32::NET_NAME_NOT_FOUND)
            } else {
                Ok(connections)
            }
        }
    };
    Ok(answer(wanted, extent, found))
}

fn shared(call: &Call<'_>, name: &str) -> bool {
    call.view.shares(call.client).iter().any(|share| same(&share.name, name))
}
