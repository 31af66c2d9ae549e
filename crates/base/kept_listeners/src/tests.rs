//! A keeper and the children it has, one after another, in one process.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::child::Way;
use super::message::Request;
use super::{Helper, Keeper};

fn any() -> SocketAddr {
    "127.0.0.1:0".parse().expect("an address")
}

fn child(keeper: &Keeper) -> Way {
    Way::new(keeper.for_child().expect("a pair")).expect("usable")
}

#[test]
fn clients_wait_while_nobody_serves() {
    let keeper = Keeper::new();
    let first = child(&keeper);
    let (one, two) = (first.listen(any()).expect("bound"), first.listen(any()).expect("bound"));
    let addresses = [one.local_addr().expect("known"), two.local_addr().expect("known")];
    assert_ne!(addresses[0], addresses[1]);
    drop((one, two, first));

    // Nobody is there; the client connects, and says what it wants.
    let mut client = TcpStream::connect(addresses[1]).expect("not refused");
    client.write_all(b"hello").expect("sent");
    let second = child(&keeper);
    let (_one, two) = (second.listen(any()).expect("kept"), second.listen(any()).expect("kept"));
    assert_eq!([_one.local_addr().expect("known"), two.local_addr().expect("known")], addresses);
    let (mut served, _) = two.accept().expect("the client");
    let mut said = [0; 5];
    served.read_exact(&mut said).expect("what it said");
    assert_eq!(&said, b"hello");
}

#[test]
fn what_is_closed_or_not_asked_for_again_is_free() {
    let keeper = Keeper::new();
    let first = child(&keeper);
    let at = first.listen(any()).expect("bound").local_addr().expect("known");
    assert_eq!(first.listen(at).expect_err("taken").kind(), ErrorKind::AddrInUse);
    first.ask(&Request::Close(at)).expect("told");
    let again = first.listen(at).expect("free");
    assert_eq!(again.local_addr().expect("known"), at);
    first.listen(any()).expect("bound");
    drop(again);

    let second = child(&keeper);
    // The one before has nothing to say any more, however late it ends.
    assert!(first.listen(any()).is_err());
    first.ask(&Request::Settled).expect("heard");
    assert_eq!(keeper.addresses().len(), 2);
    second.listen(at).expect("kept");
    second.ask(&Request::Settled).expect("told");
    assert_eq!(keeper.addresses(), [at]);
}

#[test]
fn nonsense_is_not_answered() {
    for text in
        ["", "listen", "listen nowhere", "close 1.2.3.4", "settled now", "\u{7f}", "listen 127.0.0.1:99999"]
    {
        assert_eq!(Request::decode(text.as_bytes()), None, "{text}");
    }
    assert_eq!(Request::decode(&[0xff, 0xfe]), None);
    for request in [
        Request::Again,
        Request::Listen(any()),
        Request::Close("[::1]:445".parse().expect("one")),
        Request::Settled,
        Request::Keep,
        Request::Beside("etcd start {\"a\": 1}".into()),
        Request::Beside(String::new()),
    ] {
        assert_eq!(Request::decode(request.encode().as_bytes()), Some(request));
    }
}

#[test]
fn a_child_that_starts_over_gets_the_same_sockets() {
    let keeper = Keeper::new();
    let child = child(&keeper);
    let ask = || child.listen(any()).expect("a socket").local_addr().expect("known");
    let before = [ask(), ask()];
    child.ask(&Request::Again).expect("told");
    assert_eq!([ask(), ask()], before);
    assert_eq!(keeper.addresses().len(), 2);
}

#[test]
fn what_is_asked_beside_goes_to_the_helper_of_the_child_that_is_served() {
    struct Echo;
    impl Helper for Echo {
        fn asked(&self, text: &str) -> std::io::Result<String> {
            if text == "no" { Err(std::io::Error::from_raw_os_error(13)) } else { Ok(text.to_uppercase()) }
        }
    }
    let ask = |child: &Way, text: &str| child.ask(&Request::Beside(text.into())).map(|(answer, _)| answer);
    let keeper = Keeper::with_helper(std::sync::Arc::new(Echo));
    let first = child(&keeper);
    assert_eq!(ask(&first, "start it").expect("done"), "START IT");
    assert_eq!(ask(&first, "").expect("done"), "");
    assert_eq!(ask(&first, "no").expect_err("refused").kind(), ErrorKind::PermissionDenied);
    assert_eq!(ask(&first, &"x".repeat(1 << 20)).expect_err("too long").kind(), ErrorKind::InvalidInput);
    let second = child(&keeper);
    assert!(ask(&first, "late").is_err(), "there is another child");
    assert_eq!(ask(&second, &"é".repeat(10_000)).expect("long").chars().count(), 10_000);
    assert!(ask(&child(&Keeper::new()), "anything").is_err(), "nobody does anything else");
}

/// A client, and its connection at the server.
fn connected() -> (TcpStream, TcpStream) {
    let listener = std::net::TcpListener::bind(any()).expect("bound");
    let client = TcpStream::connect(listener.local_addr().expect("known")).expect("connected");
    client.set_read_timeout(Some(std::time::Duration::from_secs(20))).expect("an option");
    (client, listener.accept().expect("accepted").0)
}

#[test]
fn connections_of_a_child_that_dies_come_to_an_end_without_a_reset() {
    let keeper = Keeper::new();
    let child = child(&keeper);
    let (mut client, server) = connected();
    child.keep(&server).expect("told");
    client.write_all(b"nobody reads this any more").expect("sent");
    // As the kernel does with the descriptors of a process that is killed.
    drop((server, child));
    assert_eq!(client.read(&mut [0; 1]).map_err(|error| error.kind()), Ok(0), "the end, not a reset");
    for _ in 0..50 {
        client.write_all(&[1; 10_000]).expect("a writer does not fail");
        // For what comes back after a write, if anything does.
        std::thread::yield_now();
    }
}

#[test]
fn a_connection_that_a_child_closes_is_over_and_kept_no_longer() {
    let keeper = Keeper::new();
    let child = child(&keeper);
    let (mut client, server) = connected();
    let (mut stays, stays_too) = connected();
    for connection in [&server, &stays_too] {
        child.keep(connection).expect("told");
    }
    // What is answered after it has been heard.
    child.ask(&Request::Settled).expect("answered");
    assert_eq!(keeper.connections(), 2);
    server.shutdown(std::net::Shutdown::Both).expect("ended");
    drop(server);
    assert_eq!(client.read(&mut [0; 1]).expect("the end"), 0);
    while keeper.connections() > 1 {
        child.ask(&Request::Settled).expect("answered");
    }
    let mut stays_too = stays_too;
    stays_too.write_all(b"on").expect("sent");
    stays.read_exact(&mut [0; 2]).expect("it goes on");
}
