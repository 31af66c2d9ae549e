//! A client without a socket: its packets are run as a connection runs them, its answers are read from the send queue.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use smb_auth::initiator::Answer;
use smb_auth::ntlm::client::{Credentials, Randomness};
use smb_auth::{Initiator, NtHash};
use smb_crypto::{PreauthHash, SessionKeys};
use smb_protocol::compound::{self, FrameWriter};
use smb_protocol::framing::PREFIX_BYTES;
use smb_protocol::header::{HeaderFlags, Routing};
use smb_protocol::message::{Request, Response};
use smb_protocol::negotiate::contexts::U16List;
use smb_protocol::negotiate::{Capabilities, NegotiateContexts, NegotiateRequest, SecurityMode};
use smb_protocol::session::{SessionSetupFlags, SessionSetupRequest};
use smb_protocol::tree::{TreeConnectFlags, TreeConnectRequest, TreeContexts};
use smb_protocol::utf16::{Utf16, utf16};
use smb_protocol::{Command, Dialect, FileTime, Guid, Header, NtStatus};

use crate::commands::session_setup;
use crate::connection::Leaving;
use crate::connection::chain::Chain;
use crate::connection::receive::Packet;
use crate::connection::state::Conn;
use crate::peer::Peer;
use crate::session::{NewSession, Session, User};
use crate::shared::Shared;

/// A packet that is being worked on.
pub(super) struct Work {
    pub(super) future: Pin<Box<dyn Future<Output = ()>>>,
    /// Whether the product goes on with it when its connection is lost.
    pub(super) outlives: Rc<Cell<bool>>,
    /// The number of its last message.
    pub(super) last: u64,
}

/// An answer.
pub(super) struct Got {
    pub(super) header: Header,
    message: Vec<u8>,
}

impl Got {
    pub(super) fn status(&self) -> NtStatus {
        self.header.status
    }

    pub(super) fn response(&self) -> Response<'_> {
        Response::decode(&self.header, &self.message).unwrap()
    }

    pub(super) fn good(&self) -> Response<'_> {
        assert_eq!(self.status(), NtStatus::SUCCESS, "{:?}", self.header.command);
        self.response()
    }

    /// What QUERY_INFO, CHANGE_NOTIFY or IOCTL has brought.
    pub(super) fn output(&self) -> Vec<u8> {
        match self.response() {
            Response::Output(output) => output.output.to_vec(),
            Response::Ioctl(answer) => answer.output.to_vec(),
            other => panic!("{other:?}"),
        }
    }
}

/// One connection of a client.
pub(super) struct Client {
    pub(super) conn: Rc<Conn>,
    shared: Arc<Shared>,
    next: Cell<u64>,
    pub(super) session: Cell<u64>,
    pub(super) tree: Cell<u32>,
    answers: RefCell<Vec<Got>>,
}

impl Client {
    /// Connects and negotiates 3.0.2.
    pub(super) async fn connect(shared: &Arc<Shared>, number: u64, guid: Guid) -> Self {
        let address = SocketAddr::from(([10, 0, 0, number as u8], 445));
        let peer = Arc::new(Peer::new(number, address, address, 0));
        let conn = Rc::new(Conn::new(Arc::clone(shared), peer, None));
        let client = Self {
            conn,
            shared: Arc::clone(shared),
            next: Cell::new(0),
            session: Cell::new(0),
            tree: Cell::new(0),
            answers: RefCell::default(),
        };
        let dialects = Dialect::SMB_3_0_2.0.to_le_bytes();
        let request = Request::Negotiate(NegotiateRequest {
            security_mode: SecurityMode::SIGNING_ENABLED,
            capabilities: Capabilities(0x7f),
            client_guid: guid,
            dialects: U16List::new(&dialects),
            contexts: NegotiateContexts::default(),
        });
        client.call(&request).await.good();
        client
    }

    /// Connects, is let in as a user and connects to a share.
    pub(super) async fn new(
        shared: &Arc<Shared>,
        number: u64,
        guid: Guid,
        (share, rid): (&str, u32),
    ) -> Self {
        let client = Self::connect(shared, number, guid).await;
        assert!(client.enter(rid));
        client.to_share(share).await;
        client
    }

    /// A session without the authentication, which takes longer than all else that a world needs; whether there is room for one.
    pub(super) fn enter(&self, rid: u32) -> bool {
        let terms = self.conn.negotiated().unwrap().terms;
        let identity = smb_auth::Identity::User {
            name: super::world::user_name(rid).to_owned(),
            domain: String::new(),
            sid: super::world::sid(rid),
        };
        let token = self.shared.parts.directory.token(super::world::sid(rid), &[]).unwrap();
        let session = Session::new(NewSession {
            id: self.shared.new_session_id(),
            terms,
            keys: SessionKeys::derive(terms.dialect, None, &[7; 16], &PreauthHash::new()),
            user: User { identity, token: Arc::new(token), workstation: "CLIENT".to_owned() },
            signing_required: false,
            encrypt: false,
            since: 0,
            binding_challenge: [0; 8],
        });
        let session = Arc::new(session.unwrap());
        let place = self.shared.session_place(&session.user(), self.conn.peer.remote, false);
        let Some(place) = place else { return false };
        self.shared.add_session(&session, place);
        let key = session.keys.signing.clone();
        session_setup::join(&self.conn, &session, terms.signing, &key).unwrap();
        self.session.set(session.id);
        true
    }

    /// A further connection of a client's session.
    pub(super) async fn second(&self, number: u64, guid: Guid) -> Self {
        let second = Self::connect(&self.shared, number, guid).await;
        let session = self.state();
        let key = session.keys.signing.clone();
        session_setup::join(&second.conn, &session, session.terms.signing, &key).unwrap();
        second.session.set(self.session.get());
        second.tree.set(self.tree.get());
        second
    }

    /// The session as the server has it.
    pub(super) fn state(&self) -> Arc<Session> {
        self.conn.channel(self.session.get()).map(|channel| Arc::clone(&channel.session)).unwrap()
    }

    pub(super) async fn to_share(&self, share: &str) {
        let got = self.call_bytes(&self.connect_tree(share)).await;
        got.good();
        self.tree.set(got.header.tree_id().unwrap());
    }

    /// The packet that connects to a share.
    pub(super) fn connect_tree(&self, share: &str) -> Vec<u8> {
        let path = utf16(&format!(r"\\server\{share}"));
        let request = Request::TreeConnect(TreeConnectRequest {
            flags: TreeConnectFlags::NONE,
            path: Utf16::new(&path).unwrap(),
            contexts: TreeContexts::default(),
        });
        self.packet(&[&request])
    }

    /// Logs in instead of the session `previous`.
    pub(super) async fn login(&self, previous: u64) {
        let last = self.last_of_login(previous).await;
        self.call_bytes(&last).await.good();
    }

    /// The last packet of a login.
    pub(super) async fn last_of_login(&self, previous: u64) -> Vec<u8> {
        self.last_of_login_as("admin", previous).await
    }

    /// The same of a user.
    pub(super) async fn last_of_login_as(&self, user: &str, previous: u64) -> Vec<u8> {
        let credentials = Credentials {
            user: user.to_owned(),
            domain: String::new(),
            nt_hash: NtHash::of_password("secret"),
            workstation: "CLIENT".to_owned(),
            target_name: String::new(),
        };
        let random = Randomness { challenge: [1; 8], session_key: [2; 16], now: FileTime::ZERO };
        let mut initiator = Initiator::new(credentials, random, None);
        let setup = |token: &[u8]| {
            self.packet(&[&Request::SessionSetup(SessionSetupRequest {
                flags: SessionSetupFlags::NONE,
                security_mode: 1,
                capabilities: Capabilities::NONE,
                previous_session_id: previous,
                security_buffer: token,
            })])
        };
        self.session.set(0);
        let got = self.call_bytes(&setup(&initiator.first())).await;
        assert_eq!(got.status(), NtStatus::MORE_PROCESSING_REQUIRED);
        self.session.set(got.header.session_id);
        let Response::SessionSetup(answer) = got.response() else { panic!("no answer to a login") };
        let Ok(Answer::Continue(token)) = initiator.step(answer.security_buffer) else {
            panic!("no challenge")
        };
        setup(&token)
    }

    fn header(&self, command: Command) -> Header {
        let message_id = self.next.get();
        self.next.set(message_id + 1);
        Header {
            command,
            credit_charge: 64,
            credits: 128,
            message_id,
            routing: Routing::Sync { process: 0, tree: self.tree.get() },
            session_id: self.session.get(),
            ..Header::default()
        }
    }

    /// One packet; the messages after the first are related to the one before them.
    pub(super) fn packet(&self, requests: &[&Request<'_>]) -> Vec<u8> {
        self.packet_with(requests, HeaderFlags::NONE)
    }

    /// The same with flags for the first message.
    pub(super) fn packet_with(&self, requests: &[&Request<'_>], flags: HeaderFlags) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut frame = FrameWriter::new(&mut bytes);
        for (at, request) in requests.iter().enumerate() {
            let mut header = self.header(request.command());
            header.flags |= if at > 0 { HeaderFlags::RELATED_OPERATIONS } else { flags };
            frame.push(&header, |out| request.encode(out));
        }
        frame.finish(0).unwrap();
        bytes.split_off(PREFIX_BYTES)
    }

    /// Begins the work on a packet.
    pub(super) fn begin(&self, packet: &[u8]) -> Work {
        let mut messages = Vec::new();
        for message in compound::messages(packet) {
            let message = message.unwrap();
            messages.push((message.at..message.at + message.bytes.len(), message.header));
        }
        let last = messages.last().unwrap().1.message_id;
        let outlives = Rc::new(Cell::new(false));
        let packet = Packet::of(packet);
        let chain = Chain { packet, messages, sealed: None, outlives: Rc::clone(&outlives) };
        Work { future: Box::pin(chain.run(Rc::clone(&self.conn))), outlives, last }
    }

    pub(super) async fn call(&self, request: &Request<'_>) -> Got {
        self.call_bytes(&self.packet(&[request])).await
    }

    /// Sends a packet and waits for the answer to its last message.
    pub(super) async fn call_bytes(&self, packet: &[u8]) -> Got {
        let work = self.begin(packet);
        let ended = shard_runtime::timeout(std::time::Duration::from_secs(1000), work.future).await;
        assert!(ended.is_some(), "a request of a client that nobody is in the way of never ends");
        self.answer(work.last).await.unwrap()
    }

    /// The final answer to a message, if there is one.
    pub(super) async fn answer(&self, number: u64) -> Option<Got> {
        self.receive().await;
        let mut answers = self.answers.borrow_mut();
        let is_it = |got: &Got| got.header.message_id == number && got.status() != NtStatus::PENDING;
        let at = answers.iter().position(is_it)?;
        Some(answers.swap_remove(at))
    }

    /// What came unasked.
    pub(super) async fn told(&self) -> Vec<Got> {
        for (session, told) in self.conn.peer.take_breaks() {
            self.conn.tell_break(session, told);
        }
        self.receive().await;
        let is_break = |got: &mut Got| got.header.message_id == u64::MAX;
        self.answers.borrow_mut().extract_if(.., is_break).collect()
    }

    async fn receive(&self) {
        let mut bytes: Vec<u8> = Vec::new();
        poll_fn(|cx| {
            self.conn.transmit.borrow_mut().poll_send(&mut bytes, cx).unwrap();
            Poll::Ready(())
        })
        .await;
        let mut rest = &bytes[..];
        while let Some((prefix, after)) = rest.split_first_chunk::<PREFIX_BYTES>() {
            let len = u32::from_be_bytes(*prefix) as usize;
            let (packet, after) = after.split_at(len);
            for message in compound::messages(packet) {
                let message = message.unwrap();
                let got = Got { header: message.header, message: message.bytes.to_vec() };
                self.answers.borrow_mut().push(got);
            }
            rest = after;
        }
    }

    /// Cancels a request as its client does; whether it could be.
    pub(super) fn cancel(&self, number: u64) -> bool {
        let pending = self.conn.pending.borrow();
        let found = pending.get(&number).filter(|found| found.async_id.get().is_some());
        found.inspect(|found| found.cancel()).is_some()
    }

    /// The connection ends, with what is under way on it.
    pub(super) fn lose(&self, work: Work) {
        drop(Leaving(Rc::clone(&self.conn)));
        if work.outlives.get() {
            shard_runtime::spawn_local(work.future);
        }
    }

    /// The connection ends with nothing under way.
    pub(super) fn leave(&self) {
        drop(Leaving(Rc::clone(&self.conn)));
    }
}
