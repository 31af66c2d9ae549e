//! QUERY_INFO and SET_INFO about security (MS-FSA 2.1.5.13, 2.1.5.17).

use std::sync::Arc;

use smb_protocol::NtStatus;
use smb_protocol::access::AccessMask;
use smb_protocol::directory::CompletionFilter;
use smb_protocol::fscc::notify::NotifyAction;
use smb_protocol::info::SecurityInformation;
use smb_protocol::security::SecurityDescriptor;
use smb_security::{ChangeError, merge, replaces, required_to_query, required_to_set};

use crate::api::Caller;
use crate::error::{Detail, FileError, Result, refuse};
use crate::file_system::Open;

impl Open {
    /// What somebody may do with the file at most, whatever this open may.
    ///
    /// # Errors
    /// When the descriptor cannot be read.
    pub(crate) async fn maximal_access(&self, caller: &Caller) -> Result<AccessMask> {
        let security = self.core.security(&self.node).await?;
        Ok(smb_security::maximal(&security, &caller.token) & caller.share.maximal_access)
    }

    /// The parts of the security descriptor that are asked for.
    ///
    /// # Errors
    /// ACCESS_DENIED; BUFFER_TOO_SMALL with the needed length as detail.
    pub async fn query_security(
        &self,
        wanted: SecurityInformation,
        limit: usize,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        self.needs(required_to_query(wanted), "the open may not read these parts of the descriptor")?;
        let security = self.core.security(&self.node).await?;
        let bytes = security.select(wanted).encode();
        if bytes.len() > limit {
            let error = FileError::new(NtStatus::BUFFER_TOO_SMALL, "the descriptor does not fit");
            return Err(error.with(Detail::Needed(bytes.len() as u32)));
        }
        out.extend_from_slice(&bytes);
        Ok(())
    }

    /// Replaces parts of the security descriptor.
    ///
    /// # Errors
    /// ACCESS_DENIED, INVALID_SECURITY_DESCR, INVALID_OWNER.
    pub async fn set_security(self: &Arc<Self>, parts: SecurityInformation, descriptor: &[u8]) -> Result<()> {
        self.needs(required_to_set(parts), "the open may not change these parts of the descriptor")?;
        let new = SecurityDescriptor::decode(descriptor).map_err(|error| {
            let reason = format!("the security descriptor cannot be read: {error}");
            FileError::new(NtStatus::INVALID_SECURITY_DESCR, reason)
        })?;
        if !replaces(parts) {
            return Ok(());
        }
        let old = self.core.security(&self.node).await?;
        let merged = merge(&old, &new, parts, &self.caller.token).map_err(|error| match error {
            ChangeError::Owner => {
                FileError::new(NtStatus::INVALID_OWNER, "the user may not make that the owner")
            }
            ChangeError::Missing => {
                FileError::new(NtStatus::INVALID_SECURITY_DESCR, "the descriptor lacks what is to be set")
            }
        })?;
        let bytes = merged.encode();
        if bytes.len() > file_store::SECURITY_MAX {
            return refuse(NtStatus::INVALID_SECURITY_DESCR, "the security descriptor is too long");
        }
        let open = Arc::clone(self);
        self.change(async move {
            open.store().set_security(open.node.file, bytes).await?;
            open.node.forget();
            open.core.watches.tell(&open.node, NotifyAction::MODIFIED, CompletionFilter::SECURITY);
            open.tell_parent().await;
            Ok(())
        })
        .await
    }
}
