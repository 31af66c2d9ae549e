//! Which addresses are one peer's.

use std::net::{IpAddr, Ipv6Addr};

/// The part of an address that a peer cannot choose: one of IPv4 as a whole, also where it is written as one of IPv6; of IPv6 the
/// network, as whoever has one may use any address of its 64 bits.
#[must_use]
pub fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_peer_chooses_makes_no_difference() {
        let of = |text: &str| network_of(text.parse().expect("address"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:0:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }
}
