//! Images and their parents as files of this machine.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use aligned_buffer::IoBuf;
use file_store::OpenFile;
use local_file::{LocalFile, Purpose};
use shard_runtime::{Entropy, SystemEntropy};
use vhdx::{Finder, Finding, Found, Image, ImageError, ImageErrorKind, Mode, open_chain};

use super::{Parents, foreign};
use crate::error::{CliError, CliResult};
use crate::part_file::PartFile;

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

/// Opens a raw file to be read. Who writes to a raw disk may make it look like an image that has a file of this machine for its
/// parent: so what a file is, is never taken from its content.
///
/// # Errors
/// When it looks like VHDX or a format that is not read here, and nobody has said that it is raw.
pub(super) async fn raw(path: &Path, said: bool) -> CliResult<Arc<dyn OpenFile>> {
    let file = file(path, Purpose::Read)?;
    if said {
        return Ok(file);
    }
    let wrong = |told: String| CliError::here(format!("{}: {told}", path.display()));
    let start = file.read(0, IoBuf::new(SIGNATURE.len())).await.map_err(|error| wrong(error.to_string()))?;
    if start.starts_with(SIGNATURE) {
        return Err(CliError::Usage(format!(
            "{} has the content of a VHDX file and the name of a raw one\nSay which it is: --from-format vhdx or --from-format raw.",
            path.display()
        )));
    }
    if let Some(other) = foreign::by_content(&*file).await.map_err(wrong)? {
        return Err(CliError::Usage(format!(
            "{} has the content of a {other} file, which is not read here\n`qemu-img convert` makes a raw or VHDX file of it. If the bytes are those of a disk as they are: --from-format raw.",
            path.display()
        )));
    }
    Ok(file)
}

/// Opens an image with its parents.
///
/// # Errors
/// When it, or one of them, cannot be used.
pub(super) async fn open(path: &Path, mode: Mode, parents: Parents) -> CliResult<Image> {
    let purpose = if mode == Mode::Write { Purpose::Write } else { Purpose::Read };
    let file = file(path, purpose)?;
    let name = canonical(path).display().to_string();
    let entropy: Arc<dyn Entropy> = Arc::new(SystemEntropy);
    let opened = open_chain(Found { name, file }, mode, &Folders::from(parents), &entropy).await;
    opened.map_err(|error| failed(path, error))
}

pub(super) fn canonical(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Finds parents where their children say: in the folder of the child and those in it, or anywhere. Who makes an image could let
/// whoever opens it open any file of this machine.
pub(super) struct Folders {
    anywhere: bool,
}

impl From<Parents> for Folders {
    fn from(parents: Parents) -> Self {
        Self { anywhere: parents.parents_anywhere }
    }
}

/// A path of a locator as this system has it; `None` for a place on another system.
fn path_of(text: &str) -> Option<PathBuf> {
    let path = PathBuf::from(text.replace('\\', "/"));
    let first = path.components().next()?.as_os_str().to_string_lossy().into_owned();
    (!first.ends_with(':') && !text.starts_with("\\\\")).then_some(path)
}

/// Whether a path stays in the folder that it begins in, as far as its text says.
fn stays(path: &Path) -> bool {
    let mut depth = 0_u32;
    path.components().all(|part| match part {
        Component::Normal(_) => {
            depth += 1;
            true
        }
        Component::CurDir => true,
        Component::ParentDir => match depth.checked_sub(1) {
            Some(less) => {
                depth = less;
                true
            }
            None => false,
        },
        Component::RootDir | Component::Prefix(_) => false,
    })
}

/// Whether a path of a locator leads to a place in the folder of the image, as far as its text says.
pub(super) fn stays_in_folder(text: &str) -> bool {
    path_of(text).is_some_and(|path| stays(&path))
}

impl Finder for Folders {
    fn find<'a>(&'a self, child: &'a str, text: &'a str) -> Finding<'a> {
        Box::pin(async move {
            let wrong = |told: String| ImageError::new(ImageErrorKind::Parent, told);
            let outside = || {
                wrong(format!(
                    "its parent {text} lies outside of its folder, and is not opened for that: --parents-anywhere if you trust whoever made the image"
                ))
            };
            let folder = Path::new(child).parent().unwrap_or(Path::new("/"));
            let path = path_of(text).ok_or_else(|| {
                wrong(format!("its parent {text} is missing: that is a path of another system"))
            })?;
            // Not even looked at, for that may mount something.
            if !self.anywhere && !stays(&path) {
                return Err(outside());
            }
            let place = std::fs::canonicalize(folder.join(path))
                .map_err(|error| wrong(format!("its parent {text} is missing: {error}")))?;
            // A link may lead elsewhere.
            if !self.anywhere && !place.starts_with(folder) {
                return Err(outside());
            }
            let file = LocalFile::open(&place, Purpose::Read)
                .map_err(|error| wrong(format!("its parent {}: {error}", place.display())))?;
            Ok(Found { name: place.display().to_string(), file })
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

/// A file that is being made and gets its name when it is complete, and what writes it.
///
/// # Errors
/// When none can be made there.
pub(super) fn new_file(to: &Path, replaces: bool) -> CliResult<(PartFile, Arc<dyn OpenFile>)> {
    let part = PartFile::beside(to, replaces).map_err(|error| not_made(to, &error))?;
    let file = LocalFile::open(part.path(), Purpose::Fill).map_err(|error| not_made(to, &error))?;
    Ok((part, file))
}

fn not_made(to: &Path, error: &std::io::Error) -> CliError {
    CliError::here(match error.kind() {
        std::io::ErrorKind::AlreadyExists => format!(
            "{}: a file of that name exists already. Give the new one another name, or remove that one first if it may go.",
            to.display()
        ),
        _ => format!("{}: {error}", to.display()),
    })
}

/// Gives a file its name.
///
/// # Errors
/// When it cannot have it.
pub(super) fn keep(part: PartFile, to: &Path) -> CliResult {
    part.keep().map_err(|error| not_made(to, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locators_lead_to_parents() {
        let path = |text| path_of(text).map(|path| path.display().to_string());
        assert_eq!(path(".\\base.vhdx").as_deref(), Some("./base.vhdx"));
        assert_eq!(path("..\\c\\base.vhdx").as_deref(), Some("../c/base.vhdx"));
        assert_eq!(path("/d/base.vhdx").as_deref(), Some("/d/base.vhdx"));
        assert_eq!(path("C:\\d\\base.vhdx"), None);
        assert_eq!(path("\\\\?\\Volume{1}\\base.vhdx"), None);
        let dir = tempfile::tempdir().expect("temp dir");
        std::fs::create_dir(dir.path().join("d")).expect("made");
        std::fs::write(dir.path().join("base"), b"").expect("made");
        let relative =
            |child: &str| relative(&dir.path().join(child), &dir.path().join("base")).expect("a path");
        assert_eq!(relative("child"), ".\\base");
        assert_eq!(relative("d/child"), "..\\base");
    }

    #[test]
    fn parents_are_opened_in_the_folder_of_their_child() {
        let dir = tempfile::tempdir().expect("temp dir");
        let folder = dir.path().canonicalize().expect("there").join("d");
        std::fs::create_dir_all(folder.join("e")).expect("made");
        for name in ["outside", "d/inside", "d/e/inside"] {
            std::fs::write(dir.path().join(name), b"").expect("made");
        }
        let pipe = folder.join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().expect("it runs").success());
        std::os::unix::fs::symlink("../outside", folder.join("link")).expect("linked");
        let (child, absolute) = (folder.join("child").display().to_string(), dir.path().join("outside"));
        let absolute = absolute.display().to_string();
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let find = |anywhere: bool, text: &str| {
            let found = runtime.block_on(Folders { anywhere }.find(&child, text));
            found.map(|found| found.name).map_err(|error| error.to_string())
        };
        for text in ["inside", ".\\inside", "e\\inside", "e\\..\\inside", "e/../e/inside"] {
            for anywhere in [false, true] {
                assert!(find(anywhere, text).expect(text).ends_with("inside"));
            }
        }
        for text in ["..\\outside", "e\\..\\..\\outside", "../d/inside", "link", &absolute] {
            let refused = find(false, text).expect_err(text);
            assert!(refused.contains("--parents-anywhere"), "{refused}");
            find(true, text).expect(text);
        }
        assert!(find(true, "nobody").expect_err("missing").contains("missing"));
        // Not waited for.
        assert!(find(true, "pipe").expect_err("no file").contains("not a plain file"));
    }
}
