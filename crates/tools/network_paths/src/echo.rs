//! Echo requests (RFC 792, RFC 4443 section 4).

use std::io::{self, Read as _};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt::{
    Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, set_ip_mtu_discover, set_ipv6_mtu_discover,
};
use shard_runtime::Clock;
use socket2::{Domain, Protocol, Socket, Type};

use crate::{MOST_TRIES, Options, Tries};

/// Bytes of an echo request before its data: type, code, checksum, identifier, number.
const HEADER: usize = 8;
/// Bytes of data of a short request.
const SHORT: usize = 56;
/// Bytes of the longest packet that IP can describe.
pub(crate) const LONGEST: u64 = 65_535;
/// Lengths of packets that are usual, long ones first: jumbo, Ethernet, PPPoE, VXLAN, WireGuard, the least of IPv6 and IPv4.
const USUAL: [u64; 8] = [9_000, 4_000, 1_500, 1_492, 1_450, 1_420, 1_280, 576];
/// Requests of one length before it counts as one that does not pass.
const TRIES_OF_A_LENGTH: u16 = 2;

/// A socket for echo requests to one address.
pub(crate) struct Echo {
    socket: Socket,
    to: IpAddr,
    /// Whether the kernel hands over packets of others, too, and those of IPv4 with their IP header.
    raw: bool,
    identifier: u16,
    timeout: Duration,
}

impl Echo {
    /// # Errors
    /// When this process may not send echo requests, or there is no route.
    pub(crate) fn open(to: IpAddr, timeout: Duration) -> io::Result<Self> {
        let (domain, protocol) = match to {
            IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4),
            IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6),
        };
        // Whom the kernel lets ping (net.ipv4.ping_group_range); otherwise CAP_NET_RAW does.
        let (socket, raw) = match Socket::new(domain, Type::DGRAM, Some(protocol)) {
            Ok(socket) => (socket, false),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                (Socket::new(domain, Type::RAW, Some(protocol))?, true)
            }
            Err(error) => return Err(error),
        };
        socket.set_read_timeout(Some(timeout))?;
        // A request is never cut into fragments, and what the kernel knows of the way is not trusted: it is looked at.
        match to {
            IpAddr::V4(_) => set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::PROBE)?,
            IpAddr::V6(_) => set_ipv6_mtu_discover(&socket, Ipv6PathMtuDiscovery::PROBE)?,
        }
        socket.connect(&SocketAddr::new(to, 0).into())?;
        Ok(Self { socket, to, raw, identifier: std::process::id() as u16, timeout })
    }

    /// Sends one request and waits for its answer.
    fn once(&self, number: u16, data: usize, clock: &dyn Clock) -> Result<Duration, String> {
        let begun = clock.now();
        let sent = self.socket.send(&request(self.to.is_ipv6(), self.identifier, number, data));
        sent.map_err(|error| error.to_string())?;
        let lost = || format!("no answer within {} ms", self.timeout.as_millis());
        let mut packet = vec![0; HEADER + data + 60];
        loop {
            let length = match (&self.socket).read(&mut packet) {
                Ok(length) => length,
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    return Err(lost());
                }
                Err(error) => return Err(error.to_string()),
            };
            let answered = answer(packet.get(..length).unwrap_or_default(), self.raw, self.to.is_ipv6());
            // The kernel gives a socket that is not raw an identifier of its own.
            if answered.is_some_and(|(identifier, answered)| {
                answered == number && (!self.raw || identifier == self.identifier)
            }) {
                return Ok(clock.now().since(begun));
            }
            if clock.now().since(begun) > self.timeout {
                return Err(lost());
            }
        }
    }
}

/// An echo request.
fn request(v6: bool, identifier: u16, number: u16, data: usize) -> Vec<u8> {
    let mut packet = vec![0; HEADER + data];
    packet[0] = if v6 { 128 } else { 8 };
    packet[4..6].copy_from_slice(&identifier.to_be_bytes());
    packet[6..8].copy_from_slice(&number.to_be_bytes());
    // That of IPv6 covers addresses, which the kernel knows.
    if !v6 {
        let sum = checksum(&packet);
        packet[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    packet
}

/// The Internet checksum (RFC 1071).
fn checksum(packet: &[u8]) -> u16 {
    let words = packet.chunks(2).map(|pair| {
        u32::from(u16::from_be_bytes([pair.first().copied().unwrap_or(0), pair.get(1).copied().unwrap_or(0)]))
    });
    let mut sum = words.fold(0_u32, u32::wrapping_add);
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    !(sum as u16)
}

/// Identifier and number of the request that a packet answers; none if it is no answer.
fn answer(packet: &[u8], raw: bool, v6: bool) -> Option<(u16, u16)> {
    let packet = match (raw, v6) {
        // Behind the header of IPv4, whose length is told in words of 4 bytes.
        (true, false) => packet.get(usize::from(packet.first()? & 0x0F) * 4..)?,
        _ => packet,
    };
    let expected = if v6 { 129 } else { 0 };
    let [kind, 0, _, _, id0, id1, number0, number1, ..] = packet else { return None };
    (*kind == expected).then(|| (u16::from_be_bytes([*id0, *id1]), u16::from_be_bytes([*number0, *number1])))
}

/// Requests of a usual length, for latency and loss.
pub(crate) async fn short(echo: &Arc<Echo>, options: Options, clock: &Arc<dyn Clock>) -> Tries {
    let mut results = Vec::new();
    for number in 0..options.tries.min(MOST_TRIES) {
        if number > 0 {
            tokio::time::sleep(options.interval).await;
        }
        results.push(ask(echo, number as u16, SHORT, clock).await);
    }
    Tries::of(results)
}

/// The longest packet that passes: `mtu` bytes, or the longest of the usual lengths below.
pub(crate) async fn longest(echo: &Arc<Echo>, mtu: u64, clock: &Arc<dyn Clock>) -> Option<u64> {
    let header = HEADER + if echo.to.is_ipv6() { 40 } else { 20 };
    let lengths = std::iter::once(mtu).chain(USUAL.into_iter().filter(|length| *length < mtu));
    let mut number = MOST_TRIES as u16;
    for length in lengths {
        let data = usize::try_from(length).unwrap_or(usize::MAX).saturating_sub(header);
        for _ in 0..TRIES_OF_A_LENGTH {
            number += 1;
            if ask(echo, number, data, clock).await.is_ok() {
                return Some(length);
            }
        }
    }
    None
}

/// One request; waiting for its answer keeps a thread.
async fn ask(echo: &Arc<Echo>, number: u16, data: usize, clock: &Arc<dyn Clock>) -> Result<Duration, String> {
    let (echo, clock) = (Arc::clone(echo), Arc::clone(clock));
    let asked = tokio::task::spawn_blocking(move || echo.once(number, data, clock.as_ref())).await;
    asked.unwrap_or_else(|_| Err("interrupted".into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_request_has_a_right_checksum() {
        let packet = request(false, 0x1234, 7, 5);
        assert_eq!((packet.len(), packet[0]), (13, 8));
        assert_eq!(checksum(&packet), 0, "the sum over all of it, the checksum included, is zero");
        assert_eq!(request(true, 1, 2, 0), [128, 0, 0, 0, 0, 1, 0, 2]);
    }

    #[test]
    fn answers_are_told_from_other_packets() {
        let mut reply = request(false, 0x1234, 7, 5);
        reply[0] = 0;
        assert_eq!(answer(&reply, false, false), Some((0x1234, 7)));
        let mut behind_a_header = vec![0x46; 24];
        behind_a_header.extend(&reply);
        assert_eq!(answer(&behind_a_header, true, false), Some((0x1234, 7)));
        assert_eq!(answer(&request(false, 1, 2, 5), false, false), None, "a request is no answer");
        assert_eq!(answer(&[129, 0, 0, 0, 0, 1, 0, 2], true, true), Some((1, 2)));
    }

    proptest! {
        #[test]
        fn nothing_that_arrives_is_too_odd(packet in proptest::collection::vec(any::<u8>(), 0..100), raw: bool, v6: bool) {
            let _ = answer(&packet, raw, v6);
        }
    }

    #[tokio::test]
    async fn this_machine_answers_itself() {
        let to: IpAddr = "127.0.0.1".parse().unwrap();
        let echo = match Echo::open(to, Duration::from_secs(5)) {
            Ok(echo) => Arc::new(echo),
            // Whoever may neither ping nor open raw sockets is told so.
            Err(error) => return assert_eq!(error.kind(), io::ErrorKind::PermissionDenied),
        };
        let clock: Arc<dyn Clock> = Arc::new(shard_runtime::SystemClock::default());
        let options = Options { tries: 3, ..Options::default() };
        assert_eq!(short(&echo, options, &clock).await.answered, 3);
        assert_eq!(longest(&echo, 1_500, &clock).await, Some(1_500));
    }
}
