//! Routes of the main table, from `/proc/net/route` and `/proc/net/ipv6_route`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

/// The route is usable (`RTF_UP`).
const UP: u64 = 0x0001;
/// It leads through a gateway (`RTF_GATEWAY`).
const GATEWAY: u64 = 0x0002;
/// It is an address of this machine (`RTF_LOCAL`), or one that nothing can be sent to (`RTF_REJECT`).
const LOCAL: u64 = 0x8000_0000;
const REJECT: u64 = 0x0200;

/// A route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The network that it leads to.
    pub destination: IpAddr,
    /// Bits of that network; 0 is everything.
    pub prefix: u8,
    /// The router in between.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// The interface that it leaves by.
    pub interface: String,
    /// The smallest one of several is used.
    pub metric: u64,
}

/// Of `/proc/net/route`: addresses are numbers in hexadecimal whose bytes are in the order of the network in memory.
pub(crate) fn of_ipv4(table: &str) -> impl Iterator<Item = Route> {
    table.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [interface, destination, gateway, flags, _, _, metric, mask, ..] = fields.as_slice() else {
            return None;
        };
        let address = |text: &str| Some(Ipv4Addr::from(u32::from_str_radix(text, 16).ok()?.to_ne_bytes()));
        let flags = u64::from_str_radix(flags, 16).ok()?;
        (flags & UP != 0 && flags & REJECT == 0).then_some(())?;
        Some(Route {
            destination: address(destination)?.into(),
            prefix: u8::try_from(u32::from_str_radix(mask, 16).ok()?.count_ones()).ok()?,
            gateway: if flags & GATEWAY == 0 { None } else { Some(address(gateway)?.into()) },
            interface: (*interface).to_owned(),
            metric: metric.parse().ok()?,
        })
    })
}

/// Of `/proc/net/ipv6_route`: all numbers in hexadecimal.
pub(crate) fn of_ipv6(table: &str) -> impl Iterator<Item = Route> {
    table.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [destination, prefix, _, _, next, metric, _, _, flags, interface] = fields.as_slice() else {
            return None;
        };
        let address = |text: &str| {
            (text.len() == 32).then_some(())?;
            Some(Ipv6Addr::from(u128::from_str_radix(text, 16).ok()?))
        };
        let flags = u64::from_str_radix(flags, 16).ok()?;
        (flags & UP != 0 && flags & (LOCAL | REJECT) == 0).then_some(())?;
        let destination = address(destination)?;
        // Each interface has one of these, and nobody is reached by it.
        (!destination.is_multicast()).then_some(())?;
        Some(Route {
            destination: destination.into(),
            prefix: u8::from_str_radix(prefix, 16).ok().filter(|bits| *bits <= 128)?,
            gateway: if flags & GATEWAY == 0 { None } else { Some(address(next)?.into()) },
            interface: (*interface).to_owned(),
            metric: u64::from_str_radix(metric, 16).ok()?,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn routes_of_ipv4() {
        let table = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
                     eth0\t00000000\t0102A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
                     eth0\t0002A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n\
                     eth1\t0003A8C0\t00000000\t0201\t0\t0\t0\t00FFFFFF\t0\t0\t0\n\
                     broken\tline\n";
        let routes: Vec<Route> = of_ipv4(table).collect();
        assert_eq!(routes.len(), 2, "one is no route, one is refused: {routes:?}");
        assert_eq!((routes[0].prefix, routes[0].gateway), (0, Some("192.168.2.1".parse().unwrap())));
        assert_eq!((routes[1].destination, routes[1].prefix), ("192.168.2.0".parse().unwrap(), 24));
    }

    #[test]
    fn routes_of_ipv6() {
        let table = "fd000000000000000000000000000000 40 00000000000000000000000000000000 00 \
                     00000000000000000000000000000000 00000100 00000001 00000000 00000001     eth0\n\
                     00000000000000000000000000000000 00 00000000000000000000000000000000 00 \
                     fe800000000000000000000000000001 00000400 00000001 00000000 00000003     eth0\n\
                     fd000000000000000000000000000001 80 00000000000000000000000000000000 00 \
                     00000000000000000000000000000000 00000000 00000001 00000000 80200001       lo\n\
                     ff000000000000000000000000000000 08 00000000000000000000000000000000 00 \
                     00000000000000000000000000000000 00000100 00000001 00000000 00000001     eth0\n\
                     é 40\n";
        let routes: Vec<Route> = of_ipv6(table).collect();
        assert_eq!(routes.len(), 2, "{routes:?}");
        assert_eq!((routes[0].prefix, routes[0].metric, routes[0].gateway), (64, 256, None));
        assert_eq!(routes[1].gateway, Some("fe80::1".parse().unwrap()));
    }
}
