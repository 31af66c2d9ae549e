//! What clients of a continuously available share have open goes on at the service address of its pool, whichever node has it: with our
//! own client, which sees every answer, and with smbclient; then with the Linux kernel under verified load.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use smb_client::{ClientError, Connection, Options, Received};
use smb_protocol::access::{AccessMask, CreateDisposition, CreateOptions, OplockLevel, ShareAccess};
use smb_protocol::create::CreateRequest;
use smb_protocol::create::contexts::{ContextWriter, CreateReply, tag};
use smb_protocol::create::handles::{DurableFlags, DurableReconnectV2, DurableRequestV2};
use smb_protocol::create::lease::{LeaseFlags, LeaseKey, LeaseState, LeaseV2};
use smb_protocol::file::FileId;
use smb_protocol::lock::{LockElement, LockFlags, LockRequest};
use smb_protocol::message::{Request, Response};
use smb_protocol::read::ReadRequest;
use smb_protocol::utf16::{Utf16, utf16};
use smb_protocol::write::WriteRequest;
use smb_protocol::{Guid, NtStatus, Wire as _};

use super::Context;
use super::cluster::failed;
use super::failover::{ADDRESS, PASSWORD, POOL, SHARE, USER, World, inside};
use crate::guest::{Guest, Setup};
use crate::process::pause;
use crate::{Result, ensure};

const ME: Guid = Guid([1; 16]);
const OTHER: Guid = Guid([2; 16]);
const CREATE: Guid = Guid([0xc1; 16]);
const KEY: LeaseKey = LeaseKey([7; 16]);
/// The longest that a client tries to come back: less than its handle waits for it.
const COMES_BACK: Duration = Duration::from_secs(100);
/// How long a handle waits for its client, in milliseconds.
const TIMEOUT: u32 = 120_000;
/// How long the store does not answer: longer than one try to say something in it, shorter than what makes a node give up its pools.
const STALL: Duration = Duration::from_millis(1300);
/// How long an owner stands still.
const STILL: Duration = Duration::from_secs(20);

#[expect(clippy::disallowed_methods, reason = "how long clients wait is measured in real time")]
fn now() -> Instant {
    Instant::now()
}

/// A client with the share.
struct Client {
    connection: Connection,
    tree: u32,
}

fn wrong(what: &'static str) -> impl Fn(ClientError) -> crate::Outcome {
    move |why| failed(what, why)
}

impl Client {
    fn try_connect(world: &World, guid: Guid) -> Result<std::result::Result<Self, ClientError>> {
        let address: SocketAddr = format!("{ADDRESS}:445").parse().map_err(|why| failed("address", why))?;
        inside(&world.clients(), || {
            let options = Options { client: guid, timeout: Duration::from_secs(5), ..Options::default() };
            let mut connection = Connection::connect(address, options)?;
            connection.login(USER, PASSWORD)?;
            let tree = connection.tree(SHARE)?;
            Ok(Self { connection, tree })
        })
    }

    /// Connects, as often as it takes.
    fn connect(world: &World, guid: Guid) -> Result<Self> {
        let began = now();
        loop {
            match Self::try_connect(world, guid)? {
                Ok(client) => return Ok(client),
                // Whoever is told so gives up what it has open.
                Err(why) if why.status() == Some(NtStatus::BAD_NETWORK_NAME) => {
                    return Err(failed("a share that is on its way", why));
                }
                Err(why) if began.elapsed() > COMES_BACK => return Err(failed("no way back", why)),
                Err(_) => pause(Duration::from_millis(20)),
            }
        }
    }

    fn call(&mut self, request: &Request<'_>) -> Result<Received> {
        self.connection.call(request, self.tree).map_err(wrong("request"))
    }

    fn open(&mut self, share: ShareAccess, contexts: &ContextWriter, lease: bool) -> Result<Received> {
        let name = utf16("disk.vhdx");
        let name = Utf16::new(&name).map_err(|why| failed("name", format!("{why:?}")))?;
        self.call(&Request::Create(CreateRequest {
            oplock: if lease { OplockLevel::LEASE } else { OplockLevel::NONE },
            desired_access: AccessMask::FILE_ALL,
            share_access: share,
            disposition: CreateDisposition::OPEN_IF,
            options: CreateOptions::NON_DIRECTORY_FILE,
            name,
            contexts: contexts.as_contexts(),
            ..CreateRequest::default()
        }))
    }

    fn lock(&mut self, file_id: FileId) -> Result<NtStatus> {
        let flags = LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY;
        let element = LockElement { offset: 10, length: 10, flags }.to_bytes();
        Ok(self.call(&Request::Lock(LockRequest::new(0, file_id, &element)))?.header.status)
    }

    fn write(&mut self, file_id: FileId, data: &[u8]) -> Result<NtStatus> {
        let request = WriteRequest { file_id, ..WriteRequest::default() };
        Ok(self.call(&Request::Write(request, data))?.header.status)
    }

    fn read(&mut self, file_id: FileId) -> Result<Vec<u8>> {
        let request = ReadRequest { length: 100, file_id, ..ReadRequest::default() };
        let received = self.call(&Request::Read(request))?;
        match received.good().map_err(wrong("READ"))? {
            Response::Read(_, data) => Ok(data.to_vec()),
            other => Err(failed("READ", format!("{other:?}"))),
        }
    }
}

fn all() -> ShareAccess {
    ShareAccess::READ | ShareAccess::WRITE | ShareAccess::DELETE
}

fn with_lease(mut contexts: ContextWriter) -> ContextWriter {
    let state = LeaseState::READ | LeaseState::HANDLE;
    let asked = LeaseV2 { key: KEY, state, flags: LeaseFlags::NONE, parent_key: LeaseKey([0; 16]), epoch: 1 };
    contexts.push_value(tag::LEASE, &asked);
    contexts
}

fn persistent() -> ContextWriter {
    let mut contexts = ContextWriter::default();
    let request = DurableRequestV2 { timeout: TIMEOUT, flags: DurableFlags::PERSISTENT, create_guid: CREATE };
    contexts.push_value(tag::DURABLE_REQUEST_V2, &request);
    with_lease(contexts)
}

fn back(file_id: FileId) -> ContextWriter {
    let mut contexts = ContextWriter::default();
    let request = DurableReconnectV2 { file_id, create_guid: CREATE, flags: DurableFlags::PERSISTENT };
    contexts.push_value(tag::DURABLE_RECONNECT_V2, &request);
    with_lease(contexts)
}

/// Identifier and lease of an open.
fn opened(received: &Received) -> Result<(FileId, Option<LeaseState>)> {
    let Response::Create(created) = received.good().map_err(wrong("CREATE"))? else {
        return Err(failed("CREATE", "another answer"));
    };
    let lease = created.contexts.replies().find_map(|reply| match reply {
        Ok(CreateReply::LeaseV2(lease)) if lease.key == KEY => Some(lease.state),
        _ => None,
    });
    Ok((created.file_id, lease))
}

/// A file that a client has open with a lease and a lock, and what is in it.
struct Held {
    client: Client,
    id: FileId,
    lease: Option<LeaseState>,
    content: Vec<u8>,
}

impl Held {
    fn begin(world: &World) -> Result<Self> {
        let mut client = Client::connect(world, ME)?;
        let (id, lease) = opened(&client.open(all(), &persistent(), true)?)?;
        ensure(lease == Some(LeaseState::READ), || format!("the lease is {lease:?}"))?;
        let content = b"acknowledged, all of it".to_vec();
        ensure(client.write(id, &content)? == NtStatus::SUCCESS, || "not written".into())?;
        ensure(client.lock(id)? == NtStatus::SUCCESS, || "not locked".into())?;
        Ok(Self { client, id, lease, content })
    }

    /// How long it takes until the client hears that its connection is gone, without having sent anything.
    fn hears(&mut self, since: Instant) -> Duration {
        // Bytes, the end or an error: none of them comes before the connection is over.
        while !self.client.connection.poll(COMES_BACK).unwrap_or(true) && since.elapsed() < COMES_BACK {}
        since.elapsed()
    }

    /// Takes it up again at the address; while the client is away, nobody else gets it or what it excludes.
    fn come_back(&mut self, world: &World, since: Instant, what: &str) -> Result {
        let heard = self.hears(since);
        ensure(heard < COMES_BACK, || format!("{what}: the client is not told that its connection is gone"))?;
        let mut client = Client::connect(world, ME)?;
        let connected = since.elapsed();
        let mut other = Client::connect(world, OTHER)?;
        let refused = other.open(ShareAccess::NONE, &ContextWriter::default(), false)?.header.status;
        ensure(matches!(refused, NtStatus::FILE_NOT_AVAILABLE | NtStatus::SHARING_VIOLATION), || {
            format!("{what}: another client's open was answered with {refused}")
        })?;
        let refused = other.open(all(), &back(self.id), true)?.header.status;
        ensure(refused == NtStatus::OBJECT_NAME_NOT_FOUND, || {
            format!("{what}: another client got the handle, or {refused}")
        })?;
        let (id, lease) = opened(&client.open(all(), &back(self.id), true)?)?;
        ensure((id, lease) == (self.id, self.lease), || format!("{what}: it is {id:?} with {lease:?} now"))?;
        ensure(client.read(id)? == self.content, || format!("{what}: the content is another one"))?;
        ensure(client.lock(id)? == NtStatus::LOCK_NOT_GRANTED, || format!("{what}: the lock is gone"))?;
        self.content = format!("acknowledged after: {what}").into_bytes();
        // The lock is the client's own: it may write where it is.
        ensure(client.write(id, &self.content)? == NtStatus::SUCCESS, || format!("{what}: not written"))?;
        let mut longer = client.read(id)?;
        longer.truncate(self.content.len());
        ensure(longer == self.content, || format!("{what}: not what was written"))?;
        self.content = client.read(id)?;
        self.client = client;
        crate::note!(
            "     {what}: the client hears of it after {:.2} s, is connected after {:.2} s",
            heard.as_secs_f64(),
            connected.as_secs_f64()
        );
        Ok(())
    }
}

pub(super) fn handles(context: &Context) -> Result {
    let mut world = World::start(context, true)?;
    let mut held = Held::begin(&world)?;

    // With its supervisor it is back, mostly before anybody takes over, and answers before the pool is open.
    let begun = now();
    world.named("n1")?.signal("-KILL", true)?;
    held.come_back(&world, begun, "kill -9 of the process alone")?;
    world.settled()?;
    if world.owner("")? != "n1" {
        let begun = now();
        world.nodes[0].ask(&["pool", "move", POOL, "n1"])?;
        held.come_back(&world, begun, "back again")?;
        world.settled()?;
    }

    let begun = now();
    world.nodes[1].ask(&["cluster", "status"])?;
    world.nodes[0].ask(&["pool", "move", POOL, "n2"])?;
    held.come_back(&world, begun, "pool move")?;
    ensure(world.owner("n1")? == "n2", || "it is elsewhere".into())?;
    world.settled()?;
    let file = context.folder.join("file");
    std::fs::write(&file, vec![0x5a; 1 << 20])?;
    world.smbclient(&format!("put {} file", file.display()))?;

    let begun = now();
    world.named("n2")?.kill()?;
    held.come_back(&world, begun, "kill -9, nobody starts it again")?;
    // While the owner says who is connected: it has to say it again.
    world.store_stalls(STALL)?;
    let owner = world.owner("n2")?;
    world.smbclient(&format!("get file {}", context.folder.join("back").display()))?;
    ensure(std::fs::read(&file)? == std::fs::read(context.folder.join("back"))?, || "another file".into())?;

    // It stands still, and goes on when another node has all of it.
    let begun = now();
    world.named(&owner)?.signal("-STOP", false)?;
    held.come_back(&world, begun, "SIGSTOP")?;
    world.owner(&owner)?;
    pause(STILL);
    world.named(&owner)?.signal("-CONT", false)?;
    world.settled()?;
    ensure(held.client.write(held.id, b"on")? == NtStatus::SUCCESS, || {
        "who went on has disturbed it".into()
    })?;
    world.finish()
}

/// Boot, write and verify under emulation on two busy cores.
const GUEST_LIMIT: Duration = Duration::from_secs(1200);
/// Between faults, for the load to go on.
const BETWEEN: Duration = Duration::from_secs(15);

pub(super) fn kernel(context: &Context) -> Result {
    let mut world = World::start(context, true)?;
    let env = vec![
        ("SRV", ADDRESS.to_string()),
        ("PORT", "445".to_string()),
        ("SHARE", SHARE.to_string()),
        ("SMB_USER", USER.to_string()),
        ("SMB_PASS", PASSWORD.to_string()),
        ("OPTS", "seal,persistenthandles,hard,echo_interval=3".to_string()),
        ("WORK", "steady".to_string()),
        ("LOAD_SECONDS", if context.full { "240" } else { "120" }.to_string()),
        ("SIZE_MIB", if context.full { "512" } else { "200" }.to_string()),
    ];
    let name = world.net.0.clone();
    let setup = Setup { script: "smb.sh", env, net: Some(&name), limit: GUEST_LIMIT, ..Setup::default() };
    let mut guest = Guest::start(&context.folder, setup)?;
    guest.wait_for("READY")?;

    // With its supervisor it is back before anybody takes over.
    world.named("n1")?.signal("-KILL", true)?;
    pause(BETWEEN);
    world.settled()?;
    let owner = world.owner("")?;
    let next = if owner == "n2" { "n3" } else { "n2" };
    world.named(&owner)?.ask(&["pool", "move", POOL, next])?;
    pause(BETWEEN);
    world.named(next)?.signal("-STOP", false)?;
    let last = world.owner(next)?;
    pause(STILL);
    world.named(next)?.signal("-CONT", false)?;
    world.settled()?;
    pause(BETWEEN);
    // Its machine is gone. Of processes that are killed while their machine lives on, nobody is left to end the connections: its kernel resets
    // them, and what this client is just sending then it gives up.
    world.cut(&last)?;
    world.named(&last)?.kill()?;
    world.owner(&last)?;
    pause(BETWEEN);
    guest.tell("hurt")?;
    let said = guest.finish()?;
    ensure(said.contains("DONE"), || format!("the guest did not come to its end:\n{said}"))?;
    world.finish()
}
