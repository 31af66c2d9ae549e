//! Signatures whose bodies follow.

use smb_protocol::fsctl::FsctlCode;
use smb_protocol::NtStatus;
use std::sync::Arc;

use crate::error::Result;
use crate::open::*;
use crate::record::OpenRecord;
use crate::{FileError, FileSystem};

fn later<T>() -> Result<T> {
    Err(FileError::from(NtStatus::NOT_IMPLEMENTED))
}

#[allow(unused_variables, missing_docs, clippy::unused_async, reason = "stub")]
impl FileSystem {
    pub async fn restore(&self, records: Vec<OpenRecord>) -> Vec<Result<Arc<Open>>> {
        Vec::new()
    }
}

#[allow(unused_variables, missing_docs, clippy::unused_async, reason = "stub")]
impl Open {
    pub async fn fsctl(
        &self,
        code: FsctlCode,
        input: &[u8],
        limit: usize,
        others: &dyn OpenLookup,
    ) -> Result<(NtStatus, Vec<u8>)> {
        later()
    }
}
