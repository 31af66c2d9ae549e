//! Small files of the kernel. What cannot be read is empty: a fact that is missing stops nobody from telling the others.

use std::io::Read as _;
use std::path::Path;

/// Bytes that are read of one file at most: connections of a large server.
const MOST_BYTES: u64 = 64 << 20;

/// A file without the white space around it.
pub(crate) fn read(path: impl AsRef<Path>) -> String {
    let mut text = Vec::new();
    if let Ok(file) = std::fs::File::open(path) {
        let _ = file.take(MOST_BYTES).read_to_end(&mut text);
    }
    String::from_utf8_lossy(&text).trim().to_owned()
}

/// A file with one number.
pub(crate) fn number(path: impl AsRef<Path>) -> Option<u64> {
    read(path).parse().ok()
}

/// What is in a folder, by name.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}
