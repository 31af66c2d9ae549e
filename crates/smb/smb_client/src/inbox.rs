//! What has come from the socket and was not taken yet.

use std::io::{self, ErrorKind, IoSliceMut, Read};

/// Bytes of the inbox: fifteen answers with 4 KiB each come with one system call. Of a long one, so much at most is copied
/// that came with what was before it.
const BYTES: usize = 64 << 10;

pub(crate) struct Inbox {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Inbox {
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0; BYTES].into_boxed_slice(), start: 0, end: 0 }
    }

    /// What is there.
    pub(crate) fn here(&self) -> &[u8] {
        self.bytes.get(self.start..self.end).unwrap_or_default()
    }

    /// Lets go of the first `count` bytes.
    pub(crate) fn consume(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Reads until `count` bytes are there, which is at most [`BYTES`].
    pub(crate) fn fill(&mut self, from: &mut impl Read, count: usize) -> io::Result<()> {
        while self.end - self.start < count {
            if self.bytes.len() - self.start < count {
                self.bytes.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
            }
            let rest = self.bytes.get_mut(self.end..).unwrap_or_default();
            self.end += some(from.read(rest))?;
        }
        Ok(())
    }

    /// Takes as many bytes as `to` holds: those that are here, then what comes, straight to where it belongs. What comes
    /// behind it with the same system call is here afterwards.
    pub(crate) fn take(&mut self, from: &mut impl Read, to: &mut [u8]) -> io::Result<()> {
        let mut done = self.here().len().min(to.len());
        if let (Some(place), Some(bytes)) = (to.get_mut(..done), self.here().get(..done)) {
            place.copy_from_slice(bytes);
        }
        self.consume(done);
        while done < to.len() {
            // Nothing is here any more.
            let rest = to.get_mut(done..).unwrap_or_default();
            let wanted = rest.len();
            let came =
                some(from.read_vectored(&mut [IoSliceMut::new(rest), IoSliceMut::new(&mut self.bytes)]))?;
            self.end = came.saturating_sub(wanted);
            done += came.min(wanted);
        }
        Ok(())
    }
}

/// Bytes that a read brought; none when a signal came between.
fn some(read: io::Result<usize>) -> io::Result<usize> {
    match read {
        Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok(0),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives so many bytes with each read, one after the other of 0, 1, 2...
    struct Pieces {
        sizes: Vec<usize>,
        at: u8,
    }

    impl Read for Pieces {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            self.read_vectored(&mut [IoSliceMut::new(to)])
        }

        fn read_vectored(&mut self, to: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
            if self.sizes.is_empty() {
                return Ok(0);
            }
            let size = self.sizes.remove(0);
            if size == 0 {
                return Err(ErrorKind::Interrupted.into());
            }
            for byte in to.iter_mut().flat_map(|part| part.iter_mut()).take(size) {
                *byte = self.at;
                self.at = self.at.wrapping_add(1);
            }
            Ok(size)
        }
    }

    #[test]
    fn bytes_come_in_order_however_they_are_cut() {
        for sizes in [vec![100], vec![3, 0, 4, 60, 33], vec![1; 100], vec![30, 70], vec![50, 0, 50]] {
            let mut from = Pieces { sizes: sizes.clone(), at: 0 };
            let mut inbox = Inbox::new();
            inbox.fill(&mut from, 4).unwrap();
            assert_eq!(inbox.here().get(..4), Some(&[0, 1, 2, 3][..]), "{sizes:?}");
            inbox.consume(4);
            let mut body = [0; 40];
            inbox.take(&mut from, &mut body).unwrap();
            assert!(body.iter().copied().eq(4..44), "{sizes:?}: {body:?}");
            inbox.fill(&mut from, 56).unwrap();
            assert!(inbox.here().iter().copied().eq(44..100), "{sizes:?}");
            inbox.consume(56);
            assert_eq!(inbox.fill(&mut from, 1).unwrap_err().kind(), ErrorKind::UnexpectedEof);
            assert_eq!(inbox.take(&mut from, &mut body).unwrap_err().kind(), ErrorKind::UnexpectedEof);
        }
    }

    #[test]
    fn what_is_there_moves_to_the_front_when_it_must() {
        let mut from = Pieces { sizes: vec![BYTES, 10], at: 0 };
        let mut inbox = Inbox::new();
        inbox.fill(&mut from, 1).unwrap();
        inbox.consume(BYTES - 6);
        let before = inbox.here().to_vec();
        inbox.fill(&mut from, 16).unwrap();
        assert_eq!(inbox.here().get(..6), Some(&before[..]));
        assert_eq!(inbox.here().len(), 16);
    }
}
