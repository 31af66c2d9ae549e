//! The Unix socket of the API: private, and only for root and the node's own user.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use control_api::{Code, Problem};
use tokio::net::{UnixListener, UnixStream};

use crate::data_dir::make_private_dir;
use crate::network::Peer;

/// Longest path of a Unix socket, in bytes (sun_path less its end).
const MAX_PATH_BYTES: usize = 107;

/// A listening socket, removed when dropped.
#[derive(Debug)]
pub(crate) struct ApiSocket {
    listener: UnixListener,
    path: PathBuf,
    uid: u32,
}

impl ApiSocket {
    /// Listens on `path`, replacing a socket that a dead node left. The caller owns the data directory.
    ///
    /// # Errors
    /// [`Code::InUse`] when a live node listens there; [`Code::Io`].
    pub(crate) async fn bind(path: &Path) -> Result<Self, Problem> {
        let failed = |error: &io::Error| {
            Problem::new(Code::Io, format!("API socket {}: {error}", path.display()))
                .todo("Choose another place with --socket.")
        };
        if path.as_os_str().len() > MAX_PATH_BYTES {
            return Err(Problem::new(
                Code::InvalidRequest,
                format!("API socket {}: the path is longer than {MAX_PATH_BYTES} bytes.", path.display()),
            )
            .todo("Choose a shorter one with --socket."));
        }
        if let Some(parent) = path.parent() {
            make_private_dir(parent).map_err(|error| failed(&error))?;
        }
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(failed(&error)),
            Ok(meta) if !meta.file_type().is_socket() => {
                return Err(Problem::new(
                    Code::InUse,
                    format!("API socket {}: there is something else at that path.", path.display()),
                )
                .todo("Move it away, or choose another place with --socket."));
            }
            Ok(_) => match UnixStream::connect(path).await {
                Ok(stream) => {
                    let pid = stream.peer_cred().ok().and_then(|cred| cred.pid());
                    let who = pid.map_or("another process".to_owned(), |pid| format!("process {pid}"));
                    return Err(Problem::new(
                        Code::InUse,
                        format!("API socket {}: {who} listens there.", path.display()),
                    )
                    .todo("Stop that node first, or choose another place with --socket."));
                }
                Err(_) => fs::remove_file(path).map_err(|error| failed(&error))?,
            },
        }
        let listener = UnixListener::bind(path).map_err(|error| failed(&error))?;
        fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(|error| failed(&error))?;
        let uid = own_uid().map_err(|error| failed(&error))?;
        Ok(Self { listener, path: path.to_owned(), uid })
    }
}

impl Drop for ApiSocket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

impl axum::serve::Listener for ApiSocket {
    type Io = UnixStream;
    type Addr = u32;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => match stream.peer_cred() {
                    // The file mode says the same; this holds also where a directory was opened up by mistake.
                    Ok(peer) if peer.uid() == 0 || peer.uid() == self.uid => return (stream, peer.uid()),
                    Ok(peer) => tracing::warn!(uid = peer.uid(), "API connection of another user refused"),
                    Err(error) => tracing::warn!(%error, "API connection without credentials refused"),
                },
                Err(error) => {
                    // Out of descriptors, most likely: waiting lets others close theirs.
                    tracing::warn!(%error, "API connection not accepted");
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        // There is no peer to tell of.
        Ok(self.uid)
    }
}

/// Who is at the other end: a user of the machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SocketPeer(u32);

impl axum::extract::connect_info::Connected<axum::serve::IncomingStream<'_, ApiSocket>> for SocketPeer {
    fn connect_info(stream: axum::serve::IncomingStream<'_, ApiSocket>) -> Self {
        Self(*stream.remote_addr())
    }
}

impl From<SocketPeer> for Peer {
    fn from(SocketPeer(uid): SocketPeer) -> Self {
        Self::Socket(uid)
    }
}

/// The user this process runs as, asked from the kernel without a system call wrapper of our own.
fn own_uid() -> io::Result<u32> {
    let (one, _other) = UnixStream::pair()?;
    Ok(one.peer_cred()?.uid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn socket_is_private_and_a_stale_one_is_replaced() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("api/holdfast.sock");
        let first = ApiSocket::bind(&path).await.expect("free");
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        assert_eq!(
            fs::metadata(path.parent().expect("parent")).expect("there").permissions().mode() & 0o777,
            0o700
        );
        assert_eq!(ApiSocket::bind(&path).await.expect_err("alive").code, Code::InUse);
        // As after kill -9: the socket's file stays, nobody listens.
        fs::hard_link(&path, dir.path().join("kept")).expect("linked");
        drop(first);
        assert!(!path.exists());
        fs::rename(dir.path().join("kept"), &path).expect("back");
        ApiSocket::bind(&path).await.expect("stale one replaced");
    }

    #[tokio::test]
    async fn other_files_are_left_alone() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("file");
        fs::write(&path, "precious").expect("written");
        assert_eq!(ApiSocket::bind(&path).await.expect_err("not a socket").code, Code::InUse);
        assert_eq!(fs::read(&path).expect("there"), b"precious");
    }
}
