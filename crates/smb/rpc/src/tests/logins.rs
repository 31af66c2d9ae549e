//! What a login inside a pipe is worth, and for how long.

use parking_lot::Mutex;
use smb_auth::ntlm::client::{Credentials, NtlmClient, Randomness};
use smb_auth::{Acceptor, Accounts, Authenticated, Failure, NoAccounts, NtHash, NtlmAcceptor, NtlmServer};
use smb_protocol::FileTime;

use super::*;
use crate::client::Authenticator;

/// NetrShareEnum at level 2, which is for administrators.
fn all_shares() -> Vec<u8> {
    let mut out = NdrOut::new();
    out.pointer(false);
    out.u32(2);
    out.u32(2);
    out.pointer(true);
    out.u32(0);
    out.pointer(false);
    out.u32(u32::MAX);
    out.pointer(false);
    request(WHOLE, 1, 0, 15, &out.finish())
}

/// What the only answer says: the operation's status, or the fault.
fn said(pipe: &RpcPipe) -> Result<u32, Fault> {
    let [answer] = &all(pipe)[..] else { panic!("one answer") };
    match fault_of(answer) {
        Some(fault) => Err(fault),
        None => Ok(u32::from_le_bytes(*answer.last_chunk().unwrap())),
    }
}

/// ERROR_ACCESS_DENIED.
const DENIED: u32 = 5;

/// A PDU with a trailer of NTLM.
fn with_trailer(mut pdu: Vec<u8>, level: u8, token: &[u8]) -> Vec<u8> {
    pdu.resize(pdu.len().next_multiple_of(4), 0);
    pdu.extend_from_slice(&[10, level, 0, 0, 0, 0, 0, 0]);
    pdu.extend_from_slice(token);
    let len = pdu.len() as u16;
    pdu[8..10].copy_from_slice(&len.to_le_bytes());
    pdu[10..12].copy_from_slice(&(token.len() as u16).to_le_bytes());
    pdu
}

/// Logs alice, an administrator, in on a pipe that somebody else has opened.
fn log_alice_in(pipe: &RpcPipe, level: u8) {
    log_alice_in_with(pipe, level, "secret");
}

fn log_alice_in_with(pipe: &RpcPipe, level: u8, password: &str) {
    let credentials = Credentials {
        user: "alice".into(),
        domain: String::new(),
        nt_hash: NtHash::of_password(password),
        workstation: String::new(),
        target_name: String::new(),
    };
    let random = Randomness { challenge: [1; 8], session_key: [2; 16], now: FileTime(1) };
    let mut ntlm = NtlmClient::new(credentials, random);
    pipe.write(&with_trailer(hex(WINDOWS_BIND), level, ntlm.negotiate())).unwrap();
    let ack = all(pipe).remove(0);
    assert_eq!(ack[2], kind::BIND_ACK);
    let at = ack.windows(8).position(|part| part == b"NTLMSSP\0").unwrap();
    let answer = ntlm.authenticate(&ack[at..]).unwrap();
    let auth3 = vec![5, 0, kind::AUTH3, WHOLE, 0x10, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0];
    pipe.write(&with_trailer(auth3, level, &answer)).unwrap();
}

#[test]
fn a_login_that_protects_nothing_gives_nothing() {
    let bob = RpcClient { sid: Sid::GUESTS, ..client(false) };
    let pipe = crate::fuzz::service().open("srvsvc", bob).unwrap();
    // Whoever has relayed her login has no key: nothing of what follows is proven to come from her.
    log_alice_in(&pipe, 2);
    pipe.write(&all_shares()).unwrap();
    assert_eq!(said(&pipe), Ok(DENIED));
    // At every other level each request is signed.
    for level in [3, 4, 5, 6] {
        let pipe = crate::fuzz::service().open("srvsvc", client(false)).unwrap();
        log_alice_in(&pipe, level);
        for bare in [all_shares(), with_trailer(all_shares(), level, &[0; 16])] {
            if pipe.write(&bare).is_ok() {
                assert!(said(&pipe).is_err(), "level {level}");
            }
        }
    }
    let admin = crate::fuzz::service().open("srvsvc", client(true)).unwrap();
    log_alice_in(&admin, 2);
    admin.write(&all_shares()).unwrap();
    assert_eq!(said(&admin), Ok(0), "who opened it keeps its own rights");
}

/// Everybody is what it says here.
struct Now(Mutex<Option<bool>>);

impl Authenticator for Now {
    fn acceptor(&self) -> Option<Acceptor> {
        None
    }
    fn accounts(&self) -> &dyn Accounts {
        &NoAccounts
    }
    fn client(&self, _: &Authenticated) -> Option<RpcClient> {
        None
    }
    fn current(&self, client: &RpcClient) -> Option<RpcClient> {
        self.0.lock().map(|is_administrator| RpcClient { is_administrator, ..client.clone() })
    }
}

#[test]
fn an_open_pipe_follows_its_users_rights() {
    let now = Arc::new(Now(Mutex::new(Some(true))));
    let service = RpcService::new(Arc::new(Memory::sample()), now.clone());
    let pipe = service.open("srvsvc", client(true)).unwrap();
    pipe.write(&hex(WINDOWS_BIND)).unwrap();
    all(&pipe);
    let ask = || {
        pipe.write(&all_shares())?;
        Ok(said(&pipe))
    };
    assert_eq!(ask(), Ok(Ok(0)));
    *now.0.lock() = Some(false);
    assert_eq!(ask(), Ok(Ok(DENIED)), "an administrator no more");
    *now.0.lock() = None;
    assert_eq!(ask(), Ok(Err(Fault::ACCESS_DENIED)), "disabled");
    *now.0.lock() = Some(true);
    assert_eq!(ask(), Err(NtStatus::PIPE_DISCONNECTED), "the pipe has ended");
}

/// Nobody is let in; who is refused is counted.
#[derive(Default)]
struct Refusals(Mutex<Vec<String>>);

impl Authenticator for Refusals {
    fn acceptor(&self) -> Option<Acceptor> {
        let ntlm = NtlmAcceptor::new(Arc::new(NtlmServer::default()), [7; 8], FileTime(1 << 56));
        Some(Acceptor::new(vec![Box::new(ntlm)]))
    }
    fn accounts(&self) -> &dyn Accounts {
        &NoAccounts
    }
    fn client(&self, _: &Authenticated) -> Option<RpcClient> {
        None
    }
    fn current(&self, client: &RpcClient) -> Option<RpcClient> {
        Some(client.clone())
    }
    fn refused(&self, failure: &Failure) {
        self.0.lock().push(failure.user.clone());
    }
}

/// It is for the server to say how much of it goes into the log: whoever may open a pipe can fail as often as it likes.
#[test]
fn a_failed_login_in_a_pipe_is_told_to_the_server() {
    let refusals = Arc::new(Refusals::default());
    let service = RpcService::new(Arc::new(Memory::sample()), refusals.clone());
    for _ in 0..3 {
        let pipe = service.open("srvsvc", client(false)).unwrap();
        log_alice_in_with(&pipe, 6, "guessed");
    }
    assert_eq!(*refusals.0.lock(), ["alice"; 3]);
}
