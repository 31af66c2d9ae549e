//! What the enumerations have in common: a level, a container to fill, how much, and where to go on.
//!
//! ```text
//!   in    Level, switch, pointer to container {count, pointer to array}, … PreferedMaximumLength, ResumeHandle
//!   out   Level, switch, pointer to container {count, pointer to array}, TotalEntries, ResumeHandle, what is returned
//! ```
//! A resume handle is the position in the list, which is in a fixed order; entries that come or go meanwhile may be missed
//! or seen twice, as on Windows.

use crate::error::Win32;
use crate::ndr::{BadStub, NdrIn, NdrOut};

/// The most that one answer holds, whatever the client prefers.
const BYTES_MAX: usize = 1 << 20;

/// The begin of the arguments: the structure to fill.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    level: u32,
    /// Whether the union has something for this level.
    known: bool,
    /// Whether there is a container.
    container: bool,
}

impl Wanted {
    /// Decodes a request; `levels` are those that the union of this operation knows, whether or not they are answered.
    pub(crate) fn take(r: &mut NdrIn<'_>, levels: &[u32]) -> Result<Self, BadStub> {
        let (level, switch) = (r.u32()?, r.u32()?);
        if level != switch {
            return Err(BadStub);
        }
        let known = levels.contains(&level);
        // Nothing follows where the union has nothing.
        let container = known && r.pointer()?;
        if container {
            r.u32()?;
            // The container of a request is empty: who fills it would have to say what for.
            if r.pointer()? && r.u32()? != 0 {
                return Err(BadStub);
            }
        }
        Ok(Self { level, known, container })
    }

    pub(crate) fn level(&self) -> u32 {
        self.level
    }
}

/// The end of the arguments: how much, and from where on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    preferred: u32,
    resume: Option<u32>,
}

impl Extent {
    pub(crate) fn take(r: &mut NdrIn<'_>) -> Result<Self, BadStub> {
        let preferred = r.u32()?;
        let resume = if r.pointer()? { Some(r.u32()?) } else { None };
        Ok(Self { preferred, resume })
    }
}

impl Extent {
    /// Whether the client wants to be told where to go on.
    pub(crate) fn is_resumed(self) -> bool {
        self.resume.is_some()
    }
}

/// An entry's fixed part and strings.
pub(crate) trait Entry {
    /// Appends it at a level that was checked.
    fn put(&self, level: u32, out: &mut NdrOut);

    /// About how many bytes that takes.
    fn size(&self, level: u32) -> usize;
}

/// Bytes of strings in memory of the client: what PreferedMaximumLength counts, with some for the fixed part.
pub(crate) fn size_of(strings: &[&str]) -> usize {
    48 + strings.iter().map(|text| text.len() * 2 + 2).sum::<usize>()
}

/// The results.
pub(crate) fn answer<T: Entry>(wanted: Wanted, extent: Extent, entries: Result<Vec<T>, Win32>) -> NdrOut {
    let level = wanted.level;
    let entries = match entries {
        _ if !wanted.known => Err(Win32::INVALID_LEVEL),
        Ok(_) if !wanted.container => Err(Win32::INVALID_PARAMETER),
        entries => entries,
    };
    let mut out = NdrOut::new();
    out.u32(level);
    out.u32(level);
    if wanted.known {
        out.pointer(wanted.container);
    }
    let all = entries.as_deref().unwrap_or_default();
    let start = usize::try_from(extent.resume.unwrap_or(0)).unwrap_or(usize::MAX);
    let rest = all.get(start..).unwrap_or_default();
    let limit = usize::try_from(extent.preferred).unwrap_or(usize::MAX).min(BYTES_MAX);
    let mut bytes = 0;
    // At least one: a client that prefers less than that would never get further.
    let fits = rest
        .iter()
        .enumerate()
        .take_while(|(at, entry)| {
            bytes += entry.size(level);
            *at == 0 || bytes <= limit
        })
        .count();
    let page = rest.get(..fits).unwrap_or_default();
    if wanted.container {
        out.count(page.len());
        out.pointer(!page.is_empty());
        if !page.is_empty() {
            out.array(page, |out, entry| entry.put(level, out));
        }
    }
    let more = page.len() < rest.len();
    out.count(rest.len());
    out.pointer(extent.resume.is_some());
    if extent.resume.is_some() {
        out.count(if more { start + page.len() } else { 0 });
    }
    out.win32(match entries {
        Err(error) => error,
        Ok(_) if more => Win32::MORE_DATA,
        Ok(_) => Win32::SUCCESS,
    });
    out
}
