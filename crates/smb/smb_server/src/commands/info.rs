//! QUERY_INFO, SET_INFO, QUERY_DIRECTORY and CHANGE_NOTIFY (MS-SMB2 3.3.5.18 to 3.3.5.21).

use smb_files::{DirectoryQuery, QuotaChanges};
use smb_protocol::directory::{
    ChangeNotifyFlags, ChangeNotifyRequest, OutputResponse, QueryDirectoryRequest,
};
use smb_protocol::fscc::names::RenameInformation;
use smb_protocol::fscc::{FileClass, VolumeClass};
use smb_protocol::header::HEADER_BYTES;
use smb_protocol::info::{InfoType, QueryInfoRequest, SetInfoRequest, SetInfoResponse};
use smb_protocol::{Dialect, NtStatus, Out, Wire as _};

use super::{Call, shared_disk};
use crate::connection::answer::{Body, Outcome};
use crate::open::Thing;
use crate::open::persistence;
use crate::record::{QuotasAsked, Telling};
use crate::session::Session;

fn output(status: NtStatus, output: &[u8]) -> Result<Outcome, Outcome> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + 8 + output.len());
    bytes.resize(HEADER_BYTES, 0);
    OutputResponse { output }.encode(&mut Out::at(&mut bytes, 0));
    Ok(Outcome { status, body: Body::Message(bytes) })
}

fn count(open: &crate::open::Open) {
    if let Some(share) = open.tree.share() {
        share.counters.other();
    }
}

/// QUERY_INFO.
pub(crate) async fn query(call: &mut Call<'_>, session: &Session) -> Result<Outcome, Outcome> {
    let request = QueryInfoRequest::decode(call.packet.message(&call.range))?;
    call.check_charge(request.input.len(), request.output_length)?;
    let open = call.open(session, request.file_id)?;
    let limit = request.output_length as usize;
    let mut out = Vec::new();
    let file = match &open.thing {
        Thing::File(file) => file,
        Thing::Pipe(_) => return pipe_info(&request),
    };
    count(&open);
    let status = match request.info_type {
        InfoType::FILE => {
            let class = FileClass(request.class);
            if class == FileClass::NORMALIZED_NAME && call.dialect() < Dialect::SMB_3_1_1 {
                // Only newer clients know it (MS-SMB2 3.3.5.20.1).
                return Err(NtStatus::NOT_SUPPORTED.into());
            }
            let index = request.additional;
            file.query_info(class, request.input, index, request.flags, limit, &mut out).await?
        }
        InfoType::FILESYSTEM => file.query_volume(VolumeClass(request.class), limit, &mut out).await?,
        InfoType::SECURITY => {
            file.query_security(request.security(), limit, &mut out).await?;
            NtStatus::SUCCESS
        }
        InfoType::QUOTA => {
            file.query_quota(request.input, limit, &mut out).await?;
            NtStatus::SUCCESS
        }
        _ => return Err(NtStatus::INVALID_PARAMETER.into()),
    };
    output(status, &out)
}

/// As much of a pipe as clients ask for: that it is one (FileStandardInformation).
fn pipe_info(request: &QueryInfoRequest<'_>) -> Result<Outcome, Outcome> {
    if request.info_type != InfoType::FILE || FileClass(request.class) != FileClass::STANDARD {
        return Err(NtStatus::INVALID_PARAMETER.into());
    }
    let mut out = Vec::new();
    4096_u64.put(&mut out);
    0_u64.put(&mut out);
    1_u32.put(&mut out);
    [1_u8, 0, 0, 0].put(&mut out);
    if (request.output_length as usize) < out.len() {
        return Err(NtStatus::INFO_LENGTH_MISMATCH.into());
    }
    output(NtStatus::SUCCESS, &out)
}

/// SET_INFO.
pub(crate) async fn set(call: &mut Call<'_>, session: &Session) -> Result<Outcome, Outcome> {
    let request = SetInfoRequest::decode(call.packet.message(&call.range))?;
    call.check_charge(request.buffer.len(), 0)?;
    let open = call.open(session, request.file_id)?;
    let file = open.file()?;
    let _counted = call.sequenced(&open)?;
    count(&open);
    let pending = call.pending.clone();
    let on_wait = move |waits| pending.say_waiting(waits);
    match request.info_type {
        InfoType::FILE => {
            let class = FileClass(request.class);
            if open.disk.is_some() {
                shared_disk::check_set(class)?;
            }
            let set = file.set_info(class, request.buffer, &on_wait).await;
            set.inspect_err(|error| {
                name_refused(call, session, &file.path(), (class, request.buffer), error)
            })?;
        }
        InfoType::FILESYSTEM => {
            let class = VolumeClass(request.class);
            let mut telling = telling(call, session, &open);
            let set = file.set_volume(class, request.buffer, telling.changes()).await;
            if class == VolumeClass::CONTROL {
                telling.ended(&set);
            } else {
                telling.nothing();
            }
            set?;
        }
        InfoType::SECURITY => file.set_security(request.security(), request.buffer).await?,
        InfoType::QUOTA => {
            let directory = &call.conn.shared.parts.directory;
            let mut telling = telling(call, session, &open);
            let set = file.set_quota(request.buffer, &|sid| directory.is_group(sid), telling.changes()).await;
            telling.ended(&set);
            set?;
        }
        _ => return Err(NtStatus::INVALID_PARAMETER.into()),
    }
    // Names and deletion are part of what comes back.
    persistence::save(&open).await?;
    Ok(Outcome::ok(Body::of(|out| out.raw(&SetInfoResponse {}.to_bytes()))?))
}

/// Who changes quotas by this open, for the record of changes.
fn telling(call: &Call<'_>, session: &Session, open: &crate::open::Open) -> Telling {
    let user = session.user();
    let asked = QuotasAsked {
        user: user.name(),
        is_administrator: user.token.is_admin,
        remote: call.conn.peer.remote,
        share: open.tree.share_name(),
        changes: QuotaChanges::default(),
        ended: None,
    };
    Telling::new(call.conn.shared.parts.record.clone(), asked)
}

/// One line in the log where a name is refused that somebody may have to do something about: the program whose file it is may say
/// nothing of it, and lose what it has written.
fn name_refused(
    call: &Call<'_>,
    session: &Session,
    path: &str,
    (class, buffer): (FileClass, &[u8]),
    error: &smb_files::FileError,
) {
    let ex = matches!(class, FileClass::RENAME_EX | FileClass::LINK_EX);
    let what = match class {
        FileClass::RENAME | FileClass::RENAME_EX => "SMB rename refused",
        FileClass::LINK | FileClass::LINK_EX => "SMB link refused",
        _ => return,
    };
    let telling = matches!(
        error.status,
        NtStatus::ACCESS_DENIED | NtStatus::SHARING_VIOLATION | NtStatus::DISK_FULL | NtStatus::RETRY
    );
    if telling && call.conn.may_tell("rename refused") {
        let to = RenameInformation::decode(buffer, ex).ok().and_then(|info| info.name.to_string().ok());
        let (remote, user) = (call.conn.peer.remote, session.user().name());
        tracing::info!(%remote, user, path, to, status = %error.status, reason = %error.reason, "{what}");
    }
}

/// QUERY_DIRECTORY.
pub(crate) async fn directory(call: &mut Call<'_>, session: &Session) -> Result<Outcome, Outcome> {
    let request = QueryDirectoryRequest::decode(call.packet.message(&call.range))?;
    call.check_charge(request.pattern.bytes().len(), request.output_length)?;
    let open = call.open(session, request.file_id)?;
    let file = open.file()?;
    count(&open);
    let query = DirectoryQuery {
        class: request.class,
        flags: request.flags,
        file_index: request.file_index,
        pattern: request.pattern,
        limit: request.output_length as usize,
    };
    let mut out = Vec::new();
    file.query_directory(query, &mut out).await?;
    output(NtStatus::SUCCESS, &out)
}

/// CHANGE_NOTIFY.
pub(crate) async fn notify(call: &mut Call<'_>, session: &Session) -> Result<Outcome, Outcome> {
    let request = ChangeNotifyRequest::from_message(call.message())?;
    call.check_charge(0, request.output_length)?;
    let open = call.open(session, request.file_id)?;
    let file = open.file()?;
    count(&open);
    let tree = request.flags.contains(ChangeNotifyFlags::WATCH_TREE);
    let mut out = Vec::new();
    let limit = request.output_length as usize;
    // It changes nothing, however long it takes.
    call.pending.say_waiting(true);
    let status = file.notify(request.filter, tree, limit, &mut out).await?;
    if status == NtStatus::NOTIFY_CLEANUP {
        return Err(status.into());
    }
    output(status, &out)
}
