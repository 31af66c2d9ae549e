//! Nonces of encrypted packets.

/// Numbers that never repeat, for one channel of a session in one direction.
///
/// A session's channels encrypt with the same key, on different threads. Each counts for itself, in eight bytes behind
/// three that say which channel it is; so no lock is needed. What must hold: within the life of a session's keys no two
/// sequences of one direction have the same channel number, not even one after the other.
#[derive(Debug)]
pub struct NonceSequence {
    channel: [u8; 3],
    next: Option<u64>,
}

impl NonceSequence {
    /// The most channels that a session's keys can have had.
    pub const MAX_CHANNEL: u32 = 0x00ff_ffff;

    /// The sequence of a channel; `None` above [`NonceSequence::MAX_CHANNEL`].
    #[must_use]
    pub fn new(channel: u32) -> Option<Self> {
        match channel.to_le_bytes() {
            [a, b, c, 0] => Some(Self { channel: [a, b, c], next: Some(0) }),
            _ => None,
        }
    }

    /// The next nonce, in the first eleven bytes, so that it serves AES-CCM and AES-GCM; `None` after 2⁶⁴ of them, which
    /// does not happen.
    pub fn advance(&mut self) -> Option<[u8; 16]> {
        let count = self.next?;
        self.next = count.checked_add(1);
        let mut nonce = [0; 16];
        nonce[..3].copy_from_slice(&self.channel);
        nonce[3..11].copy_from_slice(&count.to_le_bytes());
        Some(nonce)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_are_equal() {
        let mut seen = std::collections::BTreeSet::new();
        for channel in [0, 1, 0x100, NonceSequence::MAX_CHANNEL] {
            let mut sequence = NonceSequence::new(channel).unwrap();
            for _ in 0..300 {
                let nonce = sequence.advance().unwrap();
                assert_eq!(nonce[11..], [0; 5]);
                assert!(seen.insert(nonce));
            }
        }
        assert!(NonceSequence::new(NonceSequence::MAX_CHANNEL + 1).is_none());
    }

    #[test]
    fn it_ends_instead_of_beginning_again() {
        let mut last = NonceSequence { channel: [0; 3], next: Some(u64::MAX) };
        assert!(last.advance().is_some());
        assert!(last.advance().is_none() && last.advance().is_none());
    }
}
