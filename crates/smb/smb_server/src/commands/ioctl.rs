//! IOCTL and OPLOCK_BREAK acknowledgements (MS-SMB2 3.3.5.15, 3.3.5.22).

use std::sync::Arc;
use std::time::Duration;

use qos_gate::Kind;
use smb_files::{Durability, FileSystem, OpenLookup};
use smb_protocol::file::FileId;
use smb_protocol::fsctl::FsctlCode;
use smb_protocol::fsctl::copy::ResumeKey;
use smb_protocol::fsctl::network::{Resiliency, ValidateNegotiate, ValidateNegotiateReply, put_interfaces};
use smb_protocol::fsctl::pipe::PipePeek;
use smb_protocol::ioctl::{IoctlFlags, IoctlRequest, IoctlResponse};
use smb_protocol::negotiate::Capabilities;
use smb_protocol::oplock::{BreakAck, LeaseBreakAck, OplockBreak};
use smb_protocol::{Dialect, NtStatus, Wire as _};

use super::{Call, shared_disk, storage_qos, tunnel, turn};
use crate::connection::answer::{Body, Outcome};
use crate::open::persistence;
use crate::open::{Lasting, Thing};
use crate::pipe::Pipe;
use crate::session::Session;
use crate::tree::{Target, Tree};

/// The longest wait of a resilient open for its client; as Windows.
const RESILIENT_MAX: Duration = Duration::from_secs(300);
/// How long it waits when the client has no wish.
const RESILIENT_DEFAULT: Duration = Duration::from_secs(120);

fn answer(request: &IoctlRequest<'_>, status: NtStatus, output: &[u8]) -> Result<Outcome, Outcome> {
    let response = IoctlResponse { code: request.code, file_id: request.file_id, output };
    Ok(Outcome { status, body: Body::of(|out| response.encode(out))? })
}

/// Other opens of the session, for controls that name a second one.
struct Others<'a>(&'a Session, &'a FileSystem);

impl OpenLookup for Others<'_> {
    fn by_file_id(&self, id: FileId) -> Option<Arc<smb_files::Open>> {
        let open = self.0.open(id.volatile).filter(|open| open.id == id)?;
        open.file().ok().cloned()
    }

    fn by_resume_key(&self, key: ResumeKey) -> Option<Arc<smb_files::Open>> {
        let found = self.1.open_by_resume_key(key)?;
        // Keys of other sessions are not believed (MS-SMB2 3.3.5.15.6).
        // Whose it is now counts: it may have come back with this session.
        (found.owner().0 == self.0.id).then_some(found)
    }
}

/// IOCTL.
pub(crate) async fn run(
    call: &mut Call<'_>,
    session: &Arc<Session>,
    tree: &Arc<Tree>,
) -> Result<Outcome, Outcome> {
    let request = IoctlRequest::decode(call.packet.message(&call.range))?;
    let most = request.max_output_response.max(request.max_input_response);
    call.check_charge(request.input.len(), most)?;
    if !request.flags.contains(IoctlFlags::IS_FSCTL) {
        return Err(NtStatus::NOT_SUPPORTED.into());
    }
    let limit = request.max_output_response as usize;
    let of_no_file = matches!(
        request.code,
        FsctlCode::VALIDATE_NEGOTIATE_INFO
            | FsctlCode::QUERY_NETWORK_INTERFACE_INFO
            | FsctlCode::DFS_GET_REFERRALS
            | FsctlCode::DFS_GET_REFERRALS_EX
            | FsctlCode::PIPE_WAIT
    );
    if of_no_file && request.file_id != FileId::RELATED {
        // They are about no open, and have to say so (3.3.5.15).
        return Err(NtStatus::INVALID_PARAMETER.into());
    }
    match request.code {
        FsctlCode::VALIDATE_NEGOTIATE_INFO => return validate(call, &request),
        FsctlCode::QUERY_NETWORK_INTERFACE_INFO => return interfaces(call, &request),
        FsctlCode::DFS_GET_REFERRALS | FsctlCode::DFS_GET_REFERRALS_EX => {
            return Err(NtStatus::FS_DRIVER_REQUIRED.into());
        }
        FsctlCode::PIPE_WAIT => {
            return if matches!(tree.target, Target::Pipes) {
                answer(&request, NtStatus::SUCCESS, &[])
            } else {
                Err(NtStatus::INVALID_DEVICE_REQUEST.into())
            };
        }
        _ => {}
    }
    let open = call.open(session, request.file_id)?;
    let _counted = call.sequenced(&open)?;
    let file = match &open.thing {
        Thing::File(file) => file,
        Thing::Pipe(pipe) => {
            return match request.code {
                FsctlCode::PIPE_TRANSCEIVE => {
                    let (data, more) = pipe.transceive(request.input.to_vec(), limit).await?;
                    let status = if more { NtStatus::BUFFER_OVERFLOW } else { NtStatus::SUCCESS };
                    answer(&request, status, &data)
                }
                FsctlCode::PIPE_PEEK if limit < PipePeek::SIZE => Err(NtStatus::BUFFER_TOO_SMALL.into()),
                FsctlCode::PIPE_PEEK => answer(&request, NtStatus::SUCCESS, &peek(pipe.as_ref()).to_bytes()),
                _ => Err(NtStatus::INVALID_DEVICE_REQUEST.into()),
            };
        }
    };
    if request.code == FsctlCode::LMR_REQUEST_RESILIENCY {
        let wanted = Resiliency::decode(request.input)?;
        if call.dialect() == Dialect::SMB_2_0_2 {
            return Err(NtStatus::INVALID_DEVICE_REQUEST.into());
        }
        let wish = Duration::from_millis(u64::from(wanted.timeout));
        if wish > RESILIENT_MAX {
            return Err(NtStatus::INVALID_PARAMETER.into());
        }
        {
            let mut state = open.state.lock();
            // What is persistent or durable in the newer way stays so (3.3.5.15.9).
            if matches!(state.lasting, Lasting::No | Lasting::V1) {
                state.lasting = Lasting::Resilient;
            }
            state.timeout = if wish.is_zero() { RESILIENT_DEFAULT } else { wish };
        }
        let durability = Durability::from(open.state.lock().lasting);
        // Also one that is durable in the newer way: it goes on coming back by its name, and is not closed meanwhile.
        file.set_durability(if durability == Durability::Durable {
            Durability::Resilient
        } else {
            durability
        });
        // How long it waits is part of what comes back.
        persistence::save(&open).await?;
        return answer(&request, NtStatus::SUCCESS, &[]);
    }
    if request.code == FsctlCode::STORAGE_QOS_CONTROL {
        let output = storage_qos::run(call, session, &open, &request)?;
        return answer(&request, NtStatus::SUCCESS, &output);
    }
    if request.code == FsctlCode::QUERY_SHARED_VIRTUAL_DISK_SUPPORT {
        let output = tunnel::support(call, &open, &request)?;
        return answer(&request, NtStatus::SUCCESS, &output);
    }
    if matches!(request.code, FsctlCode::SVHDX_SYNC_TUNNEL_REQUEST | FsctlCode::SVHDX_ASYNC_TUNNEL_REQUEST) {
        let output = tunnel::run(call, session, &open, &request).await?;
        return answer(&request, NtStatus::SUCCESS, &output);
    }
    if open.disk.is_some() {
        shared_disk::check_control(request.code)?;
    }
    let Target::Disk(disk) = &tree.target else { return Err(NtStatus::INVALID_DEVICE_REQUEST.into()) };
    disk.share.counters.other();
    let others = Others(session, &disk.files);
    // Whoever had to wait is looked at anew, as all that changes something.
    let permit = match file.moves(request.code, request.input, &others) {
        Some(bytes) => turn::turn(call, session, &open, Kind::Write, bytes).await?,
        None => None,
    };
    let _counted = permit.is_some().then(|| call.sequenced(&open)).transpose()?;
    let (status, output) =
        file.fsctl(request.code, request.input, limit, &others).await.map_err(|error| {
            let status = error.status;
            match error.detail {
                // The limits of a server-side copy, or how far it came, go with the error.
                smb_files::Detail::Output(output) => {
                    answer(&request, status, &output).unwrap_or_else(|outcome| outcome)
                }
                _ => error.into(),
            }
        })?;
    answer(&request, status, &output)
}

/// What waits in a pipe; the data itself, which may follow, is left out.
fn peek(pipe: &dyn Pipe) -> PipePeek {
    /// FILE_PIPE_CONNECTED_STATE.
    const CONNECTED: u32 = 3;
    let (all, first) = pipe.available();
    let count = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
    PipePeek {
        state: CONNECTED,
        data_available: count(all),
        messages: u32::from(first > 0),
        message_length: count(first),
    }
}

/// The client says once more, signed, what it said when it could not sign (3.3.5.15.12).
fn validate(call: &Call<'_>, request: &IoctlRequest<'_>) -> Result<Outcome, Outcome> {
    let negotiated = call.conn.negotiated().ok_or(NtStatus::FILE_CLOSED)?;
    let dialect = negotiated.terms.dialect;
    let said = ValidateNegotiate::decode(request.input)?;
    let config = call.conn.shared.config();
    let best = Dialect::ALL
        .into_iter()
        .rev()
        .filter(|each| *each <= config.max_dialect && *each >= config.min_dialect)
        .find(|each| said.dialects.contains(each.0));
    let same = dialect != Dialect::SMB_3_1_1
        && best == Some(dialect)
        && said.capabilities == negotiated.client_capabilities
        && said.security_mode == negotiated.client_security
        && (said.client_guid == negotiated.terms.client || dialect == Dialect::SMB_2_0_2);
    if !same {
        // Somebody has changed it on the way.
        call.conn.fail("the negotiation was tampered with");
        return Err(NtStatus::ACCESS_DENIED.into());
    }
    let reply = ValidateNegotiateReply {
        capabilities: negotiated.capabilities,
        server_guid: call.conn.shared.parts.guid,
        security_mode: negotiated.security,
        dialect,
    };
    if (request.max_output_response as usize) < ValidateNegotiateReply::SIZE {
        call.conn.fail("no room for the validation");
        return Err(NtStatus::INVALID_PARAMETER.into());
    }
    answer(request, NtStatus::SUCCESS, &reply.to_bytes())
}

/// Where else the client may connect to (3.3.5.15.11).
fn interfaces(call: &Call<'_>, request: &IoctlRequest<'_>) -> Result<Outcome, Outcome> {
    let negotiated = call.conn.negotiated().ok_or(NtStatus::FILE_CLOSED)?;
    if !negotiated.capabilities.contains(Capabilities::MULTI_CHANNEL) {
        return Err(NtStatus::NOT_SUPPORTED.into());
    }
    let mut list = call.conn.shared.parts.interfaces.interfaces(call.conn.peer.local, call.conn.peer.remote);
    let mut output = Vec::new();
    put_interfaces(&list, &mut output);
    while output.len() > request.max_output_response as usize {
        list.pop();
        if list.is_empty() {
            return Err(NtStatus::BUFFER_TOO_SMALL.into());
        }
        output.clear();
        put_interfaces(&list, &mut output);
    }
    answer(request, NtStatus::SUCCESS, &output)
}

/// OPLOCK_BREAK: the client acknowledges.
pub(crate) fn acknowledge(call: &mut Call<'_>, session: &Session, tree: &Tree) -> Result<Outcome, Outcome> {
    let reply = match BreakAck::from_message(call.message())? {
        BreakAck::Oplock(ack) => {
            let open = call.open(session, ack.file_id)?;
            // Before, as more may have to be taken back at once.
            open.link.answered();
            let level = open.file()?.acknowledge_oplock(ack.level)?;
            OplockBreak { level, file_id: ack.file_id }.to_bytes()
        }
        BreakAck::Lease(ack) => {
            let Target::Disk(disk) = &tree.target else { return Err(NtStatus::OBJECT_NAME_NOT_FOUND.into()) };
            // The lease is this user's, whichever of its sessions answers for it.
            let (client, user) = session.client();
            let state = disk.files.acknowledge_lease(client, user, ack.key, ack.state)?;
            LeaseBreakAck { flags: 0, key: ack.key, state }.to_bytes()
        }
    };
    Ok(Outcome::ok(Body::of(|out| out.raw(&reply))?))
}
