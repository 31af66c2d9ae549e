//! Requests that a client sends again on another channel (MS-SMB2 3.3.5.2.10, 3.3.5.14).
//!
//! A client whose channel broke does not know whether its last requests were done. It raises its channel sequence and
//! sends them again as replays. What is still under way from before the break must not come after them.

use smb_protocol::header::HeaderFlags;
use smb_protocol::{Command, Header, NtStatus};

/// Lock requests that an open remembers (MS-SMB2 3.3.1.10: LockSequenceArray).
pub(crate) const LOCK_SEQUENCES: usize = 64;

/// The channel sequence of an open.
#[derive(Clone, Debug)]
pub(crate) struct Sequence {
    current: u16,
    /// Requests under way with the current sequence.
    now: u32,
    /// Requests under way with earlier ones.
    before: u32,
    /// The number of the last lock request by its index, or 0xFF.
    locks: [u8; LOCK_SEQUENCES],
}

impl Default for Sequence {
    fn default() -> Self {
        Self { current: 0, now: 0, before: 0, locks: [u8::MAX; LOCK_SEQUENCES] }
    }
}

impl Sequence {
    /// The sequence of an open that comes back, with what it remembers of its locks.
    pub(crate) fn with_locks(locks: [u8; LOCK_SEQUENCES]) -> Self {
        Self { locks, ..Self::default() }
    }

    /// What it remembers of locks.
    pub(crate) fn locks(&self) -> [u8; LOCK_SEQUENCES] {
        self.locks
    }

    /// A request begins. Returns the sequence that it counts for, to be given to [`Sequence::end`]; `None` when it does not
    /// count, as it came too late.
    ///
    /// # Errors
    /// FILE_NOT_AVAILABLE for a change that could come twice or too late.
    pub(crate) fn begin(&mut self, header: &Header) -> Result<Option<u16>, NtStatus> {
        let sequence = header.channel_sequence();
        let replay = header.flags.contains(HeaderFlags::REPLAY_OPERATION);
        // Numbers go round: what is less than half the circle ahead is newer (3.3.5.2.10).
        let ahead = sequence.wrapping_sub(self.current);
        let newer = (1..=0x7fff).contains(&ahead);
        let good = if replay { self.before == 0 && (ahead == 0 || newer) } else { ahead == 0 || newer };
        if !good {
            let changes = matches!(header.command, Command::WRITE | Command::SET_INFO | Command::IOCTL);
            return if changes { Err(NtStatus::FILE_NOT_AVAILABLE) } else { Ok(None) };
        }
        if newer {
            self.before += std::mem::take(&mut self.now);
            self.current = sequence;
        }
        self.now += 1;
        Ok(Some(sequence))
    }

    /// A request has ended.
    pub(crate) fn end(&mut self, sequence: u16) {
        let counter = if sequence == self.current { &mut self.now } else { &mut self.before };
        *counter = counter.saturating_sub(1);
    }

    /// Whether no request is under way.
    #[cfg(test)]
    pub(crate) fn is_quiet(&self) -> bool {
        self.now == 0 && self.before == 0
    }

    /// Whether a lock request was done before; if not, remembers that it is being done. Index 0 says nothing.
    pub(crate) fn lock_was_done(&mut self, index: u32, number: u8) -> bool {
        let Some(place) = index.checked_sub(1).and_then(|at| self.locks.get_mut(at as usize)) else {
            return false;
        };
        if *place == number {
            return true;
        }
        // Until it has succeeded it was not done.
        *place = u8::MAX;
        false
    }

    /// A lock request has succeeded.
    pub(crate) fn lock_done(&mut self, index: u32, number: u8) {
        if let Some(place) = index.checked_sub(1).and_then(|at| self.locks.get_mut(at as usize)) {
            *place = number;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(sequence: u16, replay: bool, command: Command) -> Header {
        let mut header = Header { command, ..Header::default() };
        header.set_channel_sequence(sequence);
        if replay {
            header.flags |= HeaderFlags::REPLAY_OPERATION;
        }
        header
    }

    #[test]
    fn a_replay_waits_for_what_is_under_way() {
        let mut sequence = Sequence::default();
        let first = sequence.begin(&request(0, false, Command::WRITE)).unwrap().unwrap();
        // The channel broke; the client comes back on another one.
        assert_eq!(sequence.begin(&request(1, false, Command::READ)), Ok(Some(1)));
        assert_eq!(
            sequence.begin(&request(1, true, Command::WRITE)),
            Err(NtStatus::FILE_NOT_AVAILABLE),
            "the first one could still come after it"
        );
        assert_eq!(sequence.begin(&request(1, true, Command::READ)), Ok(None), "reading does no harm");
        sequence.end(first);
        assert_eq!(sequence.begin(&request(1, true, Command::WRITE)), Ok(Some(1)));
    }

    #[test]
    fn what_comes_too_late_is_refused() {
        let mut sequence = Sequence::default();
        assert_eq!(sequence.begin(&request(5, false, Command::WRITE)), Ok(Some(5)));
        assert_eq!(sequence.begin(&request(4, false, Command::WRITE)), Err(NtStatus::FILE_NOT_AVAILABLE));
        assert_eq!(sequence.begin(&request(4, false, Command::READ)), Ok(None));
        assert_eq!(sequence.begin(&request(0x8004, false, Command::WRITE)), Ok(Some(0x8004)), "round");
    }

    #[test]
    fn a_lock_is_done_once() {
        let mut sequence = Sequence::default();
        assert!(!sequence.lock_was_done(3, 7));
        sequence.lock_done(3, 7);
        assert!(sequence.lock_was_done(3, 7));
        assert!(!sequence.lock_was_done(3, 8));
        assert!(!sequence.lock_was_done(3, 8), "it has not succeeded");
        assert!(!sequence.lock_was_done(0, 1) && !sequence.lock_was_done(65, 1));
    }
}
