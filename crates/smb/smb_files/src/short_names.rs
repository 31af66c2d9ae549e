//! Short names: the second name, of the form 8.3, that a file with a longer one has (MS-FSCC 2.1.5.2.1).
//!
//! They are not stored. A short name is the first letter of the long one, a hash of all of it and its extension, so it is
//! the same wherever the file is looked at and after it is made anew. Two long names of a directory may hash to one short
//! name: then it names neither of them, as opening the wrong file would be worse than opening none. What has a long name
//! that looks like another file's short one is found by its long name first.
//!
//! Programs that know short names only replace a file by deleting it and making it again under its short name. As on NTFS
//! the new file gets the long name back that went a moment ago (MS-FSA 2.1.1.1 TunnelCacheList).

use std::collections::VecDeque;
use std::time::Duration;

use file_store::FileId;
use file_store::names::fold;
use shard_runtime::Monotonic;

/// Letters of a name and of its extension.
const BASE_MAX: usize = 8;
const EXTENSION_MAX: usize = 3;
/// Letters of the hash: five before the tilde, one behind.
const HASH_LETTERS: u32 = 6;
const DIGITS: &[u8; 36] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
/// Where the tilde is.
const TILDE: usize = 6;
/// How long a name that went is remembered, as on NTFS, and how many of them.
const TUNNEL_TIME: Duration = Duration::from_secs(15);
const TUNNEL_MAX: usize = 256;

/// Whether a letter may be in a short name (MS-FSCC 2.1.5.2.1).
fn is_legal(c: char) -> bool {
    c.is_ascii_alphanumeric() || "!#$%&'()-@^_`{}~".contains(c)
}

/// Whether a name is a short one itself, in whatever case.
pub(crate) fn is_short(name: &str) -> bool {
    let (base, extension) = name.split_once('.').unwrap_or((name, ""));
    let legal = |part: &str, most: usize| part.len() <= most && part.chars().all(is_legal);
    !base.is_empty()
        && legal(base, BASE_MAX)
        && legal(extension, EXTENSION_MAX)
        && name.contains('.') != extension.is_empty()
}

/// The short name of a file with this name; `None` if the name is short enough.
pub(crate) fn alias(name: &str) -> Option<String> {
    if is_short(name) {
        return None;
    }
    let folded = fold(name);
    // FNV-1a: spreads well, and no secret is needed where a clash does no harm.
    let hash = folded.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let mut rest = hash ^ (hash >> 32);
    let mut short = String::with_capacity(BASE_MAX + 1 + EXTENSION_MAX);
    short.push(folded.chars().find(|c| is_legal(*c)).unwrap_or('_'));
    for letter in 1..=HASH_LETTERS {
        if letter == HASH_LETTERS {
            short.push('~');
        }
        let digit = DIGITS.get((rest % 36) as usize).copied().unwrap_or(b'0');
        short.push(char::from(digit));
        rest /= 36;
    }
    if let Some((_, extension)) = folded.rsplit_once('.').filter(|(base, _)| !base.is_empty()) {
        let extension: String = extension.chars().filter(|c| is_legal(*c)).take(EXTENSION_MAX).collect();
        if !extension.is_empty() {
            short.push('.');
            short.push_str(&extension);
        }
    }
    Some(short)
}

/// Whether a name has the form of those that [`alias`] makes: only then a directory is searched for it.
pub(crate) fn may_be_alias(name: &str) -> bool {
    let base = name.split_once('.').map_or(name, |(base, _)| base);
    let mut bytes = base.bytes();
    let first = bytes.next().is_some_and(|byte| is_legal(char::from(byte)));
    let rest = bytes
        .enumerate()
        .all(|(at, byte)| if at + 1 == TILDE { byte == b'~' } else { byte.is_ascii_alphanumeric() });
    first && rest && base.len() == BASE_MAX && is_short(name)
}

/// A name that went.
struct Gone {
    directory: FileId,
    short: String,
    long: String,
    until: Monotonic,
}

/// Names that went lately.
#[derive(Default)]
pub(crate) struct Tunnel(VecDeque<Gone>);

impl Tunnel {
    /// A name is not there any more: removed, or renamed.
    pub(crate) fn gone(&mut self, directory: FileId, short: String, long: &str, now: Monotonic) {
        let until = Monotonic(now.0.saturating_add(TUNNEL_TIME.as_nanos() as u64));
        if self.0.len() >= TUNNEL_MAX {
            self.0.pop_front();
        }
        self.0.push_back(Gone { directory, short, long: long.to_owned(), until });
    }

    /// The long name that a file gets which is made under the short name of one that just went.
    pub(crate) fn again(&mut self, directory: FileId, short: &str, now: Monotonic) -> Option<String> {
        self.0.retain(|gone| gone.until > now);
        let same = |gone: &Gone| gone.directory == directory && gone.short.eq_ignore_ascii_case(short);
        let at = self.0.iter().rposition(same)?;
        self.0.remove(at).map(|gone| gone.long)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn short_names_need_no_other() {
        for short in ["a", "README", "autoexec.bat", "12345678.123", "a~1.$$$", "A_B-C(1)"] {
            assert!(is_short(short) && alias(short).is_none(), "{short}");
        }
        for long in [".bat", "a.", "a.b.c", "123456789", "a.html", "a b", "a+b", "ä", "a,b", ""] {
            assert!(!is_short(long), "{long}");
        }
    }

    #[test]
    fn aliases_are_stable() {
        // They are part of what clients keep (in shortcuts, in registries): they must not change.
        assert_eq!(alias("long file name.html").as_deref(), Some("LBQUU7~7.HTM"));
    }

    proptest! {
        #[test]
        fn an_alias_is_a_short_name_in_the_form_that_is_searched_for(name in "\\PC{1,255}") {
            if let Some(short) = alias(&name) {
                prop_assert!(is_short(&short) && may_be_alias(&short), "{}", short);
                prop_assert!(may_be_alias(&short.to_lowercase()));
                prop_assert_eq!(alias(&fold(&name)), Some(short), "in any case the same");
            }
        }
    }
}
