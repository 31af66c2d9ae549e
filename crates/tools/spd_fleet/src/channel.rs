//! The connection between coordinator and agent: both prove the secret, then each message carries a MAC over its number
//! and content with a key of this connection and direction.
//!
//! ```text
//!   agent        magic[8]  version[2]  challenge[32]
//!   coordinator  magic[8]  version[2]  challenge[32]  proof[32]
//!   agent        proof[32]
//!   then         length[4]  message[length]  MAC[32]      all little-endian
//! ```

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use shard_runtime::Entropy;

use crate::error::FleetError;
use crate::secret::{MAC_BYTES, NONCE_BYTES, Nonce, Purpose, Secret, Tag, mac, proves, same};
use crate::{PORT, SILENCE};

const MAGIC: &[u8; 8] = b"HFSPDAGT";
/// Version of handshake and messages; both sides must have the same.
pub(crate) const VERSION: u16 = 2;
/// Longest message: one target of one thread with two full histograms and all intervals is below 12 MiB.
const LONGEST: usize = 16 << 20;
/// How long one write may take: a peer that reads nothing for this long has vanished.
const WRITE: Duration = Duration::from_secs(5);
/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(5);

/// Sends messages; the connection ends when it is dropped.
pub(crate) struct Sender {
    stream: TcpStream,
    key: Tag,
    number: u64,
}

/// Receives messages.
pub(crate) struct Receiver {
    stream: TcpStream,
    key: Tag,
    number: u64,
}

impl Sender {
    /// Sends one message.
    pub(crate) fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let length = u32::try_from(message.len()).ok().filter(|length| *length as usize <= LONGEST);
        let length = length.ok_or_else(|| io::Error::other("the message is too long"))?;
        let tag = mac(&self.key, &[&self.number.to_le_bytes(), message]);
        self.number += 1;
        let mut bytes = Vec::with_capacity(4 + message.len() + MAC_BYTES);
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(message);
        bytes.extend_from_slice(&tag);
        self.stream.write_all(&bytes)
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        // Whoever waits for a message on this connection waits no longer.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

impl Receiver {
    /// The next message; fails when the peer is silent for [`SILENCE`], has closed, or is not the one that proved itself.
    pub(crate) fn receive(&mut self) -> Result<Vec<u8>, FleetError> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length).map_err(|error| lost(&error))?;
        let length = u32::from_le_bytes(length) as usize;
        if length > LONGEST {
            return Err(FleetError::new("it sent a message that is too long"));
        }
        // Memory grows with what really comes.
        let mut bytes = Vec::new();
        let whole = (length + MAC_BYTES) as u64;
        (&mut self.stream).take(whole).read_to_end(&mut bytes).map_err(|error| lost(&error))?;
        let Some((message, tag)) = bytes.split_at_checked(length).filter(|_| bytes.len() as u64 == whole)
        else {
            return Err(FleetError::new("it closed the connection"));
        };
        if !proves(&self.key, &[&self.number.to_le_bytes(), message], tag) {
            return Err(FleetError::new("a message was changed on the way"));
        }
        self.number += 1;
        bytes.truncate(length);
        Ok(bytes)
    }
}

/// Why a connection ended, in words.
fn lost(error: &io::Error) -> FleetError {
    FleetError::new(match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            "it closed the connection".to_owned()
        }
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            format!("it was silent for {} s", SILENCE.as_secs())
        }
        _ => error.to_string(),
    })
}

/// The coordinator's side: connects to `name` (a host with or without a port) and proves the secret.
pub(crate) fn connect(
    name: &str,
    secret: &Secret,
    entropy: &dyn Entropy,
) -> Result<(Sender, Receiver), FleetError> {
    let mut stream = dial(name)?;
    let hello = setup(&stream).and_then(|()| {
        let mut hello = [0; MAGIC.len() + 2 + NONCE_BYTES];
        stream.read_exact(&mut hello).map(|()| hello)
    });
    let hello =
        hello.map_err(|error| FleetError::new(format!("no agent answers there: {}", lost(&error))))?;
    let agent = challenge(&hello)?;
    let mut mine: Nonce = [0; NONCE_BYTES];
    entropy.fill(&mut mine);
    let mut answer = MAGIC.to_vec();
    answer.extend_from_slice(&VERSION.to_le_bytes());
    answer.extend_from_slice(&mine);
    answer.extend_from_slice(&secret.derive(Purpose::CoordinatorProof, VERSION, &agent, &mine));
    let mut proof = [0; MAC_BYTES];
    let answered = stream.write_all(&answer).and_then(|()| stream.read_exact(&mut proof));
    answered.map_err(|_| {
        FleetError::new("it refused this coordinator: both must have the same secret, and an agent has room for few at once")
    })?;
    if !same(&secret.derive(Purpose::AgentProof, VERSION, &agent, &mine), &proof) {
        return Err(FleetError::new("it does not know the secret: it is no agent of ours"));
    }
    let keys = (
        secret.derive(Purpose::ToAgent, VERSION, &agent, &mine),
        secret.derive(Purpose::ToCoordinator, VERSION, &agent, &mine),
    );
    split(stream, keys)
}

/// The agent's side. Who does not prove the secret gets no answer, and no reason.
pub(crate) fn accept(
    mut stream: TcpStream,
    secret: &Secret,
    entropy: &dyn Entropy,
) -> Result<(Sender, Receiver), FleetError> {
    let mut mine: Nonce = [0; NONCE_BYTES];
    entropy.fill(&mut mine);
    let mut hello = MAGIC.to_vec();
    hello.extend_from_slice(&VERSION.to_le_bytes());
    hello.extend_from_slice(&mine);
    let mut answer = [0; MAGIC.len() + 2 + NONCE_BYTES + MAC_BYTES];
    let answered =
        setup(&stream).and_then(|()| stream.write_all(&hello)).and_then(|()| stream.read_exact(&mut answer));
    answered.map_err(|error| lost(&error))?;
    let (head, proof) = answer.split_at(MAGIC.len() + 2 + NONCE_BYTES);
    let coordinator = challenge(head)?;
    if !same(&secret.derive(Purpose::CoordinatorProof, VERSION, &mine, &coordinator), proof) {
        return Err(FleetError::new("it does not know the secret"));
    }
    let own = secret.derive(Purpose::AgentProof, VERSION, &mine, &coordinator);
    stream.write_all(&own).map_err(|error| lost(&error))?;
    let keys = (
        secret.derive(Purpose::ToCoordinator, VERSION, &mine, &coordinator),
        secret.derive(Purpose::ToAgent, VERSION, &mine, &coordinator),
    );
    split(stream, keys)
}

fn setup(stream: &TcpStream) -> io::Result<()> {
    // Round trips are measured: nothing is held back to be sent with what follows.
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(SILENCE))?;
    stream.set_write_timeout(Some(WRITE))
}

/// Magic and version of a greeting; its challenge.
fn challenge(bytes: &[u8]) -> Result<Nonce, FleetError> {
    let foreign = || FleetError::new("what answers there is no load generator's agent");
    let rest = bytes.strip_prefix(MAGIC).ok_or_else(foreign)?;
    let (version, nonce) = rest.split_first_chunk::<2>().ok_or_else(foreign)?;
    let version = u16::from_le_bytes(*version);
    if version != VERSION {
        return Err(FleetError::new(format!(
            "it speaks version {version}, and this is version {VERSION}: use the same release on both"
        )));
    }
    nonce.try_into().map_err(|_| foreign())
}

fn split(stream: TcpStream, (sends, receives): (Tag, Tag)) -> Result<(Sender, Receiver), FleetError> {
    let other = stream.try_clone().map_err(|error| lost(&error))?;
    Ok((Sender { stream, key: sends, number: 0 }, Receiver { stream: other, key: receives, number: 0 }))
}

/// A connection to the first address of `name` that answers.
fn dial(name: &str) -> Result<TcpStream, FleetError> {
    let unknown = |error: io::Error| FleetError::new(format!("its address is not known: {error}"));
    // `host:port`, `[v6]:port`, or a host alone; a bare IPv6 address has more than one colon.
    let has_port = name.rsplit_once(':').is_some_and(|(host, _)| !host.contains(':') || host.ends_with(']'));
    let host = name.trim_start_matches('[').trim_end_matches(']');
    let found = if has_port { name.to_socket_addrs() } else { (host, PORT).to_socket_addrs() };
    let mut why = None;
    for address in found.map_err(unknown)? {
        match TcpStream::connect_timeout(&address, CONNECT) {
            Ok(stream) => return Ok(stream),
            Err(error) => why = Some(format!("{address}: {error}")),
        }
    }
    let why = why.unwrap_or_else(|| "it has no address".into());
    Err(FleetError::new(format!("it cannot be reached ({why}): start `holdfast spd agent` there")))
}
