//! Frames: what is said of addresses on an Ethernet (RFC 826, 5227, 4861), and segments of TCP without data (RFC 9293 3.1); a peer answers one
//! that does not fit with where it is (3.10.7.4).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A MAC address.
pub(crate) type Mac = [u8; 6];

const BROADCAST: Mac = [0xff; 6];
const NOBODY: Mac = [0; 6];
const ETHER_ARP: [u8; 2] = [0x08, 0x06];
const ETHER_IPV6: [u8; 2] = [0x86, 0xdd];
/// Ethernet, IPv4, lengths of their addresses.
const ARP_KIND: [u8; 6] = [0, 1, 0x08, 0x00, 6, 4];
const ARP_REQUEST: u8 = 1;
const ETHERNET: usize = 14;
const IPV6: usize = 40;
const ICMPV6: u8 = 58;
const TCP: u8 = 6;
const ACK: u8 = 0x10;
const NEIGHBOR_SOLICITATION: u8 = 135;
const NEIGHBOR_ADVERTISEMENT: u8 = 136;

fn ethernet(to: Mac, from: Mac, kind: [u8; 2]) -> Vec<u8> {
    [&to[..], &from[..], &kind[..]].concat()
}

fn arp(from: Mac, sender: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    let mut frame = ethernet(BROADCAST, from, ETHER_ARP);
    frame.extend_from_slice(&ARP_KIND);
    frame.extend_from_slice(&[0, ARP_REQUEST]);
    frame.extend_from_slice(&from);
    frame.extend_from_slice(&sender.octets());
    frame.extend_from_slice(&NOBODY);
    frame.extend_from_slice(&target.octets());
    frame
}

/// Says that an address is here now: a gratuitous ARP request, or an unsolicited advertisement to all nodes.
pub(crate) fn announcement(from: Mac, address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => arp(from, address, address),
        IpAddr::V6(address) => {
            // Override: whoever knows another place forgets it. It carries the new one.
            let mut message = vec![NEIGHBOR_ADVERTISEMENT, 0, 0, 0, 0x20, 0, 0, 0];
            message.extend_from_slice(&address.octets());
            message.extend_from_slice(&[2, 1]);
            message.extend_from_slice(&from);
            icmpv6(from, address, Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1), message)
        }
    }
}

/// Asks who has an address, without saying that it is ours (RFC 5227 2.1.1, RFC 4862 5.4.2).
pub(crate) fn question(from: Mac, address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => arp(from, Ipv4Addr::UNSPECIFIED, address),
        IpAddr::V6(address) => {
            let mut message = vec![NEIGHBOR_SOLICITATION, 0, 0, 0, 0, 0, 0, 0];
            message.extend_from_slice(&address.octets());
            let [.., a, b, c] = address.octets();
            let group =
                Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), u16::from_be_bytes([b, c]));
            icmpv6(from, Ipv6Addr::UNSPECIFIED, group, message)
        }
    }
}

fn icmpv6(from: Mac, source: Ipv6Addr, group: Ipv6Addr, mut message: Vec<u8>) -> Vec<u8> {
    let sum = checksum(source.into(), group.into(), ICMPV6, &message);
    if let Some(place) = message.get_mut(2..4) {
        place.copy_from_slice(&sum);
    }
    let [.., a, b, c, d] = group.octets();
    let mut frame = ethernet([0x33, 0x33, a, b, c, d], from, ETHER_IPV6);
    frame.extend_from_slice(&ipv6(source, group, ICMPV6, message.len()));
    frame.extend_from_slice(&message);
    frame
}

fn ipv6(source: Ipv6Addr, to: Ipv6Addr, next: u8, length: usize) -> Vec<u8> {
    let length = u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes();
    // Version 6; hop limit 255, which neighbor discovery asks for.
    let mut header = vec![0x60, 0, 0, 0, length[0], length[1], next, 255];
    header.extend_from_slice(&source.octets());
    header.extend_from_slice(&to.octets());
    header
}

/// The MAC address of who says in this frame that an address is its own; `None` for any other frame, and for our own.
pub(crate) fn claimant(frame: &[u8], own: Mac, address: IpAddr) -> Option<Mac> {
    let (header, body) = frame.split_at_checked(ETHERNET)?;
    let kind = header.get(12..14)?;
    let mac = match address {
        IpAddr::V4(address) => {
            if kind != ETHER_ARP || body.get(..6)? != ARP_KIND || body.get(14..18)? != address.octets() {
                return None;
            }
            body.get(8..14)?
        }
        IpAddr::V6(address) => {
            if kind != ETHER_IPV6 || *body.get(6)? != ICMPV6 {
                return None;
            }
            let message = body.get(IPV6..)?;
            if *message.first()? != NEIGHBOR_ADVERTISEMENT || message.get(8..24)? != address.octets() {
                return None;
            }
            header.get(6..12)?
        }
    };
    let mac: Mac = mac.try_into().ok()?;
    (mac != own && mac != NOBODY).then_some(mac)
}

/// A segment of a connection that nobody here has: the peer answers it with where it is. `None` for addresses of two kinds.
pub(crate) fn stray_segment(local: SocketAddr, remote: SocketAddr) -> Option<Vec<u8>> {
    // Sequence number 0 is, of all that may be, in the peer's window only by a rare chance, and no data is carried then either.
    segment(local, remote, 0, 0, ACK, 0)
}

/// A segment without data, and without the IP header. `None` for addresses of two kinds.
pub(crate) fn segment(
    local: SocketAddr,
    remote: SocketAddr,
    seq: u32,
    ack: u32,
    flags: u8,
    window: u16,
) -> Option<Vec<u8>> {
    let mut segment = Vec::with_capacity(20);
    segment.extend_from_slice(&local.port().to_be_bytes());
    segment.extend_from_slice(&remote.port().to_be_bytes());
    segment.extend_from_slice(&seq.to_be_bytes());
    segment.extend_from_slice(&ack.to_be_bytes());
    // Five words of header.
    segment.extend_from_slice(&[0x50, flags]);
    segment.extend_from_slice(&window.to_be_bytes());
    segment.extend_from_slice(&[0; 4]);
    let (source, target) = (local.ip().to_canonical(), remote.ip().to_canonical());
    if source.is_ipv4() != target.is_ipv4() {
        return None;
    }
    let sum = checksum(source, target, TCP, &segment);
    segment.get_mut(16..18)?.copy_from_slice(&sum);
    Some(segment)
}

fn sum_of(bytes: &[u8], sum: u32) -> u32 {
    bytes.chunks(2).fold(sum, |sum, pair| {
        let (high, low) = (pair.first().copied().unwrap_or(0), pair.get(1).copied().unwrap_or(0));
        sum.wrapping_add(u32::from(u16::from_be_bytes([high, low])))
    })
}

fn fold(mut sum: u32) -> [u8; 2] {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!u16::try_from(sum).unwrap_or(0)).to_be_bytes()
}

/// The checksum of ICMPv6 and TCP, over addresses, length and protocol too.
fn checksum(source: IpAddr, target: IpAddr, protocol: u8, message: &[u8]) -> [u8; 2] {
    let octets = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let sum = sum_of(&octets(target), sum_of(&octets(source), 0));
    let length = u32::try_from(message.len()).unwrap_or(0);
    fold(sum_of(message, sum.wrapping_add(length).wrapping_add(u32::from(protocol))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: Mac = [2, 0, 0, 0, 0, 1];
    const OTHER: Mac = [2, 0, 0, 0, 0, 2];

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn who_has_an_address_says_so() {
        for address in ["10.0.0.50", "fd00::50"].map(ip) {
            let theirs = announcement(OTHER, address);
            assert_eq!(claimant(&theirs, ME, address), Some(OTHER));
            assert_eq!(claimant(&theirs, OTHER, address), None, "that is us");
            assert_eq!(claimant(&theirs, ME, ip("10.0.0.51")), None);
            assert_eq!(claimant(&theirs, ME, ip("fd00::51")), None);
            assert_eq!(claimant(&question(OTHER, address), ME, address), None, "who asks does not have it");
            for cut in 0..theirs.len() {
                let _ = claimant(&theirs[..cut], ME, address);
            }
        }
    }

    #[test]
    fn frames_are_as_the_protocols_have_them() {
        let arp = announcement(ME, ip("10.0.0.50"));
        let wanted = [
            &[0xff; 6][..],
            &ME,
            &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1],
            &ME,
            &[10, 0, 0, 50, 0, 0, 0, 0, 0, 0, 10, 0, 0, 50],
        ];
        assert_eq!(arp, wanted.concat());
        // A checksum is right when the sum with it is all ones.
        let whole = |frame: &[u8], from: usize, source: &str, target: &str, protocol: u8| {
            checksum(ip(source), ip(target), protocol, &frame[from..])
        };
        let advertised = announcement(ME, ip("fd00::50"));
        assert_eq!(advertised.len(), 86);
        assert_eq!(whole(&advertised, 54, "fd00::50", "ff02::1", ICMPV6), [0, 0]);
        let asked = question(ME, ip("fd00::1234:5678"));
        assert_eq!(&asked[..6], [0x33, 0x33, 0xff, 0x34, 0x56, 0x78]);
        assert_eq!(whole(&asked, 54, "::", "ff02::1:ff34:5678", ICMPV6), [0, 0]);
        let at = |text: &str| text.parse().expect("an address");
        let stray = stray_segment(at("10.0.0.50:445"), at("10.0.0.9:40000")).expect("one kind");
        assert_eq!((stray.len(), &stray[..4]), (20, &[1, 189, 0x9c, 0x40][..]));
        assert_eq!(whole(&stray, 0, "10.0.0.50", "10.0.0.9", TCP), [0, 0]);
        let stray = stray_segment(at("[fd00::1]:445"), at("[fd00::2]:40000")).expect("one kind");
        assert_eq!(whole(&stray, 0, "fd00::1", "fd00::2", TCP), [0, 0]);
        assert_eq!(stray_segment(at("10.0.0.50:445"), at("[fd00::2]:1")), None);
    }
}
