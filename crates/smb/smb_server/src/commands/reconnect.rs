//! Taking an open up again after its connection, or the server, was lost (MS-SMB2 3.3.5.9.7, 3.3.5.9.12), and CREATEs
//! that are sent twice (3.3.5.9.10).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use smb_files::Granted;
use smb_protocol::NtStatus;
use smb_protocol::access::{CreateAction, OplockLevel};
use smb_protocol::create::CreateRequest;
use smb_protocol::create::contexts::ContextWriter;
use smb_protocol::create::handles::{DurableFlags, DurableRequestV2};

use super::contexts::Contexts;
use super::create_answer::{Answered, durable_reply, lease_reply, respond};
use super::{Call, shared_disk};
use crate::config::ShareKind;
use crate::connection::answer::Outcome;
use crate::open::{Lasting, Open};
use crate::session::Session;
use crate::tree::Tree;

/// DHnC, DH2C.
pub(crate) async fn run(
    call: &Call<'_>,
    session: &Arc<Session>,
    tree: &Arc<Tree>,
    request: &CreateRequest<'_>,
    contexts: &Contexts<'_>,
) -> Result<Arc<Open>, NtStatus> {
    let opens = &call.conn.shared.opens;
    let gone = NtStatus::OBJECT_NAME_NOT_FOUND;
    let (open, fits) = if let Some(wanted) = &contexts.reconnect_v2 {
        let persistent = wanted.flags.contains(DurableFlags::PERSISTENT);
        let open = opens
            .find(wanted.file_id.persistent)
            .or_else(|| opens.find_named(call.create_name(session, wanted.create_guid)))
            .ok_or(gone)?;
        let lasting = open.state.lock().lasting;
        if persistent
            && open.create_guid == wanted.create_guid
            && lasting == (Lasting::V2 { persistent: false })
        {
            // More than it was given (3.3.5.9.12).
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let fits = open.create_guid == wanted.create_guid
            && match lasting {
                Lasting::No => false,
                // Made without a name, and asked for without one.
                Lasting::V1 | Lasting::Resilient => !persistent,
                Lasting::V2 { persistent: false } => !persistent,
                // It outlives the server, and so does the client's identity: nobody else comes for it.
                Lasting::V2 { persistent: true } => persistent && open.client == call.conn.client(),
            };
        (open, fits)
    } else {
        let wanted = contexts.reconnect.as_ref().ok_or(gone)?;
        let open = opens.find(wanted.file_id.persistent).ok_or(gone)?;
        // However it became durable (3.3.5.9.7); a persistent one is known by its name only.
        let lasting = open.state.lock().lasting;
        let fits = open.id.volatile == wanted.file_id.volatile
            && matches!(lasting, Lasting::V1 | Lasting::V2 { persistent: false } | Lasting::Resilient);
        (open, fits)
    };
    if !fits || !same_caching(call, &open, contexts)? {
        tracing::debug!(fits, persistent = open.id.persistent, "SMB reconnection refused: it does not match");
        return Err(gone);
    }
    // A lease belongs to a file, so the name counts; without one it is not looked at (3.3.5.9.7, 3.3.5.9.12).
    if contexts.lease.is_some() && !same_name(request, &open)? {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    if open.user != session.user().token.user {
        if call.conn.may_tell("reconnection refused") {
            tracing::warn!(remote = %call.conn.peer.remote, user = session.user().name(), "SMB reconnection refused: the open is another user's");
        }
        return Err(NtStatus::ACCESS_DENIED);
    }
    shared_disk::comes_back(&call.conn.shared, &open, contexts).await?;
    take_up(call, session, tree, &open)
}

/// Gives an open that waits for its client to that client's session.
fn take_up(
    call: &Call<'_>,
    session: &Arc<Session>,
    tree: &Arc<Tree>,
    open: &Arc<Open>,
) -> Result<Arc<Open>, NtStatus> {
    let (opens, gone) = (&call.conn.shared.opens, NtStatus::OBJECT_NAME_NOT_FOUND);
    let same_share = match (open.tree.share(), tree.share()) {
        (Some(ours), Some(theirs)) => Arc::ptr_eq(ours, theirs),
        _ => false,
    };
    if !same_share {
        return Err(gone);
    }
    let open = opens.reconnect(open, session, tree).ok_or_else(|| {
        tracing::debug!(persistent = open.id.persistent, "SMB reconnection refused: it does not wait");
        gone
    })?;
    if let Err(status) = session.take_up(Arc::clone(&open)) {
        // The session has ended: it waits on.
        opens.leave(&open, true);
        return Err(status);
    }
    Ok(open)
}

/// Whether the request names the file of an open.
fn same_name(request: &CreateRequest<'_>, open: &Open) -> Result<bool, NtStatus> {
    let name = request.name.to_string().map_err(|_| NtStatus::INVALID_PARAMETER)?;
    let name = if open.disk.is_some() { shared_disk::file_name(&name).unwrap_or(&name) } else { &name };
    Ok(upcase::same(name, &open.file()?.path()))
}

/// What the client cached it must still want under the same key.
fn same_caching(call: &Call<'_>, open: &Open, contexts: &Contexts<'_>) -> Result<bool, NtStatus> {
    Ok(match open.file()?.caching() {
        Granted::Lease { key, .. } => {
            contexts.lease.map(|lease| lease.key) == Some(key) && open.client == call.conn.client()
        }
        Granted::Oplock(_) => contexts.lease.is_none(),
    })
}

/// The answer to a CREATE that takes an open up. Without one the open waits on: its client knows nothing of having it, and comes again.
pub(crate) async fn answer_taken_up(
    call: &Call<'_>,
    session: &Session,
    open: &Arc<Open>,
    contexts: &Contexts<'_>,
) -> Result<Outcome, Outcome> {
    let answered = answer(call, open, None, contexts).await;
    if answered.is_err() && session.remove_open(open.id.volatile).is_some() {
        call.conn.shared.opens.leave(open, true);
    }
    answered
}

/// The answer to a CREATE for an open that is there. `again` is the oplock that a replay asks for: it is told of no more
/// caching than it asks for (as Windows), and of no more than there is.
pub(crate) async fn answer(
    call: &Call<'_>,
    open: &Arc<Open>,
    again: Option<OplockLevel>,
    contexts: &Contexts<'_>,
) -> Result<Outcome, Outcome> {
    let file = open.file()?;
    let info = file.info().await?;
    let (action, lasting) = {
        let state = open.state.lock();
        (state.action, state.lasting)
    };
    let mut granted = file.caching();
    let mut replies = ContextWriter::default();
    if let Some(asked) = again {
        if let Granted::Oplock(level) = &mut granted {
            let asked = if asked == OplockLevel::LEASE { OplockLevel::NONE } else { asked };
            *level = OplockLevel(asked.0.min(level.0));
        }
        let lasts = matches!(granted, Granted::Lease { .. } | Granted::Oplock(OplockLevel::BATCH))
            || lasting == Lasting::V2 { persistent: true };
        lease_reply(granted, &mut replies);
        if lasts {
            durable_reply(open, &mut replies);
        }
    } else {
        lease_reply(granted, &mut replies);
    }
    shared_disk::reply(call, open, contexts, &mut replies).await?;
    let action = if again.is_some() { action } else { CreateAction::OPENED };
    call.carried.borrow_mut().file = Some(open.id);
    respond(open, &Answered { action, granted, info, reparse_point: false }, &replies)
}

/// A CREATE whose name for the open is known already: the answer was lost, or it is an error.
pub(crate) async fn replayed(
    call: &Call<'_>,
    session: &Arc<Session>,
    tree: &Arc<Tree>,
    request: &CreateRequest<'_>,
    contexts: &Contexts<'_>,
    durable: &DurableRequestV2,
) -> Result<Option<Arc<Open>>, NtStatus> {
    let name = call.create_name(session, durable.create_guid);
    let Some(open) = call.conn.shared.opens.find_named(name) else { return Ok(None) };
    // Who has used the open has had the answer, and means another one; a persistent one is always known (IsReplayEligible).
    let persistent = open.state.lock().lasting == Lasting::V2 { persistent: true };
    if open.used.load(Ordering::Relaxed) && !persistent {
        return Ok(None);
    }
    let away = persistent && open.file()?.is_detached();
    if !call.is_replay() {
        // On a scale-out share its own client is told what any other is, as Windows does.
        let scale_out = tree.share().is_some_and(|share| share.config().kind == ShareKind::ScaleOut);
        let status =
            if away && scale_out { NtStatus::FILE_NOT_AVAILABLE } else { NtStatus::DUPLICATE_OBJECTID };
        return Err(status);
    }
    if away {
        // The answer was lost with the connection, or with the server: the client knows no other name for the open.
        if !same_caching(call, &open, contexts)? || !same_name(request, &open)? {
            return Err(NtStatus::ACCESS_DENIED);
        }
        shared_disk::comes_back(&call.conn.shared, &open, contexts).await?;
        return take_up(call, session, tree, &open).map(Some);
    }
    if open.tree.id != tree.id {
        return Err(NtStatus::ACCESS_DENIED);
    }
    if session.open(open.id.volatile).is_none() {
        return Err(NtStatus::FILE_NOT_AVAILABLE);
    }
    // Not the same request if it wants another kind of caching, or another lease.
    if !same_caching(call, &open, contexts)? {
        return Err(NtStatus::ACCESS_DENIED);
    }
    Ok(Some(open))
}
