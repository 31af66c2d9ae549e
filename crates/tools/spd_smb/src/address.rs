//! Where a file is and who opens it.

use std::net::{SocketAddr, ToSocketAddrs as _};

use spd_engine::EngineError;

/// The port of SMB.
const PORT: u16 = 445;

/// A file of a share of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Name or address of the server.
    pub server: String,
    /// Its port.
    pub port: u16,
    /// The share.
    pub share: String,
    /// The file in it, with backslashes.
    pub file: String,
    /// The user that a URL names.
    pub user: Option<String>,
}

impl Address {
    /// Reads `\\server[@port]\share\file` or `smb://[user@]server[:port]/share/file`.
    ///
    /// # Errors
    /// When it is neither.
    pub fn parse(path: &str) -> Result<Self, EngineError> {
        let wrong = || {
            EngineError(format!(
                "'{path}' names no file of a share: \\\\server\\share\\file or smb://[user@]server[:port]/share/file"
            ))
        };
        let (rest, is_url) = match (path.strip_prefix("smb://"), path.strip_prefix(r"\\")) {
            (Some(rest), _) => (rest.replace('/', "\\"), true),
            (_, Some(rest)) => (rest.to_owned(), false),
            _ => return Err(wrong()),
        };
        let mut parts = rest.splitn(3, '\\');
        let (Some(host), Some(share), Some(file)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(wrong());
        };
        let (user, host) = match host.split_once('@') {
            Some((user, host)) if is_url => (Some(user.to_owned()), host.to_owned()),
            // Windows writes a port of a UNC path behind `@`.
            Some((host, port)) => (None, format!("{host}:{port}")),
            None => (None, host.to_owned()),
        };
        let bracketed = host.strip_prefix('[').and_then(|rest| rest.split_once(']'));
        let (server, port) = match bracketed {
            Some((address, "")) => (address.to_owned(), PORT),
            Some((address, port)) => {
                let port = port.strip_prefix(':').and_then(|port| port.parse().ok()).ok_or_else(wrong)?;
                (address.to_owned(), port)
            }
            None => match host.split_once(':') {
                Some((name, port)) => (name.to_owned(), port.parse().map_err(|_| wrong())?),
                None => (host, PORT),
            },
        };
        if server.is_empty()
            || share.is_empty()
            || file.is_empty()
            || file.split('\\').any(|part| part == "..")
        {
            return Err(wrong());
        }
        Ok(Self { server, port, share: share.to_owned(), file: file.trim_matches('\\').to_owned(), user })
    }

    /// An address of the server.
    ///
    /// # Errors
    /// When its name has none.
    pub fn resolve(&self) -> Result<SocketAddr, EngineError> {
        let found = (self.server.as_str(), self.port).to_socket_addrs();
        found
            .ok()
            .and_then(|mut list| list.next())
            .ok_or_else(|| EngineError(format!("server '{}' has no address: check its name", self.server)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let of = |path: &str| {
            let found = Address::parse(path).unwrap();
            (found.server, found.port, found.share, found.file, found.user)
        };
        let s = str::to_owned;
        assert_eq!(
            of(r"\\fs\Share1\a\testfile.dat"),
            (s("fs"), 445, s("Share1"), s(r"a\testfile.dat"), None)
        );
        assert_eq!(of(r"\\fs@4450\X$\f"), (s("fs"), 4450, s("X$"), s("f"), None));
        assert_eq!(of("smb://u@fs:4450/s/d/f"), (s("fs"), 4450, s("s"), s(r"d\f"), Some(s("u"))));
        assert_eq!(of("smb://[::1]:4450/s/f"), (s("::1"), 4450, s("s"), s("f"), None));
        for wrong in [r"\\fs", r"\\fs\s", r"\\fs\s\", "smb:///s/f", "smb://fs:x/s/f", r"\\fs\s\..\f", "f"] {
            assert!(Address::parse(wrong).is_err(), "{wrong}");
        }
    }
}
