//! Who reads sequentially, and how far ahead of them to read. No I/O, no time.
//!
//! Several streams at once are followed on a device: each remembers where its next read should begin. A read that begins
//! there, or a little before or behind (readers keep several reads in flight, and they overtake each other), belongs to it.
//! When less than half a window is left in front of a stream, the next window is read; with [`ReadAhead::Adaptive`] it grows
//! from stream to stream as long as what is read ahead is used, and the device's ceiling halves when much is not.

use std::ops::Range;

/// The longest window, in bytes.
pub const MAX_WINDOW: u64 = 8 << 20;
/// The window that an adaptive stream begins with, in bytes.
const FIRST_WINDOW: u64 = 128 << 10;
/// The least that the adaptive ceiling falls to, in bytes.
const LEAST_CEILING: u64 = 64 << 10;
/// Where the adaptive ceiling begins, in bytes.
const FIRST_CEILING: u64 = 2 << 20;
/// Streams followed at once on a device; the one that was longest silent gives way.
const STREAMS: usize = 16;
/// How far a read may be from where its stream expects it, in bytes.
const SLACK: u64 = 256 << 10;
/// Reads that must have followed a stream's first one before it is believed.
const SURE_READS: u32 = 2;
/// Reads of the device after which a stream that met none of them has ended: else random reads near each other would, in
/// time, look like one.
const RECENT: u64 = 64;
/// Pages whose fate must be known before the ceiling is judged again.
const VERDICT_PAGES: u64 = 256;

/// How a device is read ahead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadAhead {
    /// Nothing is read ahead.
    #[default]
    None,
    /// This many bytes are read in front of each sequential stream, at most [`MAX_WINDOW`].
    Fixed(u64),
    /// The window of each stream grows while what was read ahead is used.
    Adaptive,
}

#[derive(Clone, Copy, Debug)]
struct Stream {
    /// Where the next read should begin.
    next: u64,
    /// Up to where it has been read ahead.
    ahead: u64,
    window: u64,
    /// Reads that followed one another.
    reads: u32,
    /// When it was last met.
    met: u64,
}

/// The streams of one device.
#[derive(Debug)]
pub(crate) struct Streams {
    streams: Vec<Stream>,
    clock: u64,
    ceiling: u64,
    /// Pages used and wasted when the ceiling was last judged.
    judged: (u64, u64),
}

impl Default for Streams {
    fn default() -> Self {
        Self { streams: Vec::new(), clock: 0, ceiling: FIRST_CEILING, judged: (0, 0) }
    }
}

impl Streams {
    /// A reader asks for `read`; what to read ahead for it. No window is longer than `room` bytes; `used`
    /// and `wasted` count pages since the beginning.
    pub(crate) fn note(
        &mut self,
        mode: ReadAhead,
        read: &Range<u64>,
        room: u64,
        (used, wasted): (u64, u64),
    ) -> Option<Range<u64>> {
        if mode == ReadAhead::None || read.is_empty() {
            return None;
        }
        self.clock += 1;
        self.judge(used, wasted);
        let clock = self.clock;
        let near =
            |stream: &&mut Stream| stream.next.abs_diff(read.start) <= SLACK && clock - stream.met <= RECENT;
        let most = match mode {
            ReadAhead::Fixed(window) => window.min(MAX_WINDOW),
            _ => self.ceiling,
        }
        .min(room);
        let Some(stream) =
            self.streams.iter_mut().filter(near).min_by_key(|stream| stream.next.abs_diff(read.start))
        else {
            self.begin(read.end, mode, most);
            return None;
        };
        stream.met = clock;
        if read.end <= stream.next {
            // An earlier part, overtaken or read again.
            return None;
        }
        stream.next = read.end;
        stream.reads = stream.reads.saturating_add(1);
        stream.ahead = stream.ahead.max(stream.next);
        stream.window = stream.window.min(most);
        if stream.reads < SURE_READS || stream.ahead - stream.next > stream.window / 2 {
            return None;
        }
        let start = stream.ahead;
        stream.ahead = start.saturating_add(stream.window);
        let window = start..stream.ahead;
        if mode == ReadAhead::Adaptive {
            stream.window = (stream.window * 2).min(most);
        }
        (!window.is_empty()).then_some(window)
    }

    fn begin(&mut self, next: u64, mode: ReadAhead, most: u64) {
        let window = if mode == ReadAhead::Adaptive { FIRST_WINDOW.min(most) } else { most };
        let stream = Stream { next, ahead: next, window, reads: 0, met: self.clock };
        if self.streams.len() < STREAMS {
            self.streams.push(stream);
        } else if let Some(oldest) = self.streams.iter_mut().min_by_key(|stream| stream.met) {
            *oldest = stream;
        }
    }

    /// Halves the ceiling when more than a fifth of what was read ahead lately was not used, else lets it rise.
    fn judge(&mut self, used: u64, wasted: u64) {
        let (more_used, more_wasted) =
            (used.saturating_sub(self.judged.0), wasted.saturating_sub(self.judged.1));
        if more_used + more_wasted < VERDICT_PAGES {
            return;
        }
        self.judged = (used, wasted);
        self.ceiling = if more_wasted * 4 > more_used {
            (self.ceiling / 2).max(LEAST_CEILING)
        } else {
            (self.ceiling * 2).min(MAX_WINDOW)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;

    fn read(streams: &mut Streams, mode: ReadAhead, offset: u64) -> Option<Range<u64>> {
        streams.note(mode, &(offset..offset + 64 * KIB), MAX_WINDOW, (0, 0))
    }

    #[test]
    fn a_stream_is_read_ahead_without_gaps_and_its_window_grows() {
        let mut streams = Streams::default();
        let mut ahead = None;
        let mut longest = 0;
        for at in 0..200 {
            let Some(window) = read(&mut streams, ReadAhead::Adaptive, at * 64 * KIB) else { continue };
            if let Some(end) = ahead {
                assert_eq!(window.start, end, "no gap and nothing twice");
            }
            assert!(window.start >= (at + 1) * 64 * KIB);
            longest = longest.max(window.end - window.start);
            ahead = Some(window.end);
        }
        assert_eq!(longest, FIRST_CEILING);
        assert!(ahead.expect("read ahead") > 200 * 64 * KIB);
    }

    #[test]
    fn random_reads_and_no_mode_read_nothing_ahead() {
        let mut streams = Streams::default();
        let mut at: u64 = 1;
        for _ in 0..1000 {
            at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            assert_eq!(read(&mut streams, ReadAhead::Adaptive, (at >> 20) << 16), None);
        }
        for at in 0..10 {
            assert_eq!(read(&mut streams, ReadAhead::None, at * 64 * KIB), None);
        }
        assert_eq!(
            Streams::default().note(ReadAhead::Adaptive, &(u64::MAX - 1..u64::MAX), MAX_WINDOW, (0, 0)),
            None
        );
    }

    #[test]
    fn several_streams_are_followed_at_once_and_out_of_order() {
        let mut streams = Streams::default();
        let mut windows = [0; 8];
        for at in 0..40_u64 {
            for (number, windows) in windows.iter_mut().enumerate() {
                // Pairs of reads change places.
                let place = (number as u64) << 36 | ((at ^ 1) * 64 * KIB);
                *windows += u32::from(read(&mut streams, ReadAhead::Fixed(256 * KIB), place).is_some());
            }
        }
        assert!(windows.iter().all(|windows| *windows >= 5), "{windows:?}");
    }

    #[test]
    fn waste_shrinks_the_window_and_use_lets_it_grow() {
        let mut streams = Streams::default();
        let (mut used, mut wasted, mut at) = (0, 0, 0);
        let mut longest = |streams: &mut Streams, used: u64, wasted: u64| {
            let mut longest = 0;
            for _ in 0..200 {
                at += 64 * KIB;
                let window =
                    streams.note(ReadAhead::Adaptive, &(at - 64 * KIB..at), MAX_WINDOW, (used, wasted));
                longest = window.map_or(longest, |window| longest.max(window.end - window.start));
            }
            longest
        };
        let before = longest(&mut streams, used, wasted);
        for _ in 0..8 {
            wasted += VERDICT_PAGES;
            longest(&mut streams, used, wasted);
        }
        let shrunk = longest(&mut streams, used, wasted);
        assert!(shrunk < before && shrunk == LEAST_CEILING, "{shrunk} {before}");
        for _ in 0..16 {
            used += VERDICT_PAGES;
            longest(&mut streams, used, wasted);
        }
        assert_eq!(longest(&mut streams, used, wasted), MAX_WINDOW);
    }
}
