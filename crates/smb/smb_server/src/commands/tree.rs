//! TREE_CONNECT and TREE_DISCONNECT (MS-SMB2 3.3.5.7, 3.3.5.8).

use std::pin::pin;
use std::sync::Arc;

use file_store::{FileId, FileKind};
use futures_util::future::{Either, select};
use smb_auth::Identity;
use smb_files::{FileSystem, ShareRoot};
use smb_protocol::NtStatus;
use smb_protocol::access::AccessMask;
use smb_protocol::tree::{ShareCapabilities, ShareFlags, ShareType, TreeConnectRequest, TreeConnectResponse};
use smb_protocol::{Dialect, Wire as _};

use super::Call;
use crate::config::ShareKind;
use crate::connection::answer::{Body, Outcome};
use crate::limits::SHARE_WAIT_MAX;
use crate::places::Place;
use crate::session::Session;
use crate::share::Share;
use crate::tree::{Disk, Target, Tree, maximal_access};

/// TREE_CONNECT.
pub(crate) async fn connect(call: &mut Call<'_>, session: &Arc<Session>) -> Result<Outcome, NtStatus> {
    let dialect = session.terms.dialect;
    let request = TreeConnectRequest::decode(call.message(), dialect == Dialect::SMB_3_1_1)?;
    let path = request.path.to_string().map_err(|_| NtStatus::BAD_NETWORK_NAME)?;
    // \\server\share
    let mut parts = path.strip_prefix(r"\\").ok_or(NtStatus::BAD_NETWORK_NAME)?.split('\\');
    let (_server, name) = (parts.next(), parts.next().unwrap_or_default());
    if name.is_empty() || parts.next().is_some() {
        return Err(NtStatus::BAD_NETWORK_NAME);
    }
    let user = session.user();
    let now = call.conn.shared.parts.clock.wall().0;
    // From 3.1.1 on nobody can have changed the name of the share on the way (3.3.5.7).
    if dialect == Dialect::SMB_3_1_1
        && user.identity != Identity::Anonymous
        && call.sealed.is_none()
        && !crate::connection::state::Conn::is_signed(call.header)
    {
        call.conn.fail("TREE_CONNECT is neither signed nor encrypted");
        return Err(NtStatus::ACCESS_DENIED);
    }
    if name.eq_ignore_ascii_case("IPC$") {
        let tree = session.add_tree(place(call, session)?, |id| Tree {
            id,
            target: Target::Pipes,
            maximal_access: AccessMask::FILE_ALL,
            encrypt: false,
            since: now,
        })?;
        call.carried.borrow_mut().tree = tree.id;
        return respond(&tree, ShareType::PIPE, ShareFlags(0x30), ShareCapabilities::NONE);
    }
    if user.identity == Identity::Anonymous {
        if call.conn.may_tell("share refused") {
            tracing::warn!(remote = %call.conn.peer.remote, share = name, "access to the share denied: nobody has logged in");
        }
        return Err(NtStatus::ACCESS_DENIED);
    }
    let no_such_share = || {
        tracing::debug!(remote = %call.conn.peer.remote, user = user.name(), share = name, "no such share");
        NtStatus::BAD_NETWORK_NAME
    };
    let share = arrived(call, name).await?.ok_or_else(no_such_share)?;
    if session.has_ended() {
        return Err(NtStatus::USER_SESSION_DELETED);
    }
    // Who has proven itself once more meanwhile has the rights of that time.
    let user = session.user();
    let config = share.config();
    let maximal = maximal_access(&config, &user.token).ok_or_else(|| {
        if call.conn.may_tell("share refused") {
            tracing::warn!(remote = %call.conn.peer.remote, user = user.name(), share = name, "access to the share denied: no permission names the user");
        }
        NtStatus::ACCESS_DENIED
    })?;
    if config.encrypt && session.seal.is_none() {
        if call.conn.may_tell("share refused") {
            tracing::warn!(remote = %call.conn.peer.remote, user = user.name(), share = name, "access to the share denied: the client cannot encrypt, and must");
        }
        return Err(NtStatus::ACCESS_DENIED);
    }
    let root = find_folder(&config.files, &config.folder).await.inspect_err(|status| {
        if call.conn.may_tell("share without folder") {
            tracing::error!(share = name, folder = config.folder, %status, "a share cannot be served: its folder cannot be found");
        }
    })?;
    let root = Arc::new(ShareRoot {
        root,
        maximal_access: maximal,
        access_based_enumeration: config.access_based_enumeration,
        write_through: config.kind.is_continuously_available(),
    });
    let mut flags = config.caching.flags();
    if config.access_based_enumeration {
        flags |= ShareFlags::ACCESS_BASED_DIRECTORY_ENUM;
    }
    if config.encrypt {
        flags |= ShareFlags::ENCRYPT_DATA;
    }
    let capabilities = if dialect.is_smb3() { capabilities(config.kind) } else { ShareCapabilities::NONE };
    let files = config.files.clone();
    let tree = session.add_tree(place(call, session)?, |id| Tree {
        id,
        target: Target::Disk(Disk { share, files, root }),
        maximal_access: maximal,
        encrypt: config.encrypt,
        since: now,
    })?;
    call.carried.borrow_mut().tree = tree.id;
    respond(&tree, ShareType::DISK, flags, capabilities)
}

/// A tree connect of all that the server can have.
fn place(call: &Call<'_>, session: &Session) -> Result<Place, NtStatus> {
    let (shared, remote) = (&call.conn.shared, call.conn.peer.remote);
    shared.place(&shared.tables.trees, &session.user(), remote).ok_or(NtStatus::INSUFFICIENT_RESOURCES)
}

/// The share of that name, which is waited for while it is on its way here: a client that is told that there is no such share gives up what it
/// has open over it. While it waits the request can be cancelled, counts among those that wait, and ends with its connection.
///
/// # Errors
/// When it takes too long.
async fn arrived(call: &Call<'_>, name: &str) -> Result<Option<Arc<Share>>, NtStatus> {
    // Held back until this has ended.
    let mut held = None;
    let waits = || {
        held.get_or_insert_with(|| call.pending.hold());
    };
    let arrives = pin!(call.conn.shared.shares.arrived(name, waits));
    let late = pin!(shard_runtime::sleep(SHARE_WAIT_MAX));
    match select(arrives, late).await {
        Either::Left((share, _)) => Ok(share),
        Either::Right(_) => {
            tracing::debug!(remote = %call.conn.peer.remote, share = name, "a share that is on its way does not come soon");
            // It is to be asked for again; that there is none would be wrong.
            Err(NtStatus::SERVER_UNAVAILABLE)
        }
    }
}

/// What a client of SMB 3 is told of a share's kind. Not SHARE_CAP_CLUSTER: that promises a Witness service (MS-SWN) to
/// register with, and there is none.
fn capabilities(kind: ShareKind) -> ShareCapabilities {
    match kind {
        ShareKind::Plain => ShareCapabilities::NONE,
        ShareKind::Clustered => ShareCapabilities::CONTINUOUS_AVAILABILITY,
        ShareKind::ScaleOut => ShareCapabilities::CONTINUOUS_AVAILABILITY | ShareCapabilities::SCALEOUT,
    }
}

/// The folder of a share in its volume.
async fn find_folder(files: &FileSystem, folder: &str) -> Result<FileId, NtStatus> {
    let store = files.store();
    let mut at = store.root();
    for name in folder.split(['\\', '/']).filter(|name| !name.is_empty()) {
        let entry = store.lookup(at, name).await.map_err(|_| NtStatus::BAD_NETWORK_NAME)?;
        if entry.kind != FileKind::Directory {
            return Err(NtStatus::BAD_NETWORK_NAME);
        }
        at = entry.file;
    }
    Ok(at)
}

fn respond(
    tree: &Tree,
    share_type: ShareType,
    share_flags: ShareFlags,
    capabilities: ShareCapabilities,
) -> Result<Outcome, NtStatus> {
    let response = TreeConnectResponse {
        share_type,
        share_flags,
        capabilities,
        maximal_access: tree.maximal_access & AccessMask::FILE_ALL,
    };
    Ok(Outcome::ok(Body::of(|out| out.raw(&response.to_bytes()))?))
}

/// TREE_DISCONNECT.
pub(crate) fn disconnect(call: &Call<'_>, session: &Session, tree: &Tree) -> Result<Outcome, NtStatus> {
    let opens = session.remove_tree(tree.id).ok_or(NtStatus::NETWORK_NAME_DELETED)?;
    for open in opens {
        call.conn.shared.opens.leave(&open, false);
    }
    Ok(Outcome::ok(Body::Empty))
}
