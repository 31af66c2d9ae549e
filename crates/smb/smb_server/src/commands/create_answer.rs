//! The answer to a CREATE, with what it tells of caching and of how the open outlives its connection.

use smb_files::{Granted, OpenInfo};
use smb_protocol::access::CreateAction;
use smb_protocol::create::contexts::{ContextWriter, tag};
use smb_protocol::create::handles::{DurableFlags, DurableReply, DurableReplyV2};
use smb_protocol::create::lease::{LeaseV1, LeaseV2};
use smb_protocol::create::{CreateResponse, CreateResponseFlags};

use crate::connection::answer::{Body, Outcome};
use crate::open::{Lasting, Open};

/// What the answer to a CREATE says.
pub(super) struct Answered {
    pub(super) action: CreateAction,
    pub(super) granted: Granted,
    pub(super) info: OpenInfo,
    pub(super) reparse_point: bool,
}

pub(super) fn respond(open: &Open, answered: &Answered, replies: &ContextWriter) -> Result<Outcome, Outcome> {
    let Answered { action, granted, info, reparse_point } = answered;
    let flags = if *reparse_point { CreateResponseFlags::REPARSEPOINT } else { CreateResponseFlags::NONE };
    let response = CreateResponse {
        oplock: granted.level(),
        flags,
        action: *action,
        creation_time: info.creation_time,
        last_access_time: info.last_access_time,
        last_write_time: info.last_write_time,
        change_time: info.change_time,
        allocation_size: info.allocation_size,
        end_of_file: info.end_of_file,
        attributes: info.attributes,
        file_id: open.id,
        contexts: replies.as_contexts(),
    };
    Ok(Outcome::ok(Body::of(|out| response.encode(out))?))
}

pub(super) fn lease_reply(granted: Granted, replies: &mut ContextWriter) {
    let Granted::Lease { key, state, flags, parent, epoch } = granted else { return };
    match epoch {
        Some(epoch) => {
            let lease = LeaseV2 { key, state, flags, parent_key: parent, epoch };
            replies.push_value(tag::LEASE, &lease);
        }
        None => replies.push_value(tag::LEASE, &LeaseV1 { key, state, flags }),
    }
}

pub(super) fn durable_reply(open: &Open, replies: &mut ContextWriter) {
    let (lasting, timeout) = {
        let state = open.state.lock();
        (state.lasting, state.timeout)
    };
    match lasting {
        Lasting::V1 => replies.push_value(tag::DURABLE_REQUEST, &DurableReply {}),
        Lasting::V2 { persistent } => {
            let flags = if persistent { DurableFlags::PERSISTENT } else { DurableFlags::NONE };
            let timeout = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
            replies.push_value(tag::DURABLE_REQUEST_V2, &DurableReplyV2 { timeout, flags });
        }
        Lasting::No | Lasting::Resilient => {}
    }
}
