//! Seats, listeners and the queue, over real sockets.

#![allow(clippy::disallowed_methods, reason = "a client on a thread of its own")]

use std::future::poll_fn;
use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc;
use std::task::Poll;
use std::time::Duration;

use aligned_buffer::IoBuf;
use parking_lot::Mutex;
use shard_runtime::Shards;
use tokio::io::AsyncReadExt as _;

use crate::{Limits, Listeners, SendQueue, Serve};

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Whether the server keeps the connection: it says one byte to those that it takes.
fn is_taken(address: SocketAddr) -> (bool, std::net::TcpStream) {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let taken = stream.read(&mut [0]).is_ok_and(|got| got == 1);
    (taken, stream)
}

/// Whether the server has closed the connection, or does so soon.
fn has_ended(mut stream: std::net::TcpStream) -> bool {
    stream.read(&mut [0]).is_ok_and(|got| got == 0)
}

/// Whether the server keeps the connection so far.
fn is_open(mut stream: &std::net::TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let open = stream.read(&mut [0]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
    stream.set_nonblocking(false).unwrap();
    open
}

/// Says hello, and holds the connection; a peer that sends a byte has logged in.
fn greet() -> Serve {
    Arc::new(|arrived| {
        Box::pin(async move {
            let mut stream = arrived.stream;
            let mut queue = SendQueue::default();
            queue.small(|buffer| buffer.push(1));
            let _ = poll_fn(|cx| match queue.poll_send(&mut stream, cx) {
                Ok(_) if queue.waiting() > 0 => Poll::Pending,
                done => Poll::Ready(done),
            })
            .await;
            let mut login = Some(arrived.login);
            while stream.read_u8().await.is_ok() {
                drop(login.take());
                queue.small(|buffer| buffer.push(2));
                let _ = poll_fn(|cx| Poll::Ready(queue.poll_send(&mut stream, cx))).await;
            }
        })
    })
}

#[test]
fn seats_are_counted_and_given_back() {
    let shards = Shards::start(2).unwrap();
    let limits = Limits { connections: 3, logins: 100, logins_per_address: 2 };
    let listeners = Listeners::new(Arc::new(shards.all().to_vec()), limits);
    let address = listeners.listen(ANY, greet()).unwrap();
    let (first, mut one) = is_taken(address);
    let (second, two) = is_taken(address);
    assert!(first && second);
    // One logs in. Of the others, the one who has waited longest makes room.
    std::io::Write::write_all(&mut one, &[9]).unwrap();
    one.read_exact(&mut [0]).unwrap();
    let (third, three) = is_taken(address);
    assert!(third);
    let (fourth, four) = is_taken(address);
    assert!(fourth);
    assert!(has_ended(two) && is_open(&three) && is_open(&one));
    let (fifth, five) = is_taken(address);
    assert!(fifth);
    assert!(has_ended(three) && is_open(&four) && is_open(&five) && is_open(&one));
    // Who has logged in makes room for nobody.
    for mut stream in [&four, &five] {
        std::io::Write::write_all(&mut stream, &[9]).unwrap();
        stream.read_exact(&mut [0]).unwrap();
    }
    assert!(!is_taken(address).0, "a fourth is too many for the listener");
    assert!(is_open(&four) && is_open(&five) && is_open(&one));
    let three = (four, five);
    drop((one, three));
    let again = (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        is_taken(address).0
    });
    assert!(again, "seats come back when connections end");
    assert_eq!(listeners.addresses(), [address]);
    assert!(listeners.close(address) && !listeners.close(address));
    let gone = (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        std::net::TcpStream::connect(address).is_err()
    });
    assert!(gone, "nothing listens there any more");
}

/// Strangers from one address who open connections and say nothing keep nobody out who comes from there.
#[test]
fn who_says_nothing_keeps_nobody_out() {
    let shards = Shards::start(1).unwrap();
    let limits = Limits { connections: 1000, logins: 20, logins_per_address: 10 };
    let listeners = Listeners::new(Arc::new(shards.all().to_vec()), limits);
    let address = listeners.listen(ANY, greet()).unwrap();
    let mut silent = Vec::new();
    for _ in 0..50 {
        silent.push(is_taken(address));
    }
    assert!(silent.iter().all(|(taken, _)| *taken));
    let (taken, mut host) = is_taken(address);
    assert!(taken);
    std::io::Write::write_all(&mut host, &[9]).unwrap();
    host.read_exact(&mut [0]).unwrap();
    for _ in 0..50 {
        silent.push(is_taken(address));
    }
    std::io::Write::write_all(&mut host, &[9]).unwrap();
    host.read_exact(&mut [0]).unwrap();
    let open = silent.iter().filter(|(_, stream)| is_open(stream)).count();
    assert_eq!(open, 10, "no more of them stay than may");
}

#[test]
fn the_queue_sends_everything_in_order() {
    let shards = Shards::start(1).unwrap();
    let listeners = Listeners::new(
        Arc::new(shards.all().to_vec()),
        Limits { connections: 1, logins: 1, logins_per_address: 1 },
    );
    // Far more than the socket takes at once, in pieces of all sizes, added while others are under way.
    let (say, expected) = mpsc::channel();
    let say = Mutex::new(say);
    let serve: Serve = Arc::new(move |arrived| {
        let say = say.lock().clone();
        Box::pin(async move {
            let mut stream = arrived.stream;
            let (mut queue, mut all, mut next) = (SendQueue::default(), Vec::new(), 0_usize);
            poll_fn(|cx| {
                loop {
                    while next < 3000 && queue.waiting() < 1 << 20 {
                        let bytes = vec![next as u8; next * 37 % 5000];
                        all.extend_from_slice(&bytes);
                        if next.is_multiple_of(3) {
                            queue.large(IoBuf::copy_from(&bytes).freeze());
                        } else {
                            queue.small(|buffer| buffer.extend_from_slice(&bytes));
                        }
                        next += 1;
                    }
                    match queue.poll_send(&mut stream, cx) {
                        Err(_) => return Poll::Ready(()),
                        Ok(_) if queue.waiting() == 0 && next == 3000 => return Poll::Ready(()),
                        Ok(true) => {}
                        Ok(false) => return Poll::Pending,
                    }
                }
            })
            .await;
            let _ = say.send(all);
        })
    });
    let address = listeners.listen(ANY, serve).unwrap();
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    assert!(got == expected.recv().unwrap(), "{} bytes", got.len());
}
