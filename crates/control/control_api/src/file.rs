//! Files and directories of a volume.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Code, Problem};

/// What a name stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FileKind {
    /// Data.
    #[default]
    File,
    /// Names.
    Directory,
}

/// A file or directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileEntry {
    /// Its name in the directory.
    pub name: String,
    /// Its whole path in the volume.
    pub path: String,
    /// What it is.
    pub kind: FileKind,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Space that it takes, in bytes.
    pub allocated_bytes: u64,
    /// Made, in seconds since 1970 UTC.
    pub created: u64,
    /// Last written, in seconds since 1970 UTC.
    pub written: u64,
    /// Its number in the volume.
    pub file_id: u64,
    /// How many names it has (hard links): 1 unless it was linked.
    pub names: u32,
}

/// Makes a file or directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileCreate {
    /// Where.
    pub path: String,
    /// What.
    #[serde(default)]
    pub kind: FileKind,
    /// Size of a file, in bytes; it reads as zeros.
    #[serde(default)]
    pub size_bytes: u64,
    /// Reserve the space now, in the volume and in its pool: writes do not fail for want of it later, until snapshots or clones
    /// share it.
    #[serde(default)]
    pub reserve: bool,
    /// Make the directories above it that are not there.
    #[serde(default)]
    pub parents: bool,
}

/// Moves a name within the volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileRename {
    /// What is there.
    pub from: String,
    /// Where it goes.
    pub to: String,
    /// Replace the file that is there.
    #[serde(default)]
    pub replace: bool,
    /// `to`, repeated; needed with `replace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm: Option<String>,
}

/// Makes many images from one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileProvision {
    /// The image that they begin as.
    pub from: String,
    /// Their names, with a part that counts: `desk-{001..100}.vhdx`, or `desk-{001..}.vhdx` with a count.
    pub name: String,
    /// How many; absent where the name says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// The folder that they are made in; absent for the image's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub into: Option<String>,
    /// Images that have this one for their parent, which may not change from then on; else clones, which share its storage until
    /// they are written.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub differencing: bool,
}

/// Most images that are made at once.
pub const PROVISION_MAX: u32 = 10_000;
/// Longest name in a volume, in UTF-16 units.
const NAME_MAX: usize = 255;
/// Longest pattern of names, in bytes: a name has at most three for each of its units, and what counts is short.
const PATTERN_MAX: usize = 3 * NAME_MAX + 64;

impl FileProvision {
    /// The names, in order.
    ///
    /// # Errors
    /// When no part of it counts, nothing says how far, or a name would be longer than names can be. Nothing is made before that is
    /// known: what is asked for may be of any length.
    pub fn names(&self) -> Result<Vec<String>, Problem> {
        let wrong = |detail: String| {
            Problem::new(Code::InvalidRequest, detail)
                .todo("Write it as desk-{001..100}.vhdx, or desk-{001..}.vhdx and how many (--count).")
        };
        if self.name.len() > PATTERN_MAX {
            return Err(wrong(format!(
                "The name has {} bytes, and is longer than names can be.",
                self.name.len()
            )));
        }
        let parts = self.name.split_once('{').and_then(|(head, rest)| {
            let (counts, tail) = rest.split_once('}')?;
            let (first, last) = counts.split_once("..")?;
            Some((head, first, last, tail))
        });
        let (head, first, last, tail) =
            parts.ok_or_else(|| wrong(format!("No part of the name {:?} counts.", self.name)))?;
        let number = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<u32>().ok().filter(|_| digits)
        };
        let (width, start) = (first.len(), number(first));
        let start = start.ok_or_else(|| wrong(format!("{first:?} is no number to begin with.")))?;
        let said = match last {
            "" => None,
            last => {
                let end = number(last).filter(|end| *end >= start);
                let end = end.ok_or_else(|| wrong(format!("{last:?} is no number to end with.")))?;
                Some(u64::from(end - start) + 1)
            }
        };
        let count = match (said, self.count.map(u64::from)) {
            (Some(said), Some(count)) if said != count => {
                return Err(wrong(format!(
                    "The name {:?} counts {said}, and {count} are asked for.",
                    self.name
                )));
            }
            (Some(count), _) | (None, Some(count)) => count,
            (None, None) => return Err(wrong("Nothing says how many images are to be made.".to_owned())),
        };
        if count == 0 || count > u64::from(PROVISION_MAX) {
            return Err(wrong(format!("{count} images cannot be made at once: 1 to {PROVISION_MAX} can.")));
        }
        let all = u64::from(start)..u64::from(start) + count;
        let digits = width.max((all.end - 1).to_string().len());
        let units = head.encode_utf16().count() + digits + tail.encode_utf16().count();
        if units > NAME_MAX {
            return Err(wrong(format!(
                "The names have up to {units} characters: {NAME_MAX} at most are possible."
            )));
        }
        Ok(all.map(|number| format!("{head}{number:0width$}{tail}")).collect())
    }
}

/// The images that were made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Provisioned {
    /// Their paths, in order.
    pub paths: Vec<String>,
    /// The size of the disk in each, in bytes.
    pub disk_bytes: u64,
    /// The parents lie outside of the folders of the images: LUNs of them need `parents_anywhere`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub parents_elsewhere: bool,
}

/// Makes a new file that shares the storage of another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileClone {
    /// What is there.
    pub from: String,
    /// The new file.
    pub to: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_count() {
        let names = |name: &str, count| {
            let (from, name) = ("/golden.vhdx".into(), name.into());
            let asked = FileProvision { from, name, count, into: None, differencing: false };
            asked.names().map_err(|problem| problem.detail)
        };
        assert_eq!(
            names("d-{008..010}.vhdx", None),
            Ok(vec!["d-008.vhdx".into(), "d-009.vhdx".into(), "d-010.vhdx".into()])
        );
        assert_eq!(names("{9..}", Some(2)), Ok(vec!["9".into(), "10".into()]));
        assert_eq!(names("{1..10000}", Some(10_000)).map(|names| names.len()), Ok(10_000));
        for (name, count, why) in [
            ("d.vhdx", None, "No part"),
            ("d-{1}", None, "No part"),
            ("d-{a..2}", None, "to begin with"),
            ("d-{..2}", None, "to begin with"),
            ("d-{2..1}", None, "to end with"),
            ("d-{1..+2}", None, "to end with"),
            ("d-{1..}", None, "how many"),
            ("d-{1..2}", Some(3), "counts 2"),
            ("d-{1..}", Some(0), "1 to"),
            ("d-{0..4294967295}", None, "1 to"),
        ] {
            let told = names(name, count).expect_err(name);
            assert!(told.contains(why), "{name}: {told}");
        }
        // Of any length, and nothing is made of it.
        let (head, zeros) = ("d".repeat(4 << 20), "0".repeat(70_000));
        let long = "\u{e4}".repeat(252);
        for (name, count) in [
            (format!("{head}{{1..10000}}"), None),
            (format!("d-{{{zeros}1..}}"), Some(10_000)),
            (format!("d-{{1..{zeros}9}}"), None),
            (format!("{long}{{1..1000}}"), None),
            (format!("{{{}1..}}", "0".repeat(255)), Some(1)),
        ] {
            let told = names(&name, count).expect_err("too long");
            assert!(
                told.len() < 100 && told.contains("names can be") || told.contains("255"),
                "{}",
                told.len()
            );
        }
        assert_eq!(names(&format!("{long}{{1..999}}"), None).map(|names| names.len()), Ok(999));
        assert_eq!(names(&format!("{{{}1..}}", "0".repeat(254)), Some(1)).map(|names| names.len()), Ok(1));
    }
}
