//! What anyone can send to an open port: garbage, nothing, half a header, thousands of connections. Nobody else notices.

use std::io::{Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use super::restart::qemu_io;
use super::{Context, Server};
use crate::node::Options;
use crate::process::need;
use crate::{Outcome, Result, ensure};

/// More than a server can want to serve from one address that never logs in.
const HALF_OPEN: usize = 600;

fn connect(portal: &str) -> Result<TcpStream> {
    let address =
        portal.to_socket_addrs()?.next().ok_or_else(|| Outcome::Fail(format!("no address in {portal}")))?;
    let stream = TcpStream::connect_timeout(&address, Duration::from_secs(10))?;
    stream.set_read_timeout(Some(Duration::from_secs(40)))?;
    stream.set_write_timeout(Some(Duration::from_secs(10)))?;
    Ok(stream)
}

pub(super) fn run(context: &Context) -> Result {
    need("qemu-io", "qemu-utils")?;
    let mut server = Server::start(context, Options::default())?;
    let (url, portal) = (server.url(), server.portal().to_string());
    if let Some(node) = server.node() {
        // Refusals are worth a warning; anything else in the log still fails the case.
        for word in ["login", "connection", "PDU", "session"] {
            node.expect_log(word);
        }
    }
    qemu_io(&url, &["write -P 0x77 0 4M"])?;
    for (name, bytes) in garbage() {
        let mut stream = connect(&portal)?;
        // The server may close while we still send: that is a right answer.
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let ended = (&mut stream).take(1 << 20).read_to_end(&mut answer);
        ensure(ended.is_ok() || closed(&ended), || {
            format!("{name}: the connection was neither answered nor closed")
        })?;
        qemu_io(&url, &["read -P 0x77 0 4M"])?;
    }
    let mut idle = Vec::new();
    for _ in 0..HALF_OPEN {
        // A server at its limit may refuse; it must not stop serving those that are in.
        if let Ok(mut stream) = connect(&portal) {
            let _ = stream.write_all(&[0x43, 0x87]);
            idle.push(stream);
        }
    }
    drop(idle);
    qemu_io(&url, &["read -P 0x77 0 4M", "write -P 0x78 0 4M", "read -P 0x78 0 4M"])?;
    server.finish()
}

fn closed(ended: &std::io::Result<usize>) -> bool {
    ended.as_ref().is_err_and(|e| {
        matches!(e.kind(), std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe)
    })
}

/// First bytes of a connection that no initiator would send.
fn garbage() -> Vec<(&'static str, Vec<u8>)> {
    let login = |length: [u8; 3], text: &[u8]| {
        let mut pdu = vec![0x43, 0x87, 0, 0, 0, length[0], length[1], length[2]];
        pdu.resize(48, 0);
        pdu.extend_from_slice(text);
        pdu
    };
    vec![
        ("http", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec()),
        ("zeros", vec![0; 4096]),
        ("ones", vec![0xff; 65536]),
        ("half a header", vec![0x43; 20]),
        ("a login that promises 16 MiB", login([0xff, 0xff, 0xff], b"InitiatorName=x\0")),
        ("a login without keys", login([0, 0, 0], b"")),
        ("a key without end", login([0, 0, 64], &[b'A'; 64])),
        ("a key twice", login([0, 0, 36], b"InitiatorName=iqn.x\0InitiatorName=y\0")),
        ("a command before login", {
            let mut pdu = vec![0x01, 0xc1];
            pdu.resize(48, 0);
            pdu
        }),
        ("additional header beyond all", {
            let mut pdu = vec![0x43, 0x87, 0, 0, 0xff];
            pdu.resize(2048, 0xee);
            pdu
        }),
    ]
}
