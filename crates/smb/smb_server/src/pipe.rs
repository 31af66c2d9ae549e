//! Named pipes of IPC$: the seam to remote procedure calls.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use smb_protocol::NtStatus;
use smb_protocol::security::sid::Sid;

/// Who opens a pipe.
#[derive(Clone, Debug)]
pub struct PipeClient {
    /// The user's name; "anonymous" for nobody.
    pub user: String,
    /// From where it is connected.
    pub remote: SocketAddr,
    /// Its SID.
    pub sid: Sid,
    /// Whether it may administer the server.
    pub is_administrator: bool,
    /// The session's application key, from which RPC derives its own.
    pub session_key: Vec<u8>,
}

/// What a pipe does; the connection goes on with other requests meanwhile.
pub type PipeWork<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// An open pipe: what the client writes are requests, what it reads are answers. Calls may wait, so an implementation works
/// elsewhere than on the thread that asks; one call of a pipe follows the other.
pub trait Pipe: Send + Sync {
    /// Takes bytes of the client; what they ask for is answered when this ends.
    ///
    /// # Errors
    /// The status for the client; the pipe is as before.
    fn write(&self, bytes: Vec<u8>) -> PipeWork<'_, Result<(), NtStatus>>;

    /// At most `limit` bytes of the answer that is first in line, and whether more of it follows. `None` when there is
    /// none, and none is being made.
    fn read(&self, limit: usize) -> PipeWork<'_, Option<(Vec<u8>, bool)>>;

    /// Both, with nothing of another request in between: what FSCTL_PIPE_TRANSCEIVE does.
    fn transceive(&self, bytes: Vec<u8>, limit: usize) -> PipeWork<'_, Result<(Vec<u8>, bool), NtStatus>>;

    /// Bytes of the answers that wait, and of the first of them.
    fn available(&self) -> (usize, usize);
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
