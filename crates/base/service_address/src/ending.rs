//! How a connection ends that a machine before had: the segments of it that arrive, and what is answered.
//!
//! A peer that is told by a reset loses what it is just sending: the call that sends fails, and some clients (every Linux up to 6.12 at least)
//! hand that failure on to the program, where a request that was under way is asked again. So the connection is ended as its owner would have
//! ended it who had nothing more to say: by FIN, and whatever the peer still sends is acknowledged, and thrown away. It gets no answer, and
//! what got none is asked again.
//!
//! ```text
//!   us                                   peer
//!   a segment out of nowhere ──────────►           (`frames::stray_segment`)
//!             ◄────────── ACK: where it is         seq S, ack A
//!   FIN, seq A, ack S        ──────────►           its reader comes to the end
//!             ◄────────── data, ACK of A+1         its writers never fail
//!   ACK of what came         ──────────►
//!             ◄────────── FIN
//!   ACK                      ──────────►           over
//! ```
//! Invariants:
//! * Only what arrives is answered, and an acknowledgement that needs no answer gets none: two ends cannot keep each other going.
//! * No data is ever sent.

use std::net::SocketAddr;

use crate::frames::segment;

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;
const TCP: u8 = 6;
/// The largest window that TCP has (RFC 7323, 2.3): nothing true is further ahead.
const MOST_AHEAD: u32 = 1 << 30;
/// Room that is offered: the most without scaling.
const WINDOW: u16 = u16::MAX;

/// A segment that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    from: u16,
    to: u16,
    seq: u32,
    ack: u32,
    flags: u8,
    /// Bytes that it carries.
    data: u32,
}

impl Segment {
    /// Reads what a raw socket gives: IPv4 with its header, IPv6 without. `length` is that of all, of which `bytes` may be the beginning. `None`
    /// for what is no segment.
    pub(crate) fn parse(bytes: &[u8], length: usize, is_v4: bool) -> Option<Self> {
        let before = if is_v4 {
            let first = *bytes.first()?;
            if first >> 4 != 4 || *bytes.get(9)? != TCP {
                return None;
            }
            usize::from(first & 0xf) * 4
        } else {
            0
        };
        let header = bytes.get(before..)?;
        let two = |at: usize| Some(u16::from_be_bytes(header.get(at..at + 2)?.try_into().ok()?));
        let four = |at: usize| Some(u32::from_be_bytes(header.get(at..at + 4)?.try_into().ok()?));
        let own = usize::from(*header.get(12)? >> 4) * 4;
        let data = length.checked_sub(before)?.checked_sub(own)?;
        (own >= 20).then_some(())?;
        Some(Self {
            from: two(0)?,
            to: two(2)?,
            seq: four(4)?,
            ack: four(8)?,
            flags: *header.get(13)?,
            data: u32::try_from(data).ok()?,
        })
    }
}

/// Whether a sequence number comes after another one.
fn is_after(one: u32, other: u32) -> bool {
    one != other && one.wrapping_sub(other) < 1 << 31
}

/// One connection on its way to its end.
#[derive(Debug)]
pub(crate) struct Ending {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    /// Where it is, once a segment has arrived: number of our FIN, and all that came from the peer before.
    at: Option<(u32, u32)>,
    /// The peer knows of our end.
    heard: bool,
    over: bool,
}

impl Ending {
    pub(crate) fn new(local: SocketAddr, remote: SocketAddr) -> Self {
        Self { local, remote, at: None, heard: false, over: false }
    }

    /// Whether the peer has ended its half, too, or has no such connection.
    pub(crate) fn is_over(&self) -> bool {
        self.over
    }

    /// Whether nothing has been heard of the peer.
    pub(crate) fn is_silent(&self) -> bool {
        self.at.is_none()
    }

    /// Whether a segment from the peer's machine is of this connection.
    pub(crate) fn is_of(&self, came: &Segment) -> bool {
        came.from == self.remote.port() && came.to == self.local.port()
    }

    /// What is answered, if anything is.
    pub(crate) fn answer(&mut self, came: &Segment) -> Option<Vec<u8>> {
        // One that fits nothing may be from anybody, and is believed only while nothing is known.
        if came.flags & RST != 0 && self.at.is_none_or(|(_, next)| came.seq == next) {
            self.over = true;
        }
        if came.flags & (RST | SYN) != 0 || came.flags & ACK == 0 {
            return None;
        }
        let ends = came.flags & FIN != 0;
        let end = came.seq.wrapping_add(came.data).wrapping_add(u32::from(ends));
        let (mut fin, mut next) = self.at.unwrap_or((came.ack, end));
        if came.ack == fin.wrapping_add(1) {
            self.heard = true;
        } else if !self.heard && is_after(came.ack, fin) {
            // Something of the machine before has arrived after what we heard first.
            fin = came.ack;
        }
        if is_after(end, next) && end.wrapping_sub(next) <= MOST_AHEAD {
            next = end;
        }
        self.at = Some((fin, next));
        self.over |= ends && self.heard;
        if self.heard && came.data == 0 && !ends {
            return None;
        }
        let (seq, flags) = if self.heard { (fin.wrapping_add(1), ACK) } else { (fin, ACK | FIN) };
        segment(self.local, self.remote, seq, next, flags, WINDOW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    fn ending() -> Ending {
        Ending::new(at("10.0.0.50:445"), at("10.0.0.9:40000"))
    }

    fn from_peer(seq: u32, ack: u32, flags: u8, data: u32) -> Segment {
        Segment { from: 40000, to: 445, seq, ack, flags, data }
    }

    /// Sequence number, acknowledgement and flags of an answer.
    fn told(answer: Option<Vec<u8>>) -> Option<(u32, u32, u8)> {
        let bytes = answer?;
        let segment = Segment::parse(&bytes, bytes.len(), false).expect("a segment");
        assert_eq!((segment.from, segment.to, segment.data), (445, 40000, 0));
        Some((segment.seq, segment.ack, segment.flags))
    }

    #[test]
    fn a_connection_ends_by_fin_and_all_that_comes_is_acknowledged() {
        let mut ending = ending();
        assert!(ending.is_silent());
        // Numbers go round on the way.
        let (s, a) = (u32::MAX - 5, u32::MAX);
        assert_eq!(told(ending.answer(&from_peer(s, a, ACK, 0))), Some((a, s, FIN | ACK)));
        assert!(!ending.is_silent());
        // Data that was on its way, sent before the peer heard; then some of it again.
        assert_eq!(
            told(ending.answer(&from_peer(s, a, ACK, 100))),
            Some((a, s.wrapping_add(100), FIN | ACK))
        );
        assert_eq!(told(ending.answer(&from_peer(s, a, ACK, 50))), Some((a, s.wrapping_add(100), FIN | ACK)));
        // It has heard: nothing more is said unless something comes.
        assert_eq!(told(ending.answer(&from_peer(s.wrapping_add(100), 0, ACK, 0))), None);
        assert_eq!(
            told(ending.answer(&from_peer(s.wrapping_add(100), 0, ACK, 10))),
            Some((0, s.wrapping_add(110), ACK))
        );
        assert!(!ending.is_over());
        assert_eq!(
            told(ending.answer(&from_peer(s.wrapping_add(110), 0, FIN | ACK, 0))),
            Some((0, s.wrapping_add(111), ACK))
        );
        assert!(ending.is_over());
    }

    #[test]
    fn what_the_machine_before_sent_last_moves_the_end() {
        let mut ending = ending();
        assert_eq!(told(ending.answer(&from_peer(7, 1000, ACK, 0))), Some((1000, 7, FIN | ACK)));
        assert_eq!(told(ending.answer(&from_peer(7, 1500, ACK, 0))), Some((1500, 7, FIN | ACK)));
        assert_eq!(
            told(ending.answer(&from_peer(7, 1000, ACK, 0))),
            Some((1500, 7, FIN | ACK)),
            "an old one"
        );
        assert_eq!(told(ending.answer(&from_peer(7, 1501, ACK, 0))), None);
    }

    #[test]
    fn resets_and_new_connections_are_not_answered() {
        let mut one = ending();
        assert_eq!(one.answer(&from_peer(7, 0, SYN, 0)), None);
        assert!(one.is_silent() && !one.is_over());
        assert_eq!(one.answer(&from_peer(7, 9, RST | ACK, 0)), None);
        assert!(one.is_over());
        // Once it is known where the peer is, only a reset that fits is one; nor is anything further ahead than a window believed.
        let mut known = ending();
        assert_eq!(told(known.answer(&from_peer(7, 1000, ACK, 0))), Some((1000, 7, FIN | ACK)));
        known.answer(&from_peer(8, 0, RST, 0));
        assert!(!known.is_over());
        assert_eq!(told(known.answer(&from_peer(7 + (1 << 30), 1000, ACK, 1))), Some((1000, 7, FIN | ACK)));
        known.answer(&from_peer(7, 0, RST, 0));
        assert!(known.is_over());
        assert!(one.is_of(&from_peer(0, 0, ACK, 0)));
        assert!(!one.is_of(&Segment { from: 40001, ..from_peer(0, 0, ACK, 0) }));
    }

    #[test]
    fn what_raw_sockets_give_is_read_and_anything_else_refused() {
        let segment = segment(at("10.0.0.9:40000"), at("10.0.0.50:445"), 1, 2, ACK, 3).expect("one kind");
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, TCP, 0, 0, 10, 0, 0, 9, 10, 0, 0, 50];
        packet.extend_from_slice(&segment);
        let wanted = from_peer(1, 2, ACK, 1000);
        assert_eq!(Segment::parse(&packet, packet.len() + 1000, true), Some(wanted));
        assert_eq!(Segment::parse(&segment, segment.len() + 1000, false), Some(wanted));
        for cut in 0..packet.len() {
            assert_eq!(Segment::parse(&packet[..cut], cut, true), None);
        }
        // Lengths that lie: of the IP header, of the segment's.
        for (at, value) in [(0, 0x4f), (32, 0xf0), (32, 0x40), (9, 17), (0, 0x65)] {
            let mut wrong = packet.clone();
            wrong[at] = value;
            assert_eq!(Segment::parse(&wrong, wrong.len(), true), None, "{at}");
        }
    }
}
