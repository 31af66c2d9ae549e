//! Seats, listeners and the queue, over real sockets.

#![allow(clippy::disallowed_methods, reason = "a client on a thread of its own")]

use std::future::poll_fn;
use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, LazyLock};
use std::task::Poll;
use std::time::Duration;

use aligned_buffer::IoBuf;
use parking_lot::Mutex;
use shard_runtime::Shards;
use tokio::io::{AsyncRead as _, AsyncReadExt as _, ReadBuf};

use crate::{AnswerPermit, Answers, Limits, Listeners, LoopWatch, SendQueue, Serve, ShardJob, Spawner};

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// What all tests of this program log: there is one log for each program.
static LOG: LazyLock<Arc<Mutex<Vec<u8>>>> = LazyLock::new(|| {
    let lines: Arc<Mutex<Vec<u8>>> = Arc::default();
    let writer = lines.clone();
    tracing_subscriber::fmt().with_ansi(false).with_writer(move || Lines(writer.clone())).init();
    lines
});

struct Lines(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// How many lines the log has about a listener that say this.
fn told(address: SocketAddr, what: &str) -> usize {
    let text = String::from_utf8_lossy(&LOG.lock()).into_owned();
    let address = format!("address={address}");
    text.lines().filter(|line| line.contains(what) && line.contains(&address)).count()
}

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
    LazyLock::force(&LOG);
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
    assert_eq!(told(address, "connection refused: there are too many, and all have logged in"), 1);
    assert_eq!(told(address, "connection dropped: there are too many, and it had not logged in"), 2);
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
    LazyLock::force(&LOG);
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
    // The log says so, and does not say it of each.
    let said = told(address, "connection dropped: too many have not logged in");
    assert_eq!(said, 10);
}

/// A host that loses its power, or whose flow a NAT forgets, says nothing: the system is to ask it, and to give up.
#[test]
fn a_peer_that_is_gone_without_a_word_is_found_out() {
    let shards = Shards::start(1).unwrap();
    let limits = Limits { connections: 1, logins: 1, logins_per_address: 1 };
    let listeners = Listeners::new(Arc::new(shards.all().to_vec()), limits);
    let (say, said) = mpsc::channel();
    let say = Mutex::new(say);
    let serve: Serve = Arc::new(move |arrived| {
        let socket = socket2::SockRef::from(&arrived.stream);
        let probes = (
            socket.keepalive().unwrap(),
            socket.tcp_keepalive_time().unwrap(),
            socket.tcp_keepalive_interval().unwrap(),
            socket.tcp_keepalive_retries().unwrap(),
        );
        let _ = say.lock().send((probes, socket.tcp_user_timeout().unwrap()));
        Box::pin(async {})
    });
    let address = listeners.listen(ANY, serve).unwrap();
    let _stream = std::net::TcpStream::connect(address).unwrap();
    let (probes, unacknowledged) = said.recv().unwrap();
    assert_eq!(probes, (true, Duration::from_secs(60), Duration::from_secs(10), 6));
    assert_eq!(unacknowledged, Some(Duration::from_secs(120)));
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

/// Shards of a node of a cluster: it has a life or none, and its loops may stand still.
struct Member {
    shards: Vec<shard_runtime::Shard>,
    life: Arc<AtomicU64>,
    stood_still: Arc<AtomicU64>,
}

struct Number(Arc<AtomicU64>);

impl AnswerPermit for Number {
    fn life(&self) -> Option<u64> {
        Some(self.0.load(Ordering::SeqCst)).filter(|life| *life > 0)
    }
}

impl LoopWatch for Number {
    fn look(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

impl Spawner for Member {
    fn shards(&self) -> usize {
        self.shards.len()
    }

    fn spawn(&self, shard: usize, job: ShardJob) {
        self.shards.spawn(shard, job);
    }

    fn answers(&self) -> Answers {
        Answers::while_permitted(Arc::new(Number(self.life.clone())))
    }

    fn watch(&self, _shard: usize) -> Option<Arc<dyn LoopWatch>> {
        Some(Arc::new(Number(self.stood_still.clone())))
    }
}

/// Answers each byte with itself, while it may. Counts what is read, and for how many there was nothing more then.
fn echo(read: Arc<AtomicU64>, waited: Arc<AtomicU64>) -> Serve {
    Arc::new(move |arrived| {
        let (read, waited) = (read.clone(), waited.clone());
        Box::pin(async move {
            let mut stream = arrived.stream;
            let mut queue = SendQueue::default();
            queue.ask(arrived.answers);
            let mut first = Some(waited);
            for number in 0.. {
                let mut byte = [0];
                let got = poll_fn(|cx| {
                    let mut buffer = ReadBuf::new(&mut byte);
                    let polled = Pin::new(&mut stream).poll_read(cx, &mut buffer);
                    if let Some(waited) = first.take_if(|_| number > 0 && polled.is_pending()) {
                        waited.fetch_add(1, Ordering::SeqCst);
                    }
                    polled.map_ok(|()| buffer.filled().len())
                });
                let Ok(1) = got.await else { return };
                let [byte] = byte;
                read.fetch_add(1, Ordering::SeqCst);
                queue.small(|buffer| buffer.push(byte));
                let sent = poll_fn(|cx| match queue.poll_send(&mut stream, cx) {
                    Ok(_) if queue.waiting() > 0 => Poll::Pending,
                    done => Poll::Ready(done),
                });
                if sent.await.is_err() {
                    return;
                }
            }
        })
    })
}

#[test]
fn connections_wait_for_a_life_and_end_when_their_loop_stood_still() {
    let shards = Shards::start(1).unwrap();
    let [life, stood_still, read, waited]: [Arc<AtomicU64>; 4] = Default::default();
    let member =
        Member { shards: shards.all().to_vec(), life: life.clone(), stood_still: stood_still.clone() };
    let limits = Limits { connections: 3, logins: 3, logins_per_address: 3 };
    let listeners = Listeners::new(Arc::new(member), limits);
    let address = listeners.listen(ANY, echo(Arc::clone(&read), Arc::clone(&waited))).unwrap();
    // More than there is room for, and none of them is turned away before there is somebody to turn them away.
    let mut clients: Vec<_> = (0..3).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
    for client in &mut clients {
        client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        std::io::Write::write_all(client, &[7]).unwrap();
    }
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(read.load(Ordering::SeqCst), 0, "nothing is read before there is a life");
    life.store(5, Ordering::SeqCst);
    for client in &mut clients {
        assert_eq!(client.read(&mut [0]).expect("who waited is served"), 1);
    }
    // Each has looked for more: nothing is read any more in the step that has answered.
    while waited.load(Ordering::SeqCst) < 3 {
        std::thread::yield_now();
    }
    // What comes in after a stand-still is not carried out.
    stood_still.store(1, Ordering::SeqCst);
    for client in &mut clients {
        let _ = std::io::Write::write_all(client, &[8]);
    }
    for client in clients {
        assert!(!is_served(client));
    }
    assert_eq!(read.load(Ordering::SeqCst), 3);
    let (mut client, mut said) = (std::net::TcpStream::connect(address).unwrap(), [0]);
    std::io::Write::write_all(&mut client, &[9]).unwrap();
    client.read_exact(&mut said).expect("one that begins now is served");
    assert_eq!(said, [9]);
    drop(listeners);
    shards.stop();
}

/// Whether the server says something before it ends the connection.
fn is_served(mut client: std::net::TcpStream) -> bool {
    client.read(&mut [0]).is_ok_and(|got| got == 1)
}
