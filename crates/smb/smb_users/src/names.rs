//! What users and groups can be called (MS-SAMR 3.1.1.8.4, and the limits of Windows' own tools).

pub use smb_auth::account::upper;

use crate::error::UsersError;

/// Longest name of a user in UTF-16 units: what MS-SAMR's sAMAccountName of a user can have.
pub const USER_NAME_MAX: usize = 20;
/// Longest name of a group.
pub const GROUP_NAME_MAX: usize = 256;
/// Longest full name or comment in bytes.
pub const TEXT_MAX: usize = 1024;
/// Longest password in UTF-16 units: what Windows can set.
pub const PASSWORD_MAX: usize = 256;
/// Characters that mean something where names are written.
const FORBIDDEN: &[char] = &['"', '/', '\\', '[', ']', ':', ';', '|', '=', ',', '+', '*', '?', '<', '>', '@'];

/// Checks a name of a user.
///
/// # Errors
/// [`UsersError::Name`].
pub fn check_user(name: &str) -> Result<(), UsersError> {
    check(name, USER_NAME_MAX, "a user's name has at most 20 characters")
}

/// Checks a name of a group.
///
/// # Errors
/// [`UsersError::Name`].
pub fn check_group(name: &str) -> Result<(), UsersError> {
    check(name, GROUP_NAME_MAX, "a group's name has at most 256 characters")
}

fn check(name: &str, most: usize, too_long: &'static str) -> Result<(), UsersError> {
    let rule = if name.is_empty() {
        "it is empty"
    } else if name.encode_utf16().count() > most {
        too_long
    } else if name.chars().any(|c| c.is_control() || FORBIDDEN.contains(&c)) {
        "it has control characters or one of \" / \\ [ ] : ; | = , + * ? < > @"
    } else if name.starts_with(' ') || name.ends_with([' ', '.']) {
        "it begins with a blank, or ends with a blank or a dot"
    } else if name.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("S-1-")) {
        "it looks like a SID"
    } else {
        return Ok(());
    };
    // It may come from a network: the message holds its beginning.
    Err(UsersError::Name { name: name.chars().take(USER_NAME_MAX).collect(), rule })
}

/// Checks a full name or a comment.
///
/// # Errors
/// [`UsersError::TooLong`].
pub fn check_text(text: &str, what: &'static str) -> Result<(), UsersError> {
    if text.len() > TEXT_MAX { Err(UsersError::TooLong(what)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for good in ["bob", "Bob Smith", "ädmin", "a.b", "svc-backup$", "x".repeat(20).as_str()] {
            check_user(good).unwrap_or_else(|error| panic!("{error}"));
        }
        for bad in
            ["", " bob", "bob ", "bob.", "a\\b", "a@b", "a\nb", "s-1-5-7", "...", "x".repeat(21).as_str()]
        {
            assert!(check_user(bad).is_err(), "{bad:?}");
        }
        assert!(check_group(&"x".repeat(21)).is_ok() && check_group(&"x".repeat(257)).is_err());
        assert_eq!(upper("Bob"), upper("bOB"));
    }
}
