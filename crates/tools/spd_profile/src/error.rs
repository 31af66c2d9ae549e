//! Why a profile is refused.

use std::fmt;

/// The reason in words that name the option; one line, or several for a syntax error that points at a character.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ProfileError(pub String);

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Shorthand for `Err(ProfileError(...))`.
pub(crate) fn refuse<T>(reason: impl Into<String>) -> Result<T, ProfileError> {
    Err(ProfileError(reason.into()))
}
