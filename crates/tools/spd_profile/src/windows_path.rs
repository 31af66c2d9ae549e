//! Windows paths of command lines that were written for Windows: `X:\testfile.dat` with a directory for `X:`.

use crate::error::{ProfileError, refuse};

/// Where drives are: a directory (or, for a raw drive, a device) for each letter or number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drives(Vec<(String, String)>);

impl Drives {
    /// Adds `X=/directory`.
    ///
    /// # Errors
    /// When it does not have this form.
    pub fn add(&mut self, text: &str) -> Result<(), ProfileError> {
        let Some((drive, place)) = text.split_once('=') else {
            return refuse(format!("a drive is given as X=/directory, not '{text}'"));
        };
        let drive = drive.trim_end_matches(':').to_ascii_uppercase();
        let is_letter = drive.len() == 1 && drive.chars().all(|c| c.is_ascii_alphabetic());
        let is_number = !drive.is_empty() && drive.len() <= 4 && drive.chars().all(|c| c.is_ascii_digit());
        if !(is_letter || is_number) || place.is_empty() {
            return refuse(format!("a drive is given as X=/directory or 1=/dev/..., not '{text}'"));
        }
        self.0.retain(|(other, _)| *other != drive);
        self.0.push((drive, place.to_owned()));
        Ok(())
    }

    /// Adds several, separated by `;`, as an environment variable has them.
    ///
    /// # Errors
    /// The same as those of [`Drives::add`].
    pub fn add_all(&mut self, text: &str) -> Result<(), ProfileError> {
        text.split(';').filter(|part| !part.is_empty()).try_for_each(|part| self.add(part))
    }

    /// Takes over what `other` says, which goes before what is here.
    pub fn merge(&mut self, other: &Self) {
        self.0.retain(|(drive, _)| !other.0.iter().any(|(theirs, _)| theirs == drive));
        self.0.extend(other.0.iter().cloned());
    }

    /// Whether none is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn place(&self, drive: &str) -> Result<&str, ProfileError> {
        let drive = drive.to_ascii_uppercase();
        match self.0.iter().find(|(other, _)| *other == drive) {
            Some((_, place)) => Ok(place),
            None => refuse(format!(
                "drive {drive} of Windows is not mapped: say where it is with --drive={drive}=/directory, or in HOLDFAST_SPD_DRIVES"
            )),
        }
    }

    /// The Linux path of `path`: that of a mapped drive, or `path` itself when it names no drive.
    ///
    /// # Errors
    /// When the drive is not mapped, or the path leads out of its directory.
    pub fn resolve(&self, path: &str) -> Result<String, ProfileError> {
        if let Some(number) = path.strip_prefix('#').filter(|n| n.chars().all(|c| c.is_ascii_digit())) {
            return self.place(number).map(str::to_owned);
        }
        let mut chars = path.chars();
        let (letter, colon) = (chars.next(), chars.next());
        let (Some(letter), Some(':')) = (letter.filter(char::is_ascii_alphabetic), colon) else {
            return Ok(path.to_owned());
        };
        let rest = chars.as_str();
        let place = self.place(&letter.to_string())?;
        let mut resolved = place.trim_end_matches('/').to_owned();
        for part in rest.split(['\\', '/']).filter(|part| !part.is_empty() && *part != ".") {
            if part == ".." {
                return refuse(format!("'{path}' leads out of the directory of its drive"));
            }
            resolved.push('/');
            resolved.push_str(part);
        }
        Ok(resolved)
    }
}
