//! A server with a volume on a disk in memory, its users, and what can be seen of a file from behind.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use aligned_buffer::IoBuf;
use block_device::{Device, MemoryDisk};
use file_store::{Access, FileId as StoreFile, FileStore, OpenOptions};
use shard_runtime::{Shards, SystemClock, SystemEntropy};
use smb_client::{Connection, Options};
use smb_protocol::access::{AccessMask, CreateDisposition, CreateOptions, ShareAccess};
use smb_protocol::create::CreateRequest;
use smb_protocol::create::contexts::{ContextWriter, tag};
use smb_protocol::file::{CloseRequest, FileId};
use smb_protocol::message::{Request, Response};
use smb_protocol::security::{Ace, AceFlags, Acl, Control, SecurityDescriptor, Sid};
use smb_protocol::utf16::{Utf16, utf16};
use smb_protocol::{Command, NtStatus};
use smb_server::{ServerConfig, ShareConfig, SharePermission, ShareRight};
use volume::{Environment, FormatOptions, Volume};

use super::common::{Served, TwoUsers, serve, share};

/// Bytes of each file: a cluster.
pub const SIZE: usize = 65_536;
const DISK_BYTES: usize = 512 << 20;
/// What copies come from; everybody may read it.
pub const SOURCE: &str = "source";

/// Who sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Client {
    /// Makes all files, and owns them.
    Owner,
    /// Another session of the owner's.
    OwnerAgain,
    /// A user that files grant something to.
    User,
    /// A user of another share only.
    Stranger,
    /// An administrator.
    Admin,
    /// A user whose sessions are ended.
    Ended,
}

impl Client {
    fn name(self) -> &'static str {
        match self {
            Self::Owner | Self::OwnerAgain => "owner",
            Self::User => "user",
            Self::Stranger => "stranger",
            Self::Admin => "admin",
            Self::Ended => "ended",
        }
    }

    pub fn sid(self) -> Sid {
        TwoUsers::sid(match self {
            Self::Owner | Self::OwnerAgain => 1002,
            Self::User => 1001,
            Self::Stranger => 1003,
            Self::Admin => 500,
            Self::Ended => 1004,
        })
    }
}

/// What an operation can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Content of any stream.
    Data,
    /// Sizes and allocation; which streams there are.
    Size,
    Attributes,
    Times,
    Security,
    /// Extended attributes and reparse data.
    Extras,
    /// Names in the share's folder.
    Names,
    /// Opens of the file: their locks, and whether it goes with the last.
    Opens,
}

/// Everything that an operation on a file can change.
pub type State = Vec<(Part, Vec<u8>)>;

pub fn changed(before: &State, after: &State) -> Vec<Part> {
    before.iter().zip(after).filter(|(a, b)| a != b).map(|(a, _)| a.0).collect()
}

/// A handle of a file, of a directory, and who has them.
#[derive(Clone, Debug)]
pub struct Seat {
    pub client: Client,
    pub share: &'static str,
    pub tree: u32,
    pub file: FileId,
    pub directory: FileId,
    /// The file's name, and its number in the store.
    pub name: String,
    pub number: StoreFile,
    pub given: AccessMask,
    pub state: State,
}

/// A folder with a file in it.
pub struct Place {
    pub name: String,
    folder: StoreFile,
    file: StoreFile,
}

pub struct World {
    pub served: Served,
    pub volume: Arc<Volume>,
    volume_thread: Shards,
    clients: BTreeMap<Client, Connection>,
    trees: BTreeMap<(Client, &'static str), u32>,
    count: u32,
}

/// A descriptor that grants the owner all and one user something.
pub fn descriptor(who: Sid, given: AccessMask) -> Vec<u8> {
    let aces = vec![
        Ace::allow(Client::Owner.sid(), AccessMask::FILE_ALL, AceFlags(0)),
        Ace::allow(who, given, AceFlags(0)),
    ];
    SecurityDescriptor {
        control: Control::DACL_PRESENT,
        dacl: Some(Acl { aces }),
        ..SecurityDescriptor::default()
    }
    .encode()
}

/// What is opened or made, with everything shared.
pub struct Ask<'a> {
    pub name: &'a str,
    pub desired: AccessMask,
    pub disposition: CreateDisposition,
    pub options: CreateOptions,
    pub security: Option<Vec<u8>>,
}

impl<'a> Ask<'a> {
    pub fn open(name: &'a str, desired: AccessMask) -> Self {
        let (disposition, options) = (CreateDisposition::OPEN, CreateOptions::NONE);
        Self { name, desired, disposition, options, security: None }
    }
}

impl World {
    pub fn new() -> Self {
        let volume_thread = Shards::start(1).unwrap();
        let device: Device = Arc::new(MemoryDisk::new(DISK_BYTES, 4096));
        let volume = on(&volume_thread, move || async move {
            let environment =
                || Environment { clock: Arc::new(SystemClock::new()), entropy: Arc::new(SystemEntropy) };
            let options = FormatOptions { name: "v".into() };
            Volume::format(Arc::clone(&device), options, environment()).await.unwrap();
            let volume = Volume::open(device, environment()).await.unwrap();
            let everyone = descriptor(Sid::EVERYONE, AccessMask::FILE_ALL);
            volume.set_security(volume.root(), everyone).await.unwrap();
            volume
        });
        let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
        let served = serve(Arc::clone(&volume), ServerConfig::default(), any).unwrap();
        for name in ["change", "gone", "elsewhere"] {
            let right = if name == "change" { ShareRight::Change } else { ShareRight::Full };
            let who = if name == "elsewhere" { Client::Stranger.sid() } else { Sid::AUTHENTICATED_USERS };
            let permissions = vec![SharePermission { who, right }];
            let config = ShareConfig { name: name.to_owned(), permissions, ..share(&served.files) };
            served.server.add_share(config).unwrap();
        }
        let mut world = Self {
            served,
            volume,
            volume_thread,
            clients: BTreeMap::new(),
            trees: BTreeMap::new(),
            count: 0,
        };
        let security = descriptor(Sid::EVERYONE, AccessMask::FILE_READ);
        let source = world.make(SOURCE, security, CreateOptions::NON_DIRECTORY_FILE);
        world.close_id(Client::Owner, "share", source);
        world.fill(SOURCE, 0x77);
        world
    }

    /// A client's connection, logged in.
    pub fn connection(&mut self, client: Client) -> &mut Connection {
        let address = self.served.address;
        self.clients.entry(client).or_insert_with(|| {
            let mut connection = Connection::connect(address, Options::default()).unwrap();
            connection.login(client.name(), "secret").unwrap();
            connection
        })
    }

    pub fn tree(&mut self, client: Client, share: &'static str) -> u32 {
        if let Some(tree) = self.trees.get(&(client, share)) {
            return *tree;
        }
        let tree = self.connection(client).tree(share).unwrap();
        self.trees.insert((client, share), tree);
        tree
    }

    /// Runs where the volume does.
    pub fn run<T, F>(&self, make: impl FnOnce(Arc<Volume>) -> F + Send + 'static) -> T
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        let volume = Arc::clone(&self.volume);
        on(&self.volume_thread, move || make(volume))
    }

    pub fn end(&mut self, client: Client) {
        assert_eq!(self.served.server.close_sessions_of(client.sid()), 1);
    }

    /// CREATE; the handle, or the status.
    pub fn create(&mut self, client: Client, tree: u32, ask: &Ask<'_>) -> Result<FileId, NtStatus> {
        let name = utf16(ask.name);
        let mut contexts = ContextWriter::default();
        if let Some(security) = &ask.security {
            contexts.push(tag::SD_BUFFER, security);
        }
        let request = Request::Create(CreateRequest {
            desired_access: ask.desired,
            share_access: ShareAccess::READ | ShareAccess::WRITE | ShareAccess::DELETE,
            disposition: ask.disposition,
            options: ask.options,
            name: Utf16::new(&name).unwrap(),
            contexts: contexts.as_contexts(),
            ..CreateRequest::default()
        });
        let received = self.connection(client).call(&request, tree).unwrap();
        match received.good() {
            Ok(Response::Create(created)) => Ok(created.file_id),
            _ => Err(received.header.status),
        }
    }

    /// The owner makes a file without content, or a directory; the open is the owner's.
    pub fn make(&mut self, name: &str, security: Vec<u8>, options: CreateOptions) -> FileId {
        let tree = self.tree(Client::Owner, "share");
        let disposition = CreateDisposition::CREATE;
        let desired = AccessMask::FILE_ALL;
        let ask = Ask { name, desired, disposition, options, security: Some(security) };
        self.create(Client::Owner, tree, &ask).unwrap()
    }

    /// Gives a file content, and a named stream with some, behind the server's back: no time of it comes later. Its number.
    pub fn fill(&self, name: &str, fill_with: u8) -> StoreFile {
        let name = name.to_owned();
        self.run(move |volume| async move { fill(&volume, volume.root(), &name, fill_with).await })
    }

    pub fn close_id(&mut self, client: Client, share: &'static str, file_id: FileId) {
        let tree = self.tree(client, share);
        let request = Request::Close(CloseRequest { file_id, ..CloseRequest::default() });
        self.connection(client).call(&request, tree).unwrap();
    }

    pub fn next_name(&mut self, what: &str) -> String {
        self.count += 1;
        format!("{what}-{}", self.count)
    }

    /// A file and a directory that give the client `given`, opened for `desired`.
    pub fn seat(
        &mut self,
        client: Client,
        share: &'static str,
        given: AccessMask,
        desired: AccessMask,
    ) -> Seat {
        let (name, folder) = (self.next_name("file"), self.next_name("folder"));
        let security = descriptor(client.sid(), given);
        let made = self.make(&name, security.clone(), CreateOptions::NON_DIRECTORY_FILE);
        self.close_id(Client::Owner, "share", made);
        let number = self.fill(&name, 0x11);
        let made = self.make(&folder, security, CreateOptions::DIRECTORY_FILE);
        self.close_id(Client::Owner, "share", made);
        let tree = self.tree(client, share);
        let open = |world: &mut Self, name: &str| {
            let opened = world.create(client, tree, &Ask::open(name, desired));
            opened.unwrap_or_else(|status| panic!("{client:?} {share} {desired:?}: {status:?}"))
        };
        let (file, directory) = (open(self, &name), open(self, &folder));
        let state = Vec::new();
        let mut seat = Seat { client, share, tree, file, directory, name, number, given, state };
        seat.state = self.state(&seat);
        seat
    }

    /// The seat with a new file.
    pub fn renew(&mut self, seat: &mut Seat, desired: AccessMask) {
        self.close(seat);
        *seat = self.seat(seat.client, seat.share, seat.given, desired);
    }

    pub fn close(&mut self, seat: &mut Seat) {
        for id in [seat.file, seat.directory] {
            self.close_id(seat.client, seat.share, id);
        }
    }

    pub fn state(&self, seat: &Seat) -> State {
        let number = seat.number;
        let name = seat.name.clone();
        let mut state =
            self.run(move |volume| async move { looked(&volume, number, (volume.root(), &name)).await });
        let opens: Vec<_> = self.served.files.opens();
        let mine = opens.iter().filter(|open| open.file == number);
        let opens: Vec<_> = mine.map(|open| (open.id, open.locks, open.delete_pending)).collect();
        state.push((Part::Opens, format!("{opens:?}").into_bytes()));
        state
    }

    /// A folder with a file, which grant a client something each.
    pub fn place(&mut self, client: Client, file: AccessMask, folder: AccessMask, read_only: bool) -> Place {
        let name = self.next_name("place");
        let made = self.make(&name, descriptor(client.sid(), folder), CreateOptions::DIRECTORY_FILE);
        self.close_id(Client::Owner, "share", made);
        let path = format!("{name}\\file");
        let made = self.make(&path, descriptor(client.sid(), file), CreateOptions::NON_DIRECTORY_FILE);
        self.close_id(Client::Owner, "share", made);
        let wanted = name.clone();
        self.run(move |volume| async move {
            let folder = volume.lookup(volume.root(), &wanted).await.unwrap().file;
            let file = fill(&volume, folder, "file", 0x11).await;
            if read_only {
                let attributes = Some(file_store::Attributes(0x21));
                let change = file_store::InfoChange { attributes, ..file_store::InfoChange::default() };
                volume.set_info(file, change).await.unwrap();
            }
            Place { name: wanted, folder, file }
        })
    }

    /// All of a place that can change: the file, and what else is in the folder.
    pub fn seen(&self, place: &Place) -> State {
        let (folder, file) = (place.folder, place.file);
        self.run(move |volume| async move {
            let mut state = looked(&volume, file, (folder, "file")).await;
            let page =
                volume.read_directory(folder, file_store::DirectoryCursor::default(), 100).await.unwrap();
            let mut names: Vec<_> = page.entries.iter().map(|entry| entry.name.clone()).collect();
            names.sort();
            for (part, bytes) in &mut state {
                if *part == Part::Names {
                    bytes.extend_from_slice(format!("{names:?}").as_bytes());
                }
            }
            state
        })
    }

    /// The final status of a request.
    pub fn call(&mut self, client: Client, tree: u32, request: &Request<'_>) -> NtStatus {
        match self.connection(client).call(request, tree) {
            Ok(received) => received.header.status,
            Err(error) => panic!("{:?} of {client:?}: {error}", request.command()),
        }
    }

    /// Sends CHANGE_NOTIFY for a directory, makes a change there, and says how it ends.
    pub fn notified(&mut self, seat: &Seat, request: &Request<'_>) -> NtStatus {
        let connection = self.connection(seat.client);
        let header = connection.header(Command::CHANGE_NOTIFY, seat.tree);
        let number = header.message_id;
        connection.send_as(&[(header, request)]).unwrap();
        // What changes on another connection before the server waits is nothing that it tells of.
        let first = loop {
            let received = connection.receive().unwrap();
            if received.header.message_id == number {
                break received.header.status;
            }
        };
        if first != NtStatus::PENDING {
            return first;
        }
        let folder = seat.name.replace("file-", "");
        let folder = format!("folder-{}\\x", folder.parse::<u32>().unwrap() + 1);
        let made =
            self.make(&folder, descriptor(Sid::EVERYONE, AccessMask::NONE), CreateOptions::DELETE_ON_CLOSE);
        self.close_id(Client::Owner, "share", made);
        self.connection(seat.client).answer_to(number).unwrap().header.status
    }
}

/// Runs a future on a thread of the volume's and waits for its end.
fn on<T, F>(shards: &Shards, make: impl FnOnce() -> F + Send + 'static) -> T
where
    T: Send + 'static,
    F: Future<Output = T> + 'static,
{
    let (send, receive) = std::sync::mpsc::channel();
    let spawned = shards.next().spawn(move || async move {
        let _ = send.send(make().await);
    });
    assert!(spawned.is_ok());
    receive.recv().unwrap()
}

async fn fill(volume: &Volume, folder: StoreFile, name: &str, fill: u8) -> StoreFile {
    let file = volume.lookup(folder, name).await.unwrap().file;
    for (stream, size) in [("", SIZE), ("stream", 100)] {
        let options = OpenOptions {
            stream: stream.to_owned(),
            create_stream: !stream.is_empty(),
            ..OpenOptions::shared(Access::READ_WRITE)
        };
        let open = volume.open(file, options).await.unwrap();
        let data = IoBuf::copy_from(&vec![fill; size]).freeze();
        open.write(0, data, block_device::Durability::Durable).await.unwrap();
    }
    file
}

async fn looked(volume: &Volume, number: StoreFile, (folder, name): (StoreFile, &str)) -> State {
    let text = |what: &dyn std::fmt::Debug| format!("{what:?}").into_bytes();
    let mut state = State::new();
    let streams = volume.streams(number).await;
    let mut data = Vec::new();
    for stream in streams.iter().flatten() {
        let options = OpenOptions { stream: stream.name.clone(), ..OpenOptions::shared(Access::READ) };
        if let Ok(open) = volume.open(number, options).await {
            data.extend_from_slice(&open.read(0, IoBuf::new(stream.size as usize)).await.unwrap());
        }
    }
    state.push((Part::Data, data));
    let info = volume.info(number).await;
    let sizes = info.as_ref().map(|info| (info.size, info.allocated)).map_err(|error| error.kind());
    state.push((Part::Size, text(&(sizes, streams.map_err(|error| error.kind())))));
    state.push((Part::Attributes, text(&info.as_ref().ok().map(|info| info.attributes))));
    state.push((Part::Times, text(&info.as_ref().ok().map(|info| info.times))));
    state.push((Part::Security, text(&volume.security(number).await.ok())));
    let key = number.0.to_be_bytes();
    let extras = (
        volume.state_get("smb_ea", &key).await.unwrap(),
        volume.state_get("smb_reparse", &key).await.unwrap(),
    );
    state.push((Part::Extras, text(&extras)));
    let there = volume.lookup(folder, name).await.map(|entry| entry.file).map_err(|error| error.kind());
    let place = (there, info.as_ref().ok().map(|info| info.parent));
    state.push((Part::Names, text(&place)));
    state
}
