//! Opening: a connection with a session, a share and a file; making files.

use smb_client::{ClientError, Connection, Options, Protection};
use smb_protocol::access::{AccessMask, CreateDisposition, CreateOptions, OplockLevel, ShareAccess};
use smb_protocol::create::CreateRequest;
use smb_protocol::file::{CloseRequest, FileId};
use smb_protocol::message::{Request, Response};
use smb_protocol::tree::ShareFlags;
use smb_protocol::utf16::{Utf16, utf16};
use smb_protocol::write::WriteRequest;
use smb_protocol::{Command, Dialect, NtStatus};
use spd_engine::{Confirm, EngineError, Login, Preparation, may_lose};
use spd_profile::{CacheMode, Target};

use crate::address::Address;

/// Bytes that are written at once when a file is made.
const CHUNK: usize = 1 << 20;

/// How a file is opened, as often as it has to be.
#[derive(Clone, Debug)]
pub(crate) struct Opening {
    pub(crate) address: Address,
    pub(crate) login: Login,
    pub(crate) path: String,
    options: CreateOptions,
    /// Whether the load writes to it.
    pub(crate) writes: bool,
}

/// A connection with an open file.
pub(crate) struct Opened {
    pub(crate) connection: Connection,
    pub(crate) tree: u32,
    pub(crate) file: FileId,
    pub(crate) size: u64,
}

impl Opening {
    /// How the file at `path` is opened, and by whom.
    pub(crate) fn new(
        target: &Target,
        path: &str,
        login: Option<&Login>,
        verify: bool,
    ) -> Result<Self, EngineError> {
        let address = Address::parse(path)?;
        let mut login = login.cloned().ok_or_else(|| {
            EngineError(format!(
                "'{path}': who logs in? --user and --password-file, or HOLDFAST_SPD_USER and HOLDFAST_SPD_PASSWORD"
            ))
        })?;
        if let Some(user) = &address.user {
            login.user.clone_from(user);
        }
        let mut options = CreateOptions::NON_DIRECTORY_FILE;
        if target.cache == CacheMode::DisableOsCache {
            options |= CreateOptions::NO_INTERMEDIATE_BUFFERING;
        }
        if target.write_through {
            options |= CreateOptions::WRITE_THROUGH;
        }
        let writes = target.write_percent > 0 || verify;
        Ok(Self { address, login, path: path.to_owned(), options, writes })
    }

    /// Connects, logs in and opens the file.
    pub(crate) fn open(&self, disposition: CreateDisposition) -> Result<Opened, ClientError> {
        self.open_after(disposition, 0)
    }

    /// The same instead of an earlier session, which the server ends before it lets this one in, with all that was under
    /// way in it (MS-SMB2 3.3.5.5.3). 0: there was none.
    pub(crate) fn open_after(
        &self,
        disposition: CreateDisposition,
        session: u64,
    ) -> Result<Opened, ClientError> {
        let address =
            self.address.resolve().map_err(|error| ClientError::Io(std::io::Error::other(error.0)))?;
        let options = Options {
            dialects: vec![Dialect::SMB_3_0, Dialect::SMB_3_0_2, Dialect::SMB_3_1_1],
            ..Options::default()
        };
        let mut connection = Connection::connect(address, options)?;
        connection.login_again(&self.login.user, &self.login.password, session)?;
        let (tree, share) = connection.tree_with_flags(&self.address.share)?;
        // As other clients, nothing is signed that the server does not want to be. From 3.1.1 on the login has proven what
        // the server said of it, and the share was asked for with a signature (MS-SMB2 3.2.4.1.1); before, nothing has.
        if share.contains(ShareFlags::ENCRYPT_DATA) {
            connection.protection = Protection::Seal;
        } else if connection.protection == Protection::Sign
            && !connection.must_sign
            && connection.dialect == Dialect::SMB_3_1_1
        {
            connection.protection = Protection::None;
        }
        let name = utf16(&self.address.file);
        let makes = disposition != CreateDisposition::OPEN;
        let mut desired_access = AccessMask::FILE_READ;
        if self.writes || makes {
            desired_access |= AccessMask::FILE_WRITE;
        }
        if self.options.contains(CreateOptions::DELETE_ON_CLOSE) {
            desired_access |= AccessMask::DELETE;
        }
        let request = Request::Create(CreateRequest {
            oplock: OplockLevel::NONE,
            desired_access,
            share_access: ShareAccess(7),
            disposition,
            options: self.options,
            name: Utf16::new(&name)?,
            ..CreateRequest::default()
        });
        let answer = connection.call(&request, tree)?;
        let Response::Create(created) = answer.good()? else {
            return Err(ClientError::Protocol("CREATE was answered with something else"));
        };
        let (file, size) = (created.file_id, created.end_of_file);
        Ok(Opened { connection, tree, file, size })
    }

    /// An error of [`Opening::open`] with what to do about it.
    pub(crate) fn explain(&self, error: &ClientError) -> EngineError {
        let what = match error.status() {
            Some(NtStatus::OBJECT_NAME_NOT_FOUND | NtStatus::OBJECT_PATH_NOT_FOUND) => {
                "it does not exist: make it with -c<size>".to_owned()
            }
            Some(NtStatus::LOGON_FAILURE) => format!("user '{}' or the password is wrong", self.login.user),
            Some(NtStatus::ACCESS_DENIED) => {
                format!("user '{}' may not: change the share's or the file's rights", self.login.user)
            }
            Some(NtStatus::BAD_NETWORK_NAME) => format!("the server has no share '{}'", self.address.share),
            _ => error.to_string(),
        };
        EngineError(format!("cannot open '{}': {what}", self.path))
    }

    pub(crate) fn prepare(
        &self,
        target: &Target,
        how: Preparation,
        confirm: &dyn Confirm,
    ) -> Result<(), EngineError> {
        match self.open(CreateDisposition::OPEN) {
            Ok(opened) if opened.size > 0 => {
                let what = format!("file {} ({} bytes) on the server", self.path, opened.size);
                may_lose(confirm, &what)?;
            }
            Ok(_) => {}
            Err(error)
                if target.create.is_some() && error.status() == Some(NtStatus::OBJECT_NAME_NOT_FOUND) => {}
            Err(error) => return Err(self.explain(&error)),
        }
        match target.create {
            Some(size) => self.make(size, how.sparse, confirm),
            None => Ok(()),
        }
    }

    /// Makes the file anew with `size` bytes of content that neither compresses nor repeats; with one byte at its end when
    /// it may be sparse.
    fn make(&self, size: u64, sparse: bool, confirm: &dyn Confirm) -> Result<(), EngineError> {
        let mut opened = self.open(CreateDisposition::OVERWRITE_IF).map_err(|error| self.explain(&error))?;
        let made = self.fill(&mut opened, size, sparse, confirm);
        let closed = close(&mut opened);
        made.map_err(|why| {
            // Half a file would be taken for a whole one by the next run.
            match self.delete() {
                Ok(()) => EngineError(format!("{why}; it is deleted")),
                Err(error) => EngineError(format!("{why}; delete it, that failed, too: {error}")),
            }
        })?;
        closed.map_err(|error| EngineError(format!("cannot make '{}' (-c): {error}", self.path)))
    }

    /// Gives a new file its content.
    fn fill(
        &self,
        opened: &mut Opened,
        size: u64,
        sparse: bool,
        confirm: &dyn Confirm,
    ) -> Result<(), EngineError> {
        use shard_runtime::{Entropy as _, SeededEntropy};
        let failed = |error: ClientError| {
            EngineError(format!("cannot make '{}' with {size} bytes (-c): {error}", self.path))
        };
        let chunk = CHUNK.min(opened.connection.max_transfer as usize).max(4096);
        let mut data = vec![0; chunk];
        SeededEntropy::new(0x5bd).fill(&mut data);
        let mut at = if sparse { size.saturating_sub(4096) } else { 0 };
        while at < size {
            if !confirm.made(&self.path, at, size) {
                return Err(EngineError(format!("making '{}' was interrupted", self.path)));
            }
            let len = (size - at).min(chunk as u64) as usize;
            for (number, sector) in data.chunks_mut(4096).enumerate() {
                let place = (at + number as u64 * 4096).to_le_bytes();
                if let Some(head) = sector.first_chunk_mut::<8>() {
                    *head = place;
                }
            }
            let part = data.get(..len).unwrap_or_default();
            let write = WriteRequest { file_id: opened.file, offset: at, ..WriteRequest::default() };
            let request = Request::Write(write, part);
            let header = opened.connection.header_for(Command::WRITE, opened.tree, len);
            opened.connection.send_as(&[(header, &request)]).map_err(failed)?;
            opened
                .connection
                .answer_to(header.message_id)
                .and_then(|answer| answer.good().map(drop))
                .map_err(failed)?;
            at += len as u64;
        }
        Ok(())
    }

    /// Deletes the file, over a connection of its own: that of the one who made it may be what failed.
    fn delete(&self) -> Result<(), ClientError> {
        let deletes = Self { options: self.options | CreateOptions::DELETE_ON_CLOSE, ..self.clone() };
        close(&mut deletes.open(CreateDisposition::OPEN)?)
    }
}

fn close(opened: &mut Opened) -> Result<(), ClientError> {
    let close = CloseRequest { file_id: opened.file, ..CloseRequest::default() };
    opened.connection.call(&Request::Close(close), opened.tree)?.good().map(drop)
}
