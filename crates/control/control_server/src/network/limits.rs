//! What peers of the network may hold: connections, requests, time.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

/// Limits of the listener.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Connections at once.
    pub(crate) connections: usize,
    /// Connections at once from one address, or from one network of IPv6: a browser has six, an office may share an address.
    pub(crate) per_address: usize,
    /// Requests at once, of which one peer may have a quarter; a further one is told to come again.
    pub(crate) requests: usize,
    /// How long the TLS handshake may take.
    pub(crate) handshake: Duration,
    /// How long the head of a request may take, the time between two requests included.
    pub(crate) head: Duration,
    /// How long nothing may come of a body that is awaited, or nothing be taken of an answer.
    pub(crate) stall: Duration,
    /// How long a body may take that is read whole, of somebody who is not known yet; and of somebody who is.
    pub(crate) stranger: Duration,
    pub(crate) body: Duration,
    /// Bytes of a request's head.
    pub(crate) head_bytes: usize,
    /// Headers of a request.
    pub(crate) headers: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            per_address: 128,
            requests: 128,
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(30),
            stall: Duration::from_secs(60),
            stranger: Duration::from_secs(10),
            body: Duration::from_secs(300),
            head_bytes: 32 << 10,
            headers: 64,
        }
    }
}

impl Limits {
    /// Those of requests, for [`Connections::take`].
    pub(crate) fn of_requests(&self) -> Self {
        Self { connections: self.requests, per_address: self.requests.div_ceil(4), ..*self }
    }
}

/// Who counts as one peer: an address, or the network of one that has many.
pub(crate) fn peer(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(ip) => {
            // A site or host has 2^64 addresses to come from.
            IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & !u128::from(u64::MAX)))
        }
        v4 => v4,
    }
}

/// Connections now.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    by_peer: Mutex<BTreeMap<IpAddr, usize>>,
}

/// A connection's place; it is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    all: Arc<Connections>,
    peer: IpAddr,
}

impl Connections {
    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.by_peer.lock().values().sum()
    }

    /// A place for a connection (or, with the limits of those, a request) from `address`; none when it, or all together, have too many.
    pub(crate) fn take(self: &Arc<Self>, address: IpAddr, limits: &Limits) -> Option<Place> {
        let peer = peer(address);
        let mut by_peer = self.by_peer.lock();
        let all: usize = by_peer.values().sum();
        let own = by_peer.entry(peer).or_default();
        if all >= limits.connections || *own >= limits.per_address {
            if *own == 0 {
                by_peer.remove(&peer);
            }
            return None;
        }
        *own += 1;
        Some(Place { all: self.clone(), peer })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut by_peer = self.all.by_peer.lock();
        if let Some(own) = by_peer.get_mut(&self.peer) {
            *own -= 1;
            if *own == 0 {
                by_peer.remove(&self.peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_limited_for_each_peer_and_for_all() {
        let limits = Limits { connections: 3, per_address: 2, ..Limits::default() };
        let all = Arc::new(Connections::default());
        let ip = |text: &str| -> IpAddr { text.parse().expect("an address") };
        let first = all.take(ip("10.0.0.1"), &limits).expect("free");
        let _second = all.take(ip("::ffff:10.0.0.1"), &limits).expect("free");
        assert!(all.take(ip("10.0.0.1"), &limits).is_none(), "two are enough");
        let _third = all.take(ip("fd00::1"), &limits).expect("another peer");
        assert!(all.take(ip("10.0.0.9"), &limits).is_none(), "three in all");
        drop(first);
        assert_eq!(all.count(), 2);
        let _fourth = all.take(ip("fd00::ffff:2"), &limits).expect("the same network");
        assert!(all.take(ip("fd00::3"), &limits).is_none());
        assert_eq!(all.by_peer.lock().len(), 2, "nobody is remembered who has gone");
    }
}
