//! Reparse points (MS-FSA 2.1.5.10.14, .27, .6).

use std::sync::Arc;

use smb_protocol::NtStatus;
use smb_protocol::access::FileAttributes;
use smb_protocol::directory::CompletionFilter;
use smb_protocol::fscc::notify::NotifyAction;
use smb_protocol::fsctl::reparse::{MAX_REPARSE_BYTES, Reparse, ReparseTag};
use smb_protocol::wire::Wire;

use super::{Answer, CHANGES, done};
use crate::error::{Result, refuse};
use crate::extras::REPARSE_TABLE;
use crate::file_system::Open;

/// Bytes of a reparse point before its data.
const HEAD: usize = 8;
/// Tags that mean "none" (MS-FSCC 2.1.2.1).
const RESERVED_TAGS: u32 = 1;

impl Open {
    pub(super) async fn get_reparse(&self, limit: usize) -> Result<Answer> {
        let Some(mut data) = self.core.reparse_data(self.node.file).await? else {
            return refuse(NtStatus::NOT_A_REPARSE_POINT, "the file is no reparse point");
        };
        if limit < HEAD {
            return refuse(NtStatus::BUFFER_TOO_SMALL, "not even the tag fits");
        }
        if data.len() > limit {
            data.truncate(limit);
            return Ok((NtStatus::BUFFER_OVERFLOW, data));
        }
        done(data)
    }

    pub(super) async fn set_reparse(self: &Arc<Self>, input: &[u8]) -> Result<Answer> {
        self.needs_any(CHANGES, "the open may not change the file")?;
        if input.len() > MAX_REPARSE_BYTES {
            return refuse(NtStatus::IO_REPARSE_DATA_INVALID, "the reparse point is too long");
        }
        let Ok(point) = Reparse::decode(input) else {
            return refuse(NtStatus::IO_REPARSE_DATA_INVALID, "the reparse point is not whole");
        };
        if point.tag().0 <= RESERVED_TAGS {
            return refuse(NtStatus::IO_REPARSE_TAG_INVALID, "a reserved tag");
        }
        if !self.stream.is_empty() {
            return refuse(NtStatus::INVALID_PARAMETER, "a stream is no reparse point");
        }
        self.core.keep_shared(&self.node, &self.caller, NtStatus::INVALID_PARAMETER)?;
        if let Some(old) = self.core.reparse_data(self.node.file).await?
            && ReparseTag::decode(&old).ok() != Some(point.tag())
        {
            return refuse(NtStatus::IO_REPARSE_TAG_MISMATCH, "the file is a reparse point of another kind");
        }
        if self.directory && !self.core.is_empty(self.node.file).await {
            return refuse(NtStatus::DIRECTORY_NOT_EMPTY, "the directory has entries");
        }
        self.store_reparse(Some(input.to_vec())).await
    }

    pub(super) async fn delete_reparse(self: &Arc<Self>, input: &[u8]) -> Result<Answer> {
        self.needs_any(CHANGES, "the open may not change the file")?;
        let Ok(tag) = ReparseTag::decode(input) else {
            return refuse(NtStatus::IO_REPARSE_DATA_INVALID, "the tag is not whole");
        };
        let Some(old) = self.core.reparse_data(self.node.file).await? else {
            return refuse(NtStatus::NOT_A_REPARSE_POINT, "the file is no reparse point");
        };
        if ReparseTag::decode(&old).ok() != Some(tag) {
            return refuse(NtStatus::IO_REPARSE_TAG_MISMATCH, "the file is a reparse point of another kind");
        }
        self.store_reparse(None).await
    }

    async fn store_reparse(self: &Arc<Self>, data: Option<Vec<u8>>) -> Result<Answer> {
        let core = &self.core;
        // The set of all reparse points is complete before it is changed.
        core.is_reparse_point(self.node.file).await?;
        let present = data.is_some();
        core.set_extra(&self.node, REPARSE_TABLE, FileAttributes::REPARSE_POINT, data).await?;
        if let Some(known) = core.reparse.lock().as_mut() {
            if present {
                known.insert(self.node.file);
            } else {
                known.remove(&self.node.file);
            }
        }
        core.watches.tell(&self.node, NotifyAction::MODIFIED, CompletionFilter::ATTRIBUTES);
        self.tell_parent().await;
        done(Vec::new())
    }
}
