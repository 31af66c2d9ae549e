//! Persistent reservations as SCSI says them (SPC-4 6.15, 6.16), for whoever carries [`crate::Reservations`] to a disk by its commands.
//! What a disk answers may be anything.

use crate::{Reservation, ReservationKind};

/// Bytes of the parameter list of PERSISTENT RESERVE OUT.
pub const OUT_BYTES: u32 = 24;
/// Bytes that are asked for at first: room for some thousand keys.
pub const KEYS_BYTES: u16 = 8 + 8 * 1024;
/// Bytes of the answer to READ RESERVATION.
pub const RESERVATION_BYTES: u16 = 24;

/// Service actions of PERSISTENT RESERVE IN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum In {
    /// READ KEYS.
    Keys = 0,
    /// READ RESERVATION.
    Reservation = 1,
}

/// Service actions of PERSISTENT RESERVE OUT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Out {
    /// RESERVE.
    Reserve = 1,
    /// PREEMPT AND ABORT.
    PreemptAndAbort = 5,
    /// REGISTER AND IGNORE EXISTING KEY.
    RegisterAndIgnore = 6,
}

/// PERSISTENT RESERVE IN, for answers of up to `len` bytes.
#[must_use]
pub fn command_in(action: In, len: u16) -> [u8; 10] {
    let [high, low] = len.to_be_bytes();
    [0x5e, action as u8, 0, 0, 0, 0, 0, high, low, 0]
}

/// PERSISTENT RESERVE OUT for WRITE EXCLUSIVE – REGISTRANTS ONLY.
#[must_use]
pub fn command_out(action: Out) -> [u8; 10] {
    let kind = ReservationKind::WRITE_EXCLUSIVE_REGISTRANTS_ONLY.0;
    let [a, b, c, d] = OUT_BYTES.to_be_bytes();
    [0x5f, action as u8, kind, 0, 0, a, b, c, d, 0]
}

/// The parameter list: the key we are registered under, and the one to register or to preempt.
#[must_use]
pub fn parameters(key: u64, action_key: u64, aptpl: bool) -> [u8; OUT_BYTES as usize] {
    let mut list = [0; OUT_BYTES as usize];
    list[..8].copy_from_slice(&key.to_be_bytes());
    list[8..16].copy_from_slice(&action_key.to_be_bytes());
    list[20] = u8::from(aptpl);
    list
}

/// The keys in an answer to READ KEYS, or `None` when not all of them are in it, or it is none.
#[must_use]
pub fn keys(answer: &[u8]) -> Option<Vec<u64>> {
    let len = u32::from_be_bytes(*answer.get(4..)?.first_chunk()?) as usize;
    let keys = answer.get(8..)?.get(..len)?.chunks_exact(8);
    Some(keys.filter_map(|key| Some(u64::from_be_bytes(*key.first_chunk()?))).collect())
}

/// The reservation in an answer to READ RESERVATION: `Some(None)` when there is none, `None` when it is no answer.
#[must_use]
pub fn reservation(answer: &[u8]) -> Option<Option<Reservation>> {
    let len = u32::from_be_bytes(*answer.get(4..)?.first_chunk()?);
    if len == 0 {
        return Some(None);
    }
    let holder = u64::from_be_bytes(*answer.get(8..)?.first_chunk()?);
    let kind = ReservationKind(answer.get(21)? & 0x0f);
    Some(Some(Reservation { holder, kind }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_as_the_standard_has_them() {
        assert_eq!(command_in(In::Reservation, 24), [0x5e, 1, 0, 0, 0, 0, 0, 0, 24, 0]);
        assert_eq!(command_out(Out::PreemptAndAbort), [0x5f, 5, 5, 0, 0, 0, 0, 0, 24, 0]);
        let list = parameters(1 << 16 | 2, 0x0102_0304_0506_0708, true);
        assert_eq!(list[..16], [0, 0, 0, 0, 0, 1, 0, 2, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(list[16..], [0, 0, 0, 0, 1, 0, 0, 0]);
    }

    #[test]
    fn answers_may_be_anything() {
        let mut answer = vec![0, 0, 0, 9, 0, 0, 0, 16];
        answer.extend(7_u64.to_be_bytes());
        assert_eq!(keys(&answer), None);
        answer.extend(8_u64.to_be_bytes());
        assert_eq!(keys(&answer), Some(vec![7, 8]));
        answer[4] = 0xff;
        assert_eq!(keys(&answer), None);
        assert_eq!(keys(&[0; 7]), None);
        assert_eq!(reservation(&[0; 8]), Some(None));
        let mut answer = [0; 24];
        (answer[7], answer[15], answer[21]) = (16, 9, 0x05);
        let kind = ReservationKind::WRITE_EXCLUSIVE_REGISTRANTS_ONLY;
        assert_eq!(reservation(&answer), Some(Some(Reservation { holder: 9, kind })));
        assert_eq!(reservation(&answer[..20]), None);
        assert_eq!(reservation(&[]), None);
    }
}
