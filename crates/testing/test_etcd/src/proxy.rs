//! A way to a server that can lose what the server says, and can be cut.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::{own_address, own_port};

#[derive(Default)]
struct State {
    mute: AtomicBool,
    refuse: AtomicBool,
    connections: Mutex<Vec<TcpStream>>,
}

/// Forwards connections. It ends with the process; what it forwards ends when it is cut.
pub struct Proxy {
    state: Arc<State>,
    address: IpAddr,
    port: u16,
}

impl Proxy {
    /// A way to this address.
    ///
    /// # Panics
    /// When there is no port for it.
    #[must_use]
    pub fn start(to: (IpAddr, u16)) -> Self {
        let (address, port) = (own_address(), own_port());
        let listener = TcpListener::bind((address, port)).expect("a port");
        let state = Arc::new(State::default());
        let shared = state.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if shared.refuse.load(Ordering::SeqCst) {
                    continue;
                }
                let Ok(server) = TcpStream::connect(to) else { continue };
                let (Ok(client_too), Ok(server_too)) = (client.try_clone(), server.try_clone()) else {
                    continue;
                };
                if let Ok(mut connections) = shared.connections.lock() {
                    connections.extend(client.try_clone());
                    connections.extend(server.try_clone());
                }
                std::thread::spawn(move || forward(client, server, None));
                let state = shared.clone();
                std::thread::spawn(move || forward(server_too, client_too, Some(&state)));
            }
        });
        Self { state, address, port }
    }

    /// Host and port.
    #[must_use]
    pub fn address(&self) -> (IpAddr, u16) {
        (self.address, self.port)
    }

    /// What the server says from now on is lost, or is not any more.
    pub fn mute(&self, mute: bool) {
        self.state.mute.store(mute, Ordering::SeqCst);
    }

    /// Cuts all connections; while it refuses there are no new ones.
    pub fn cut(&self, refuse: bool) {
        self.state.refuse.store(refuse, Ordering::SeqCst);
        if let Ok(mut connections) = self.state.connections.lock() {
            for connection in connections.drain(..) {
                let _ = connection.shutdown(Shutdown::Both);
            }
        }
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, loses: Option<&State>) {
    let mut buffer = [0; 16 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        if loses.is_some_and(|state| state.mute.load(Ordering::SeqCst)) {
            continue;
        }
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
