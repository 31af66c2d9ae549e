//! Where notifications may go: what a URL says, and which addresses are refused whatever it says.

use std::net::IpAddr;

use axum::http::Uri;

/// What a URL of a notifier says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) https: bool,
    /// Without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// As the header has it.
    pub(super) authority: String,
    pub(super) path: String,
}

impl Target {
    pub(super) fn parse(url: &str) -> Result<Self, String> {
        let wrong = |why: &str| Err(format!("The URL {why}: write https://HOST[:PORT]/PATH."));
        if url.len() > 2048 || url.contains('#') {
            return wrong("is too long or has a fragment");
        }
        let Ok(uri) = url.parse::<Uri>() else { return wrong("is none") };
        let https = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return wrong("is not of https or http"),
        };
        let Some(authority) = uri.authority() else { return wrong("names no host") };
        if authority.as_str().contains('@') {
            return wrong("has a user in it, which everybody could read; a secret belongs into a file");
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() {
            return wrong("names no host");
        }
        // A number that is no port would silently be the usual one.
        let says_port =
            authority.as_str().rsplit_once(']').map_or(authority.as_str(), |(_, rest)| rest).contains(':');
        let port = match authority.port_u16() {
            Some(0) => return wrong("has a port that there is not"),
            Some(port) => port,
            None if says_port => return wrong("has a port that there is not"),
            None if https => 443,
            None => 80,
        };
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        Ok(Self { https, host, port, authority: authority.as_str().to_owned(), path })
    }
}

/// Why nothing is sent to an address, if so.
pub(super) fn refused(ip: IpAddr, https: bool, allow_local: bool) -> Option<&'static str> {
    let ip = ip.to_canonical();
    let (local, nowhere, private) = match ip {
        IpAddr::V4(ip) => {
            let octets = ip.octets();
            let shared = octets[0] == 100 && octets[1] & 0xc0 == 64;
            let nowhere = ip.is_unspecified() || octets[0] == 0 || ip.is_multicast() || ip.is_broadcast();
            // Two clouds have there what is at 169.254.169.254 elsewhere.
            let metadata = octets == [100, 100, 100, 200] || octets == [168, 63, 129, 16];
            let local = ip.is_loopback() || ip.is_link_local() || metadata;
            (local, nowhere, ip.is_private() || shared)
        }
        IpAddr::V6(ip) => {
            let metadata = [[0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254], [0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254]]
                .contains(&ip.segments());
            // Addresses that carry one of version 4 are judged by it.
            let inner = match ip.segments() {
                [0x64, 0xff9b, 0, 0, 0, 0, high, low]
                | [0x64, 0xff9b, 1, _, _, _, high, low]
                | [0, 0, 0, 0, 0xffff, 0, high, low]
                | [0x2002, high, low, ..]
                | [0, 0, 0, 0, 0, 0, high, low]
                    if !ip.is_loopback() && !ip.is_unspecified() =>
                {
                    let [a, b] = high.to_be_bytes();
                    let [c, d] = low.to_be_bytes();
                    refused(IpAddr::from([a, b, c, d]), true, allow_local)
                }
                _ => None,
            };
            if inner.is_some() {
                return inner;
            }
            let local = ip.is_loopback() || ip.is_unicast_link_local() || metadata;
            (local, ip.is_unspecified() || ip.is_multicast(), ip.is_unique_local())
        }
    };
    if nowhere {
        Some("no service has such an address")
    } else if local && !allow_local {
        Some(
            "it is an address of this machine or of the link, where services ask nobody who it is; say so if it is meant (--allow-local)",
        )
    } else if !https && !private && !local {
        Some("without TLS it is sent within private networks only")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let target = Target::parse("https://hooks.example.org/a?b=c").expect("a URL");
        assert_eq!(
            (target.host.as_str(), target.port, target.path.as_str()),
            ("hooks.example.org", 443, "/a?b=c")
        );
        let target = Target::parse("http://[fd00::1]:8080").expect("a URL");
        assert_eq!((target.host.as_str(), target.port, target.path.as_str()), ("fd00::1", 8080, "/"));
        for wrong in [
            "",
            "/x",
            "ftp://a/",
            "file:///etc/passwd",
            "https://u:p@a/",
            "https:///x",
            "https://a/#b",
            "https://a b/",
            "http://a:99999/",
            "http://a:0/",
            "http://[::1]:/x",
            "https://a\r\nX: y/",
        ] {
            assert!(Target::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn addresses_of_the_machine_and_the_link_are_refused_in_every_guise() {
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        for local in [
            "127.0.0.1",
            "127.9.9.9",
            "169.254.169.254",
            "100.100.100.200",
            "168.63.129.16",
            "fd20:ce::254",
            "::1",
            "fe80::1",
            "fd00:ec2::254",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::a9fe:a9fe",
            "::ffff:0:169.254.169.254",
            "2002:a9fe:a9fe::1",
            "::169.254.169.254",
        ] {
            assert!(refused(ip(local), true, false).is_some(), "{local}");
            assert!(refused(ip(local), true, true).is_none(), "{local}: it was said");
        }
        for nowhere in ["0.0.0.0", "0.1.2.3", "::", "255.255.255.255", "224.0.0.1", "ff02::1"] {
            assert!(refused(ip(nowhere), true, true).is_some(), "{nowhere}");
        }
        for fine in ["192.168.1.5", "10.0.0.1", "fd12::1", "203.0.113.1", "2001:db8::1"] {
            assert!(refused(ip(fine), true, false).is_none(), "{fine}");
        }
        assert!(refused(ip("10.0.0.1"), false, false).is_none());
        assert!(refused(ip("203.0.113.1"), false, true).is_some(), "without TLS over the internet");
    }
}
