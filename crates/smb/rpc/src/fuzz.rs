//! Entries for fuzzing: any bytes, never a panic, never unbounded work.

use std::sync::Arc;

use smb_auth::{
    Acceptor, Account, AccountState, Accounts, Authenticated, Identity, NtHash, NtlmAcceptor, NtlmServer,
};
use smb_protocol::FileTime;
use smb_protocol::security::sid::Sid;

use crate::client::{Authenticator, RpcClient};
use crate::ndr::{NdrIn, NdrOut, Order};
use crate::service::RpcService;
use crate::view::ServerView as _;
use crate::view::memory::Memory;

/// Lets alice in, who is an administrator, and bob, who is not; always with the same challenge, so that what a client has
/// sent once is right again.
struct Users(Sid);

impl Accounts for Users {
    fn account(&self, _: &str, user: &str) -> Option<Account> {
        let rid = match user {
            "alice" => 1001,
            "bob" => 1000,
            _ => return None,
        };
        let nt_hash = NtHash::of_password("secret");
        Some(Account { name: user.to_owned(), sid: self.0.child(rid)?, nt_hash, state: AccountState::Active })
    }
}

impl Authenticator for Users {
    fn acceptor(&self) -> Option<Acceptor> {
        let name = "NODE1".to_owned();
        let server = NtlmServer { computer: name.clone(), domain: name, ..NtlmServer::default() };
        let ntlm = NtlmAcceptor::new(Arc::new(server), [7; 8], FileTime(133_000_000_000_000_000));
        Some(Acceptor::new(vec![Box::new(ntlm)]))
    }

    fn accounts(&self) -> &dyn Accounts {
        self
    }

    fn client(&self, who: &Authenticated) -> Option<RpcClient> {
        let Identity::User { name, sid, .. } = &who.identity else { return None };
        let is_administrator = name == "alice";
        let (user, domain, from) = (name.clone(), "NODE1".to_owned(), String::new());
        Some(RpcClient { user, domain, from, sid: *sid, is_administrator })
    }

    fn current(&self, client: &RpcClient) -> Option<RpcClient> {
        Some(client.clone())
    }
}

/// A service for [`Memory::sample`] in which alice and bob can authenticate themselves with `secret`.
#[must_use]
pub fn service() -> RpcService {
    let memory = Memory::sample();
    let users = Users(memory.machine());
    RpcService::new(Arc::new(memory), Arc::new(users))
}

/// Who opened a pipe to [`service`].
#[must_use]
pub fn client(is_administrator: bool) -> RpcClient {
    let sid = Sid::new(5, &[21, 1, 2, 3, 1000]).unwrap_or(Sid::SYSTEM);
    let (user, domain, from) = ("bob".to_owned(), "NODE1".to_owned(), "192.0.2.1:50000".to_owned());
    RpcClient { user, domain, from, sid, is_administrator }
}

/// What a client sends through a pipe: the first byte says which pipe and who, the rest are the bytes.
pub fn pipe(bytes: &[u8]) {
    let Some((choice, rest)) = bytes.split_first() else { return };
    let name = match choice & 3 {
        0 => "srvsvc",
        1 => "wkssvc",
        2 => "lsarpc",
        _ => "samr",
    };
    let Ok(pipe) = service().open(name, client(choice & 4 == 0)) else { return };
    // Twice: in one piece, as far as that is taken, and what is left in small ones.
    let (first, second) = rest.split_at(rest.len() / 2);
    let _ = pipe.write(first);
    for piece in second.chunks(7) {
        let _ = pipe.write(piece);
    }
    let mut reads = 0;
    while let Some((part, more)) = pipe.read(1000) {
        assert!(part.len() <= 1000 && (!more || part.len() == 1000), "a part is as long as it may be");
        reads += 1;
        assert!(reads < 100_000, "answers have an end");
    }
}

/// Values for [`ndr`], as a seed.
#[must_use]
pub fn sample() -> Vec<u8> {
    // A pointer to a string, an RPC_UNICODE_STRING, a SID, a number of eight bytes.
    let mut bytes = vec![4 << 1, 5, 6, 8, 3];
    let mut out = NdrOut::new();
    out.wide("server");
    out.flush();
    out.unicode("bob");
    out.flush();
    out.sid_body(&Sid::ADMINISTRATORS);
    out.u64(7);
    bytes.extend_from_slice(&out.finish());
    bytes
}

/// Values of NDR, one after another: each byte says which is expected next.
pub fn ndr(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else { return };
    let order = if first & 1 == 0 { Order::Little } else { Order::Big };
    let (kinds, data) = rest.split_at((*first as usize >> 1).min(rest.len()));
    let mut r = NdrIn::new(data, order);
    for kind in kinds {
        let before = r.left();
        let _ = match kind % 12 {
            0 => r.u8().map(drop),
            1 => r.u16().map(drop),
            2 => r.u32().map(drop),
            3 => r.u64().map(drop),
            4 => r.wide().map(drop),
            5 => r.wide_pointer().map(drop),
            6 => r.unicode().map(drop),
            7 => r.unicodes(usize::from(*kind)).map(drop),
            8 => r.sid().map(drop),
            9 => r.varying(4).map(drop),
            10 => r.context_handle().map(drop),
            _ => r.conformance(usize::from(*kind), 1),
        };
        assert!(r.left() <= before, "nothing is read twice");
    }
}
