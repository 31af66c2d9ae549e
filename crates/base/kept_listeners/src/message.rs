//! What child and keeper say to each other: short lines of text, each a packet of its own.

use std::io;
use std::net::SocketAddr;

/// The longest message, in bytes: the paths and addresses of a process that is to be started are the longest things in one.
pub(crate) const MAX: usize = 32 << 10;
/// What stands before a text for the helper.
const BESIDE: &str = "beside ";

/// What a child asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// A socket that listens here.
    Listen(SocketAddr),
    /// The socket with this address is not served any more.
    Close(SocketAddr),
    /// All that is to be served has been asked for.
    Settled,
    /// The child serves none of its sockets any more, and will ask for them again.
    Again,
    /// A connection, which comes with it, is not to break off when the child dies. It is not answered.
    Keep,
    /// Something else that the parent does for its child: what, the two of them know.
    Beside(String),
}

impl Request {
    pub(crate) fn encode(&self) -> String {
        match self {
            Self::Listen(address) => format!("listen {address}"),
            Self::Close(address) => format!("close {address}"),
            Self::Settled => "settled".to_owned(),
            Self::Again => "again".to_owned(),
            Self::Keep => "keep".to_owned(),
            Self::Beside(text) => format!("{BESIDE}{text}"),
        }
    }

    /// `None` for what is no request.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        if let Some(text) = text.strip_prefix(BESIDE) {
            return Some(Self::Beside(text.to_owned()));
        }
        match text.split_once(' ') {
            None if text == "settled" => Some(Self::Settled),
            None if text == "again" => Some(Self::Again),
            None if text == "keep" => Some(Self::Keep),
            Some(("listen", address)) => address.parse().ok().map(Self::Listen),
            Some(("close", address)) => address.parse().ok().map(Self::Close),
            _ => None,
        }
    }
}

/// What the keeper answers; a socket comes with the answer to [`Request::Listen`], a text with that to [`Request::Beside`].
pub(crate) fn encode_answer(answer: &io::Result<String>) -> String {
    match answer {
        Ok(text) if text.is_empty() => "ok".to_owned(),
        Ok(text) => format!("ok {}", &text[..text.floor_char_boundary(MAX - 8)]),
        Err(error) => format!("error {}", error.raw_os_error().unwrap_or_default()),
    }
}

/// The answer.
///
/// # Errors
/// When it is none.
pub(crate) fn decode_answer(bytes: &[u8]) -> io::Result<io::Result<String>> {
    let strange = || io::Error::new(io::ErrorKind::InvalidData, "an answer that cannot be understood");
    let text = std::str::from_utf8(bytes).map_err(|_| strange())?;
    match text.split_once(' ') {
        None if text == "ok" => Ok(Ok(String::new())),
        Some(("ok", text)) => Ok(Ok(text.to_owned())),
        Some(("error", number)) => match number.parse() {
            Ok(number) if number > 0 => Ok(Err(io::Error::from_raw_os_error(number))),
            Ok(0) => Ok(Err(io::Error::other("the parent process could not do it"))),
            _ => Err(strange()),
        },
        _ => Err(strange()),
    }
}
