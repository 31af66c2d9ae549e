//! SET_INFO about a file (MS-FSA 2.1.5.15).

use std::sync::Arc;

use file_store::{Attributes, InfoChange};
use smb_protocol::NtStatus;
use smb_protocol::access::{AccessMask, CreateOptions, FileAttributes};
use smb_protocol::directory::CompletionFilter;
use smb_protocol::fscc::FileClass;
use smb_protocol::fscc::file::{
    AllocationInformation, BasicInformation, DispositionFlags, DispositionInformation,
    DispositionInformationEx, EndOfFileInformation, ModeInformation, PositionInformation,
    ValidDataLengthInformation,
};
use smb_protocol::fscc::notify::NotifyAction;
use smb_protocol::time::SetTime;
use smb_protocol::wire::Wire;

use crate::error::{FileError, Result, refuse};
use crate::extras::INTERNAL;
use crate::file_system::Open;
use crate::query::MODE;
use crate::times::store_time;

/// Attributes that clients set; the others say what a file is.
const SETTABLE: FileAttributes = FileAttributes(
    FileAttributes::READONLY.0
        | FileAttributes::HIDDEN.0
        | FileAttributes::SYSTEM.0
        | FileAttributes::ARCHIVE.0
        | FileAttributes::TEMPORARY.0
        | FileAttributes::OFFLINE.0
        | FileAttributes::NOT_CONTENT_INDEXED.0,
);
/// Attributes that say what a file is, and stay.
const STAYING: FileAttributes = FileAttributes(
    FileAttributes::SPARSE_FILE.0
        | FileAttributes::REPARSE_POINT.0
        | FileAttributes::INTEGRITY_STREAM.0
        | INTERNAL.0,
);

/// The classes about files that can be set, those that are always refused among them; one that is not listed is refused, whatever
/// the table below says. Tests that go through all of them go by this list.
pub const SET_CLASSES: [FileClass; 14] = [
    FileClass::BASIC,
    FileClass::DISPOSITION,
    FileClass::DISPOSITION_EX,
    FileClass::RENAME,
    FileClass::RENAME_EX,
    FileClass::LINK,
    FileClass::LINK_EX,
    FileClass::END_OF_FILE,
    FileClass::ALLOCATION,
    FileClass::VALID_DATA_LENGTH,
    FileClass::POSITION,
    FileClass::MODE,
    FileClass::FULL_EA,
    FileClass::SHORT_NAME,
];

/// The structure in a buffer.
fn decode<T: Wire>(buffer: &[u8]) -> Result<T> {
    if buffer.len() < T::SIZE {
        return refuse(NtStatus::INFO_LENGTH_MISMATCH, "the buffer is shorter than the class");
    }
    Ok(T::decode(buffer)?)
}

impl Open {
    /// SET_INFO about the file: times, sizes, names, deletion, extended attributes. Renaming waits where another client
    /// caches a handle.
    ///
    /// # Errors
    /// Those of the class.
    pub async fn set_info(
        self: &Arc<Self>,
        class: FileClass,
        buffer: &[u8],
        on_wait: &dyn Fn(bool),
    ) -> Result<()> {
        if self.is_closed() {
            return refuse(NtStatus::FILE_CLOSED, "the file is closed");
        }
        if !SET_CLASSES.contains(&class) {
            return refuse(NtStatus::INVALID_INFO_CLASS, format!("{class:?} cannot be set"));
        }
        match class {
            FileClass::RENAME => return self.rename(buffer, false, on_wait).await,
            FileClass::RENAME_EX => return self.rename(buffer, true, on_wait).await,
            FileClass::LINK => return self.add_name(buffer, false, on_wait).await,
            FileClass::LINK_EX => return self.add_name(buffer, true, on_wait).await,
            _ => {}
        }
        let (open, buffer) = (Arc::clone(self), buffer.to_vec());
        self.change(async move {
            let done = open.set_now(class, &buffer).await;
            // Deletion and position are in the records; who asked may be gone.
            open.node.record_soon(|each| each.stream == open.stream);
            done
        })
        .await
    }

    /// What waits for nobody else.
    async fn set_now(self: &Arc<Self>, class: FileClass, buffer: &[u8]) -> Result<()> {
        match class {
            FileClass::BASIC => self.set_basic(&decode(buffer)?).await,
            FileClass::DISPOSITION => {
                let info: DispositionInformation = decode(buffer)?;
                self.set_disposition(info.delete_pending, false).await
            }
            FileClass::DISPOSITION_EX => self.set_disposition_ex(&decode(buffer)?).await,
            FileClass::END_OF_FILE => {
                let info: EndOfFileInformation = decode(buffer)?;
                self.set_end(not_negative(info.end_of_file)?).await
            }
            FileClass::ALLOCATION => {
                let info: AllocationInformation = decode(buffer)?;
                self.set_allocation(not_negative(info.allocation_size)?).await
            }
            FileClass::VALID_DATA_LENGTH => self.set_valid_data(&decode(buffer)?).await,
            FileClass::POSITION => {
                let info: PositionInformation = decode(buffer)?;
                if info.position > i64::MAX as u64 {
                    return refuse(NtStatus::INVALID_PARAMETER, "a negative position");
                }
                self.state.lock().position = info.position;
                Ok(())
            }
            FileClass::MODE => {
                let info: ModeInformation = decode(buffer)?;
                // What the open was made with cannot be taken back (MS-FSA 2.1.5.15.8).
                if !MODE.without(CreateOptions::DELETE_ON_CLOSE).contains(info.mode) {
                    return refuse(NtStatus::INVALID_PARAMETER, "no mode of an open");
                }
                self.state.lock().mode = info.mode;
                Ok(())
            }
            FileClass::FULL_EA => self.set_ea(buffer).await,
            FileClass::SHORT_NAME => refuse(NtStatus::NOT_SUPPORTED, "short names follow from the long ones"),
            _ => refuse(NtStatus::INVALID_INFO_CLASS, format!("{class:?} cannot be set")),
        }
    }

    async fn set_basic(self: &Arc<Self>, basic: &BasicInformation) -> Result<()> {
        self.needs(AccessMask::WRITE_ATTRIBUTES, "the open may not write attributes")?;
        let times = [basic.creation_time, basic.last_access_time, basic.last_write_time, basic.change_time];
        let mut asked = [SetTime::Keep; 4];
        for (place, time) in asked.iter_mut().zip(times) {
            let wanted = time.to_set();
            *place = wanted.ok_or_else(|| FileError::new(NtStatus::INVALID_PARAMETER, "no time"))?;
        }
        let [created, accessed, written, changed] = asked;
        self.node.show_write_time();
        let info = self.core.info(&self.node).await?;
        let attributes = self.new_attributes(basic.attributes, FileAttributes(info.attributes.0))?;
        let set = |time: SetTime| match time {
            SetTime::To(time) => Some(store_time(time)),
            _ => None,
        };
        // A time that is frozen, or was set through this open, is not moved by it any more (MS-FSA 2.1.5.15.2).
        let sticky = |time: SetTime, now: u64, old: Option<u64>| match time {
            SetTime::To(time) => Some(store_time(time)),
            SetTime::Freeze => Some(old.unwrap_or(now)),
            SetTime::Thaw => None,
            SetTime::Keep => old,
        };
        let keep_changed = {
            let mut state = self.state.lock();
            let old = state.sticky;
            state.sticky.created = matches!(created, SetTime::To(_) | SetTime::Freeze);
            state.sticky.accessed = matches!(accessed, SetTime::To(_) | SetTime::Freeze);
            state.sticky.written = sticky(written, info.times.written, old.written);
            state.sticky.changed = sticky(changed, info.times.changed, old.changed);
            state.sticky.changed
        };
        let change = InfoChange {
            attributes: attributes.map(|attributes| Attributes(attributes.0)),
            created: set(created),
            accessed: set(accessed),
            written: set(written),
            changed: set(changed).or(keep_changed),
        };
        let nothing = change.attributes.is_none()
            && [change.created, change.accessed, change.written, set(changed)].iter().all(Option::is_none);
        if nothing {
            return Ok(());
        }
        self.store().set_info(self.node.file, change).await?;
        self.node.touched();
        let mut filter = CompletionFilter::NONE;
        for (changed, bit) in [
            (change.attributes.is_some(), CompletionFilter::ATTRIBUTES),
            (change.created.is_some(), CompletionFilter::CREATION),
            (change.accessed.is_some(), CompletionFilter::LAST_ACCESS),
            (change.written.is_some(), CompletionFilter::LAST_WRITE),
        ] {
            if changed {
                filter |= bit;
            }
        }
        self.core.watches.tell(&self.node, NotifyAction::MODIFIED, filter);
        self.tell_parent().await;
        Ok(())
    }

    /// The file's attributes when a client sets these; 0 leaves them.
    fn new_attributes(&self, asked: FileAttributes, old: FileAttributes) -> Result<Option<FileAttributes>> {
        if asked.is_empty() {
            return Ok(None);
        }
        if asked.contains(FileAttributes::DIRECTORY) && !self.node.is_directory() {
            return refuse(NtStatus::INVALID_PARAMETER, "a file is no directory");
        }
        if asked.contains(FileAttributes::TEMPORARY) && self.node.is_directory() {
            return refuse(NtStatus::INVALID_PARAMETER, "a temporary directory");
        }
        let new = (asked & SETTABLE) | (old & STAYING);
        Ok((new != old).then_some(new))
    }

    async fn set_disposition_ex(self: &Arc<Self>, info: &DispositionInformationEx) -> Result<()> {
        let delete = info.flags.contains(DispositionFlags::DELETE);
        let ignore_read_only = info.flags.contains(DispositionFlags::IGNORE_READONLY_ATTRIBUTE);
        if !info.flags.contains(DispositionFlags::ON_CLOSE) {
            return self.set_disposition(delete, ignore_read_only).await;
        }
        self.check_disposition(delete, ignore_read_only).await?;
        self.state.lock().delete_on_close = delete;
        Ok(())
    }

    /// Whether the open may ask for that, and what is there may go.
    async fn check_disposition(&self, delete: bool, ignore_read_only: bool) -> Result<()> {
        self.needs(AccessMask::DELETE, "the open may not delete")?;
        if !delete {
            return Ok(());
        }
        let attributes = FileAttributes(self.core.info(&self.node).await?.attributes.0);
        self.core
            .check_deletion(&self.caller, &self.node, &self.stream, attributes, ignore_read_only)
            .await?;
        if self.directory && !self.core.is_empty(self.node.file).await {
            return refuse(NtStatus::DIRECTORY_NOT_EMPTY, "the directory has entries");
        }
        Ok(())
    }

    /// Whether the file goes with its last open (MS-FSA 2.1.5.15.3).
    async fn set_disposition(self: &Arc<Self>, delete: bool, ignore_read_only: bool) -> Result<()> {
        self.check_disposition(delete, ignore_read_only).await?;
        if !delete {
            let mut state = self.node.state.lock();
            if self.stream.is_empty() {
                self.node.name.stays();
            } else {
                let stream = state.stream(&self.stream);
                (stream.delete_pending, stream.delete_durably) = (false, false);
            }
            return Ok(());
        }
        self.core.give_up_handles(&self.node, &self.stream, &self.by()).await;
        self.core.mark_deleted(self).await;
        Ok(())
    }

    async fn set_end(self: &Arc<Self>, end: u64) -> Result<()> {
        if self.directory {
            return refuse(NtStatus::INVALID_PARAMETER, "a directory has no size");
        }
        self.needs(AccessMask::WRITE_DATA, "the open may not write")?;
        self.core.break_for_change(&self.node, &self.stream, &self.by()).await?;
        let data = self.data()?;
        let old = data.size();
        self.node.data_changes();
        data.set_size(end).await?;
        self.core.data_changed(self, old != end).await;
        self.tell_parent().await;
        Ok(())
    }

    async fn set_allocation(self: &Arc<Self>, bytes: u64) -> Result<()> {
        if self.directory {
            return refuse(NtStatus::INVALID_PARAMETER, "a directory has no allocation");
        }
        self.needs(AccessMask::WRITE_DATA, "the open may not write")?;
        self.core.break_for_change(&self.node, &self.stream, &self.by()).await?;
        let data = self.data()?;
        if bytes >= data.size() {
            data.allocate(0, bytes, false).await?;
            self.node.show_write_time();
            self.node.touched();
            return Ok(());
        }
        // Less than there is cuts the file (MS-FSA 2.1.5.15.1).
        self.node.data_changes();
        data.set_size(bytes).await?;
        self.core.data_changed(self, true).await;
        self.tell_parent().await;
        Ok(())
    }

    /// What is beyond the valid length reads as zeros here, so there is nothing to show to anybody: a right of
    /// administrators that does nothing (MS-FSA 2.1.5.15.14).
    async fn set_valid_data(&self, info: &ValidDataLengthInformation) -> Result<()> {
        self.needs(AccessMask::WRITE_DATA, "the open may not write")?;
        let valid = not_negative(info.valid_data_length)?;
        if !self.caller.token.is_admin {
            return refuse(NtStatus::PRIVILEGE_NOT_HELD, "the valid length is set by administrators only");
        }
        let (size, _) = self.core.stream_size(self).await?;
        if valid > size {
            return refuse(NtStatus::INVALID_PARAMETER, "a valid length beyond the end");
        }
        Ok(())
    }

    /// The listing that has this file in it changed.
    pub(crate) async fn tell_parent(&self) {
        if let Some((parent, _)) = self.node.place() {
            self.core.listing_changed(&parent, Some(self)).await;
        }
    }
}

fn not_negative(value: i64) -> Result<u64> {
    match u64::try_from(value) {
        Ok(value) => Ok(value),
        Err(_) => refuse(NtStatus::INVALID_PARAMETER, "a negative size"),
    }
}
