//! One connection.

use std::collections::VecDeque;
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Duration;

use io_engine::readiness;
use shard_runtime::{Entropy as _, SystemEntropy};
use smb_crypto::{PreauthHash, Signer};
use smb_protocol::compound::{self, FrameWriter};
use smb_protocol::framing::{PREFIX_BYTES, Prefix};
use smb_protocol::header::Routing;
use smb_protocol::message::{Request, Response};
use smb_protocol::negotiate::contexts::{
    Cipher, HashAlgorithm, NegotiateContext, SigningAlgorithm, U16List, list,
};
use smb_protocol::negotiate::{Capabilities, NegotiateContexts, NegotiateRequest, SecurityMode};
use smb_protocol::transform::TRANSFORM_BYTES;
use smb_protocol::tree::{ShareFlags, TreeConnectFlags, TreeConnectRequest, TreeContexts};
use smb_protocol::utf16::{Utf16, utf16};
use smb_protocol::{Command, Dialect, Header, NtStatus};

use crate::error::ClientError;
use crate::inbox::Inbox;
use crate::types::{Options, Protection, Received, Session};

/// Credits that are asked for with each message.
const WANTED_CREDITS: u16 = 128;

/// A connection, with at most one session.
pub struct Connection {
    pub(crate) stream: TcpStream,
    pub(crate) inbox: Inbox,
    /// Memory of a long packet that was taken, for the next one.
    pub(crate) spare: Vec<u8>,
    options: Options,
    /// The version that was agreed on.
    pub dialect: Dialect,
    /// What the server can do.
    pub capabilities: Capabilities,
    /// Whether the server takes only messages of users that are signed.
    pub must_sign: bool,
    /// Bytes of the largest READ and WRITE.
    pub max_transfer: u32,
    pub(crate) cipher: Option<Cipher>,
    pub(crate) signing: SigningAlgorithm,
    pub(crate) preauth: PreauthHash,
    next_id: u64,
    /// How messages go out.
    pub protection: Protection,
    /// The session.
    pub session: Option<Session>,
    /// The channel sequence of requests.
    pub channel_sequence: u16,
    pub(crate) waiting: VecDeque<Received>,
}

impl Connection {
    /// Connects and negotiates.
    ///
    /// # Errors
    /// When the server cannot be reached or speaks none of the versions.
    pub fn connect(address: SocketAddr, options: Options) -> Result<Self, ClientError> {
        let stream = TcpStream::connect_timeout(&address, options.timeout)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(options.timeout))?;
        let mut connection = Self {
            stream,
            inbox: Inbox::new(),
            spare: Vec::new(),
            dialect: Dialect::WILDCARD,
            capabilities: Capabilities::NONE,
            must_sign: true,
            max_transfer: 65_536,
            cipher: None,
            signing: SigningAlgorithm::HMAC_SHA256,
            preauth: PreauthHash::new(),
            next_id: 0,
            protection: Protection::None,
            session: None,
            channel_sequence: 0,
            waiting: VecDeque::new(),
            options,
        };
        connection.negotiate()?;
        Ok(connection)
    }

    fn negotiate(&mut self) -> Result<(), ClientError> {
        let numbers = |list: Vec<u16>| list.into_iter().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
        let dialects = numbers(self.options.dialects.iter().map(|each| each.0).collect());
        let ciphers = numbers(self.options.ciphers.iter().map(|each| each.0).collect());
        let signing = numbers(self.options.signing.iter().map(|each| each.0).collect());
        let hash = HashAlgorithm::SHA_512.0.to_le_bytes();
        let salt = SystemEntropy.next_id();
        let mut contexts = vec![NegotiateContext::Preauth { algorithms: U16List::new(&hash), salt: &salt }];
        if !ciphers.is_empty() {
            contexts.push(NegotiateContext::Encryption(U16List::new(&ciphers)));
        }
        if !signing.is_empty() {
            contexts.push(NegotiateContext::Signing(U16List::new(&signing)));
        }
        let (count, bytes) = list(&contexts);
        let newest = self.options.dialects.contains(&Dialect::SMB_3_1_1);
        let contexts =
            if newest { NegotiateContexts::of(count, &bytes)? } else { NegotiateContexts::default() };
        let request = Request::Negotiate(NegotiateRequest {
            security_mode: SecurityMode::SIGNING_ENABLED,
            capabilities: self.options.capabilities,
            client_guid: self.options.client,
            dialects: U16List::new(&dialects),
            contexts,
        });
        let sent = self.send(&[(&request, 0)])?;
        let received = self.receive()?;
        let Response::Negotiate(answer) = received.good()? else {
            return Err(ClientError::Protocol("NEGOTIATE was answered with something else"));
        };
        self.dialect = answer.dialect;
        self.capabilities = answer.capabilities;
        self.must_sign = answer.security_mode.contains(SecurityMode::SIGNING_REQUIRED);
        self.max_transfer = answer.max_read.min(answer.max_write);
        self.signing = Signer::default_algorithm(answer.dialect);
        for context in answer.contexts.iter() {
            match context {
                NegotiateContext::Encryption(ciphers) => {
                    self.cipher = ciphers.iter().next().map(Cipher).filter(|cipher| cipher.0 != 0);
                }
                NegotiateContext::Signing(algorithms) => {
                    if let Some(algorithm) = algorithms.iter().next() {
                        self.signing = SigningAlgorithm(algorithm);
                    }
                }
                _ => {}
            }
        }
        if answer.dialect != Dialect::SMB_3_1_1 && answer.capabilities.contains(Capabilities::ENCRYPTION) {
            self.cipher = Some(Cipher::AES_128_CCM);
        }
        self.preauth.update(sent.get(PREFIX_BYTES..).unwrap_or_default());
        self.preauth.update(&received.bytes);
        Ok(())
    }

    /// Connects to a share; returns the tree connect's number.
    ///
    /// # Errors
    /// The server's status.
    pub fn tree(&mut self, share: &str) -> Result<u32, ClientError> {
        self.tree_with_flags(share).map(|(tree, _)| tree)
    }

    /// The same, with how the share wants to be used.
    ///
    /// # Errors
    /// The server's status.
    pub fn tree_with_flags(&mut self, share: &str) -> Result<(u32, ShareFlags), ClientError> {
        let path = utf16(&format!(r"\\server\{share}"));
        let request = Request::TreeConnect(TreeConnectRequest {
            flags: TreeConnectFlags::NONE,
            path: Utf16::new(&path)?,
            contexts: TreeContexts::default(),
        });
        let received = self.call(&request, 0)?;
        let Response::TreeConnect(answer) = received.good()? else {
            return Err(ClientError::Protocol("TREE_CONNECT was answered with something else"));
        };
        let tree = received.header.tree_id();
        Ok((tree.ok_or(ClientError::Protocol("a tree connect without a number"))?, answer.share_flags))
    }

    /// Sends one request and waits for its answer, over an interim one.
    ///
    /// # Errors
    /// When the connection fails or the answer does not prove itself; a status of the server is no error.
    pub fn call(&mut self, request: &Request<'_>, tree: u32) -> Result<Received, ClientError> {
        let id = self.next_id;
        self.send(&[(request, tree)])?;
        self.answer_to(id)
    }

    /// Waits for the final answer to a message; others are kept.
    ///
    /// # Errors
    /// The same as those of [`Connection::call`].
    pub fn answer_to(&mut self, id: u64) -> Result<Received, ClientError> {
        let is_it = |each: &Received| each.header.message_id == id && each.header.status != NtStatus::PENDING;
        if let Some(at) = self.waiting.iter().position(is_it) {
            return self.waiting.remove(at).ok_or(ClientError::Protocol("lost"));
        }
        loop {
            let received = self.receive_fresh()?;
            let mut found = None;
            for each in received {
                if found.is_none() && is_it(&each) {
                    found = Some(each);
                } else if each.header.status != NtStatus::PENDING || each.header.message_id != id {
                    self.waiting.push_back(each);
                }
            }
            if let Some(found) = found {
                return Ok(found);
            }
        }
    }

    /// Whether [`Connection::receive`] has something to take, waiting at most `timeout` for its beginning. The end of the
    /// connection is something too.
    ///
    /// # Errors
    /// When the connection fails.
    pub fn poll(&mut self, timeout: Duration) -> Result<bool, ClientError> {
        if !self.waiting.is_empty() {
            return Ok(true);
        }
        if !self.inbox.here().is_empty() {
            return Ok(true);
        }
        Ok(readiness::wait(&self.stream, false, timeout)?)
    }

    /// The socket, for who waits for other things, too. It says nothing of answers that have been taken from it already:
    /// first [`Connection::poll`], then wait.
    #[must_use]
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// The number of the next message.
    #[must_use]
    pub fn next_id(&self) -> u64 {
        self.next_id
    }

    /// A header for the next message.
    pub fn header(&mut self, command: Command, tree: u32) -> Header {
        let message_id = self.next_id;
        self.next_id += 1;
        let mut header = Header {
            command,
            credit_charge: u16::from(self.capabilities.contains(Capabilities::LARGE_MTU)),
            credits: WANTED_CREDITS,
            message_id,
            routing: Routing::Sync { process: 0, tree },
            session_id: self.session.as_ref().map_or(0, |session| session.id),
            ..Header::default()
        };
        if self.dialect.is_smb3() {
            header.set_channel_sequence(self.channel_sequence);
        }
        header
    }

    /// A header for the next message, which moves `bytes` bytes.
    pub fn header_for(&mut self, command: Command, tree: u32, bytes: usize) -> Header {
        let mut header = self.header(command, tree);
        if header.credit_charge > 0 {
            let charge = bytes.div_ceil(65_536).clamp(1, usize::from(u16::MAX)) as u16;
            header.credit_charge = charge;
            self.next_id += u64::from(charge) - 1;
        }
        header
    }

    /// Sends requests as one packet, in order; several are unrelated. Returns the packet as it was before encryption.
    ///
    /// # Errors
    /// When the connection fails.
    pub fn send(&mut self, requests: &[(&Request<'_>, u32)]) -> Result<Vec<u8>, ClientError> {
        let mut messages = Vec::new();
        for (request, tree) in requests {
            messages.push((self.header(request.command(), *tree), *request));
        }
        self.send_as(&messages)
    }

    /// Sends messages with these headers as one packet.
    ///
    /// # Errors
    /// When the connection fails.
    pub fn send_as(&mut self, messages: &[(Header, &Request<'_>)]) -> Result<Vec<u8>, ClientError> {
        let plain = self.packet(messages)?;
        if self.protection == Protection::Seal {
            let bytes = self.protect(plain.clone())?;
            self.send_raw(&bytes)?;
        } else {
            self.send_raw(&plain)?;
        }
        Ok(plain)
    }

    /// The packet of these messages: signed if they are to be, not yet encrypted.
    ///
    /// # Errors
    /// When a part is too long.
    pub fn packet(&self, messages: &[(Header, &Request<'_>)]) -> Result<Vec<u8>, ClientError> {
        let mut bytes = Vec::new();
        let mut frame = FrameWriter::new(&mut bytes);
        for (header, request) in messages {
            frame.push(header, |out| request.encode(out));
        }
        frame.finish(0).map_err(|_| ClientError::Protocol("the request is too long"))?;
        if let (Protection::Sign, Some(session)) = (self.protection, &self.session) {
            let mut signed = Ok(());
            compound::for_each_message(bytes.get_mut(PREFIX_BYTES..).unwrap_or_default(), |_, message| {
                if signed.is_ok() {
                    signed = session.signer.sign(message);
                }
            });
            signed?;
        }
        Ok(bytes)
    }

    /// Encrypts a packet if messages are to be.
    ///
    /// # Errors
    /// When the session cannot.
    pub fn protect(&mut self, mut bytes: Vec<u8>) -> Result<Vec<u8>, ClientError> {
        let (Protection::Seal, Some(session)) = (self.protection, &mut self.session) else {
            return Ok(bytes);
        };
        let nonce = session.nonces.advance().ok_or(ClientError::Protocol("no more nonces"))?;
        let (sealer, _) = session.seal.as_ref().ok_or(ClientError::Protocol("cannot encrypt"))?;
        let messages = bytes.get_mut(PREFIX_BYTES..).unwrap_or_default();
        let header = sealer.seal(nonce, session.id, messages)?;
        let prefix = Prefix::encode(TRANSFORM_BYTES + messages.len());
        let prefix = prefix.ok_or(ClientError::Protocol("the request is too long"))?;
        Ok([&prefix[..], &header, messages].concat())
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// When the connection fails.
    pub fn send_raw(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        Ok(self.stream.write_all(bytes)?)
    }
}
