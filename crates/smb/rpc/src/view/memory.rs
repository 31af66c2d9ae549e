//! A server that is made of lists: for tests and fuzzing.

use parking_lot::Mutex;
use smb_protocol::FileTime;
use smb_protocol::security::sid::Sid;

use super::accounts::{AliasView, NONE_NAME, Principal, PrincipalKind, RID_NONE, UserView, builtin};
use super::{
    Attempt, Connection, NewShare, Open, ServerInfo, ServerView, Session, Share, ShareChange, ShareKind,
};
use crate::client::RpcClient;
use crate::error::Win32;

/// What there is.
#[derive(Clone, Debug, Default)]
pub struct Lists {
    /// Shares.
    pub shares: Vec<Share>,
    /// Sessions.
    pub sessions: Vec<Session>,
    /// Open files.
    pub opens: Vec<Open>,
    /// Connections.
    pub connections: Vec<Connection>,
    /// Users.
    pub users: Vec<UserView>,
    /// Groups.
    pub aliases: Vec<AliasView>,
    /// Changes that were refused: by whom, the operation, what it was about, and why.
    pub refused: Vec<(String, &'static str, String, Win32)>,
    /// How many times chance was asked.
    drawn: u64,
}

/// The server.
#[derive(Debug)]
pub struct Memory {
    machine: Sid,
    lists: Mutex<Lists>,
}

impl Memory {
    /// A server with these lists, called `NODE1` in `WORKGROUP`.
    #[must_use]
    pub fn new(lists: Lists) -> Self {
        let machine = Sid::new(5, &[21, 1, 2, 3]).unwrap_or(Sid::ANONYMOUS);
        Self { machine, lists: Mutex::new(lists) }
    }

    /// What there is now.
    #[must_use]
    pub fn lists(&self) -> Lists {
        self.lists.lock().clone()
    }

    /// A server with a few of everything.
    #[must_use]
    pub fn sample() -> Self {
        let empty = Self::new(Lists::default());
        let account = |rid| empty.machine.child(rid).unwrap_or(empty.machine);
        let share = |name: &str, comment: &str, path: &str| Share {
            name: name.to_owned(),
            comment: comment.to_owned(),
            path: path.to_owned(),
            ..Share::default()
        };
        let ipc = Share { kind: ShareKind::Ipc, special: true, ..share("IPC$", "Remote IPC", "") };
        let vm = Share {
            flags: super::share_flag::CONTINUOUSLY_AVAILABLE,
            ..share("vm", "Virtual machines", "C:\\vm")
        };
        let user = |rid, name: &str, full: &str| UserView {
            sid: account(rid),
            name: name.to_owned(),
            full_name: full.to_owned(),
            comment: String::new(),
            disabled: false,
            locked_out: false,
            password_set: 133_000_000_000_000_000,
        };
        let group = |sid, name: &str, members: Vec<Sid>| AliasView {
            sid,
            name: name.to_owned(),
            comment: format!("Group {name}"),
            members,
        };
        *empty.lists.lock() = Lists {
            shares: vec![vm, share("backup$", "Hidden", "C:\\backup"), ipc],
            sessions: vec![Session {
                id: 7,
                client: "192.0.2.1".to_owned(),
                user: "bob".to_owned(),
                opens: 2,
                seconds: 60,
                idle_seconds: 1,
                guest: false,
            }],
            opens: vec![
                Open {
                    id: 11,
                    path: "C:\\vm\\a.vhdx".to_owned(),
                    user: "bob".to_owned(),
                    permissions: 3,
                    locks: 1,
                },
                Open {
                    id: 12,
                    path: "C:\\vm\\b.vhdx".to_owned(),
                    user: "bob".to_owned(),
                    permissions: 1,
                    locks: 0,
                },
            ],
            connections: vec![Connection {
                id: 5,
                share: "vm".to_owned(),
                client: "192.0.2.1".to_owned(),
                user: "bob".to_owned(),
                opens: 2,
                seconds: 60,
                ..Connection::default()
            }],
            users: vec![user(1000, "bob", "Robert"), user(1001, "alice", "Alice Ä")],
            aliases: vec![
                group(Sid::ADMINISTRATORS, "Administrators", vec![account(1001)]),
                group(Sid::USERS, "Users", vec![Sid::AUTHENTICATED_USERS]),
                group(account(1002), "staff", vec![account(1000), account(1001)]),
            ],
            refused: Vec::new(),
            drawn: 0,
        };
        empty
    }

    fn principals(&self) -> Vec<Principal> {
        let lists = self.lists.lock();
        let machine = self.server().name;
        let of = |sid, domain: &str, name: &str, kind| Principal {
            sid,
            domain: domain.to_owned(),
            name: name.to_owned(),
            kind,
        };
        let mut all = vec![
            of(self.machine, &machine, "", PrincipalKind::Domain),
            of(Sid::EVERYONE, "", "Everyone", PrincipalKind::WellKnown),
            of(Sid::SYSTEM, "NT AUTHORITY", "SYSTEM", PrincipalKind::WellKnown),
        ];
        all.extend(
            self.machine.child(RID_NONE).map(|sid| of(sid, &machine, NONE_NAME, PrincipalKind::Group)),
        );
        all.extend(lists.users.iter().map(|user| of(user.sid, &machine, &user.name, PrincipalKind::User)));
        all.extend(lists.aliases.iter().map(|alias| {
            let domain = if alias.sid.domain() == Some(self.machine) { machine.as_str() } else { "BUILTIN" };
            of(alias.sid, domain, &alias.name, PrincipalKind::Alias)
        }));
        all
    }
}

fn same(one: &str, other: &str) -> bool {
    upcase::same(one, other)
}

impl ServerView for Memory {
    fn change_refused(&self, client: &RpcClient, attempt: &Attempt<'_>) {
        let Attempt { operation, object, why } = *attempt;
        self.lists.lock().refused.push((client.user.clone(), operation, object.to_owned(), why));
    }

    fn server(&self) -> ServerInfo {
        ServerInfo {
            name: "NODE1".to_owned(),
            comment: "Storage".to_owned(),
            version: (10, 0),
            domain: "WORKGROUP".to_owned(),
            up_seconds: 3600,
            ..ServerInfo::default()
        }
    }

    fn now(&self) -> FileTime {
        // 2026-05-27 23:08:17.25 UTC, a Wednesday.
        FileTime(134_243_968_972_500_000)
    }

    fn random(&self) -> [u8; 16] {
        let mut lists = self.lists.lock();
        lists.drawn += 1;
        (u128::from(lists.drawn) << 64 | 0x5eed).to_le_bytes()
    }

    fn shares(&self, _: &RpcClient) -> Vec<Share> {
        self.lists.lock().shares.clone()
    }

    fn add_share(&self, _: &RpcClient, share: &NewShare) -> Result<(), Win32> {
        let mut lists = self.lists.lock();
        if lists.shares.iter().any(|known| same(&known.name, &share.name)) {
            return Err(Win32::DUPLICATE_SHARE);
        }
        let NewShare { name, comment, path, max_uses, security } = share.clone();
        lists.shares.push(Share { name, comment, path, max_uses, security, ..Share::default() });
        Ok(())
    }

    fn change_share(&self, _: &RpcClient, name: &str, change: &ShareChange) -> Result<(), Win32> {
        let mut lists = self.lists.lock();
        let share = lists.shares.iter_mut().find(|known| same(&known.name, name));
        let share = share.ok_or(Win32::NET_NAME_NOT_FOUND)?;
        if let Some(comment) = &change.comment {
            share.comment.clone_from(comment);
        }
        share.max_uses = change.max_uses.unwrap_or(share.max_uses);
        share.flags = change.flags.unwrap_or(share.flags);
        share.security = change.security.clone().or_else(|| share.security.clone());
        Ok(())
    }

    fn remove_share(&self, _: &RpcClient, name: &str) -> Result<(), Win32> {
        let mut lists = self.lists.lock();
        let before = lists.shares.len();
        lists.shares.retain(|known| !same(&known.name, name));
        if lists.shares.len() < before { Ok(()) } else { Err(Win32::NET_NAME_NOT_FOUND) }
    }

    fn sessions(&self) -> Vec<Session> {
        self.lists.lock().sessions.clone()
    }

    fn close_session(&self, _: &RpcClient, id: u64) -> Result<(), Win32> {
        let mut lists = self.lists.lock();
        let before = lists.sessions.len();
        lists.sessions.retain(|known| known.id != id);
        if lists.sessions.len() < before { Ok(()) } else { Err(Win32::CLIENT_NAME_NOT_FOUND) }
    }

    fn opens(&self) -> Vec<Open> {
        self.lists.lock().opens.clone()
    }

    fn close_open(&self, _: &RpcClient, id: u32) -> Result<(), Win32> {
        let mut lists = self.lists.lock();
        let before = lists.opens.len();
        lists.opens.retain(|known| known.id != id);
        if lists.opens.len() < before { Ok(()) } else { Err(Win32::FILE_ID_NOT_FOUND) }
    }

    fn connections(&self) -> Vec<Connection> {
        self.lists.lock().connections.clone()
    }

    fn machine(&self) -> Sid {
        self.machine
    }

    fn find_name(&self, name: &str) -> Option<Principal> {
        let (domain, name) =
            name.split_once('\\').map_or((None, name), |(domain, name)| (Some(domain), name));
        self.principals()
            .into_iter()
            .find(|known| same(&known.name, name) && domain.is_none_or(|domain| same(domain, &known.domain)))
    }

    fn find_sid(&self, sid: Sid) -> Option<Principal> {
        self.principals().into_iter().find(|known| known.sid == sid)
    }

    fn users(&self) -> Vec<UserView> {
        self.lists.lock().users.clone()
    }

    fn aliases(&self, domain: Sid) -> Vec<AliasView> {
        debug_assert!(domain == self.machine || domain == builtin(), "only these have groups");
        let mut found = self.lists.lock().aliases.clone();
        found.retain(|alias| alias.sid.domain() == Some(domain));
        found
    }
}
