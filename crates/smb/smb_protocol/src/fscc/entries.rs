//! Lists whose entries begin with the offset of the next one: directories, streams, attributes, changes.

use crate::wire::{DecodeError, Wire};

/// Writes a list into a buffer of limited size.
#[derive(Debug)]
pub struct EntryWriter<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    limit: usize,
    align: usize,
    last: Option<usize>,
}

impl<'a> EntryWriter<'a> {
    /// A list at the end of `out` that takes at most `limit` bytes, its entries aligned to `align`.
    #[must_use]
    pub fn new(out: &'a mut Vec<u8>, limit: usize, align: usize) -> Self {
        let start = out.len();
        Self { out, start, limit, align, last: None }
    }

    /// Appends an entry, whose bytes behind the offset `body` writes, if it fits; says whether it did.
    pub fn push(&mut self, body: impl FnOnce(&mut Vec<u8>)) -> bool {
        let before = self.out.len();
        let used = before - self.start;
        let at = self.start + used.next_multiple_of(self.align);
        if at - self.start + 4 > self.limit {
            return false;
        }
        self.out.resize(at, 0);
        0_u32.put(self.out);
        body(self.out);
        if self.out.len() - self.start > self.limit {
            self.out.truncate(before);
            return false;
        }
        if let Some(last) = self.last {
            let next = ((at - last) as u32).to_le_bytes();
            if let Some(field) = self.out.get_mut(last..last + 4) {
                field.copy_from_slice(&next);
            }
        }
        self.last = Some(at);
        true
    }

    /// Whether no entry fitted yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.last.is_none()
    }
}

/// The entries of a list, each from its offset field to where the next one begins. An empty buffer has none. After an
/// error there are no more.
pub fn entries(bytes: &[u8]) -> impl Iterator<Item = Result<&[u8], DecodeError>> {
    let mut rest = Some(bytes).filter(|bytes| !bytes.is_empty());
    std::iter::from_fn(move || {
        let here = rest.take()?;
        let Some((next, _)) = here.split_first_chunk::<4>() else {
            return Some(Err(DecodeError::Truncated));
        };
        match u32::from_le_bytes(*next) as usize {
            0 => Some(Ok(here)),
            // Each step goes forward by the field at least, so a list has an end.
            next if next < 4 => Some(Err(DecodeError::Invalid("next entry"))),
            next => match here.split_at_checked(next) {
                Some((entry, following)) if !following.is_empty() => {
                    rest = Some(following);
                    Some(Ok(entry))
                }
                _ => Some(Err(DecodeError::Invalid("next entry"))),
            },
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_leaves_no_trace() {
        let mut out = vec![9];
        let mut list = EntryWriter::new(&mut out, 19, 8);
        assert!(list.push(|out| out.extend_from_slice(b"one")));
        assert!(!list.push(|out| out.extend_from_slice(b"too long for it")));
        assert!(list.push(|out| out.extend_from_slice(b"two")));
        assert!(!list.push(|_| {}));
        let found: Vec<_> = entries(&out[1..]).map(Result::unwrap).collect();
        assert_eq!(found, [&b"\x08\0\0\0one\0"[..], b"\0\0\0\0two"]);
    }

    #[test]
    fn lists_that_lead_astray_end() {
        for next in [1_u32, 3, 15, u32::MAX] {
            let mut bytes = vec![0; 15];
            bytes[..4].copy_from_slice(&next.to_le_bytes());
            let found: Vec<_> = entries(&bytes).collect();
            assert!(matches!(found[..], [Err(_)]), "{next}");
        }
        assert!(entries(&[]).next().is_none());
        assert!(entries(&[0, 0]).next().unwrap().is_err());
    }
}
