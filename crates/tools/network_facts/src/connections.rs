//! TCP connections by port and state, from `/proc/net/tcp` and `/proc/net/tcp6`, and what TCP counts.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// Ports that are told at most, the busiest ones.
const MOST_PORTS: usize = 1000;

/// How many connections a port has, state by state (RFC 9293, section 3.3.2).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PortUse {
    /// The port: of this machine where it listens, otherwise of the others that it is connected to.
    pub port: u16,
    /// Whether this machine listens there.
    pub listening: bool,
    /// Different addresses at the other end.
    pub peers: u64,
    /// Connections that carry data.
    pub established: u64,
    /// Connections that are being made.
    pub opening: u64,
    /// Connections that the other end has closed and this one has not.
    pub close_wait: u64,
    /// Connections that end, or have ended and are remembered.
    pub closing: u64,
}

/// What TCP has counted since the machine started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TcpCounters {
    /// Segments sent.
    pub sent: u64,
    /// Segments sent again.
    pub sent_again: u64,
    /// Segments that arrived damaged.
    pub damaged: u64,
    /// Connections that were dropped since the program that listens did not take them in time.
    pub not_taken: u64,
}

struct Line<'a> {
    local_port: u16,
    /// In hexadecimal: it is only compared.
    remote: &'a str,
    remote_port: u16,
    state: u8,
}

fn line(text: &str) -> Option<Line<'_>> {
    let mut fields = text.split_whitespace().skip(1);
    let (local, remote, state) = (fields.next()?, fields.next()?, fields.next()?);
    let port = |end: &str| u16::from_str_radix(end.rsplit_once(':')?.1, 16).ok();
    Some(Line {
        local_port: port(local)?,
        remote: remote.rsplit_once(':')?.0,
        remote_port: port(remote)?,
        state: u8::from_str_radix(state, 16).ok()?,
    })
}

/// The port that somebody listens at (`TCP_LISTEN` of the kernel's `tcp_states.h`).
const LISTEN: u8 = 10;

/// All connections, ports that are listened at first, the ones with most connections first among each.
pub(crate) fn by_port(tables: &[&str]) -> Vec<PortUse> {
    let lines: Vec<Line<'_>> =
        tables.iter().flat_map(|table| table.lines().skip(1)).filter_map(line).collect();
    let listening: BTreeSet<u16> =
        lines.iter().filter(|line| line.state == LISTEN).map(|line| line.local_port).collect();
    let mut ports: BTreeMap<(bool, u16), (PortUse, BTreeSet<&str>)> = BTreeMap::new();
    for line in &lines {
        let here = listening.contains(&line.local_port);
        let port = if here { line.local_port } else { line.remote_port };
        let (used, peers) = ports.entry((here, port)).or_default();
        (used.port, used.listening) = (port, here);
        let counter = match line.state {
            1 => &mut used.established,
            // SYN_SENT, SYN_RECV and NEW_SYN_RECV
            2 | 3 | 12 => &mut used.opening,
            8 => &mut used.close_wait,
            LISTEN => continue,
            _ => &mut used.closing,
        };
        *counter += 1;
        peers.insert(line.remote);
    }
    let counted = |(mut used, peers): (PortUse, BTreeSet<&str>)| {
        used.peers = peers.len() as u64;
        used
    };
    let mut all: Vec<PortUse> = ports.into_values().map(counted).collect();
    all.sort_by_key(|used| (!used.listening, std::cmp::Reverse(used.established), used.port));
    all.truncate(MOST_PORTS);
    all
}

/// A number of a file of pairs of lines, `Tcp: names…` and `Tcp: numbers…`.
fn counter(text: &str, group: &str, name: &str) -> u64 {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(group)?.strip_prefix(':'));
    let (Some(names), Some(numbers)) = (lines.next(), lines.next()) else { return 0 };
    let found = names.split_whitespace().zip(numbers.split_whitespace()).find(|(each, _)| *each == name);
    found.and_then(|(_, number)| number.parse().ok()).unwrap_or(0)
}

/// Of `/proc/net/snmp` and `/proc/net/netstat`.
pub(crate) fn counters(snmp: &str, netstat: &str) -> TcpCounters {
    TcpCounters {
        sent: counter(snmp, "Tcp", "OutSegs"),
        sent_again: counter(snmp, "Tcp", "RetransSegs"),
        damaged: counter(snmp, "Tcp", "InErrs"),
        not_taken: counter(netstat, "TcpExt", "ListenOverflows"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_counted_by_port_and_state() {
        let head = "  sl  local_address rem_address   st tx_queue rx_queue\n";
        let v4 = format!(
            "{head}   0: 00000000:0CBC 00000000:0000 0A 0\n\
               1: 0100000A:0CBC 0200000A:C001 01 0\n\
               2: 0100000A:0CBC 0200000A:C002 01 0\n\
               3: 0100000A:0CBC 0300000A:C002 08 0\n\
               4: 0100000A:C123 0900000A:094B 01 0\n\
               5: nonsense\n   6: 1:zz 2:1 01\n"
        );
        let v6 = format!("{head}   0: 00000000000000000000000000000000:01BD 0:0000 0A 0\n");
        let ports = by_port(&[&v4, &v6]);
        let told: Vec<_> = ports
            .iter()
            .map(|port| (port.port, port.listening, port.peers, port.established, port.close_wait))
            .collect();
        assert_eq!(told, [(3260, true, 2, 2, 1), (445, true, 0, 0, 0), (2379, false, 1, 1, 0)]);
    }

    #[test]
    fn counters_stand_under_their_names() {
        let snmp = "Ip: A B\nIp: 1 2\nTcp: OutSegs RetransSegs InErrs\nTcp: 1000 7 3\n";
        let netstat = "TcpExt: SyncookiesSent ListenOverflows\nTcpExt: 0 5\n";
        assert_eq!(
            counters(snmp, netstat),
            TcpCounters { sent: 1000, sent_again: 7, damaged: 3, not_taken: 5 }
        );
        assert_eq!(counters("Tcp: OutSegs", ""), TcpCounters::default());
    }
}
