//! What a packet will make a connection hold before its answers are made.

use aligned_buffer::IoBuf;
use smb_protocol::read::ReadRequest;
use smb_protocol::{Command, Header};
use tcp_service::ALLOWANCE;

use super::answer::HEADROOM;
use crate::limits::MAX_TRANSFER;

/// Bytes that a message will make us hold for its answer: what a READ asks for. All else is small, or bounded by
/// [`crate::limits::MAX_PENDING`].
pub(super) fn expected(header: &Header, message: &[u8]) -> usize {
    if header.command != Command::READ {
        return 0;
    }
    ReadRequest::decode(message)
        .map_or(0, |read| IoBuf::footprint(HEADROOM + read.length.min(MAX_TRANSFER) as usize))
}

/// Whether a connection holds much of the node's memory for a packet that waits for the memory of its answers, and nothing that it
/// works on will give any back: several such wait for each other. It counts as holding it for its peer, and goes first when others
/// wait, too (`tcp_service::budget`).
pub(super) fn holds_while_it_waits(ready: usize, working: usize) -> bool {
    ready > ALLOWANCE && working == 0
}

#[cfg(test)]
mod tests {
    use super::super::receive::DATA_AT;
    use super::*;

    #[test]
    fn a_packet_that_waits_with_much_memory_counts_as_held_for_its_peer() {
        // A WRITE of 4 MiB with a READ of as much behind it.
        assert!(holds_while_it_waits(4 << 20, 0));
        // What is worked on ends, and gives its memory back.
        assert!(!holds_while_it_waits(4 << 20, 1 << 20));
        // A READ alone holds next to nothing.
        assert!(!holds_while_it_waits(DATA_AT + 113, 0) && !holds_while_it_waits(0, 0));
    }
}
