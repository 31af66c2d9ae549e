//! Quotas as a store's callers see them.

use std::sync::Arc;

use file_store::{
    Owner, QuotaEvent, QuotaLimits, QuotaMode, QuotaReport, QuotaSettings, QuotaStore, StoreError,
    StoreErrorKind, StoreFuture,
};

use crate::clusters::ROW;
use crate::database_error::database_error;
use crate::quota_tally::{OwnLimits, TABLE, encode_own, encode_settings};
use crate::session::Session;
use crate::tables::STATE;
use crate::volume::Volume;

fn check(limits: QuotaLimits) -> Result<(), StoreError> {
    if limits.warning != file_store::NO_LIMIT && limits.warning > limits.limit {
        let detail =
            "a warning above the limit would never be given: make the limit larger, or the warning smaller";
        return Err(StoreError::new(StoreErrorKind::InvalidArgument, detail));
    }
    Ok(())
}

impl Session<'_> {
    /// Puts a row of quotas, or takes it away.
    fn put_quota(&mut self, key: &[u8], value: Option<Vec<u8>>) -> Result<(), StoreError> {
        if self.space.quotas.unreadable {
            let detail = "the volume's quotas have what this release cannot read: a newer one has made it, or it is damaged";
            return Err(StoreError::new(StoreErrorKind::Corrupt, detail));
        }
        if value.is_some() {
            self.spend(2 * ROW + key.len() as u64)?;
        }
        let stored = (|| {
            let mut rows = self.txn.open_table(STATE).map_err(database_error)?;
            self.changed |= match value {
                Some(value) => {
                    rows.insert((TABLE, key), value.as_slice()).map_err(database_error)?;
                    true
                }
                None => rows.remove((TABLE, key)).map_err(database_error)?.is_some(),
            };
            Ok(())
        })();
        self.fatal(stored)
    }
}

impl Volume {
    async fn report(&self, of: Option<Owner>) -> Result<QuotaReport, StoreError> {
        self.core.metadata.look(move |session| Ok(session.space.quotas.report(of))).await
    }
}

impl QuotaStore for Volume {
    fn quota_mode(&self) -> QuotaMode {
        self.core.quota_mode.get()
    }

    fn quotas(&self) -> StoreFuture<'_, QuotaReport> {
        Box::pin(self.report(None))
    }

    fn quota_of(&self, owner: Owner) -> StoreFuture<'_, QuotaReport> {
        Box::pin(self.report(Some(owner)))
    }

    fn set_quotas(&self, settings: QuotaSettings) -> StoreFuture<'_, ()> {
        let core = Arc::clone(&self.core);
        Box::pin(async move {
            check(settings.default)?;
            let set = self.core.metadata.change(move |session| {
                // A volume whose quotas are as they are without any has no row of them.
                let row = (settings != QuotaSettings::default()).then(|| encode_settings(&settings));
                session.put_quota(&[], row)?;
                session.space.quotas.set(settings);
                session.space.quotas.tell_all();
                core.quota_mode.show(settings.mode);
                // On this thread, so that it is done also if nobody waits for the answer any more.
                core.count_quotas.notify_one();
                Ok(())
            });
            set.await
        })
    }

    fn set_quota(&self, owner: Owner, limits: Option<QuotaLimits>) -> StoreFuture<'_, ()> {
        let now = self.core.clock.wall().0;
        Box::pin(async move {
            limits.map_or(Ok(()), check)?;
            if limits.is_some() && !owner.can_be_limited() {
                let detail = format!(
                    "{owner} has no limits: what administrators and the machine own is never refused"
                );
                return Err(StoreError::new(StoreErrorKind::InvalidArgument, detail));
            }
            let set = self.core.metadata.change(move |session| {
                if limits.is_some() && !session.space.quotas.has_place(&owner) {
                    let detail = format!("there are limits for {} owners already", file_store::QUOTAS_MAX);
                    return Err(StoreError::new(StoreErrorKind::InvalidArgument, detail));
                }
                let own = limits.map(|limits| OwnLimits { limits, changed: now });
                session.put_quota(owner.bytes(), own.as_ref().map(encode_own))?;
                session.space.quotas.set_own(owner, own);
                session.space.quotas.tell_all();
                Ok(())
            });
            set.await
        })
    }

    fn quota_events(&self) -> StoreFuture<'_, Vec<QuotaEvent>> {
        Box::pin(async move {
            if self.quota_mode() == QuotaMode::Off {
                return Ok(Vec::new());
            }
            let taken = self.core.metadata.look(|session| {
                Ok(session.space.quotas.tally.as_mut().map(|tally| std::mem::take(&mut tally.events)))
            });
            Ok(taken.await?.unwrap_or_default())
        })
    }
}
