//! Images of small things that a crate keeps for itself: rows of a state table, a file, a block. The crate's own tests compare
//! them, as what reads them is nobody else's business.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;

use crate::{Fallible, Image};

/// Set to make images that are not there yet. One that is there is never changed.
const MAKE: &str = "HOLDFAST_MAKE_IMAGES";

/// The image of a version of what a crate keeps. `now` is what this release writes of the current version, each thing by its name:
/// an image is made of it, once, where there is none and the environment asks for that.
///
/// # Errors
/// When there is no image, or it is damaged.
pub fn kept(name: &str, version: u32, now: &[(&str, Vec<u8>)]) -> Fallible<Image> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/images");
    let path = PathBuf::from(folder).join(format!("{name}-{version}.txt"));
    match std::fs::read_to_string(&path) {
        Ok(text) => Image::parse(&text).map_err(|why| format!("{}: {why}", path.display()).into()),
        Err(error) if error.kind() == ErrorKind::NotFound && std::env::var_os(MAKE).is_some() => {
            let disks = now.iter().map(|(name, bytes)| ((*name).to_owned(), bytes.clone())).collect();
            let image = Image { disks };
            let title = format!(
                "{name} {version}: made once, never changed; docs/formats/README.md says what it is."
            );
            let mut file = OpenOptions::new().write(true).create_new(true).open(&path)?;
            file.write_all(image.to_text(&title).as_bytes())?;
            file.sync_all()?;
            Ok(image)
        }
        Err(error) => {
            Err(format!("{}: {error}; {MAKE}=1 makes the image of a new version", path.display()).into())
        }
    }
}
