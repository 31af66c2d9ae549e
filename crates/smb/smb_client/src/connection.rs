//! One connection.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Duration;

use shard_runtime::{Entropy as _, SystemEntropy};
use smb_crypto::{PreauthHash, Signer};
use smb_protocol::compound::{self, FrameWriter};
use smb_protocol::framing::{PREFIX_BYTES, Packet, Prefix};
use smb_protocol::header::{HeaderFlags, Routing, UNSOLICITED};
use smb_protocol::message::{Request, Response};
use smb_protocol::negotiate::contexts::{
    Cipher, HashAlgorithm, NegotiateContext, SigningAlgorithm, U16List, list,
};
use smb_protocol::negotiate::{Capabilities, NegotiateContexts, NegotiateRequest, SecurityMode};
use smb_protocol::transform::TRANSFORM_BYTES;
use smb_protocol::tree::{TreeConnectFlags, TreeConnectRequest, TreeContexts};
use smb_protocol::utf16::{Utf16, utf16};
use smb_protocol::{Command, Dialect, Header, NtStatus};

use crate::error::ClientError;
use crate::types::{Options, Protection, Received, Session};

/// The longest packet that is taken from a server.
const MAX_PACKET: usize = 9 << 20;
/// Credits that are asked for with each message.
const WANTED_CREDITS: u16 = 128;

/// A connection, with at most one session.
pub struct Connection {
    stream: TcpStream,
    options: Options,
    /// The version that was agreed on.
    pub dialect: Dialect,
    /// What the server can do.
    pub capabilities: Capabilities,
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
    waiting: VecDeque<Received>,
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
            dialect: Dialect::WILDCARD,
            capabilities: Capabilities::NONE,
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
        let path = utf16(&format!(r"\\server\{share}"));
        let request = Request::TreeConnect(TreeConnectRequest {
            flags: TreeConnectFlags::NONE,
            path: Utf16::new(&path)?,
            contexts: TreeContexts::default(),
        });
        let received = self.call(&request, 0)?;
        received.good()?;
        received.header.tree_id().ok_or(ClientError::Protocol("a tree connect without a number"))
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
    /// As [`Connection::call`].
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

    /// What the server says next, whatever it is.
    ///
    /// # Errors
    /// As [`Connection::call`].
    pub fn receive(&mut self) -> Result<Received, ClientError> {
        while self.waiting.is_empty() {
            let fresh = self.receive_fresh()?;
            self.waiting.extend(fresh);
        }
        self.waiting.pop_front().ok_or(ClientError::Protocol("lost"))
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
        let mut first = [0];
        let seen = if timeout.is_zero() {
            self.stream.set_nonblocking(true)?;
            let seen = self.stream.peek(&mut first);
            self.stream.set_nonblocking(false)?;
            seen
        } else {
            self.stream.set_read_timeout(Some(timeout))?;
            let seen = self.stream.peek(&mut first);
            self.stream.set_read_timeout(Some(self.options.timeout))?;
            seen
        };
        match seen {
            Ok(_) => Ok(true),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => Ok(false),
                _ => Err(error.into()),
            },
        }
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

    /// A header for the next message, which moves so many bytes.
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
        let bytes = self.protect(plain.clone())?;
        self.send_raw(&bytes)?;
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

    fn read_packet(&mut self) -> Result<Vec<u8>, ClientError> {
        loop {
            let mut prefix = [0; PREFIX_BYTES];
            self.stream.read_exact(&mut prefix)?;
            let decoded = Prefix::decode(prefix, MAX_PACKET);
            match decoded.map_err(|_| ClientError::Protocol("the server's packet is no packet"))? {
                Prefix::KeepAlive => {}
                Prefix::Packet(len) => {
                    let mut packet = vec![0; len];
                    self.stream.read_exact(&mut packet)?;
                    return Ok(packet);
                }
            }
        }
    }

    /// One packet's messages, checked.
    fn receive_fresh(&mut self) -> Result<Vec<Received>, ClientError> {
        let mut packet = self.read_packet()?;
        let mut sealed = false;
        if Packet::of(&packet) == Some(Packet::Encrypted) {
            let session =
                self.session.as_ref().ok_or(ClientError::Protocol("encrypted without a session"))?;
            let (_, opener) = session.seal.as_ref().ok_or(ClientError::Protocol("cannot decrypt"))?;
            opener.open(&mut packet)?;
            packet.drain(..TRANSFORM_BYTES);
            sealed = true;
        }
        let mut received = Vec::new();
        let mut whole = None;
        for message in compound::messages(&packet) {
            let message = message?;
            if message.bytes.len() == packet.len() {
                whole = Some(message.header);
                break;
            }
            received.push(Received { header: message.header, bytes: message.bytes.to_vec(), sealed });
        }
        // Mostly a packet is one message, which may be long: it is not copied.
        if let Some(header) = whole {
            received.push(Received { header, bytes: packet, sealed });
        }
        let signed = self.protection == Protection::Sign && self.dialect != Dialect::WILDCARD;
        if let (true, false, Some(session)) = (signed, sealed, &self.session) {
            for each in &mut received {
                let Header { status, message_id, flags, .. } = each.header;
                // An interim answer and what comes unasked are not signed; some refusals cannot be, and carry what was
                // sent where the signature would be.
                let exempt = status == NtStatus::PENDING || message_id == UNSOLICITED;
                let refused = matches!(status, NtStatus::USER_SESSION_DELETED | NtStatus::ACCESS_DENIED);
                if !refused && (flags.contains(HeaderFlags::SIGNED) || !exempt) {
                    session.signer.verify(&mut each.bytes)?;
                }
            }
        }
        Ok(received)
    }

    /// The next message without a look at its signature: answers to SESSION_SETUP are checked when the key is known.
    pub(crate) fn receive_unchecked(&mut self) -> Result<Received, ClientError> {
        let packet = self.read_packet()?;
        let message =
            compound::messages(&packet).next().ok_or(ClientError::Protocol("an empty packet"))??;
        Ok(Received { header: message.header, bytes: message.bytes.to_vec(), sealed: false })
    }
}
