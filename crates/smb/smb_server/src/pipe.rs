//! Named pipes of IPC$: the seam to remote procedure calls.

use std::sync::Arc;

use smb_protocol::NtStatus;
use smb_protocol::security::sid::Sid;

/// Who opens a pipe.
#[derive(Clone, Debug)]
pub struct PipeClient {
    /// The user's name; "anonymous" for nobody.
    pub user: String,
    /// Its SID.
    pub sid: Sid,
    /// Whether it may administer the server.
    pub is_administrator: bool,
    /// The session's application key, from which RPC derives its own.
    pub session_key: Vec<u8>,
}

/// An open pipe: what the client writes are requests, what it reads are answers. Calls do not wait.
pub trait Pipe: Send + Sync {
    /// Takes bytes of the client.
    ///
    /// # Errors
    /// With the status for the client; the pipe is as before.
    fn write(&self, bytes: &[u8]) -> Result<(), NtStatus>;

    /// At most `limit` bytes of the answer that is first in line, and whether more of it follows. `None` when there is
    /// none.
    fn read(&self, limit: usize) -> Option<(Vec<u8>, bool)>;
}

/// What answers behind the pipes.
pub trait PipeService: Send + Sync + 'static {
    /// Opens a pipe by its name, without a path.
    ///
    /// # Errors
    /// [`NtStatus::OBJECT_NAME_NOT_FOUND`] when nothing answers there.
    fn open(&self, name: &str, client: &PipeClient) -> Result<Arc<dyn Pipe>, NtStatus>;
}

/// Nothing answers.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPipes;

impl PipeService for NoPipes {
    fn open(&self, _: &str, _: &PipeClient) -> Result<Arc<dyn Pipe>, NtStatus> {
        Err(NtStatus::OBJECT_NAME_NOT_FOUND)
    }
}
