//! The node as remote procedure calls see it: shares, sessions, opens, users; and who they believe.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Weak};

use control_api::Problem;
use parking_lot::Mutex;
use rpc::view::accounts::{AliasView, Principal, PrincipalKind, UserView};
use rpc::view::{Attempt, Connection, NewShare, Open, ServerInfo, Session, Share, ShareChange, ShareKind};
use rpc::{Authenticator, RpcClient, ServerView, Win32};
use shard_runtime::{Clock, Entropy as _, Monotonic, SystemEntropy};
use smb_auth::{Acceptor, Accounts, Authenticated, Failure, Identity};
use smb_protocol::FileTime;
use smb_protocol::access::AccessMask;
use smb_protocol::security::Sid;
use smb_server::{Directory as _, SessionInfo, SmbServer};
use smb_users::Users;
use tcp_service::Throttle;
use tokio::runtime::Handle;

use super::directory::NodeUsers;
use super::{InEffect, share_changes};
use crate::backend::{Remote, SmbAdministration, Work};

/// The share that the server makes for itself.
const IPC: &str = "IPC$";
/// PERM_FILE_READ, PERM_FILE_WRITE, PERM_FILE_CREATE (MS-SRVS 2.2.2.6).
const MAY_READ: u32 = 1;
const MAY_WRITE: u32 = 2;
const MAY_CREATE: u32 = 4;

/// When a session was last seen to have asked for something.
#[derive(Clone, Copy)]
struct Activity {
    requests: u64,
    at: Monotonic,
}

/// What the pipes show.
pub(super) struct NodeView {
    /// The server, while it runs: it holds the pipes, which hold this.
    server: Mutex<Option<SmbServer>>,
    in_effect: Arc<Mutex<InEffect>>,
    users: NodeUsers,
    clock: Arc<dyn Clock>,
    started: Monotonic,
    runtime: Handle,
    /// Who changes shares.
    node: Mutex<Option<Weak<dyn SmbAdministration>>>,
    activity: Mutex<BTreeMap<u64, Activity>>,
    /// For lines in the log that clients can cause at will.
    throttle: Throttle,
    /// Entries of the record that wait for its disk.
    pub(super) recording: Arc<AtomicUsize>,
}

/// An address as people know it: of IPv4 also where it came over IPv6.
pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Who asks, for the record.
fn remote(client: &RpcClient) -> Remote {
    Remote { user: client.user.clone(), sid: client.sid, from: client.from.clone() }
}

fn small(value: impl TryInto<u32>) -> u32 {
    value.try_into().unwrap_or(u32::MAX)
}

/// A number for what has a longer one: those are random, so two that are alike are rare, and then neither is closed.
fn fold(id: u64) -> u32 {
    (id ^ (id >> 32)) as u32
}

fn client_of(session: &SessionInfo) -> String {
    let channel = session.channels.first();
    channel.map(|channel| channel.remote.ip().to_canonical().to_string()).unwrap_or_default()
}

fn requests(session: &SessionInfo) -> u64 {
    session.channels.iter().map(|channel| channel.requests).fold(0, u64::wrapping_add)
}

impl NodeView {
    pub(super) fn new(
        in_effect: Arc<Mutex<InEffect>>,
        users: Option<Arc<Users>>,
        clock: Arc<dyn Clock>,
        runtime: Handle,
    ) -> Self {
        Self {
            server: Mutex::default(),
            in_effect,
            users: NodeUsers(users),
            started: clock.now(),
            clock,
            runtime,
            node: Mutex::default(),
            activity: Mutex::default(),
            throttle: Throttle::default(),
            recording: Arc::default(),
        }
    }

    /// Shows this server from now on; none when it stops.
    pub(super) fn show(&self, server: Option<SmbServer>) {
        *self.server.lock() = server;
    }

    /// Has shares changed by this node.
    pub(super) fn administered_by(&self, node: Weak<dyn SmbAdministration>) {
        *self.node.lock() = Some(node);
    }

    /// Notes which sessions have asked for something since the last time. Called now and then.
    pub(super) fn note_activity(&self) {
        let now = self.clock.now();
        let sessions = self.server().map(|server| server.sessions()).unwrap_or_default();
        let mut activity = self.activity.lock();
        let mut seen = BTreeMap::new();
        for session in sessions {
            let requests = requests(&session);
            let before = activity.get(&session.id).filter(|before| before.requests == requests);
            seen.insert(session.id, before.copied().unwrap_or(Activity { requests, at: now }));
        }
        *activity = seen;
    }

    pub(super) fn machine_name(&self) -> String {
        let now = self.in_effect.lock();
        now.server.as_ref().map(|(_, name)| name.clone()).unwrap_or_default()
    }

    fn server(&self) -> Option<SmbServer> {
        self.server.lock().clone()
    }

    fn session_infos(&self) -> Vec<SessionInfo> {
        self.server().map(|server| server.sessions()).unwrap_or_default()
    }

    fn seconds_since(&self, wall: shard_runtime::WallTime) -> u32 {
        small(self.clock.wall().0.saturating_sub(wall.0) / 1_000_000_000)
    }

    fn directory(&self) -> Option<Arc<smb_users::Directory>> {
        self.users.0.as_ref().map(|users| users.snapshot())
    }

    /// Has the node change something, and waits for it.
    fn have<T>(
        &self,
        change: impl for<'a> FnOnce(&'a dyn SmbAdministration) -> Work<'a, T>,
    ) -> Result<T, Problem> {
        let node = self.node();
        let node =
            node.ok_or_else(|| Problem::new(control_api::Code::Unavailable, "The node is stopping."))?;
        self.runtime.block_on(change(&*node))
    }

    /// What a client asks for cannot be said to the node.
    fn refused_here(&self, client: &RpcClient, operation: &'static str, object: &str, why: Win32) {
        self.attempt_refused(client, &Attempt { operation, object, why });
    }

    /// The node; none while it starts or stops.
    pub(super) fn node(&self) -> Option<Arc<dyn SmbAdministration>> {
        self.node.lock().as_ref().and_then(Weak::upgrade)
    }

    pub(super) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// The volume of a share that is served.
    pub(super) fn volume_of(&self, share: &str) -> Option<String> {
        let now = self.in_effect.lock();
        now.shares.get(&upcase::upper(share)).map(|served| served.config.volume.clone())
    }

    fn principal(&self, found: smb_users::Principal) -> Principal {
        let kind = match found.kind {
            smb_users::PrincipalKind::User => PrincipalKind::User,
            smb_users::PrincipalKind::Group => PrincipalKind::Group,
            smb_users::PrincipalKind::Domain => PrincipalKind::Domain,
            smb_users::PrincipalKind::Alias => PrincipalKind::Alias,
            smb_users::PrincipalKind::WellKnown => PrincipalKind::WellKnown,
        };
        let domain = found.authority.name(&self.machine_name()).to_owned();
        Principal { sid: found.sid, domain, name: found.name, kind }
    }

    /// The folders of shares as clients show them, by the upper case of the shares' names.
    fn folders(&self) -> BTreeMap<String, String> {
        let now = self.in_effect.lock();
        let folder = |(name, served): (&String, &super::Served)| {
            (name.clone(), share_changes::shown_path(&served.config))
        };
        now.shares.iter().map(folder).collect()
    }
}

impl ServerView for NodeView {
    fn server(&self) -> ServerInfo {
        let now = self.in_effect.lock();
        let (domain, name) = match &now.server {
            Some((config, name)) => (config.domain.clone(), name.clone()),
            None => Default::default(),
        };
        ServerInfo {
            name,
            comment: "Holdfast".to_owned(),
            version: (10, 0),
            domain,
            up_seconds: self.clock.now().since(self.started).as_secs(),
            ..ServerInfo::default()
        }
    }

    fn now(&self) -> FileTime {
        FileTime::from_unix_nanos(i64::try_from(self.clock.wall().0).unwrap_or(i64::MAX))
    }

    fn random(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        SystemEntropy.fill(&mut bytes);
        bytes
    }

    fn shares(&self, _: &RpcClient) -> Vec<Share> {
        let mut uses: BTreeMap<String, u32> = BTreeMap::new();
        for tree in self.session_infos().iter().flat_map(|session| &session.trees) {
            *uses.entry(upcase::upper(&tree.share)).or_default() += 1;
        }
        let current = |name: &str| uses.get(&upcase::upper(name)).copied().unwrap_or(0);
        let now = self.in_effect.lock();
        let mut shares: Vec<Share> = now
            .shares
            .values()
            .map(|served| share_changes::shown(served, current(&served.config.name)))
            .collect();
        shares.push(Share {
            name: IPC.to_owned(),
            kind: ShareKind::Ipc,
            special: true,
            comment: "Remote IPC".to_owned(),
            current_uses: current(IPC),
            ..Share::default()
        });
        shares
    }

    fn add_share(&self, client: &RpcClient, share: &NewShare) -> Result<(), Win32> {
        let request = share_changes::creation(share, |sid| self.find_sid(sid).map(|found| found.name))
            .inspect_err(|why| self.refused_here(client, "NetrShareAdd", &share.name, *why))?;
        self.have(|node| node.share_create(remote(client), request))
            .map_err(|problem| share_changes::error(&problem, true))
    }

    fn change_share(&self, client: &RpcClient, name: &str, change: &ShareChange) -> Result<(), Win32> {
        let before =
            self.in_effect.lock().shares.get(&upcase::upper(name)).map(|served| served.config.clone());
        let refused = |why: &Win32| self.refused_here(client, "NetrShareSetInfo", name, *why);
        let before = before.ok_or(Win32::NET_NAME_NOT_FOUND).inspect_err(refused)?;
        let update = share_changes::update(&before, change, |sid| self.find_sid(sid).map(|found| found.name))
            .inspect_err(refused)?;
        self.have(|node| node.share_update(remote(client), before.name.clone(), update))
            .map_err(|problem| share_changes::error(&problem, false))
    }

    fn remove_share(&self, client: &RpcClient, name: &str) -> Result<(), Win32> {
        self.have(|node| node.share_delete(remote(client), name.to_owned()))
            .map_err(|problem| share_changes::error(&problem, false))
    }

    fn change_refused(&self, client: &RpcClient, attempt: &Attempt<'_>) {
        self.attempt_refused(client, attempt);
    }

    fn sessions(&self) -> Vec<Session> {
        let activity = self.activity.lock().clone();
        let now = self.clock.now();
        let shown = |session: SessionInfo| {
            let last = activity.get(&session.id).filter(|last| last.requests == requests(&session));
            Session {
                id: session.id,
                client: client_of(&session),
                opens: small(session.opens),
                seconds: self.seconds_since(session.since),
                idle_seconds: last.map_or(0, |last| small(now.since(last.at).as_secs())),
                guest: session.anonymous,
                user: session.user,
            }
        };
        self.session_infos().into_iter().map(shown).collect()
    }

    fn close_session(&self, client: &RpcClient, id: u64) -> Result<(), Win32> {
        let session = self.session_infos().into_iter().find(|session| session.id == id);
        let closed = self.server().is_some_and(|server| server.close_session(id));
        self.session_closed(client, id, session.as_ref().filter(|_| closed));
        if closed { Ok(()) } else { Err(Win32::CLIENT_NAME_NOT_FOUND) }
    }

    fn opens(&self) -> Vec<Open> {
        let folders = self.folders();
        let opens = self.server().map(|server| server.opens()).unwrap_or_default();
        // What waits for its client has no user, and pipes are no files.
        let files = opens.into_iter().filter(|open| open.share != IPC);
        let shown = files.map(|open| {
            let folder = folders.get(&upcase::upper(&open.share)).map(String::as_str).unwrap_or_default();
            let folder = folder.trim_end_matches('\\');
            let has = |mask: AccessMask| open.access.0 & mask.0 != 0;
            let mut permissions = 0;
            if has(AccessMask::READ_DATA) {
                permissions |= MAY_READ;
            }
            if has(AccessMask::WRITE_DATA | AccessMask::APPEND_DATA) {
                permissions |= if open.directory { MAY_CREATE } else { MAY_WRITE };
            }
            Open {
                id: fold(open.id),
                path: if open.path.is_empty() {
                    folder.to_owned()
                } else {
                    format!("{folder}\\{}", open.path)
                },
                user: open.user,
                permissions,
                locks: small(open.locks),
            }
        });
        shown.collect()
    }

    fn close_open(&self, client: &RpcClient, id: u32) -> Result<(), Win32> {
        let server = self.server().ok_or(Win32::FILE_ID_NOT_FOUND)?;
        let mut alike = server.opens().into_iter().filter(|open| open.share != IPC && fold(open.id) == id);
        let closed = match (alike.next(), alike.next()) {
            (Some(open), None) => Some(open).filter(|open| server.close_open(open.id)),
            _ => None,
        };
        self.open_closed(client, id, closed.as_ref());
        closed.map(drop).ok_or(Win32::FILE_ID_NOT_FOUND)
    }

    fn connections(&self) -> Vec<Connection> {
        let mut all = Vec::new();
        for session in self.session_infos() {
            let client = client_of(&session);
            all.extend(session.trees.iter().map(|tree| Connection {
                id: fold(session.id) ^ tree.id,
                kind: if tree.share == IPC { ShareKind::Ipc } else { ShareKind::Disk },
                share: tree.share.clone(),
                client: client.clone(),
                user: session.user.clone(),
                opens: small(tree.opens),
                seconds: self.seconds_since(tree.since),
            }));
        }
        all
    }

    fn machine(&self) -> Sid {
        // Without users there is no machine to have a SID; a made up one has no accounts.
        let nobody = || Sid::new(5, &[21, 0, 0, 0]).unwrap_or(Sid::ANONYMOUS);
        self.directory().map_or_else(nobody, |directory| directory.machine())
    }

    fn find_name(&self, name: &str) -> Option<Principal> {
        let found = self.directory()?.find_name(name, &self.machine_name())?;
        Some(self.principal(found))
    }

    fn find_sid(&self, sid: Sid) -> Option<Principal> {
        Some(self.principal(self.directory()?.find_sid(sid)?))
    }

    fn users(&self) -> Vec<UserView> {
        let (Some(users), Some(directory)) = (&self.users.0, self.directory()) else { return Vec::new() };
        let view = |user: &smb_users::User| UserView {
            sid: user.sid,
            name: user.name.clone(),
            full_name: user.full_name.clone(),
            comment: user.comment.clone(),
            disabled: user.disabled,
            locked_out: users.locked_for(user.sid).is_some(),
            password_set: match i64::try_from(user.password_set) {
                Ok(nanos) if nanos > 0 => FileTime::from_unix_nanos(nanos).0,
                _ => 0,
            },
        };
        directory.users().map(view).collect()
    }

    fn aliases(&self, domain: Sid) -> Vec<AliasView> {
        let Some(directory) = self.directory() else { return Vec::new() };
        let groups = directory.groups().filter(|group| group.sid.domain() == Some(domain));
        let view = |group: &smb_users::Group| AliasView {
            sid: group.sid,
            name: group.name.clone(),
            comment: group.comment.clone(),
            members: group.members.clone(),
        };
        let mut all: Vec<AliasView> = groups.map(view).collect();
        all.sort_by_key(|alias| alias.sid.rid());
        all
    }
}

impl Authenticator for NodeView {
    fn acceptor(&self) -> Option<Acceptor> {
        self.server().map(|server| server.acceptor())
    }

    fn accounts(&self) -> &dyn Accounts {
        &self.users
    }

    fn client(&self, who: &Authenticated) -> Option<RpcClient> {
        let Identity::User { name, sid, .. } = &who.identity else { return None };
        let token = self.users.token(*sid, &who.groups)?;
        Some(RpcClient {
            user: name.clone(),
            domain: self.machine_name(),
            from: String::new(),
            sid: *sid,
            is_administrator: token.is_admin,
        })
    }

    fn current(&self, client: &RpcClient) -> Option<RpcClient> {
        if client.sid == Sid::ANONYMOUS {
            return Some(client.clone());
        }
        let token = self.users.token(client.sid, &[])?;
        Some(RpcClient { is_administrator: token.is_admin, ..client.clone() })
    }

    fn refused(&self, failure: &Failure) {
        // A pipe does not know the address of its client: all of them share one count.
        if self.throttle.admits("login in a pipe refused", IpAddr::V4(Ipv4Addr::UNSPECIFIED)) {
            tracing::info!(user = failure.user, domain = failure.domain, error = %failure.error, "refused in a pipe");
        }
    }
}
