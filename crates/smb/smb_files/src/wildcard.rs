//! Names with wildcards (MS-FSA 2.1.4.4): `*` and `?`, and what clients make of DOS patterns: `<` `>` `"`.

use file_store::names::fold;

/// Most characters of a pattern that are looked at; a longer one matches nothing, as no name is that long.
const PATTERN_MAX: usize = 1024;

/// A pattern, folded once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    units: Vec<char>,
    exact: bool,
}

impl Pattern {
    /// A pattern as a client wrote it; an empty one matches everything, and so does `*.*`.
    pub(crate) fn new(text: &str) -> Self {
        let text = if text.is_empty() || text == "*.*" { "*" } else { text };
        let units: Vec<char> = fold(text).chars().take(PATTERN_MAX + 1).collect();
        let exact = !units.iter().any(|c| matches!(c, '*' | '?' | '<' | '>' | '"'));
        Self { units, exact }
    }

    /// Whether it has no wildcard: at most one name matches.
    pub(crate) fn is_exact(&self) -> bool {
        self.exact
    }

    /// Whether it matches everything.
    pub(crate) fn is_all(&self) -> bool {
        self.units == ['*']
    }

    /// Whether a name matches.
    pub(crate) fn matches(&self, name: &str) -> bool {
        if self.is_all() {
            return true;
        }
        let name: Vec<char> = fold(name).chars().collect();
        if self.exact {
            return self.units == name;
        }
        if self.units.len() > PATTERN_MAX {
            return false;
        }
        self.run(&name)
    }

    /// All places of the pattern that the name can have reached so far, character by character: no backtracking, so the
    /// time is bounded by the product of the lengths.
    fn run(&self, name: &[char]) -> bool {
        let last_dot = name.iter().rposition(|c| *c == '.');
        let mut reached = vec![false; self.units.len() + 1];
        if let Some(first) = reached.first_mut() {
            *first = true;
        }
        for (at, c) in name.iter().enumerate() {
            self.skip_empty(&mut reached, Some(*c));
            let mut next = vec![false; self.units.len() + 1];
            for (place, unit) in self.units.iter().enumerate() {
                if !reached.get(place).copied().unwrap_or(false) {
                    continue;
                }
                let (stay, advance) = match unit {
                    '*' => (true, false),
                    // DOS_STAR takes anything but the name's last dot.
                    '<' => (last_dot != Some(at), false),
                    '?' => (false, true),
                    '>' => (false, *c != '.'),
                    '"' => (false, *c == '.'),
                    other => (false, other == c),
                };
                if stay && let Some(here) = next.get_mut(place) {
                    *here = true;
                }
                if advance && let Some(there) = next.get_mut(place + 1) {
                    *there = true;
                }
            }
            reached = next;
        }
        self.skip_empty(&mut reached, None);
        reached.last().copied().unwrap_or(false)
    }

    /// Moves over what can match nothing: `*` and `<` always; `>` before a dot and at the end; `"` at the end.
    fn skip_empty(&self, reached: &mut [bool], next: Option<char>) {
        for (place, unit) in self.units.iter().enumerate() {
            let skip = match unit {
                '*' | '<' => true,
                '>' => matches!(next, None | Some('.')),
                '"' => next.is_none(),
                _ => false,
            };
            if skip
                && reached.get(place).copied().unwrap_or(false)
                && let Some(there) = reached.get_mut(place + 1)
            {
                *there = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, name: &str) -> bool {
        Pattern::new(pattern).matches(name)
    }

    #[test]
    fn stars_and_question_marks() {
        assert!(matches("*", "anything") && matches("", "anything") && matches("*.*", "nodot"));
        assert!(matches("a*c", "ABBBC") && matches("a*c", "ac") && !matches("a*c", "acd"));
        assert!(matches("a?c", "abc") && !matches("a?c", "ac"));
        assert!(matches("f?le.*", "File.txt") && !matches("f?le.*", "file"));
        assert!(matches("*.txt", "a.b.TXT") && !matches("*.txt", "txt"));
        assert!(matches("**a**", "a") && !matches("a", "b"));
    }

    #[test]
    fn what_dos_patterns_became() {
        // `*.` is sent as `<`, `?.` as `>`, `.*` as `"*` (MS-FSA 2.1.4.4 and its note).
        assert!(matches("<.txt", "a.b.txt") && matches("<.txt", "b.txt"));
        assert!(matches("<", "nodot") && !matches("<", "with.dot"));
        assert!(matches("<\"*", "nodot") && matches("<\"*", "with.dot"));
        assert!(matches(">>>>.txt", "abc.txt") && matches(">>>>.txt", "abcd.txt"));
        assert!(!matches(">>>>.txt", "abcde.txt"));
        assert!(matches("file\"", "file") && matches("file\"", "file.") && !matches("file\"", "filex"));
        assert!(matches("a>>", "a") && matches("a>>", "abc") && !matches("a>>", "abcd"));
    }

    proptest! {
        #[test]
        fn a_simple_pattern_agrees_with_backtracking(pattern in "[ab*?]{0,8}", name in "[ab]{0,8}") {
            fn model(p: &[u8], n: &[u8]) -> bool {
                match (p.split_first(), n.split_first()) {
                    (None, _) => n.is_empty(),
                    (Some((b'*', p)), rest) => model(p, n) || rest.is_some_and(|(_, n)| model(&[b"*", p].concat(), n)),
                    (Some((c, p)), Some((d, n))) => (*c == b'?' || c == d) && model(p, n),
                    _ => false,
                }
            }
            let expected = pattern.is_empty() || model(pattern.as_bytes(), name.as_bytes());
            prop_assert_eq!(matches(&pattern, &name), expected);
        }
    }
}
