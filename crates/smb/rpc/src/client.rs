//! Who uses a pipe, and who proves it.

use smb_auth::{Acceptor, Accounts, Authenticated, Failure, NoAccounts};
use smb_protocol::security::sid::Sid;

/// Who opened a pipe, or who proved to be another on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RpcClient {
    /// The user's name.
    pub user: String,
    /// The user's domain: this server's name, or a directory's.
    pub domain: String,
    /// From where the pipe was opened, for people to read. A login inside of it does not change that.
    pub from: String,
    /// Its SID.
    pub sid: Sid,
    /// Whether it may administer the server.
    pub is_administrator: bool,
}

/// Who proves a client that authenticates itself once more, inside the pipe.
pub trait Authenticator: Send + Sync {
    /// An authentication, with a challenge of its own; `None` where there are none.
    fn acceptor(&self) -> Option<Acceptor>;

    /// Who knows the users.
    fn accounts(&self) -> &dyn Accounts;

    /// Who it is, for the operations; `None` for who may not call any.
    fn client(&self, who: &Authenticated) -> Option<RpcClient>;

    /// What a client, whom this or the session has found good earlier, is now: rights come and go while a pipe is open.
    /// `None` for one that has been disabled or is gone. Asked before each call.
    fn current(&self, client: &RpcClient) -> Option<RpcClient>;

    /// A login inside a pipe that failed, for the log. Whoever may open a pipe can have as many of them as it likes.
    fn refused(&self, _: &Failure) {}
}

/// No authentication inside pipes: the session's has to do.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoAuthenticator;

impl Authenticator for NoAuthenticator {
    fn acceptor(&self) -> Option<Acceptor> {
        None
    }

    fn accounts(&self) -> &dyn Accounts {
        &NoAccounts
    }

    fn client(&self, _: &Authenticated) -> Option<RpcClient> {
        None
    }

    fn current(&self, client: &RpcClient) -> Option<RpcClient> {
        Some(client.clone())
    }
}
