//! When two names are the same to Windows: when they are the same in upper case, as its table has it.
//!
//! The table is the one of NTFS's `$UpCase` file since Windows 7, which RtlUpcaseUnicodeChar and MS-UCODEREF 3.1.5.3 ("Mapping
//! UTF-16 Strings to Upper Case") follow, too. It maps each UTF-16 code unit to one code unit:
//! * No name becomes longer or shorter: `ß` stays `ß`, and `ﬁ` stays `ﬁ`.
//! * What is outside the basic plane, and so a pair of surrogates, stays as it is.
//! * Letters stay that share a capital with another small letter (`ı`, `ſ`, `ς`, `µ`), and those that came into Unicode later.
//!
//! Folded names are keys on disks, so the table is written down here and does not follow the standard library, whose own
//! changes with each version of Unicode.

mod table;

use table::RUNS;

/// A character in upper case.
#[must_use]
pub fn upper_char(c: char) -> char {
    if c.is_ascii() {
        return c.to_ascii_uppercase();
    }
    let Ok(unit) = u16::try_from(u32::from(c)) else { return c };
    let after = RUNS.partition_point(|(first, ..)| *first <= unit);
    let run = after.checked_sub(1).and_then(|at| RUNS.get(at));
    let Some((first, _, _, to)) =
        run.filter(|(first, last, step, _)| unit <= *last && (unit - first).is_multiple_of(*step))
    else {
        return c;
    };
    // No run leads to surrogates, so there is a character.
    char::from_u32(u32::from(unit - first) + u32::from(*to)).unwrap_or(c)
}

/// A text in upper case, by which names are compared.
#[must_use]
pub fn upper(text: &str) -> String {
    text.chars().map(upper_char).collect()
}

/// Whether two names are the same but for their case.
#[must_use]
pub fn same(one: &str, other: &str) -> bool {
    one.chars().map(upper_char).eq(other.chars().map(upper_char))
}

#[cfg(test)]
mod tests {
    use md5::{Digest, Md5};

    use super::*;

    /// The table that a volume of NTFS made by Windows 7 or later has: 65,536 little-endian units.
    #[test]
    fn the_table_is_that_of_ntfs() {
        let mut digest = Md5::new();
        for unit in 0..=u16::MAX {
            let upper = char::from_u32(unit.into()).map_or(u32::from(unit), |c| u32::from(upper_char(c)));
            digest.update(u16::try_from(upper).expect("within the basic plane").to_le_bytes());
        }
        let digest: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(digest, "7ff498a44e45e77374cc7c962b1b92f2");
    }

    #[test]
    fn runs_are_in_order() {
        assert!(
            RUNS.iter().all(|(first, last, step, _)| first <= last && (*last - first).is_multiple_of(*step))
        );
        assert!(RUNS.windows(2).all(|two| two[0].1 < two[1].0));
    }

    #[test]
    fn upper_case_is_letter_by_letter_and_final() {
        for (text, expected) in [
            ("straße", "STRAßE"),
            ("ﬁle", "ﬁLE"),
            ("ıi", "ıI"),
            ("ſs", "ſS"),
            ("ὀδυσσεύς", "ὈΔΥΣΣΕΎς"),
            ("µ-ÿ-ǆ", "µ-Ÿ-Ǆ"),
            ("𐐨𝄞", "𐐨𝄞"),
        ] {
            assert_eq!(upper(text), expected);
        }
        assert!(same("Grüße", "GRÜßE") && !same("Grüße", "GRÜSSE") && !same("a", "ab"));
        for c in '\0'..=char::MAX {
            let once = upper_char(c);
            assert_eq!(upper_char(once), once, "{c:?}");
            assert_eq!(once.len_utf16(), c.len_utf16(), "{c:?}");
        }
    }
}
