//! Images and their parents as files of this machine.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use aligned_buffer::IoBuf;
use file_store::OpenFile;
use local_file::{LocalFile, Purpose};
use shard_runtime::{Entropy, SystemEntropy};
use vhdx::{Finder, Finding, Found, Image, ImageError, ImageErrorKind, Mode, ParentLocator, open_chain};

use super::Format;
use crate::error::{CliError, CliResult};

/// How VHDX files begin.
const SIGNATURE: &[u8] = b"vhdxfile";

/// What a failure says of which file.
pub(super) fn failed(path: &Path, error: ImageError) -> CliError {
    let (told, name) = (error.to_string(), path.display().to_string());
    // Errors of chains and files have the name already, maybe in full.
    let full = format!("{}: ", canonical(path).display());
    let short = format!("{name}: ");
    let told = told.strip_prefix(&full).or_else(|| told.strip_prefix(&short)).unwrap_or(&told);
    CliError::here(format!("{name}: {told}"))
}

/// Opens a file of this machine.
///
/// # Errors
/// When it cannot be opened.
pub(super) fn file(path: &Path, purpose: Purpose) -> CliResult<Arc<dyn OpenFile>> {
    let opened = LocalFile::open(path, purpose);
    opened
        .map(|file| file as Arc<dyn OpenFile>)
        .map_err(|error| CliError::here(format!("{}: {error}", path.display())))
}

/// What a file is by its name.
pub(super) fn format_of(path: &Path) -> Format {
    let ending = path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
    match ending.as_deref() {
        Some("vhdx" | "avhdx") => Format::Vhdx,
        _ => Format::Raw,
    }
}

/// Opens a raw file to be read. Who writes to a raw disk may make it look like an image that has a file of this machine for its
/// parent: so what a file is, is never taken from its content.
///
/// # Errors
/// When it looks like VHDX and nobody has said that it is raw.
pub(super) async fn raw(path: &Path, said: bool) -> CliResult<Arc<dyn OpenFile>> {
    let file = file(path, Purpose::Read)?;
    let start = file.read(0, IoBuf::new(SIGNATURE.len())).await;
    let start = start.map_err(|error| CliError::here(format!("{}: {error}", path.display())))?;
    if !said && start.starts_with(SIGNATURE) {
        return Err(CliError::Usage(format!(
            "{} has the content of a VHDX file and the name of a raw one\nSay which it is: --from-format vhdx or --from-format raw.",
            path.display()
        )));
    }
    Ok(file)
}

/// Opens an image with its parents.
///
/// # Errors
/// When it, or one of them, cannot be used.
pub(super) async fn open(path: &Path, mode: Mode) -> CliResult<Image> {
    let purpose = if mode == Mode::Write { Purpose::Write } else { Purpose::Read };
    let file = file(path, purpose)?;
    let name = canonical(path).display().to_string();
    let entropy: Arc<dyn Entropy> = Arc::new(SystemEntropy);
    let opened = open_chain(Found { name, file }, mode, &Folders, &entropy).await;
    opened.map_err(|error| failed(path, error))
}

fn canonical(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Finds parents where the locators of their children say.
pub(super) struct Folders;

/// Where a path of a locator leads from a child; `None` for a place on another system.
fn place_of(child: &Path, text: &str) -> Option<PathBuf> {
    let path = PathBuf::from(text.replace('\\', "/"));
    let first = path.components().next()?.as_os_str().to_string_lossy().into_owned();
    if first.ends_with(':') || text.starts_with("\\\\") {
        return None;
    }
    Some(child.parent().unwrap_or(Path::new("/")).join(path))
}

impl Finder for Folders {
    fn find<'a>(&'a self, child: &'a str, locator: &'a ParentLocator) -> Finding<'a> {
        Box::pin(async move {
            let missing = |told: String| ImageError::new(ImageErrorKind::Parent, told);
            for place in locator.paths().filter_map(|text| place_of(Path::new(child), text)) {
                let Ok(place) = std::fs::canonicalize(place) else { continue };
                let file = LocalFile::open(&place, Purpose::Read)
                    .map_err(|error| missing(format!("its parent {}: {error}", place.display())))?;
                return Ok(Found { name: place.display().to_string(), file });
            }
            let paths: Vec<&str> = locator.paths().collect();
            Err(missing(format!("its parent is missing; it should be {}", paths.join(" or "))))
        })
    }
}

/// The path from a child's folder to its parent, as locators have it.
///
/// # Errors
/// When a part of it cannot be written so.
pub(super) fn relative(child: &Path, parent: &Path) -> CliResult<String> {
    let here =
        canonical(child.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")));
    let there = canonical(parent);
    let same = here.components().zip(there.components()).take_while(|(a, b)| a == b).count();
    let up = here.components().count() - same;
    let mut parts = vec!["..".to_owned(); up];
    if up == 0 {
        parts.push(".".to_owned());
    }
    for part in there.components().skip(same) {
        match part.as_os_str().to_str() {
            Some(part) if !part.contains('\\') => parts.push(part.to_owned()),
            _ => {
                let told = "a VHDX file cannot name this path: it has a backslash, or is no Unicode";
                return Err(CliError::here(format!("{}: {told}", there.display())));
            }
        }
    }
    Ok(parts.join("\\"))
}

/// A file that is being made: it goes if it is dropped before it is kept.
pub(super) struct NewFile {
    path: PathBuf,
    kept: bool,
}

impl NewFile {
    /// Makes one.
    ///
    /// # Errors
    /// When there is one of that name, or none can be made.
    pub(super) fn create(path: &Path) -> CliResult<(Self, Arc<dyn OpenFile>)> {
        let file = file(path, Purpose::Create)?;
        Ok((Self { path: path.to_owned(), kept: false }, file))
    }

    /// It stays under the name that it has.
    pub(super) fn keep(mut self) {
        self.kept = true;
    }

    /// It gets another name, in place of what has it if `replace`.
    ///
    /// # Errors
    /// When that is there and shall stay.
    pub(super) fn rename(mut self, to: &Path, replace: bool) -> CliResult {
        let wrong = |error: std::io::Error| CliError::here(format!("{}: {error}", to.display()));
        if replace {
            std::fs::rename(&self.path, to).map_err(wrong)?;
        } else {
            // A second name is given only where there is none; the first then goes.
            std::fs::hard_link(&self.path, to).map_err(wrong)?;
            std::fs::remove_file(&self.path).map_err(wrong)?;
        }
        self.kept = true;
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.kept {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locators_lead_to_parents() {
        let child = Path::new("/a/b/child.vhdx");
        let place = |text| place_of(child, text).map(|path| path.display().to_string());
        assert_eq!(place(".\\base.vhdx").as_deref(), Some("/a/b/./base.vhdx"));
        assert_eq!(place("..\\c\\base.vhdx").as_deref(), Some("/a/b/../c/base.vhdx"));
        assert_eq!(place("/d/base.vhdx").as_deref(), Some("/d/base.vhdx"));
        assert_eq!(place("C:\\d\\base.vhdx"), None);
        assert_eq!(place("\\\\?\\Volume{1}\\base.vhdx"), None);
        let dir = tempfile::tempdir().expect("temp dir");
        std::fs::create_dir(dir.path().join("d")).expect("made");
        std::fs::write(dir.path().join("base"), b"").expect("made");
        let relative =
            |child: &str| relative(&dir.path().join(child), &dir.path().join("base")).expect("a path");
        assert_eq!(relative("child"), ".\\base");
        assert_eq!(relative("d/child"), "..\\base");
    }

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
}
