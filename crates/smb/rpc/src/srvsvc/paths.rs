//! Helpers that clients have the server do, so that it is its rules that count: which kind of path or name something is,
//! whether it is allowed, how it is written, whether two are the same (MS-SRVS 3.1.4.29 to 3.1.4.34).

use super::only;
use super::share_info::is_share_name;
use crate::error::{Fault, Win32};
use crate::ndr::{BadStub, NdrIn, NdrOut};

/// Most bytes that a client may ask for (`range(0, 64000)` in the IDL).
const OUTPUT_MAX: u32 = 64_000;
/// The longest path.
const PATH_UNITS_MAX: usize = 260;

/// Bits of a path's type (MS-SRVS 2.2.2.9): relative or absolute, to a drive or a server, a device, patterns.
mod path_type {
    pub(super) const UNC: u32 = 0x0001_1000 | 0x0000_0001;
    pub(super) const ABSOLUTE_DRIVE: u32 = 0x0000_2003;
    pub(super) const RELATIVE: u32 = 0x0000_2001;
    pub(super) const ABSOLUTE: u32 = 0x0000_2002;
    pub(super) const UNC_ROOT: u32 = 0x0000_3001;
    pub(super) const DRIVE: u32 = 0x0000_2004;
    pub(super) const PATTERN: u32 = 0x0000_8000;
}

fn kind_of(path: &str) -> Result<u32, Win32> {
    if path.is_empty() || path.encode_utf16().count() > PATH_UNITS_MAX {
        return Err(Win32::INVALID_NAME);
    }
    let path = path.replace('/', "\\");
    if path.contains(|c: char| c < ' ' || "\"<>|".contains(c)) {
        return Err(Win32::INVALID_NAME);
    }
    let pattern = if path.contains(['*', '?']) { path_type::PATTERN } else { 0 };
    let mut chars = path.chars();
    let (first, second) = (chars.next(), chars.next());
    let kind = if let Some(rest) = path.strip_prefix("\\\\") {
        let parts = rest.split('\\').filter(|part| !part.is_empty()).count();
        match parts {
            0 => return Err(Win32::INVALID_NAME),
            1 => path_type::UNC_ROOT,
            _ => path_type::UNC,
        }
    } else if second == Some(':') && first.is_some_and(|c| c.is_ascii_alphabetic()) {
        match chars.as_str() {
            "" => path_type::DRIVE,
            rest if rest.contains(':') => return Err(Win32::INVALID_NAME),
            rest if rest.starts_with('\\') => path_type::ABSOLUTE_DRIVE,
            _ => path_type::RELATIVE,
        }
    } else if path.contains(':') {
        return Err(Win32::INVALID_NAME);
    } else if path.starts_with('\\') {
        path_type::ABSOLUTE
    } else {
        path_type::RELATIVE
    };
    Ok(kind | pattern)
}

/// Backslashes, without empty parts, `.` and `..`; what would lead out of the root is refused.
fn canonical(prefix: &str, path: &str) -> Result<String, Win32> {
    let joined = match prefix {
        "" => path.to_owned(),
        prefix => format!("{}\\{path}", prefix.trim_end_matches(['\\', '/'])),
    }
    .replace('/', "\\");
    kind_of(&joined)?;
    let (root, rest) = if let Some(rest) = joined.strip_prefix("\\\\") {
        ("\\\\".to_owned(), rest)
    } else if let Some((drive, rest)) = joined.split_once(':') {
        let slash = if rest.starts_with('\\') { "\\" } else { "" };
        (format!("{}:{slash}", drive.to_ascii_uppercase()), rest)
    } else if let Some(rest) = joined.strip_prefix('\\') {
        ("\\".to_owned(), rest)
    } else {
        (String::new(), joined.as_str())
    };
    // Of `\\server\share` nothing can be taken away.
    let kept = if root == "\\\\" { 2 } else { 0 };
    let mut parts: Vec<&str> = Vec::new();
    for part in rest.split('\\') {
        match part {
            "" | "." => {}
            ".." if parts.len() > kept => {
                parts.pop();
            }
            ".." => return Err(Win32::INVALID_NAME),
            part => parts.push(part),
        }
    }
    Ok(root + &parts.join("\\"))
}

/// NetprPathType.
pub(super) fn path_type(r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    let path = r.wide()?;
    let _flags = r.u32()?;
    let kind = kind_of(&path);
    let mut out = NdrOut::new();
    out.u32(kind.unwrap_or(0));
    out.win32(kind.err().unwrap_or(Win32::SUCCESS));
    Ok(out)
}

/// How many elements the client's buffer has.
fn room(r: &mut NdrIn<'_>) -> Result<u32, BadStub> {
    let room = r.u32()?;
    if room > OUTPUT_MAX { Err(BadStub) } else { Ok(room) }
}

/// NetprPathCanonicalize.
pub(super) fn path_canonicalize(r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    let path = r.wide()?;
    let room = room(r)?;
    let prefix = r.wide()?;
    let (_kind, _flags) = (r.u32()?, r.u32()?);
    let done = canonical(&prefix, &path).and_then(|path| {
        let kind = kind_of(&path)?;
        let mut bytes: Vec<u8> = path.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect();
        if bytes.len() > room as usize {
            return Err(Win32::BUFFER_TOO_SMALL);
        }
        bytes.resize(room as usize, 0);
        Ok((bytes, kind))
    });
    let mut out = NdrOut::new();
    out.u32(room);
    match &done {
        Ok((bytes, _)) => out.raw(bytes),
        Err(_) => out.raw(&vec![0; room as usize]),
    }
    out.u32(done.as_ref().map_or(0, |(_, kind)| *kind));
    out.win32(done.err().unwrap_or(Win32::SUCCESS));
    Ok(out)
}

/// The order of two texts as a client is told it.
fn order(one: &str, other: &str) -> NdrOut {
    let mut out = NdrOut::new();
    out.u32(match upcase::upper(one).cmp(&upcase::upper(other)) {
        std::cmp::Ordering::Less => u32::MAX,
        std::cmp::Ordering::Equal => 0,
        std::cmp::Ordering::Greater => 1,
    });
    out
}

/// NetprPathCompare.
pub(super) fn path_compare(r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    let (one, other) = (r.wide()?, r.wide()?);
    let (_kind, _flags) = (r.u32()?, r.u32()?);
    // What cannot be made canonical is compared as it is.
    let canonical = |path: String| canonical("", &path).unwrap_or(path);
    Ok(order(&canonical(one), &canonical(other)))
}

/// Kinds of names (MS-SRVS 2.2.2.8), with the most characters of each.
fn is_name(name: &str, kind: u32) -> bool {
    let units = name.encode_utf16().count();
    let plain = |most: usize| {
        (1..=most).contains(&units) && !name.contains(|c: char| c < ' ' || "\"/\\[]:|<>+=;,?*".contains(c))
    };
    match kind {
        // User, password and group; the password may be anything.
        1 => plain(256) && !name.chars().all(|c| c == '.' || c == ' '),
        2 => units <= 256,
        3 => plain(256),
        // Computer, event, domain, service, network.
        4 | 6 => plain(15),
        5 | 7 | 8 => plain(256),
        // Share, and the old ones.
        9 => is_share_name(name),
        12 => units <= 8 && is_share_name(name),
        10 | 11 => plain(256),
        _ => false,
    }
}

/// NetprNameValidate.
pub(super) fn name_validate(r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    let name = r.wide()?;
    let (kind, _flags) = (r.u32()?, r.u32()?);
    Ok(only(match kind {
        1..=12 if is_name(&name, kind) => Ok(()),
        1..=12 => Err(Win32::INVALID_NAME),
        _ => Err(Win32::INVALID_PARAMETER),
    }))
}

/// NetprNameCanonicalize: names are written as they are; there is only the check.
pub(super) fn name_canonicalize(r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    let name = r.wide()?;
    let room = room(r)?;
    let (kind, _flags) = (r.u32()?, r.u32()?);
    let mut units: Vec<u16> = name.encode_utf16().chain([0]).collect();
    let result = match kind {
        1..=12 if !is_name(&name, kind) => Err(Win32::INVALID_NAME),
        // The length of the buffer is in bytes, as that of paths is.
        1..=12 if units.len() * 2 > room as usize => Err(Win32::BUFFER_TOO_SMALL),
        1..=12 => Ok(()),
        _ => Err(Win32::INVALID_PARAMETER),
    };
    if result.is_err() {
        units.clear();
    }
    units.resize(room as usize, 0);
    let mut out = NdrOut::new();
    out.u32(room);
    units.iter().for_each(|unit| out.u16(*unit));
    out.win32(result.err().unwrap_or(Win32::SUCCESS));
    Ok(out)
}

/// NetprNameCompare.
pub(super) fn name_compare(r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    let (one, other) = (r.wide()?, r.wide()?);
    let (_kind, _flags) = (r.u32()?, r.u32()?);
    Ok(order(&one, &other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_made_canonical_and_never_leave_their_root() {
        for (prefix, path, expected) in [
            ("", "c:\\a\\.\\b\\..\\c", Ok("C:\\a\\c")),
            ("", "a//b", Ok("a\\b")),
            ("C:\\x\\", "y", Ok("C:\\x\\y")),
            ("", "\\\\server\\share\\..", Err(Win32::INVALID_NAME)),
            ("", "\\\\server\\share\\a\\..\\b", Ok("\\\\server\\share\\b")),
            ("", "..\\a", Err(Win32::INVALID_NAME)),
            ("", "c:\\..", Err(Win32::INVALID_NAME)),
            ("", "a|b", Err(Win32::INVALID_NAME)),
            ("", "", Err(Win32::INVALID_NAME)),
        ] {
            assert_eq!(canonical(prefix, path), expected.map(str::to_owned), "{prefix} {path}");
        }
    }

    #[test]
    fn kinds_of_paths() {
        assert_eq!(kind_of("C:\\a"), Ok(path_type::ABSOLUTE_DRIVE));
        assert_eq!(kind_of("C:"), Ok(path_type::DRIVE));
        assert_eq!(kind_of("a*"), Ok(path_type::RELATIVE | path_type::PATTERN));
        assert_eq!(kind_of("\\\\s"), Ok(path_type::UNC_ROOT));
        assert!(kind_of("a:b:c").is_err() && kind_of("ab:c").is_err());
    }
}
