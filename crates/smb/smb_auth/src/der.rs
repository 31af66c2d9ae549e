//! As much of DER (X.690) as SPNEGO needs: definite lengths in their shortest form, tags of one byte, nothing left over.
//!
//! Strict on purpose: what two parsers read differently is what attacks on negotiations are made of, and the known
//! clients all write DER.

use crate::error::AuthError;

/// The longest content that is read or written: SESSION_SETUP has 16 bits for its token.
const MAX_CONTENT: usize = 0xffff;

/// Tags.
pub(crate) mod tag {
    pub(crate) const OCTET_STRING: u8 = 0x04;
    pub(crate) const OID: u8 = 0x06;
    pub(crate) const ENUMERATED: u8 = 0x0a;
    pub(crate) const SEQUENCE: u8 = 0x30;
    pub(crate) const APPLICATION_0: u8 = 0x60;
    pub(crate) const CONTEXT_0: u8 = 0xa0;
    pub(crate) const CONTEXT_1: u8 = 0xa1;
    pub(crate) const CONTEXT_2: u8 = 0xa2;
    pub(crate) const CONTEXT_3: u8 = 0xa3;
    pub(crate) const CONTEXT_4: u8 = 0xa4;
}

/// Reads elements one after another.
#[derive(Clone, Copy)]
pub(crate) struct Der<'a>(&'a [u8]);

/// An element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Element<'a> {
    pub(crate) tag: u8,
    pub(crate) content: &'a [u8],
    /// The element with its tag and length: what a code over it covers.
    pub(crate) whole: &'a [u8],
}

impl<'a> Der<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next element, whatever it is; `None` at the end.
    pub(crate) fn any(&mut self) -> Result<Option<Element<'a>>, AuthError> {
        let bytes = self.0;
        let [tag, rest @ ..] = bytes else { return Ok(None) };
        let (len, rest) = length(rest)?;
        // Numbers of 31 and more continue in further bytes; nothing here has such a tag.
        if tag & 0x1f == 0x1f {
            return Err(AuthError::Malformed("DER tag"));
        }
        let (content, after) = rest.split_at_checked(len).ok_or(AuthError::Malformed("DER length"))?;
        let whole = bytes.get(..bytes.len() - after.len()).unwrap_or_default();
        self.0 = after;
        Ok(Some(Element { tag: *tag, content, whole }))
    }

    /// The next element, which must have this tag.
    pub(crate) fn expect(&mut self, tag: u8) -> Result<Element<'a>, AuthError> {
        self.optional(tag)?.ok_or(AuthError::Malformed("DER element"))
    }

    /// The next element if it has this tag.
    pub(crate) fn optional(&mut self, tag: u8) -> Result<Option<Element<'a>>, AuthError> {
        let mut ahead = *self;
        match ahead.any()? {
            Some(element) if element.tag == tag => {
                *self = ahead;
                Ok(Some(element))
            }
            _ => Ok(None),
        }
    }

    /// Nothing may follow.
    pub(crate) fn finish(&self) -> Result<(), AuthError> {
        if self.0.is_empty() { Ok(()) } else { Err(AuthError::Malformed("DER: more than expected")) }
    }
}

/// A length, and what follows it.
fn length(bytes: &[u8]) -> Result<(usize, &[u8]), AuthError> {
    let (len, least, rest) = match bytes {
        [len @ 0..=0x7f, rest @ ..] => (usize::from(*len), 0, rest),
        [0x81, a, rest @ ..] => (usize::from(*a), 0x80, rest),
        [0x82, a, b, rest @ ..] => (usize::from(u16::from_be_bytes([*a, *b])), 0x100, rest),
        _ => return Err(AuthError::Malformed("DER length")),
    };
    if len < least { Err(AuthError::Malformed("DER length")) } else { Ok((len, rest)) }
}

/// An element around its content; content of more than 64 KiB is cut, as no token could carry it.
pub(crate) fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let content = content.get(..MAX_CONTENT).unwrap_or(content);
    let mut out = Vec::with_capacity(content.len() + 4);
    out.push(tag);
    match (content.len(), (content.len() as u16).to_be_bytes()) {
        (0..=0x7f, [_, low]) => out.push(low),
        (0x80..=0xff, [_, low]) => out.extend_from_slice(&[0x81, low]),
        (_, [high, low]) => out.extend_from_slice(&[0x82, high, low]),
    }
    out.extend_from_slice(content);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back_at_every_length_of_a_length() {
        for len in [0, 1, 0x7f, 0x80, 0xff, 0x100, 0xffff] {
            let content = vec![7; len];
            let bytes = element(tag::OCTET_STRING, &content);
            let mut der = Der::new(&bytes);
            let found = der.expect(tag::OCTET_STRING).unwrap();
            assert_eq!((found.content, found.whole), (&content[..], &bytes[..]));
            der.finish().unwrap();
            assert!(Der::new(&bytes[..bytes.len() - 1]).any().is_err());
        }
    }

    #[test]
    fn what_is_ber_but_not_der_is_refused() {
        for bad in [
            &[0x04, 0x80, 0, 0][..],
            &[0x04, 0x81, 0x7f],
            &[0x04, 0x82, 0, 0xff],
            &[0x04, 0x83, 1, 0, 0],
            &[0x1f, 0x01, 0x00],
            &[0x04],
        ] {
            assert!(Der::new(bad).any().is_err(), "{bad:?}");
        }
        let two = [4, 0, 4, 0];
        let mut der = Der::new(&two);
        assert_eq!(der.optional(tag::OID), Ok(None));
        der.expect(4).unwrap();
        assert!(der.finish().is_err());
    }
}
