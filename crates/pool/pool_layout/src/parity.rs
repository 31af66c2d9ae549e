//! Parity of a stripe: P is the sum of its data units, Q the sum of the units each times a power of 2, both in GF(2⁸) with
//! the polynomial 0x11d (H. P. Anvin, "The mathematics of RAID-6"). Byte by byte, so any cut of the units
//! at the same place works the same way.
//!
//! The loops run over arrays of 64 bytes so that the compiler makes vector instructions of them; nothing here knows which.

/// Bytes that one turn of a loop takes.
const LANE: usize = 64;
type Lane = [u8; LANE];

/// Adds `other` to `sum` (in this field adding is exclusive or). Both have the same length.
pub fn add(sum: &mut [u8], other: &[u8]) {
    let (lanes, rest) = sum.as_chunks_mut::<LANE>();
    let (others, other_rest) = other.as_chunks::<LANE>();
    for (lane, other) in lanes.iter_mut().zip(others) {
        for (byte, other) in lane.iter_mut().zip(other) {
            *byte ^= other;
        }
    }
    for (byte, other) in rest.iter_mut().zip(other_rest) {
        *byte ^= other;
    }
}

/// Twice a byte.
fn double(byte: u8) -> u8 {
    // The high bit, spread over the byte, without a branch.
    (byte << 1) ^ (((byte as i8) >> 7) as u8 & 0x1d)
}

fn double_lane(lane: &mut Lane) {
    for byte in lane {
        *byte = double(*byte);
    }
}

/// Calculates P, or P and Q, of `data`: the units of a stripe in order, all as long as `p` and `q`.
pub fn generate(data: &[&[u8]], p: &mut [u8], q: Option<&mut [u8]>) {
    p.fill(0);
    data.iter().for_each(|unit| add(p, unit));
    let Some(q) = q else { return };
    // Horner: from the last unit, doubled once for each unit before it.
    let whole = q.len() / LANE * LANE;
    let (lanes, rest) = q.as_chunks_mut::<LANE>();
    for (index, lane) in lanes.iter_mut().enumerate() {
        let mut sum: Lane = [0; LANE];
        for unit in data.iter().rev() {
            double_lane(&mut sum);
            let Some(unit) = unit.get(index * LANE..(index + 1) * LANE) else { continue };
            for (byte, data) in sum.iter_mut().zip(unit) {
                *byte ^= data;
            }
        }
        *lane = sum;
    }
    for (index, byte) in rest.iter_mut().enumerate() {
        *byte = data
            .iter()
            .rev()
            .fold(0, |sum, unit| double(sum) ^ unit.get(whole + index).copied().unwrap_or(0));
    }
}

/// Multiplies `bytes` by `factor`.
fn scale(bytes: &mut [u8], factor: u8) {
    if factor == 1 {
        return;
    }
    let one = |byte: u8| {
        let (mut sum, mut power) = (0, byte);
        for bit in 0..8 {
            sum ^= power & 0u8.wrapping_sub(factor >> bit & 1);
            power = double(power);
        }
        sum
    };
    bytes.iter_mut().for_each(|byte| *byte = one(*byte));
}

/// 2 to the power `unit`: what Q multiplies a data unit by.
fn weight(unit: usize) -> u8 {
    (0..unit).fold(1, |power, _| double(power))
}

fn times(a: u8, b: u8) -> u8 {
    let mut product = [a];
    scale(&mut product, b);
    product[0]
}

/// 1 / a: the field has 255 elements other than 0, so a²⁵⁴ · a = 1.
fn inverse(a: u8) -> u8 {
    (0..254).fold(1, |power, _| times(power, a))
}

/// Brings Q up to date for a change of data unit `unit`, of which `change` is the sum of old and new. (P takes the
/// change as it is, by [`add`].)
pub fn update_q(q: &mut [u8], unit: usize, mut change: Vec<u8>) {
    scale(&mut change, weight(unit));
    add(q, &change);
}

/// Calculates the data units that are `None` from those that are there, and P and Q where these are: a pair of unit
/// and content for each. `None` when more are missing than there is parity for.
#[must_use]
pub fn recover(data: &[Option<&[u8]>], p: Option<&[u8]>, q: Option<&[u8]>) -> Option<Vec<(usize, Vec<u8>)>> {
    let missing: Vec<usize> = (0..data.len()).filter(|unit| data[*unit].is_none()).collect();
    let here: Vec<&[u8]> = data.iter().map(|unit| unit.unwrap_or(&[])).collect();
    // P and Q with what is here taken out: what the missing units add to each.
    let rest_of_p = |p: &[u8]| {
        let mut rest = p.to_vec();
        here.iter().filter(|unit| !unit.is_empty()).for_each(|unit| add(&mut rest, unit));
        rest
    };
    let rest_of_q = |q: &[u8]| {
        let mut sum = vec![0; q.len()];
        generate(&here, &mut vec![0; q.len()], Some(&mut sum));
        add(&mut sum, q);
        sum
    };
    match (missing.as_slice(), p, q) {
        ([], _, _) => Some(Vec::new()),
        ([unit], Some(p), _) => Some(vec![(*unit, rest_of_p(p))]),
        ([unit], None, Some(q)) => {
            let mut rest = rest_of_q(q);
            scale(&mut rest, inverse(weight(*unit)));
            Some(vec![(*unit, rest)])
        }
        ([a, b], Some(p), Some(q)) => {
            // x + y = p', 2ᵃx + 2ᵇy = q'  ⇒  x = (2ᵇp' + q') / (2ᵃ + 2ᵇ), y = p' + x
            let (p_rest, q_rest) = (rest_of_p(p), rest_of_q(q));
            let mut x = p_rest.clone();
            scale(&mut x, weight(*b));
            add(&mut x, &q_rest);
            scale(&mut x, inverse(weight(*a) ^ weight(*b)));
            let mut y = p_rest;
            add(&mut y, &x);
            Some(vec![(*a, x), (*b, y)])
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_field_is_a_field() {
        for a in 1..=255 {
            assert_eq!(times(a, inverse(a)), 1);
            assert_eq!(times(a, 2), double(a));
        }
        assert_eq!(times(0x80, 2), 0x1d);
        // From the paper: 2⁸ = 0x1d, 2²⁵⁵ = 1.
        assert_eq!((weight(8), weight(255)), (0x1d, 1));
    }

    proptest! {
        #[test]
        fn whatever_is_lost_comes_back(
            units in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 150), 2..9),
            lost in proptest::collection::vec(any::<prop::sample::Index>(), 0..3),
            lose_p in any::<bool>(), lose_q in any::<bool>(),
        ) {
            let data: Vec<&[u8]> = units.iter().map(Vec::as_slice).collect();
            let (mut p, mut q) = (vec![0; 150], vec![0; 150]);
            generate(&data, &mut p, Some(&mut q));
            let mut here: Vec<Option<&[u8]>> = data.iter().map(|unit| Some(*unit)).collect();
            lost.iter().for_each(|lost| here[lost.index(units.len())] = None);
            let missing = here.iter().filter(|unit| unit.is_none()).count();
            let parity = usize::from(!lose_p) + usize::from(!lose_q);
            match recover(&here, (!lose_p).then_some(&*p), (!lose_q).then_some(&*q)) {
                None => prop_assert!(missing > parity),
                Some(found) => {
                    prop_assert!(missing <= parity && found.len() == missing);
                    for (unit, content) in found {
                        prop_assert_eq!(&content, &units[unit]);
                    }
                }
            }
        }

        #[test]
        fn a_change_brings_both_up_to_date(
            units in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 70), 2..9),
            new in proptest::collection::vec(any::<u8>(), 70), which in any::<prop::sample::Index>(),
        ) {
            let unit = which.index(units.len());
            let (mut p, mut q) = (vec![0; 70], vec![0; 70]);
            generate(&units.iter().map(Vec::as_slice).collect::<Vec<_>>(), &mut p, Some(&mut q));
            let mut change = new.clone();
            add(&mut change, &units[unit]);
            add(&mut p, &change);
            update_q(&mut q, unit, change);
            let mut after = units;
            after[unit] = new;
            let (mut new_p, mut new_q) = (vec![0; 70], vec![0; 70]);
            generate(&after.iter().map(Vec::as_slice).collect::<Vec<_>>(), &mut new_p, Some(&mut new_q));
            prop_assert_eq!((p, q), (new_p, new_q));
        }
    }
}
