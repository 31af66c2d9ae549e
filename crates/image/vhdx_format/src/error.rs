//! What is wrong with a VHDX file, and where.

use std::fmt;

use byte_codec::DecodeError;

/// A structure that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatError {
    place: &'static str,
    number: Option<u64>,
    why: DecodeError,
}

impl FormatError {
    /// `place` is wrong ("region table"), because of `why`.
    #[must_use]
    pub fn new(place: &'static str, why: DecodeError) -> Self {
        Self { place, number: None, why }
    }

    /// `place` has a field with a value that no writer produces.
    #[must_use]
    pub fn invalid(place: &'static str, what: &'static str) -> Self {
        Self::new(place, DecodeError::Invalid(what))
    }

    /// Which of several: the number of an entry, or the offset in bytes of a part.
    #[must_use]
    pub fn number(mut self, number: u64) -> Self {
        self.number = Some(number);
        self
    }

    /// What is wrong with it.
    #[must_use]
    pub fn why(&self) -> DecodeError {
        self.why
    }
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.place)?;
        if let Some(number) = self.number {
            write!(f, " {number}")?;
        }
        match self.why {
            DecodeError::WrongMagic => f.write_str(" has no signature"),
            DecodeError::Unsupported(version) => {
                write!(f, " needs what is not known here (version or features {version:#x})")
            }
            why => write!(f, " {why}"),
        }
    }
}

impl std::error::Error for FormatError {}

/// Adds the place to what a reader of fields says.
pub(crate) fn at(place: &'static str) -> impl Fn(DecodeError) -> FormatError {
    move |why| FormatError::new(place, why)
}
