//! What can be a name, and when two names are the same. One place, so that all implementations agree.

use crate::{StoreError, StoreErrorKind};

/// Longest name, in UTF-16 units: what Windows and NTFS know.
pub const NAME_MAX: usize = 255;

/// The form in which names are compared: two names are the same if their folded forms are. It is what NTFS has, letter by
/// letter and never changing: folded names are keys on disks.
#[must_use]
pub fn fold(name: &str) -> String {
    upcase::upper(name)
}

/// Checks a name of a file, directory or named stream against the contract of [`crate::FileStore`].
///
/// # Errors
/// [`StoreErrorKind::InvalidName`].
pub fn check(name: &str) -> Result<(), StoreError> {
    let bad = name.is_empty()
        || name == "."
        || name == ".."
        || name.encode_utf16().count() > NAME_MAX
        || name.chars().any(|c| c.is_control() || matches!(c, '/' | '\\' | ':'));
    if bad {
        // A name of any length may come from the wire: the message holds the beginning of it.
        let shown: String = name.chars().take(NAME_MAX).collect();
        return Err(StoreError::new(StoreErrorKind::InvalidName, format!("{shown:?} cannot be a name")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_limits_in_utf16_units() {
        for good in ["a", "...", " ", &"x".repeat(255), &"ß".repeat(255), &"𝄞".repeat(127)] {
            assert!(check(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "..", "a/b", "a\\b", "a:b", "a\0", "\u{7f}", "\u{85}", &"x".repeat(256)] {
            assert!(check(bad).is_err(), "{bad}");
        }
        assert!(check(&"𝄞".repeat(128)).is_err(), "a character outside the basic plane takes two units");
    }

    #[test]
    fn folding_is_stable() {
        for c in '\0'..=char::MAX {
            let once = fold(&c.to_string());
            assert_eq!(fold(&once), once, "{c:?}");
        }
    }
}
