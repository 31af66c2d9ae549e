//! Bits of sector bitmaps: one for each sector of a block, the lowest of a byte first.

/// Runs of equal bits, from bit `first` on.
pub(crate) fn bit_runs(bytes: &[u8], first: u64, count: u64) -> Vec<(bool, u64)> {
    let mut runs: Vec<(bool, u64)> = Vec::new();
    let mut at = first;
    while at < first + count {
        let byte = bytes.get((at / 8) as usize).copied().unwrap_or(0);
        // Whole bytes of equal bits at once.
        let (value, step) = match byte {
            0x00 | 0xff if at.is_multiple_of(8) && first + count - at >= 8 => (byte == 0xff, 8),
            _ => (byte >> (at % 8) & 1 == 1, 1),
        };
        match runs.last_mut() {
            Some((last, sum)) if *last == value => *sum += step,
            _ => runs.push((value, step)),
        }
        at += step;
    }
    runs
}

/// Sets or clears bits, from bit `first` on.
pub(crate) fn put_bits(bytes: &mut [u8], first: u64, count: u64, value: bool) {
    let mut at = first;
    while at < first + count {
        let Some(byte) = bytes.get_mut((at / 8) as usize) else { return };
        if at.is_multiple_of(8) && first + count - at >= 8 {
            *byte = if value { 0xff } else { 0 };
            at += 8;
            continue;
        }
        if value {
            *byte |= 1 << (at % 8)
        } else {
            *byte &= !(1 << (at % 8))
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_come_back_as_runs() {
        let mut bytes = [0; 16];
        put_bits(&mut bytes, 3, 70, true);
        put_bits(&mut bytes, 20, 1, false);
        assert_eq!(bit_runs(&bytes, 0, 128), [(false, 3), (true, 17), (false, 1), (true, 52), (false, 55)]);
        assert_eq!(bit_runs(&bytes, 5, 10), [(true, 10)]);
        put_bits(&mut bytes, 0, 128, false);
        assert_eq!(bytes, [0; 16]);
    }
}
