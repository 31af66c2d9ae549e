//! Paths as clients write them, taken apart (MS-FSCC 2.1.5, MS-FSA 2.1.5.1).
//!
//! `folder\file:stream:$DATA`, below the share's root. A store's names are stricter than Windows' in one thing: they
//! have no control characters, which Windows allows in the names of streams (0x01 to 0x1f) and everywhere from 0x7f to
//! 0x9f. Those are kept in the private-use area at U+F000, where Services for Macintosh put them.

use file_store::names::NAME_MAX;
use smb_protocol::{NtStatus, Utf16};

use crate::error::{Result, refuse};

/// Most units of a path: what Windows' own counted strings hold.
pub(crate) const PATH_UNITS_MAX: usize = 32_767;
/// What clients open to ask for quotas, as NTFS keeps them there. Any open of the volume tells them here, so this is one of the share's
/// folder, with all that is checked of that.
const QUOTA_FILE: &str = r"$Extend\$Quota:$Q:$INDEX_ALLOCATION";
/// Where control characters are kept.
const PRIVATE: u32 = 0xf000;

/// A path's parts, in the form in which the store keeps names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ParsedPath {
    /// Directories and the file, from the share's root; empty for the root itself.
    pub(crate) components: Vec<String>,
    /// The stream.
    pub(crate) stream: StreamPart,
    /// Whether a backslash came last: only a directory is meant.
    pub(crate) directory: bool,
}

/// What follows the file's name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum StreamPart {
    /// Nothing.
    #[default]
    None,
    /// `::$DATA`: the unnamed stream, by name, so not a directory.
    Data,
    /// `::$INDEX_ALLOCATION`: a directory.
    Directory,
    /// `:name` or `:name:$DATA`.
    Named(String),
}

/// Takes a path apart.
///
/// # Errors
/// OBJECT_NAME_INVALID, OBJECT_PATH_SYNTAX_BAD, INVALID_PARAMETER for a leading backslash (MS-SMB2 3.3.5.9) or a stream
/// type that is none.
pub(crate) fn parse(name: Utf16<'_>) -> Result<ParsedPath> {
    if name.units() > PATH_UNITS_MAX {
        return refuse(NtStatus::OBJECT_NAME_INVALID, "the path is too long");
    }
    let Ok(text) = name.to_string() else {
        return refuse(NtStatus::OBJECT_NAME_INVALID, "the path is not UTF-16");
    };
    if text.starts_with('\\') {
        return refuse(NtStatus::INVALID_PARAMETER, "the path begins with a backslash");
    }
    if text.eq_ignore_ascii_case(QUOTA_FILE) {
        return Ok(ParsedPath::default());
    }
    let mut path = ParsedPath::default();
    let mut rest = text.as_str();
    if let Some(stripped) = rest.strip_suffix('\\') {
        path.directory = true;
        rest = stripped;
    }
    if rest.is_empty() {
        return Ok(path);
    }
    // A backslash cannot be in a stream's name either, so the last component has the stream.
    let (folders, last) = rest.rsplit_once('\\').map_or((None, rest), |(a, b)| (Some(a), b));
    // Several backslashes between two names are one, as for Samba; clients that put paths together write them.
    let folders = folders.into_iter().flat_map(|folders| folders.split('\\'));
    for folder in folders.filter(|folder| !folder.is_empty()) {
        path.components.push(component(folder)?);
    }
    let (file, stream) = match last.split_once(':') {
        Some((file, stream)) => (file, Some(stream)),
        None => (last, None),
    };
    // `:stream` alone is a stream of the share's root.
    if !file.is_empty() || stream.is_none() || !path.components.is_empty() {
        path.components.push(component(file)?);
    }
    path.stream = stream.map_or(Ok(StreamPart::None), stream_part)?;
    if path.directory && !matches!(path.stream, StreamPart::None | StreamPart::Directory) {
        return refuse(NtStatus::OBJECT_NAME_INVALID, "a backslash behind a stream");
    }
    Ok(path)
}

/// One name of a file or directory.
///
/// # Errors
/// OBJECT_NAME_INVALID, OBJECT_PATH_SYNTAX_BAD.
pub(crate) fn component(name: &str) -> Result<String> {
    match name {
        "" | "." => return refuse(NtStatus::OBJECT_NAME_INVALID, "an empty component or a dot in the path"),
        ".." => return refuse(NtStatus::OBJECT_PATH_SYNTAX_BAD, "the path goes up"),
        _ => {}
    }
    let bad = |c: char| c < ' ' || matches!(c, '"' | '*' | '/' | ':' | '<' | '>' | '?' | '|' | '\\');
    if name.chars().any(bad) || name.encode_utf16().count() > NAME_MAX {
        return refuse(NtStatus::OBJECT_NAME_INVALID, "a component of the path cannot be a name");
    }
    Ok(to_store(name))
}

/// What follows a file's first colon.
fn stream_part(text: &str) -> Result<StreamPart> {
    let (name, kind) = match text.split_once(':') {
        Some((name, kind)) => (name, Some(kind)),
        None => (text, None),
    };
    if kind.is_some_and(|kind| kind.eq_ignore_ascii_case("$INDEX_ALLOCATION")) {
        return match name {
            "" => Ok(StreamPart::Directory),
            i30 if i30.eq_ignore_ascii_case("$I30") => Ok(StreamPart::Directory),
            _ => refuse(NtStatus::INVALID_PARAMETER, "a directory has one index only"),
        };
    }
    match kind {
        Some(kind) if kind.contains([':', '/']) => {
            return refuse(NtStatus::OBJECT_NAME_INVALID, "a third colon");
        }
        None if name.is_empty() => {
            return refuse(NtStatus::OBJECT_NAME_INVALID, "a colon without a stream");
        }
        None => {}
        Some("") => return refuse(NtStatus::OBJECT_NAME_INVALID, "a stream without a type"),
        Some(kind) if !kind.eq_ignore_ascii_case("$DATA") => {
            return refuse(NtStatus::INVALID_PARAMETER, "a stream of a type that is not served");
        }
        Some(_) if name.is_empty() => return Ok(StreamPart::Data),
        Some(_) => {}
    }
    stream_name(name).map(StreamPart::Named)
}

/// The name of a stream.
///
/// # Errors
/// OBJECT_NAME_INVALID.
pub(crate) fn stream_name(name: &str) -> Result<String> {
    let bad = name.is_empty()
        || name == "."
        || name == ".."
        || name.chars().any(|c| matches!(c, '\0' | '/' | '\\' | ':'))
        || name.encode_utf16().count() > NAME_MAX;
    if bad {
        return refuse(NtStatus::OBJECT_NAME_INVALID, "a stream cannot have that name");
    }
    Ok(to_store(name))
}

fn is_kept_elsewhere(c: char) -> bool {
    c.is_control()
}

/// A client's name as the store keeps it.
pub(crate) fn to_store(name: &str) -> String {
    if !name.chars().any(is_kept_elsewhere) {
        return name.to_owned();
    }
    let moved =
        |c: char| if is_kept_elsewhere(c) { char::from_u32(PRIVATE + c as u32).unwrap_or(c) } else { c };
    name.chars().map(moved).collect()
}

/// A store's name as clients see it.
pub(crate) fn to_client(name: &str) -> String {
    let back = |c: char| {
        let moved = (c as u32).checked_sub(PRIVATE).and_then(char::from_u32);
        moved.filter(|c| *c != '\0' && is_kept_elsewhere(*c)).unwrap_or(c)
    };
    name.chars().map(back).collect()
}

/// Entry for fuzzing: whatever a client writes as a path.
pub(crate) fn fuzz(bytes: &[u8]) {
    let even = bytes.get(..bytes.len() & !1).unwrap_or_default();
    let Ok(name) = Utf16::new(even) else { return };
    if let Ok(path) = parse(name) {
        for component in &path.components {
            assert!(file_store::names::check(component).is_ok(), "{component:?}");
            assert_eq!(to_store(&to_client(component)), *component);
        }
        if let StreamPart::Named(stream) = &path.stream {
            assert!(file_store::names::check(stream).is_ok(), "{stream:?}");
        }
    }
    if let Ok(text) = name.to_string() {
        let half = text.len() / 2;
        let at = (0..=half).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        let (pattern, name) = text.split_at(at);
        crate::wildcard::Pattern::new(pattern).matches(name);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use smb_protocol::utf16::utf16;

    use super::*;

    fn parsed(text: &str) -> std::result::Result<ParsedPath, NtStatus> {
        parse(Utf16::new(&utf16(text)).unwrap()).map_err(|error| error.status)
    }

    fn path(components: &[&str], stream: StreamPart) -> ParsedPath {
        let components = components.iter().map(|c| (*c).to_owned()).collect();
        ParsedPath { components, stream, directory: false }
    }

    #[test]
    fn parts() {
        assert_eq!(parsed(""), Ok(path(&[], StreamPart::None)));
        assert_eq!(parsed("a\\b"), Ok(path(&["a", "b"], StreamPart::None)));
        assert_eq!(parsed("a\\\\b\\\\\\c"), Ok(path(&["a", "b", "c"], StreamPart::None)));
        assert_eq!(parsed("a\\"), Ok(ParsedPath { directory: true, ..path(&["a"], StreamPart::None) }));
        assert_eq!(parsed("a::$data"), Ok(path(&["a"], StreamPart::Data)));
        assert_eq!(parsed("a:$I30:$INDEX_ALLOCATION"), Ok(path(&["a"], StreamPart::Directory)));
        assert_eq!(parsed("a\\b:s"), Ok(path(&["a", "b"], StreamPart::Named("s".into()))));
        assert_eq!(parsed("b:s:$DATA"), Ok(path(&["b"], StreamPart::Named("s".into()))));
        assert_eq!(parsed(":s"), Ok(path(&[], StreamPart::Named("s".into()))));
        assert_eq!(parsed("a:?s*"), Ok(path(&["a"], StreamPart::Named("?s*".into()))));
    }

    #[test]
    fn what_is_wrong_with_a_path() {
        for (bad, status) in [
            ("\\a", NtStatus::INVALID_PARAMETER),
            ("a\\\\", NtStatus::OBJECT_NAME_INVALID),
            ("a\\..\\b", NtStatus::OBJECT_PATH_SYNTAX_BAD),
            ("..", NtStatus::OBJECT_PATH_SYNTAX_BAD),
            (".", NtStatus::OBJECT_NAME_INVALID),
            ("a*", NtStatus::OBJECT_NAME_INVALID),
            ("a|b", NtStatus::OBJECT_NAME_INVALID),
            ("a\u{1}", NtStatus::OBJECT_NAME_INVALID),
            ("a:", NtStatus::OBJECT_NAME_INVALID),
            ("a::", NtStatus::OBJECT_NAME_INVALID),
            ("a:s:", NtStatus::OBJECT_NAME_INVALID),
            ("a:s:$FOO", NtStatus::INVALID_PARAMETER),
            ("a:s:$DATA:x", NtStatus::OBJECT_NAME_INVALID),
            ("a:s\\", NtStatus::OBJECT_NAME_INVALID),
            (&"x".repeat(256), NtStatus::OBJECT_NAME_INVALID),
        ] {
            assert_eq!(parsed(bad), Err(status), "{bad:?}");
        }
        assert!(parse(Utf16::new(&[0, 0xd8]).unwrap()).is_err(), "half a surrogate pair");
    }

    #[test]
    fn control_characters_come_back() {
        let name = "\u{5}Stream\n One\u{85}";
        let kept = stream_name(name).unwrap();
        assert!(file_store::names::check(&kept).is_ok());
        assert_eq!(to_client(&kept), name);
        assert_eq!(to_client("\u{f000}\u{f041}"), "\u{f000}\u{f041}", "not ours");
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_path_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), text in ".{0,60}") {
            fuzz(&bytes);
            fuzz(&utf16(&text));
        }
    }
}
