//! kill -9 while sixteen clients make files over SMB, half of them on a share that is continuously available and half on one that is
//! not: what each was promised is there.
//!
//! ```text
//!   continuously available   all files that were answered, each with its content
//!   plain                    the first of each client's files, with none missing in between: at least to its last answered flush,
//!                            after which the flushed file has its content; and no file has content of another one
//! ```

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use smb_client::{Connection, Options as ClientOptions, Received};
use smb_protocol::NtStatus;
use smb_protocol::access::{AccessMask, CreateDisposition, CreateOptions, OplockLevel, ShareAccess};
use smb_protocol::create::CreateRequest;
use smb_protocol::file::{CloseRequest, FileId, FlushRequest};
use smb_protocol::message::{Request, Response};
use smb_protocol::read::ReadRequest;
use smb_protocol::utf16::{Utf16, utf16};
use smb_protocol::write::WriteRequest;

use super::Context;
use super::cluster::failed;
use crate::node::{Node, Options};
use crate::process::{Deadline, pause};
use crate::{Outcome, Result, ensure};

const CLIENTS: usize = 16;
const PLAIN: &str = "plain-files";
const BYTES: usize = 4096;
/// A client of the plain share flushes one in so many files; fewer where nothing else makes them durable.
const FLUSHED: usize = 8;
const HARDLY_FLUSHED: usize = 20;
/// Rounds of load and a crash.
const ROUNDS: usize = 4;
/// Files that are answered between two crashes.
const LOAD: usize = 400;
/// Time for those on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

pub(super) fn run(context: &Context) -> Result {
    if context.peer || context.url.is_some() {
        return Err(Outcome::Skip("needs a node of its own".into()));
    }
    let mut node = Node::start(&context.folder, Options::default())?;
    let volume = node.told("volume");
    node.cli(&[
        "share",
        "create",
        PLAIN,
        "--volume",
        &volume,
        "--full",
        &node.told("smb_user"),
        "--kind",
        "plain",
    ])?;
    let rounds = if context.full { 4 * ROUNDS } else { ROUNDS };
    for round in 0..rounds {
        one(&mut node, round)?;
    }
    node.cli(&["volume", "check", &volume])?;
    node.finish()
}

/// What a client was answered.
#[derive(Debug, Default)]
struct Promised {
    /// Files that were made, written and closed.
    made: usize,
    /// The last of them that was flushed.
    flushed: Option<usize>,
}

fn one(node: &mut Node, round: usize) -> Result {
    let answered = Arc::new(AtomicUsize::new(0));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let (share, plain) = share(node, round, number);
            let client = Client::connect(node, &share);
            let answered = Arc::clone(&answered);
            let flushed = plain.then_some(if is_mixed(round) { FLUSHED } else { HARDLY_FLUSHED });
            client.map(|client| std::thread::spawn(move || load(client, (round, number), flushed, &answered)))
        })
        .collect::<Result<_>>()?;
    Deadline::after(LIMIT)
        .poll("files of sixteen clients", || Ok((answered.load(Ordering::Relaxed) >= LOAD).then_some(())))?;
    // Not always at the same moment of the second within which what is volatile becomes durable.
    pause(Duration::from_millis(137 * round as u64));
    node.crash_and_restart()?;
    let (mut durable, mut lost) = (0, 0);
    for (number, client) in clients.into_iter().enumerate() {
        let promised = client.join().map_err(|_| failed("client", "panicked"))?;
        let (share, plain) = share(node, round, number);
        let mut client = Client::connect(node, &share)?;
        let there = client.count(round, number)?;
        let least = if plain { promised.flushed.map_or(0, |last| last + 1) } else { promised.made };
        // The one that was under way may be there, too.
        let most = promised.made + 1;
        ensure((least..=most).contains(&there), || {
            format!(
                "round {round}, client {number} on {share}: {there} files are there, promised were {promised:?}"
            )
        })?;
        for at in 0..there {
            let content = client.read(&name(round, number, at))?;
            let whole = content == data(round, number, at);
            let must = if plain { promised.flushed == Some(at) } else { at < promised.made };
            let may = !must && (content.is_empty() || content.iter().all(|byte| *byte == 0));
            ensure(whole || may, || {
                let (len, begin) = (content.len(), content.get(..16).unwrap_or(&content));
                format!(
                    "round {round}, client {number} on {share}: file {at} of {promised:?} has {len} bytes, {begin:?}"
                )
            })?;
        }
        durable += there;
        lost += promised.made.saturating_sub(there);
    }
    crate::note!("     round {round}: {durable} files are there, {lost} were taken back");
    Ok(())
}

/// Whether there are clients of both shares: what those of the other one change makes all durable. In the other rounds there are none.
fn is_mixed(round: usize) -> bool {
    round.is_multiple_of(2)
}

/// The share of a client, and whether it is the plain one.
fn share(node: &Node, round: usize, number: usize) -> (String, bool) {
    let plain = number.is_multiple_of(2) || !is_mixed(round);
    (if plain { PLAIN.to_string() } else { node.told("smb_share") }, plain)
}

fn name(round: usize, client: usize, at: usize) -> String {
    format!("r{round}c{client}f{at}")
}

fn data(round: usize, client: usize, at: usize) -> Vec<u8> {
    name(round, client, at).into_bytes().into_iter().cycle().take(BYTES).collect()
}

/// Makes files until the node is gone.
fn load(
    mut client: Client,
    (round, number): (usize, usize),
    flushed: Option<usize>,
    answered: &AtomicUsize,
) -> Promised {
    let mut promised = Promised::default();
    loop {
        let at = promised.made;
        let flushes = flushed.is_some_and(|every| at % every == every - 1);
        if client.make(&name(round, number, at), &data(round, number, at), flushes).is_err() {
            return promised;
        }
        promised.made += 1;
        promised.flushed = if flushes { Some(at) } else { promised.flushed };
        answered.fetch_add(1, Ordering::Relaxed);
    }
}

/// A connection with a share.
struct Client {
    connection: Connection,
    tree: u32,
}

impl Client {
    fn connect(node: &Node, share: &str) -> Result<Self> {
        let address: SocketAddr = node.told("smb_address").parse().map_err(|why| failed("address", why))?;
        let mut connection =
            Connection::connect(address, ClientOptions::default()).map_err(|why| failed("connect", why))?;
        connection
            .login(&node.told("smb_user"), &node.told("smb_password"))
            .map_err(|why| failed("login", why))?;
        let tree = connection.tree(share).map_err(|why| failed("tree connect", why))?;
        Ok(Self { connection, tree })
    }

    fn call(&mut self, request: &Request<'_>) -> Result<Received> {
        self.connection.call(request, self.tree).map_err(|why| failed("request", why))
    }

    fn done(&mut self, request: &Request<'_>) -> Result {
        self.call(request)?.good().map(drop).map_err(|why| failed("request", why))
    }

    /// `None` if there is no such file.
    fn open(&mut self, name: &str, disposition: CreateDisposition) -> Result<Option<FileId>> {
        let name = utf16(name);
        let answer = self.call(&Request::Create(CreateRequest {
            oplock: OplockLevel::NONE,
            desired_access: AccessMask::FILE_ALL,
            share_access: ShareAccess(7),
            disposition,
            options: CreateOptions::NON_DIRECTORY_FILE,
            name: Utf16::new(&name).map_err(|why| failed("name", format!("{why:?}")))?,
            ..CreateRequest::default()
        }))?;
        if answer.header.status == NtStatus::OBJECT_NAME_NOT_FOUND {
            return Ok(None);
        }
        match answer.good().map_err(|why| failed("CREATE", why))? {
            Response::Create(created) => Ok(Some(created.file_id)),
            other => Err(failed("CREATE", format!("{other:?}"))),
        }
    }

    fn make(&mut self, name: &str, data: &[u8], flushes: bool) -> Result {
        let made = self.open(name, CreateDisposition::CREATE)?;
        let file_id = made.ok_or_else(|| failed("CREATE", "the folder is not there"))?;
        self.done(&Request::Write(WriteRequest { file_id, ..WriteRequest::default() }, data))?;
        if flushes {
            self.done(&Request::Flush(FlushRequest { file_id }))?;
        }
        self.done(&Request::Close(CloseRequest { file_id, ..CloseRequest::default() }))
    }

    /// How many of its files are there; they are the first ones.
    fn count(&mut self, round: usize, number: usize) -> Result<usize> {
        let mut there = 0;
        while let Some(file_id) = self.open(&name(round, number, there), CreateDisposition::OPEN)? {
            self.done(&Request::Close(CloseRequest { file_id, ..CloseRequest::default() }))?;
            there += 1;
        }
        for at in there + 1..there + 2 * HARDLY_FLUSHED {
            let later = self.open(&name(round, number, at), CreateDisposition::OPEN)?;
            ensure(later.is_none(), || format!("client {number}: file {at} is there, {there} is not"))?;
        }
        Ok(there)
    }

    fn read(&mut self, name: &str) -> Result<Vec<u8>> {
        let file_id =
            self.open(name, CreateDisposition::OPEN)?.ok_or_else(|| failed("open", "gone again"))?;
        let request = ReadRequest { length: 2 * BYTES as u32, file_id, ..ReadRequest::default() };
        let answer = self.call(&Request::Read(request))?;
        let read = match answer.header.status {
            NtStatus::END_OF_FILE => Vec::new(),
            _ => match answer.good().map_err(|why| failed("READ", why))? {
                Response::Read(_, data) => data.to_vec(),
                other => return Err(failed("READ", format!("{other:?}"))),
            },
        };
        self.done(&Request::Close(CloseRequest { file_id, ..CloseRequest::default() }))?;
        Ok(read)
    }
}
