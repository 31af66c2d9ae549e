//! CREATE and CLOSE (MS-SMB2 3.3.5.9, 3.3.5.10).

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::Duration;

use smb_files::{Caller, Created, DiskUse, Granted, Holder, LeftBehind, OpenInfo, OwnerId, ShareRoot};
use smb_protocol::access::{CreateAction, OplockLevel};
use smb_protocol::create::CreateRequest;
use smb_protocol::create::contexts::{ContextWriter, tag};
use smb_protocol::create::handles::DurableFlags;
use smb_protocol::create::lease::LeaseState;
use smb_protocol::file::{CloseFlags, CloseRequest, CloseResponse, FileId};
use smb_protocol::negotiate::Capabilities;
use smb_protocol::{Guid, NtStatus, Wire as _};

use super::contexts::Contexts;
use super::create_answer::{Answered, durable_reply, lease_reply, respond};
use super::shared_disk::{self, WantedDisk, disk_of};
use super::{Call, reconnect};
use crate::config::ShareKind;
use crate::connection::answer::{Body, Outcome};
use crate::connection::state::Pending;
use crate::open::link::Link;
use crate::open::table::Opens;
use crate::open::{App, Lasting, Open, State, Thing, persistence};
use crate::places::Place;
use crate::session::Session;
use crate::share::Share;
use crate::tree::{Disk, Target, Tree};

/// How long an open of DHnQ waits for its client: as Windows.
const V1_TIMEOUT: Duration = Duration::from_secs(16 * 60);
/// How long one of DH2Q waits when the client has no wish.
const V2_TIMEOUT: Duration = Duration::from_secs(60);
/// How long it waits at most.
const V2_TIMEOUT_MAX: Duration = Duration::from_secs(300);

/// CREATE.
pub(crate) async fn run(
    call: &mut Call<'_>,
    session: &Arc<Session>,
    tree: &Arc<Tree>,
) -> Result<Outcome, Outcome> {
    let request = CreateRequest::decode(call.packet.message(&call.range))?;
    let Target::Disk(disk) = &tree.target else { return pipe(call, session, tree) };
    let share = &disk.share;
    share.counters.other();
    let contexts = Contexts::of(&request, call.dialect())?;
    let opens = &call.conn.shared.opens;
    if contexts.reconnect.is_some() || contexts.reconnect_v2.is_some() {
        let open = reconnect::run(call, session, tree, &request, &contexts).await?;
        return reconnect::answer_taken_up(call, session, &open, &contexts).await;
    }
    if request.impersonation.0 > 3 {
        return Err(NtStatus::BAD_IMPERSONATION_LEVEL.into());
    }
    if let Some(durable) = &contexts.durable_v2
        && let Some(open) = reconnect::replayed(call, session, tree, &request, &contexts, durable).await?
    {
        // The first one may have been dropped with its connection before it came so far.
        persistence::save(&open).await?;
        return reconnect::answer(call, &open, Some(request.oplock), &contexts).await;
    }
    // The same CREATE again, before the first has ended: only one may be done, and which is not known yet.
    let _creating = match &contexts.durable_v2 {
        Some(durable) => {
            let status =
                if call.is_replay() { NtStatus::FILE_NOT_AVAILABLE } else { NtStatus::DUPLICATE_OBJECTID };
            let name = call.create_name(session, durable.create_guid);
            let creating = opens.begin_create(name).ok_or(status)?;
            // Should its channel be lost, it is found under its name over another one.
            call.pending.outlives.set(true);
            Some(creating)
        }
        None => None,
    };
    create(call, session, tree, disk, &request, &contexts).await
}

/// A CREATE that opens anew.
async fn create(
    call: &Call<'_>,
    session: &Arc<Session>,
    tree: &Arc<Tree>,
    disk: &Disk,
    request: &CreateRequest<'_>,
    contexts: &Contexts<'_>,
) -> Result<Outcome, Outcome> {
    let (share, opens) = (&disk.share, &call.conn.shared.opens);
    let shared_disk = WantedDisk::of(call, request, contexts)?;
    // Before anything is done: who may have no more opens makes and empties no files.
    let place = place(call, session)?;
    let caller = caller(call, session, &disk.root);
    let left_behind = left_behind(call, share, contexts.app);
    let config = share.config();
    let only_reads = config.kind == ShareKind::ScaleOut && call.dialect().is_smb3();
    let id = opens.new_id();
    let link = link(opens, id, session);
    let pending = call.pending.clone();
    let on_wait = move |waits| pending.say_waiting(waits);
    let mut wanted = smb_files::CreateRequest {
        name: request.name,
        desired_access: request.desired_access,
        attributes: request.attributes,
        share_access: request.share_access,
        disposition: request.disposition,
        options: request.options,
        caching: contexts.caching(request.oplock, only_reads),
        security: contexts.security,
        ea: contexts.ea,
        allocation_size: contexts.allocation,
        timewarp: contexts.timewarp,
        maximal_access: contexts.maximal_access,
        on_disk_id: contexts.on_disk_id,
        disk: DiskUse::Bytes,
        holder: Arc::clone(&link) as Arc<dyn Holder>,
        left_behind: &left_behind,
        on_wait: &on_wait,
    };
    if let Some(shared_disk) = &shared_disk {
        shared_disk.ask(&mut wanted)?;
    }
    let created = match disk.files.create(&caller, wanted).await {
        Ok(created) => created,
        Err(error) => {
            share.counters.refused.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            refused(call, session, &config.name, request, &error);
            return Err(error.into());
        }
    };
    let Created { open: file, action, granted, info, reparse_point, maximal_access, on_disk_id } = created;
    let create_guid = contexts.durable_v2.map_or(Guid::ZERO, |durable| durable.create_guid);
    let (lasting, timeout) = lasting(call, contexts, &config, granted, file.is_directory());
    file.set_durability(lasting.into());
    let mut state = State { lasting, timeout, action, ..State::default() };
    // The client's sequence of now is where this open begins.
    let _ = state.sequence.begin(call.header).ok().flatten().map(|sequence| state.sequence.end(sequence));
    let open = Arc::new(Open {
        id,
        tree: Arc::clone(tree),
        thing: Thing::File(Arc::clone(&file)),
        disk: shared_disk.as_ref().and_then(WantedDisk::open),
        client: call.conn.client(),
        user: session.user().token.user,
        create_guid,
        used: AtomicBool::new(false),
        app: contexts.app,
        link,
        state: Arc::new(parking_lot::Mutex::new(state)),
        row: Arc::default(),
    });
    promise(call, session, &open, place).await?;
    call.carried.borrow_mut().file = Some(id);
    let mut replies = ContextWriter::default();
    if let Some(reply) = maximal_access {
        replies.push_value(tag::MAXIMAL_ACCESS, &reply);
    }
    if let Some(reply) = on_disk_id {
        replies.push_value(tag::ON_DISK_ID, &reply);
    }
    lease_reply(granted, &mut replies);
    durable_reply(&open, &mut replies);
    shared_disk::reply(call, &open, contexts, &mut replies).await?;
    respond(&open, &Answered { action, granted, info, reparse_point }, &replies)
}

/// An open of all that the server can have.
fn place(call: &Call<'_>, session: &Session) -> Result<Place, NtStatus> {
    let (shared, remote) = (&call.conn.shared, call.conn.peer.remote);
    shared.place(&shared.tables.opens, &session.user(), remote).ok_or(NtStatus::TOO_MANY_OPENED_FILES)
}

/// Makes an open known, and durable what the answer promises of it; otherwise it is closed.
async fn promise(call: &Call<'_>, session: &Session, open: &Arc<Open>, place: Place) -> Result<(), NtStatus> {
    let opens = &call.conn.shared.opens;
    let mut unanswered =
        Unanswered { opens, session, pending: &call.pending, open: Some(open), failed: true };
    opens.add(open, place);
    let kept = match session.add_open(Arc::clone(open)) {
        Ok(()) => {
            unanswered.failed = false;
            match &open.disk {
                Some(_) => disk_of(&call.conn.shared, open).await.map(drop),
                None => Ok(()),
            }
        }
        Err(status) => Err(status),
    };
    let kept = match kept {
        Ok(()) => persistence::save(open).await,
        refused => refused,
    };
    if kept.is_err() {
        // Closed before that is answered: who hears of it may ask again at once, and must not find its own open in the way.
        unanswered.failed = true;
        session.remove_open(open.id.volatile);
        opens.close(open).await;
    }
    unanswered.open = None;
    kept
}

/// An open whose CREATE has not been answered. Dropped so, it is closed, as nobody knows of it; but for one that a client
/// whose connection is lost can ask for again by its own name.
struct Unanswered<'a> {
    opens: &'a Opens,
    session: &'a Session,
    pending: &'a Pending,
    open: Option<&'a Arc<Open>>,
    failed: bool,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        let Some(open) = self.open else { return };
        if self.failed || self.pending.cancelled.get() || open.create_guid.is_zero() {
            self.session.remove_open(open.id.volatile);
            self.opens.leave(open, false);
        }
    }
}

/// What the application has open on other machines, should it have moved from there to this one (3.3.5.9.13).
fn left_behind(call: &Call<'_>, share: &Arc<Share>, app: App) -> Vec<LeftBehind> {
    if app.id.is_zero() {
        return Vec::new();
    }
    let all = call.conn.shared.opens.of_app(app.id, call.conn.client());
    let of_share = all.iter().filter(|old| old.tree.share().is_some_and(|each| Arc::ptr_eq(each, share)));
    let left = of_share.filter_map(|old| {
        let is_newer = old.app.version.is_some_and(|old| app.version.is_none_or(|new| old >= new));
        Some(LeftBehind { open: old.file().ok()?.id(), is_newer })
    });
    left.collect()
}

/// How the open may outlive its connection (3.3.5.9.6, 3.3.5.9.10).
fn lasting(
    call: &Call<'_>,
    contexts: &Contexts<'_>,
    config: &crate::config::ShareConfig,
    granted: Granted,
    directory: bool,
) -> (Lasting, Duration) {
    // Who caches handles knows of conflicts before they hurt.
    let keeps_handle = match granted {
        Granted::Oplock(level) => level == OplockLevel::BATCH,
        Granted::Lease { state, .. } => state.contains(LeaseState::HANDLE),
    };
    if let Some(wanted) = &contexts.durable_v2 {
        let capable = call
            .conn
            .negotiated()
            .is_some_and(|negotiated| negotiated.capabilities.contains(Capabilities::PERSISTENT_HANDLES));
        let persistent = wanted.flags.contains(DurableFlags::PERSISTENT)
            && config.kind.is_continuously_available()
            && capable;
        if persistent || (keeps_handle && !directory) {
            let wish = Duration::from_millis(u64::from(wanted.timeout));
            let timeout = if wish.is_zero() { V2_TIMEOUT } else { wish.min(V2_TIMEOUT_MAX) };
            return (Lasting::V2 { persistent }, timeout);
        }
    } else if contexts.durable && keeps_handle && !directory {
        return (Lasting::V1, V1_TIMEOUT);
    }
    (Lasting::No, Duration::ZERO)
}

/// Who opens, through which share.
fn caller(call: &Call<'_>, session: &Session, root: &Arc<ShareRoot>) -> Caller {
    Caller {
        token: Arc::clone(&session.user().token),
        share: Arc::clone(root),
        client: call.conn.client(),
        owner: OwnerId(session.id),
    }
}

/// One line in the log for what an administrator will be asked about.
fn refused(
    call: &Call<'_>,
    session: &Session,
    share: &str,
    request: &CreateRequest<'_>,
    error: &smb_files::FileError,
) {
    let telling = matches!(
        error.status,
        NtStatus::ACCESS_DENIED
            | NtStatus::SHARING_VIOLATION
            | NtStatus::DISK_FULL
            | NtStatus::PRIVILEGE_NOT_HELD
            | NtStatus::MEDIA_WRITE_PROTECTED
            | NtStatus::NAME_TOO_LONG
            | NtStatus::FILE_NOT_AVAILABLE
    );
    if telling {
        let path = request.name.to_string().unwrap_or_default();
        if call.conn.may_tell("open refused") {
            tracing::info!(remote = %call.conn.peer.remote, user = session.user().name(), share, path, status = %error.status, reason = %error.reason, "SMB open refused");
        }
    }
}

fn pipe(call: &mut Call<'_>, session: &Arc<Session>, tree: &Arc<Tree>) -> Result<Outcome, Outcome> {
    let request = CreateRequest::decode(call.packet.message(&call.range))?;
    let name = request.name.to_string().map_err(|_| NtStatus::OBJECT_NAME_INVALID)?;
    let user = session.user();
    let client = crate::pipe::PipeClient {
        user: user.name(),
        remote: call.conn.peer.remote,
        sid: user.token.user,
        is_administrator: user.token.is_admin,
        session_key: session.keys.application.expose().to_vec(),
    };
    let place = place(call, session)?;
    let pipe = call.conn.shared.parts.pipes.open(name.trim_start_matches('\\'), &client)?;
    let opens = &call.conn.shared.opens;
    let id = opens.new_id();
    let open = Arc::new(Open {
        id,
        tree: Arc::clone(tree),
        thing: Thing::Pipe(pipe),
        disk: None,
        client: call.conn.client(),
        user: user.token.user,
        create_guid: Guid::ZERO,
        used: AtomicBool::new(true),
        app: App::default(),
        link: link(opens, id, session),
        state: Arc::default(),
        row: Arc::default(),
    });
    opens.add(&open, place);
    if let Err(status) = session.add_open(Arc::clone(&open)) {
        opens.remove(&open);
        return Err(status.into());
    }
    call.carried.borrow_mut().file = Some(id);
    let info = OpenInfo {
        allocation_size: 4096,
        attributes: smb_protocol::access::FileAttributes::NORMAL,
        ..OpenInfo::default()
    };
    let granted = Granted::Oplock(OplockLevel::NONE);
    let answer = Answered { action: CreateAction::OPENED, granted, info, reparse_point: false };
    respond(&open, &answer, &ContextWriter::default())
}

/// CLOSE.
pub(crate) async fn close(call: &mut Call<'_>, session: &Session) -> Result<Outcome, Outcome> {
    let request = CloseRequest::from_message(call.message())?;
    let open = call.open(session, request.file_id)?;
    session.remove_open(open.id.volatile).ok_or(NtStatus::FILE_CLOSED)?;
    call.conn.shared.opens.remove(&open);
    let query = request.flags.contains(CloseFlags::POSTQUERY_ATTRIB);
    let mut response = CloseResponse::default();
    if let Thing::File(file) = &open.thing {
        if let Some(share) = open.tree.share() {
            share.counters.other();
        }
        // Both, also when the connection goes meanwhile: nobody else would.
        let (file, closing) = (Arc::clone(file), Arc::clone(&open));
        let closed = shard_runtime::finish_anyway(async move {
            if let Some(disk) = &closing.disk {
                disk.close().await;
            }
            let closed = file.close(query).await;
            (closed, persistence::forget(&closing).await)
        });
        let (closed, forgotten) = closed.await;
        forgotten?;
        if let Some(info) = closed? {
            response = CloseResponse {
                flags: CloseFlags::POSTQUERY_ATTRIB,
                creation_time: info.creation_time,
                last_access_time: info.last_access_time,
                last_write_time: info.last_write_time,
                change_time: info.change_time,
                allocation_size: info.allocation_size,
                end_of_file: info.end_of_file,
                attributes: info.attributes,
            };
        }
    }
    Ok(Outcome::ok(Body::of(|out| out.raw(&response.to_bytes()))?))
}

/// The way from a file, yet to be opened, to a session.
fn link(opens: &Opens, id: FileId, session: &Arc<Session>) -> Arc<Link> {
    let owner: Weak<Session> = Arc::downgrade(session);
    Link::new(id, owner, opens)
}
