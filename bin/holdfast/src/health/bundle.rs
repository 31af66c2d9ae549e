//! Everything that a report is made of: named files, in memory or in a .zip that others send.
//!
//! A .zip that was sent is not trusted: nothing of it reaches the file system, and its size is bounded, packed and unpacked.

use std::collections::BTreeMap;
use std::io::{Cursor, Read as _, Write as _};
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

/// The form of the bundle; a later one is refused.
const FORMAT: u32 = 1;

/// The name of the file that says what the others are.
const MANIFEST: &str = "manifest.json";

/// Bytes of an archive at most.
const MOST_PACKED: u64 = 256 << 20;

/// Bytes of all its files together at most.
const MOST_UNPACKED: u64 = 1 << 30;

/// Files in it at most.
const MOST_FILES: usize = 256;

/// What a bundle is of, and how it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    /// The form of the bundle.
    pub(super) format: u32,
    /// The version of Holdfast that made it.
    pub(super) version: String,
    /// When, in seconds since 1970 UTC.
    pub(super) made_unix: u64,
    /// The name of the node, as far as it is known.
    pub(super) node: String,
    /// Why the node could not be asked, if it could not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) unreachable: Option<String>,
    /// What could not be had, and why, by the name of the file that is missing.
    #[serde(default)]
    pub(super) missing: BTreeMap<String, String>,
}

/// Named files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Bundle {
    pub(super) manifest: Manifest,
    files: BTreeMap<String, Vec<u8>>,
}

impl Bundle {
    /// One that is to be filled.
    pub(super) fn new(version: &str, made_unix: u64) -> Self {
        let manifest =
            Manifest { format: FORMAT, version: version.to_owned(), made_unix, ..Manifest::default() };
        Self { manifest, files: BTreeMap::new() }
    }

    /// Adds a file.
    pub(super) fn put(&mut self, name: &str, content: impl Into<Vec<u8>>) {
        self.files.insert(name.to_owned(), content.into());
    }

    /// Adds a value as JSON, or what kept it from being one.
    pub(super) fn put_json(&mut self, name: &str, value: &impl Serialize) {
        match serde_json::to_vec_pretty(value) {
            Ok(text) => self.put(name, text),
            Err(error) => self.lacks(name, error),
        }
    }

    /// Notes that a file is missing.
    pub(super) fn lacks(&mut self, name: &str, why: impl std::fmt::Display) {
        self.manifest.missing.insert(name.to_owned(), why.to_string());
    }

    /// A file as text; whatever is no UTF-8 is replaced.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        self.files.get(name).map(|content| String::from_utf8_lossy(content).into_owned())
    }

    /// A file as the value that it holds.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn json<T: DeserializeOwned>(&self, name: &str) -> Result<T, String> {
        match self.files.get(name) {
            Some(content) => serde_json::from_slice(content).map_err(|error| format!("{name}: {error}")),
            None => {
                Err(self.manifest.missing.get(name).cloned().unwrap_or_else(|| "it was not asked for".into()))
            }
        }
    }

    /// The whole as a .zip.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub(super) fn to_zip(&self) -> Result<Vec<u8>, String> {
        let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
        let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
        let manifest = serde_json::to_vec_pretty(&self.manifest).map_err(|error| error.to_string())?;
        let files = self.files.iter().map(|(name, content)| (name.as_str(), content));
        for (name, content) in std::iter::once((MANIFEST, &manifest)).chain(files) {
            zip.start_file(name, options).map_err(|error| error.to_string())?;
            zip.write_all(content).map_err(|error| error.to_string())?;
        }
        Ok(zip.finish().map_err(|error| error.to_string())?.into_inner())
    }

    /// Reads a .zip of a file.
    ///
    /// # Errors
    /// When it cannot be read, is none, is larger than any bundle, or of a later form.
    pub(super) fn from_zip(file: &Path) -> Result<Self, String> {
        let opened = std::fs::File::open(file).map_err(|error| error.to_string())?;
        let mut packed = Vec::new();
        opened.take(MOST_PACKED + 1).read_to_end(&mut packed).map_err(|error| error.to_string())?;
        if packed.len() as u64 > MOST_PACKED {
            return Err("it is larger than any bundle of holdfast health".into());
        }
        Self::from_bytes(packed)
    }

    fn from_bytes(packed: Vec<u8>) -> Result<Self, String> {
        let no_bundle = |error: &dyn std::fmt::Display| {
            format!("this is no bundle of holdfast health, or it is damaged ({error})")
        };
        let mut zip = ZipArchive::new(Cursor::new(packed)).map_err(|error| no_bundle(&error))?;
        if zip.len() > MOST_FILES {
            return Err(no_bundle(&format!("{} files", zip.len())));
        }
        let mut left = MOST_UNPACKED;
        let mut files = BTreeMap::new();
        for index in 0..zip.len() {
            let file = zip.by_index(index).map_err(|error| no_bundle(&error))?;
            let name = file.name().map_err(|error| no_bundle(&error))?.into_owned();
            let mut content = Vec::new();
            file.take(left + 1)
                .read_to_end(&mut content)
                .map_err(|error| no_bundle(&format!("{name}: {error}")))?;
            left = left.checked_sub(content.len() as u64).ok_or_else(|| {
                format!("it unpacks to more than {MOST_UNPACKED} bytes, which no bundle does")
            })?;
            files.insert(name, content);
        }
        let manifest = files.remove(MANIFEST).ok_or_else(|| no_bundle(&"it has no manifest"))?;
        let manifest: Manifest = serde_json::from_slice(&manifest).map_err(|error| no_bundle(&error))?;
        if manifest.format > FORMAT {
            return Err(format!(
                "it was made by Holdfast {}, in a form that this version does not know; read it with that version or a later one",
                manifest.version
            ));
        }
        Ok(Self { manifest, files })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Bundle {
        let mut bundle = Bundle::new("1.2.3", 77);
        bundle.put_json("disks.json", &vec![1, 2]);
        bundle.put("log.txt", "a line");
        bundle.lacks("opens.json", "refused");
        bundle
    }

    #[test]
    fn a_bundle_comes_back_as_it_was() {
        let bundle = small();
        let back = Bundle::from_bytes(bundle.to_zip().unwrap()).unwrap();
        assert_eq!(back, bundle);
        assert_eq!(back.json::<Vec<u8>>("disks.json").unwrap(), [1, 2]);
        assert_eq!(back.json::<Vec<u8>>("opens.json").unwrap_err(), "refused");
        assert_eq!(back.text("log.txt").unwrap(), "a line");
    }

    #[test]
    fn cut_or_changed_archives_are_refused_or_read_without_harm() {
        let packed = small().to_zip().unwrap();
        for cut in 0..packed.len() {
            assert!(Bundle::from_bytes(packed[..cut].to_vec()).is_err(), "{cut}");
        }
        for at in 0..packed.len() {
            let mut changed = packed.clone();
            changed[at] ^= 0x55;
            // Whatever it says, it says it; names and times are not covered by a sum.
            let _ = Bundle::from_bytes(changed);
        }
    }

    #[test]
    fn a_later_form_is_refused_by_its_version() {
        let mut bundle = small();
        bundle.manifest.format = FORMAT + 1;
        let refused = Bundle::from_bytes(bundle.to_zip().unwrap()).unwrap_err();
        assert!(refused.contains("1.2.3"), "{refused}");
    }

    #[test]
    fn an_archive_of_something_else_is_refused() {
        let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
        zip.start_file("../../etc/passwd", SimpleFileOptions::default()).unwrap();
        zip.write_all(b"x").unwrap();
        let refused = Bundle::from_bytes(zip.finish().unwrap().into_inner()).unwrap_err();
        assert!(refused.contains("manifest"), "{refused}");
    }
}
