//! Steps of one length: the segments that they are in, which of them is added to, and which go.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::segment::{Frames, HEADER, MAX_NAMES, Names, frame, header, read_header};
use crate::step::Step;

/// Files are the node's own: names of users and clients are in them.
const FILE_MODE: u32 = 0o600;
/// What is added to the name of a file that cannot be used.
const ASIDE: &str = "damaged";
/// What could not be written is kept up to this many bytes, and lost then.
const MAX_UNWRITTEN: usize = 16 << 20;

/// How much is kept of steps of one length.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The length of a step in seconds.
    pub seconds: u32,
    /// A segment is ended after so many steps; by then it may be one more than `segments`.
    pub steps: usize,
    /// So many ended segments are kept.
    pub segments: usize,
    /// All segments together have at most so many bytes, but for the one that is added to.
    pub bytes: u64,
    /// Things of each kind that are stored by themselves in a step, the busiest.
    pub things: usize,
    /// QoS policies that are stored by themselves in a step, and as many flows: those that were held back for longest.
    pub flows: usize,
}

/// A segment that is on a file, or will be.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    number: u64,
    pub(crate) path: PathBuf,
    /// Bytes of it on the file.
    pub(crate) bytes: u64,
    /// When its first step ends.
    pub(crate) first_ms: u64,
}

/// Steps of one length.
#[derive(Debug)]
pub(crate) struct Level {
    pub(crate) limits: Limits,
    dir: PathBuf,
    prefix: &'static str,
    /// From the oldest on. The last is added to while `open` is there.
    segments: VecDeque<Segment>,
    open: Option<OpenSegment>,
    next: u64,
}

#[derive(Debug, Default)]
struct OpenSegment {
    names: Names,
    steps: usize,
    /// What is not on its file yet.
    unwritten: Vec<u8>,
}

/// What there is to read at a moment.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) seconds: u32,
    pub(crate) segments: Vec<Segment>,
    /// What follows the last segment's bytes and is not on its file.
    pub(crate) unwritten: Vec<u8>,
}

impl Level {
    /// Finds what is there. Files that cannot be used are set aside by name; returned are sentences about them.
    pub(crate) fn open(
        dir: &Path,
        prefix: &'static str,
        limits: Limits,
        told: &mut Vec<String>,
    ) -> io::Result<Self> {
        let mut segments = Vec::new();
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let number = name.strip_prefix(prefix).and_then(|rest| rest.strip_suffix(".history"));
            let number = number.and_then(|number| number.parse::<u64>().ok());
            // There has to be one after it.
            let Some(number) = number.filter(|number| *number < u64::MAX / 2) else { continue };
            match head(&path, &limits) {
                Ok((bytes, first_ms)) => segments.push(Segment { number, path, bytes, first_ms }),
                Err(why) => {
                    let aside = path.with_extension(ASIDE);
                    fs::rename(&path, &aside)?;
                    told.push(format!("{} {why}; it is {} now", path.display(), aside.display()));
                }
            }
        }
        segments.sort_by_key(|segment| segment.number);
        let next = segments.last().map_or(0, |segment| segment.number.saturating_add(1));
        let open = segments.last().and_then(|segment| resume(segment, &limits));
        let segments = VecDeque::from(segments);
        Ok(Self { limits, dir: dir.to_owned(), prefix, segments, open, next })
    }

    /// Adds a step; it is on a file after the next [`Level::write`].
    pub(crate) fn add(&mut self, mut step: Step) {
        step.keep_busiest(self.limits.things, self.limits.flows);
        let room = self.limits.bytes / 8;
        let last = self.segments.back().map_or(0, |segment| segment.bytes);
        let full = |open: &OpenSegment| {
            open.steps >= self.limits.steps
                || open.names.len() + step.things.len() > MAX_NAMES
                || last + open.unwritten.len() as u64 >= room
        };
        // What is not written yet belongs to the segment that is open; it ends when all of it is.
        if self.open.as_ref().is_none_or(|open| full(open) && open.unwritten.is_empty()) {
            let (number, first_ms) = (self.next, step.wall_ms);
            self.next += 1;
            let path = self.dir.join(format!("{}{number:08}.history", self.prefix));
            self.segments.push_back(Segment { number, path, bytes: 0, first_ms });
            let unwritten = header(self.limits.seconds, first_ms);
            self.open = Some(OpenSegment { unwritten, ..OpenSegment::default() });
        }
        let Some(open) = &mut self.open else { return };
        if open.unwritten.len() > MAX_UNWRITTEN {
            return;
        }
        if let Some(frame) = frame(&step, &mut open.names) {
            open.unwritten.extend(frame);
            open.steps += 1;
        }
    }

    /// Lets old segments go, and puts what was added on its file: in this order, since a full disk has room again then.
    ///
    /// # Errors
    /// Those of the file system; it is tried again with the next step, up to a limit.
    pub(crate) fn write(&mut self) -> io::Result<()> {
        let gone = self.let_old_go();
        let (Some(open), Some(segment)) = (&mut self.open, self.segments.back_mut()) else { return gone };
        if !open.unwritten.is_empty() {
            let mut file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .mode(FILE_MODE)
                .open(&segment.path)?;
            // What an earlier try wrote of this is written once more, at the same place.
            put(&mut file, segment.bytes, &open.unwritten)?;
            segment.bytes += open.unwritten.len() as u64;
            open.unwritten.clear();
        }
        gone
    }

    fn let_old_go(&mut self) -> io::Result<()> {
        let sum = |segments: &VecDeque<Segment>| segments.iter().map(|segment| segment.bytes).sum::<u64>();
        while self.segments.len() > self.limits.segments + 1
            || (self.segments.len() > 1 && sum(&self.segments) > self.limits.bytes)
        {
            let Some(oldest) = self.segments.front() else { break };
            match fs::remove_file(&oldest.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => drop(self.segments.pop_front()),
            }
        }
        Ok(())
    }

    pub(crate) fn kept(&self) -> Kept {
        Kept {
            seconds: self.limits.seconds,
            segments: self.segments.iter().cloned().collect(),
            unwritten: self.open.as_ref().map(|open| open.unwritten.clone()).unwrap_or_default(),
        }
    }
}

fn put(file: &mut File, at: u64, bytes: &[u8]) -> io::Result<()> {
    use std::io::Seek as _;
    file.seek(io::SeekFrom::Start(at))?;
    file.write_all(bytes)
}

/// The bytes of a segment and when it begins, or why it is none.
fn head(path: &Path, limits: &Limits) -> Result<(u64, u64), String> {
    use std::io::Read as _;
    let read = || {
        let mut file = File::open(path)?;
        let mut head = Vec::with_capacity(HEADER);
        let len = file.metadata()?.len();
        (&mut file).take(HEADER as u64).read_to_end(&mut head)?;
        io::Result::Ok((len, head))
    };
    let (len, head) = read().map_err(|error| format!("cannot be read: {error}"))?;
    match read_header(&head) {
        Ok(_) if len > limits.bytes.saturating_mul(2) => {
            Err(format!("has {len} bytes, which none was given"))
        }
        Ok((found, first_ms)) if found == limits.seconds => Ok((len, first_ms)),
        Ok((found, _)) => Err(format!("has steps of {found} seconds in place of {}", limits.seconds)),
        Err(error) => Err(error.to_string()),
    }
}

/// The last segment, to be added to; `None` when it has all its steps, or does not end as it was written.
fn resume(segment: &Segment, limits: &Limits) -> Option<OpenSegment> {
    if segment.bytes > limits.bytes {
        return None;
    }
    let bytes = fs::read(&segment.path).ok()?;
    let mut frames = Frames::new(bytes.get(HEADER..)?);
    let mut open = OpenSegment::default();
    while frames.next().ok()?.is_some() {
        open.steps += 1;
    }
    if open.steps >= limits.steps {
        return None;
    }
    for name in frames.names() {
        // A name of a kind that a later release knows has a number, too, which nothing here says.
        let (kind, name) = name.as_ref()?;
        open.names.know(*kind, name);
    }
    (open.names.len() == frames.names().len()).then_some(open)
}
