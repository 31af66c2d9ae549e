//! Signatures whose bodies follow.

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

