//! What an open that does not share deletion keeps from others: the size of its stream, and the directories above its file.

use super::state::{ROOT, State, StreamId, error};
use crate::{FileId, StoreError, StoreErrorKind};

impl State {
    /// Whether an open, if it is one, may make the stream as long as that: who does not share deletion keeps the size, too.
    pub(super) fn may_resize(&self, stream: &StreamId, by: Option<u64>, size: u64) -> Result<(), StoreError> {
        let own = by.and_then(|id| self.opens.get(&(stream.0, id))).is_some_and(|open| !open.share.delete);
        let kept = self.opens_of(stream.0).any(|open| open.stream == *stream && !open.share.delete);
        if !own && kept && self.content(stream)?.size != size {
            return Err(error(StoreErrorKind::SharingViolation, "an open keeps the size"));
        }
        Ok(())
    }

    /// The same where a change makes the stream longer.
    pub(super) fn may_reach(&self, stream: &StreamId, by: Option<u64>, end: u64) -> Result<(), StoreError> {
        let size = self.content(stream)?.size;
        self.may_resize(stream, by, size.max(end))
    }

    /// Whether a file or directory may be moved: nobody keeps it, or what lies below it.
    pub(super) fn may_move(&self, file: FileId) -> Result<(), StoreError> {
        self.may_delete(file)?;
        let kept = self.opens.iter().filter(|(_, open)| !open.share.delete);
        for ((kept, _), _) in kept {
            for (parent, _) in &self.node(*kept)?.names {
                let mut above = *parent;
                while above != file && above != ROOT {
                    above = self.node(above)?.parent;
                }
                if above == file {
                    let detail = "an open of a file below does not share deletion";
                    return Err(error(StoreErrorKind::SharingViolation, detail));
                }
            }
        }
        Ok(())
    }
}
