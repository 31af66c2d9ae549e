//! The node's management API over one connection that stays open: for cases that ask so often that a run of the CLI
//! each time would be most of what they do.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::Value;

use crate::{Result, ensure};

/// One answer.
const ANSWER: Duration = Duration::from_secs(60);
/// Largest answer, in bytes: far more than any case asks for.
const MOST: usize = 64 << 20;

/// A connection.
#[derive(Debug)]
pub struct Api(BufReader<UnixStream>);

impl Api {
    /// Connects to the node that listens on `socket`.
    pub fn new(socket: &str) -> Result<Self> {
        let stream = UnixStream::connect(socket).map_err(|e| format!("{socket}: {e}"))?;
        stream.set_read_timeout(Some(ANSWER))?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Sends a request about `path`, which is below `/v1`; its answer, unless that is a refusal.
    pub fn ask(&mut self, method: &str, path: &str, body: &Value) -> Result<Value> {
        let body = body.to_string();
        let head = format!(
            "{method} /v1{path} HTTP/1.1\r\nHost: node\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        self.0.get_mut().write_all(format!("{head}{body}").as_bytes())?;
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        let status: u32 = line.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_default();
        let mut length = None;
        loop {
            let mut header = String::new();
            ensure(self.0.read_line(&mut header)? > 0, || format!("{method} {path}: no whole answer"))?;
            let Some((name, value)) = header.split_once(':') else { break };
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse::<usize>().ok().filter(|length| *length <= MOST);
            }
        }
        let length = length.ok_or_else(|| format!("{method} {path}: an answer without a length"))?;
        let mut answer = vec![0; length];
        self.0.read_exact(&mut answer)?;
        let text = String::from_utf8_lossy(&answer);
        ensure((200..300).contains(&status), || format!("{method} {path}: {status} {text}"))?;
        serde_json::from_str(&text).map_err(|e| format!("{method} {path}: {e}: {text}").into())
    }
}
