//! Reads and writes of files wait for their turn at the volume (`qos_gate`): each client's use of a file is a flow.
//!
//! ```text
//!   READ, WRITE, copy ─► turn ─► Permit, at once ─► smb_files ─► the permit is given back
//!                          └─► held back: told as PENDING after a while, can be cancelled, ends with its connection
//! ```
//!
//! What is held back has changed nothing, and is looked at anew when its turn has come: the open, its session and the channel's
//! sequence may have changed meanwhile. The credits of a request come back with its last answer, so a client whose requests are held back
//! can send no more than it has credits for.

use std::sync::Arc;
use std::time::Duration;

use qos_gate::{Asked, Entry, Flow, Kind, Permit, Terms};
use smb_protocol::{Guid, NtStatus};
use uuid::Uuid;

use super::Call;
use crate::logical_flows::Said;
use crate::open::queued::Queued;
use crate::open::{Open, Thing};
use crate::queue::Wanted;
use crate::session::Session;

/// How often a request that is held back looks whether its open is still there, and one that found the queue full whether there is
/// room.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The flow that an open's requests belong to.
pub(crate) fn flow_of(call: &Call<'_>, session: &Session, open: &Open) -> Option<Arc<Flow>> {
    let (Thing::File(file), Some(share)) = (&open.thing, open.tree.share()) else { return None };
    let queues = &call.conn.shared.parts.queues;
    let generation = queues.generation();
    let logical = {
        let state = open.state.lock();
        let said = state.logical.as_ref().map(|logical| (logical.number, logical.generation()));
        if let Some(queued) = &state.queued
            && queued.generation == generation
            && queued.said == said
        {
            return queued.flow.clone();
        }
        state.logical.clone().zip(said)
    };
    let (said, wanted, client) = match logical {
        Some((logical, said)) => {
            let words = logical.said();
            let client = name_of(&words).unwrap_or_else(|| client(call, session));
            (
                Some(said),
                Some(Wanted { flow: Uuid::from_u128(logical.number.into()), asked: asked(&words) }),
                client,
            )
        }
        None => (None, None, client(call, session)),
    };
    let disk = queues.disk(&share.config().name, &file.volume_path(), wanted.as_ref());
    let flow = disk.and_then(|disk| disk.flow(&client));
    let queued = Queued { generation, said, flow: flow.clone() };
    let before = open.state.lock().queued.replace(queued);
    // A flow that goes takes a lock of its own.
    drop(before);
    flow
}

/// What a host wants for a flow: numbers too low to work with are raised to those that do.
fn asked(said: &Said) -> Asked {
    if said.policy != Guid::ZERO {
        return Asked::Policy(Uuid::from_bytes_le(said.policy.0));
    }
    let some = |number: u64| (number > 0).then_some(number);
    let least = qos_policy::MIN_BANDWIDTH;
    let terms = Terms {
        min_iops: some(said.reservation).filter(|_| said.may_reserve),
        max_iops: some(said.limit).map(|limit| limit.max(least / u64::from(qos_policy::DEFAULT_UNIT_BYTES))),
        max_bandwidth: some(said.bandwidth_limit).map(|kilobytes| kilobytes.saturating_mul(1024).max(least)),
        ..Terms::default()
    };
    if terms == Terms::default() { Asked::Nothing } else { Asked::Terms(terms) }
}

/// The virtual machine and its host, as far as the host has named them.
fn name_of(said: &Said) -> Option<String> {
    match (said.name.as_str(), said.node.as_str()) {
        ("", _) => None,
        (name, "") => Some(name.to_owned()),
        (name, node) => Some(format!("{name}@{node}")),
    }
}

/// The client: a user on a machine.
fn client(call: &Call<'_>, session: &Session) -> String {
    let first = session.channels().first().map_or(call.conn.peer.remote, |peer| peer.remote);
    format!("{}@{}", session.user().name(), first.ip().to_canonical())
}

/// Waits until a request of so many bytes may go to the volume, and holds its place there; `None` where nothing waits.
///
/// # Errors
/// The open or its session has ended meanwhile.
pub(crate) async fn turn(
    call: &Call<'_>,
    session: &Session,
    open: &Open,
    kind: Kind,
    bytes: u64,
) -> Result<Option<Permit>, NtStatus> {
    let Some(flow) = flow_of(call, session, open) else { return Ok(None) };
    let still_there = || match &open.thing {
        _ if session.has_ended() => Err(NtStatus::USER_SESSION_DELETED),
        Thing::File(file) if file.is_closed() => Err(NtStatus::FILE_CLOSED),
        _ => Ok(()),
    };
    loop {
        let mut turn = match flow.enter(kind, bytes) {
            Ok(Entry::Now(permit)) => return Ok(Some(permit)),
            Ok(Entry::Later(turn)) => Some(turn),
            // Clients take an error for a broken disk: it waits outside, which its credits bound.
            Err(qos_gate::Refused) => None,
        };
        let _held = call.pending.hold();
        loop {
            let Some(turn) = &mut turn else {
                shard_runtime::sleep(LOOK_EVERY).await;
                still_there()?;
                break;
            };
            if let Some(permit) = shard_runtime::timeout(LOOK_EVERY, turn).await {
                still_there()?;
                return Ok(permit);
            }
            still_there()?;
        }
    }
}
