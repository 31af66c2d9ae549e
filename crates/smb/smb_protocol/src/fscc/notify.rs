//! FILE_NOTIFY_INFORMATION: what changed in a directory (MS-FSCC 2.7.1).

use crate::fscc::entries::{EntryWriter, entries};
use crate::utf16::{Utf16, put_utf16, take_name};
use crate::wire::{DecodeError, Reader, Wire};

named_values! {
    /// What happened.
    pub struct NotifyAction(u32) {
        ADDED = 0x0000_0001,
        REMOVED = 0x0000_0002,
        MODIFIED = 0x0000_0003,
        RENAMED_OLD_NAME = 0x0000_0004,
        RENAMED_NEW_NAME = 0x0000_0005,
        ADDED_STREAM = 0x0000_0006,
        REMOVED_STREAM = 0x0000_0007,
        MODIFIED_STREAM = 0x0000_0008,
        REMOVED_BY_DELETE = 0x0000_0009,
        ID_NOT_TUNNELLED = 0x0000_000a,
        TUNNELLED_ID_COLLISION = 0x0000_000b,
    }
}

/// A list of changes in `out`, of at most `limit` bytes. When not all fit, the server answers NOTIFY_ENUM_DIR instead.
pub fn notify_writer(out: &mut Vec<u8>, limit: usize) -> EntryWriter<'_> {
    EntryWriter::new(out, limit, 4)
}

/// Appends a change; says whether it fitted.
pub fn push_change(list: &mut EntryWriter<'_>, action: NotifyAction, name: &str) -> bool {
    list.push(|out| {
        action.put(out);
        ((name.encode_utf16().count() * 2) as u32).put(out);
        put_utf16(name, out);
    })
}

/// The changes: what happened, and the path relative to the directory.
pub fn changes(bytes: &[u8]) -> impl Iterator<Item = Result<(NotifyAction, Utf16<'_>), DecodeError>> {
    entries(bytes).map(|entry| {
        let mut r = Reader::new(entry?);
        r.u32()?;
        let action = NotifyAction::take(&mut r)?;
        let len = r.u32()? as usize;
        Ok((action, take_name(&mut r, len)?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_there_and_back() {
        let mut out = Vec::new();
        let mut list = notify_writer(&mut out, 64);
        assert!(push_change(&mut list, NotifyAction::RENAMED_OLD_NAME, "old"));
        assert!(push_change(&mut list, NotifyAction::RENAMED_NEW_NAME, "sub\\new"));
        assert!(!push_change(&mut list, NotifyAction::ADDED, "no room any more"));
        let found: Vec<_> = changes(&out).map(Result::unwrap).collect();
        assert_eq!(found[0].0, NotifyAction::RENAMED_OLD_NAME);
        assert_eq!(found[1].1.to_string().unwrap(), "sub\\new");
        for cut in 1..out.len() {
            assert!(changes(&out[..cut]).any(|change| change.is_err()));
        }
    }
}
