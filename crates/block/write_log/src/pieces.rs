//! The ranges whose newest data waits in the log, by address.

use std::collections::BTreeMap;
use std::ops::Range;

use aligned_buffer::SharedBuf;

/// What a range holds.
#[derive(Clone)]
pub(crate) enum Content {
    Zeroes,
    /// As many bytes as the range has.
    Data(SharedBuf),
}

impl Content {
    fn slice(&self, from: u64, to: u64) -> Self {
        match self {
            Self::Zeroes => Self::Zeroes,
            Self::Data(data) => Self::Data(data.slice(from as usize..to as usize)),
        }
    }

    /// Writes it to `target`, which is as long.
    pub(crate) fn copy_to(&self, target: &mut [u8]) {
        match self {
            Self::Data(data) if data.len() == target.len() => target.copy_from_slice(data),
            _ => target.fill(0),
        }
    }
}

/// A range with one content.
#[derive(Clone)]
pub(crate) struct Piece {
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// The change that made it.
    pub(crate) ticket: u64,
    /// The batch that it was committed in; none before that.
    pub(crate) batch: Option<u64>,
    pub(crate) content: Content,
}

impl Piece {
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.len
    }

    /// The part of it that lies in a range that it overlaps.
    fn cut(&self, range: &Range<u64>) -> Self {
        let (start, end) = (self.offset.max(range.start), self.end().min(range.end));
        Self {
            offset: start,
            len: end - start,
            content: self.content.slice(start - self.offset, end - self.offset),
            ..self.clone()
        }
    }
}

/// Pieces that do not overlap.
#[derive(Default)]
pub(crate) struct Pieces {
    by_offset: BTreeMap<u64, Piece>,
    bytes: u64,
}

impl Pieces {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_offset.is_empty()
    }

    /// Bytes of all pieces.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn starts(&self, range: &Range<u64>) -> Vec<u64> {
        let before =
            self.by_offset.range(..range.start).next_back().filter(|(_, piece)| piece.end() > range.start);
        before.into_iter().chain(self.by_offset.range(range.clone())).map(|(start, _)| *start).collect()
    }

    /// The parts of pieces that lie in a range, in order.
    pub(crate) fn within(&self, range: &Range<u64>) -> Vec<Piece> {
        if range.is_empty() || self.is_empty() {
            return Vec::new();
        }
        self.starts(range)
            .iter()
            .filter_map(|start| self.by_offset.get(start))
            .map(|piece| piece.cut(range))
            .collect()
    }

    /// Whether any piece lies in a range.
    pub(crate) fn overlap(&self, range: &Range<u64>) -> bool {
        !range.is_empty() && !self.is_empty() && !self.starts(range).is_empty()
    }

    /// Takes everything in a range out; what sticks out of it stays.
    pub(crate) fn remove(&mut self, range: &Range<u64>) {
        if range.is_empty() || self.is_empty() {
            return;
        }
        for start in self.starts(range) {
            let Some(piece) = self.by_offset.remove(&start) else { continue };
            self.bytes -= piece.len;
            if piece.offset < range.start {
                self.put(piece.cut(&(piece.offset..range.start)));
            }
            if piece.end() > range.end {
                self.put(piece.cut(&(range.end..piece.end())));
            }
        }
    }

    /// Puts a piece in the place of whatever is there.
    pub(crate) fn insert(&mut self, piece: Piece) {
        self.remove(&(piece.offset..piece.end()));
        self.put(piece);
    }

    fn put(&mut self, piece: Piece) {
        self.bytes += piece.len;
        self.by_offset.insert(piece.offset, piece);
    }

    /// What is left of a change was committed in `batch`, where its content lies in `content`.
    pub(crate) fn committed(&mut self, range: &Range<u64>, ticket: u64, batch: u64, content: &Content) {
        for start in self.starts(range) {
            if let Some(piece) = self.by_offset.get_mut(&start).filter(|piece| piece.ticket == ticket) {
                piece.batch = Some(batch);
                // The caller's buffer goes; it may be much larger than the piece.
                piece.content = content.slice(piece.offset - range.start, piece.end() - range.start);
            }
        }
    }

    /// A piece, as it was, is on the back: what is left of it goes.
    pub(crate) fn destaged(&mut self, written: &Range<u64>, ticket: u64) {
        for piece in self.within(written) {
            if piece.ticket == ticket {
                self.remove(&(piece.offset..piece.end()));
            }
        }
    }

    /// The lowest batch that a piece is of.
    pub(crate) fn oldest_batch(&self) -> Option<u64> {
        self.by_offset.values().filter_map(|piece| piece.batch).min()
    }

    /// The windows of `size` bytes that have pieces, in address order.
    pub(crate) fn windows(&self, size: u64) -> Vec<u64> {
        let mut windows: Vec<u64> = Vec::new();
        for piece in self.by_offset.values() {
            let next = windows.last().map_or(0, |last| last + 1);
            windows.extend((piece.offset / size).max(next)..piece.end().div_ceil(size));
        }
        windows
    }
}

#[cfg(test)]
mod tests {
    use aligned_buffer::IoBuf;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The same as an array of bytes with a ticket for each.
        #[test]
        fn pieces_are_as_an_array(steps in proptest::collection::vec((0_u64..200, 1_u64..60, 0_u8..6), 1..80)) {
            let mut pieces = Pieces::default();
            let mut model = vec![(0_u64, 0_u8); 300];
            let mut touched: Vec<(Range<u64>, u64)> = Vec::new();
            for (ticket, (offset, len, what)) in (1_u64..).zip(steps) {
                let range = offset..offset + len;
                let cells = &mut model[offset as usize..(offset + len) as usize];
                match what {
                    0..3 => {
                        let bytes: Vec<u8> = (0..len).map(|at| (at + ticket) as u8).collect();
                        for (cell, byte) in cells.iter_mut().zip(&bytes) {
                            *cell = (ticket, *byte);
                        }
                        let content = Content::Data(IoBuf::copy_from(&bytes).freeze());
                        pieces.insert(Piece { offset, len, ticket, batch: None, content: content.clone() });
                        pieces.committed(&range, ticket, ticket, &content);
                        touched.push((range, ticket));
                    }
                    3 => {
                        cells.fill((ticket, 0));
                        pieces.insert(Piece { offset, len, ticket, batch: Some(ticket), content: Content::Zeroes });
                    }
                    4 => {
                        cells.fill((0, 0));
                        pieces.remove(&range);
                    }
                    _ => {
                        if let Some((range, ticket)) = touched.pop() {
                            pieces.destaged(&range, ticket);
                            model.iter_mut().filter(|cell| cell.0 == ticket).for_each(|cell| *cell = (0, 0));
                        }
                    }
                }
                let mut shown = vec![(0, 0); 300];
                for piece in pieces.within(&(0..300)) {
                    let mut bytes = vec![0; piece.len as usize];
                    piece.content.copy_to(&mut bytes);
                    for (cell, byte) in shown[piece.offset as usize..].iter_mut().zip(bytes) {
                        *cell = (piece.ticket, byte);
                    }
                }
                prop_assert_eq!(&shown, &model);
                prop_assert_eq!(pieces.bytes(), model.iter().filter(|cell| cell.0 != 0).count() as u64);
                prop_assert_eq!(pieces.oldest_batch(), model.iter().map(|cell| cell.0).filter(|ticket| *ticket != 0).min());
                let windows: Vec<u64> = (0..300 / 16 + 1)
                    .filter(|window| model.iter().skip(window * 16).take(16).any(|cell| cell.0 != 0))
                    .map(|window| window as u64)
                    .collect();
                prop_assert_eq!(pieces.windows(16), windows);
            }
        }
    }
}
