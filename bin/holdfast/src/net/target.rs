//! `HOST`, `HOST:PORT`, `[ADDRESS]:PORT`.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;
use std::time::Duration;

/// How long a name is looked up.
const LOOKED_UP: Duration = Duration::from_secs(5);

/// Another machine, and perhaps a port of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) host: String,
    pub(super) port: Option<u16>,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let port = |text: &str| match text.parse::<u16>() {
            Ok(port) if port > 0 => Ok(port),
            _ => Err(format!("{text:?} is no port: a number from 1 to 65535")),
        };
        let (host, port) = if let Some(rest) = text.strip_prefix('[') {
            let (address, behind) = rest.split_once(']').ok_or("the ] behind the address is missing")?;
            address.parse::<Ipv6Addr>().map_err(|_| format!("{address:?} is no address of IPv6"))?;
            match behind.strip_prefix(':') {
                Some(behind) => (address, Some(port(behind)?)),
                None if behind.is_empty() => (address, None),
                None => return Err(format!("{behind:?} behind the ] is no :PORT")),
            }
        } else if text.parse::<Ipv6Addr>().is_ok() {
            (text, None)
        } else {
            match text.split_once(':') {
                Some((host, behind)) => (host, Some(port(behind)?)),
                None => (text, None),
            }
        };
        let fits = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '%');
        if host.is_empty() || host.len() > 253 || host.starts_with('-') || !host.chars().all(fits) {
            return Err(format!("{host:?} is neither a name nor an address"));
        }
        Ok(Self { host: host.to_owned(), port })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) if self.host.contains(':') => write!(f, "[{}]:{port}", self.host),
            Some(port) => write!(f, "{}:{port}", self.host),
            None => f.write_str(&self.host),
        }
    }
}

/// The addresses of a name, each once.
pub(super) async fn addresses_of(host: &str) -> Result<Vec<IpAddr>, String> {
    let found = tokio::time::timeout(LOOKED_UP, tokio::net::lookup_host((host, 0))).await;
    let found = match found {
        Ok(found) => found.map_err(|error| error.to_string())?,
        Err(_) => return Err(format!("the name servers did not answer within {} s", LOOKED_UP.as_secs())),
    };
    let mut addresses: Vec<IpAddr> = Vec::new();
    for address in found.map(|address| address.ip()) {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    if addresses.is_empty() { Err("the name has no address".into()) } else { Ok(addresses) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read_and_written() {
        for text in ["host-1", "host-1:3260", "192.0.2.1", "192.0.2.1:445", "fd00::1", "[fd00::1]:445"] {
            assert_eq!(text.parse::<Target>().map(|target| target.to_string()), Ok(text.to_owned()));
        }
        assert_eq!("[fd00::1]".parse::<Target>().map(|target| target.port), Ok(None));
    }

    #[test]
    fn what_is_no_target_is_named() {
        for (text, word) in [
            ("", "neither"),
            (":445", "neither"),
            ("-h", "neither"),
            ("a b", "neither"),
            ("host:0", "no port"),
            ("host:70000", "no port"),
            ("host:445:445", "no port"),
            ("[fd00::1", "missing"),
            ("[host]:445", "no address"),
            ("[fd00::1]445", "no :PORT"),
        ] {
            let error = text.parse::<Target>().unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
