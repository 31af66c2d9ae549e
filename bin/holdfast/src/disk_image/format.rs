//! What a file holds or is to hold, by its name.

use std::path::Path;

use clap::ValueEnum;

use super::foreign;
use crate::error::{CliError, CliResult};

/// What a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// The disk's bytes one behind the other.
    Raw,
    /// VHDX.
    Vhdx,
}

/// What a file is by its name.
pub(super) fn format_of(path: &Path) -> Format {
    let ending = path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
    match ending.as_deref() {
        Some("vhdx" | "avhdx") => Format::Vhdx,
        _ => Format::Raw,
    }
}

/// What a file that is to be made becomes: what was said, or what its name stands for.
///
/// # Errors
/// When its name stands for a format that is not written.
pub(super) fn target(to: &Path, said: Option<Format>) -> CliResult<Format> {
    match (said, foreign::by_name(to)) {
        (Some(said), _) => Ok(said),
        (None, None) => Ok(format_of(to)),
        (None, Some(other)) => Err(CliError::Usage(format!(
            "{} is the name of a {other} file, and only raw and VHDX files are written\nName it .vhdx or .raw; `qemu-img convert` makes a {other} file of either.",
            to.display()
        ))),
    }
}

/// A new image gets the name of one.
///
/// # Errors
/// When its name stands for something else than VHDX.
pub(super) fn new_image(image: &Path) -> CliResult {
    target(image, None)?;
    let ending = image.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
    match ending.as_deref() {
        Some("raw" | "img") => Err(CliError::Usage(format!(
            "{} is the name of a raw disk, and this makes VHDX files: name it .vhdx\nAn empty raw disk is a plain file of its size: truncate -s SIZE FILE.",
            image.display()
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_come_from_names() {
        for (name, format) in [
            ("a.vhdx", Format::Vhdx),
            ("a.VHDX", Format::Vhdx),
            ("a.avhdx", Format::Vhdx),
            ("a.raw", Format::Raw),
            ("vhdx", Format::Raw),
        ] {
            assert_eq!(format_of(Path::new(name)), format, "{name}");
        }
    }

    #[test]
    fn what_is_written_has_the_name_of_it() {
        for name in ["a.qcow2", "a.QCOW2", "a.vhd", "a.avhd", "a.vmdk", "a.vdi"] {
            let refused = target(Path::new(name), None);
            assert!(matches!(refused, Err(CliError::Usage(told)) if told.contains("qemu-img")), "{name}");
            assert!(matches!(target(Path::new(name), Some(Format::Raw)), Ok(Format::Raw)), "{name}");
            assert!(new_image(Path::new(name)).is_err(), "{name}");
        }
        for (name, image) in
            [("a.vhdx", true), ("a.avhdx", true), ("a", true), ("a.raw", false), ("a.img", false)]
        {
            assert!(target(Path::new(name), None).is_ok(), "{name}");
            assert_eq!(new_image(Path::new(name)).is_ok(), image, "{name}");
        }
    }
}
