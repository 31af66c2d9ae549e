//! Paths with names in them.

use std::fmt::Write;

/// `text` so that it is one segment of a path, or one value of a query.
#[must_use]
pub fn segment(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            out.push(char::from(byte));
        } else {
            // Writing to a String does not fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// A path with a query.
#[derive(Clone, Debug)]
pub struct Query(String, char);

impl Query {
    /// `path`, whose names are already [`segment`]s.
    #[must_use]
    pub fn new(path: impl Into<String>) -> Self {
        Self(path.into(), '?')
    }

    /// Adds a parameter.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.0.push(self.1);
        self.0.push_str(name);
        self.0.push('=');
        self.0.push_str(&segment(value));
        self.1 = '&';
        self
    }

    /// The whole.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_break_out_of_their_place() {
        assert_eq!(segment("a/b?c=d&e f%"), "a%2Fb%3Fc%3Dd%26e%20f%25");
        let query = Query::new("/x").with("path", "/a b").with("offset", "1");
        assert_eq!(query.as_str(), "/x?path=%2Fa%20b&offset=1");
    }
}
