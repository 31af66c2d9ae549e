//! Quotas of volumes: names for the SIDs that a store knows its owners by, and what happens told in the log.

use std::cmp::Reverse;

use control_api::{
    Code, OwnerQuota, Problem, QuotaLimits, QuotaMode, QuotaUpdate, VolumeQuotas, human_bytes,
};
use file_store::{
    FileStore, NO_LIMIT, Owner, QuotaEntry, QuotaLevel, QuotaLimits as Limits, QuotaMode as StoreMode,
    QuotaReport, QuotaSettings, QuotaStore,
};
use smb_protocol::security::Sid;
use smb_users::PrincipalKind;

use super::Node;
use crate::files::problem;

fn with_quotas(store: &dyn FileStore) -> Result<&dyn QuotaStore, Problem> {
    let none = || Problem::new(Code::InvalidRequest, "This kind of volume has no quotas.");
    store.quota_store().ok_or_else(none)
}

fn shown_limit(limit: u64) -> Option<u64> {
    (limit != NO_LIMIT).then_some(limit)
}

/// Of a request that has 0 for none.
fn wanted_limit(limit: u64) -> u64 {
    if limit == 0 { NO_LIMIT } else { limit }
}

fn wanted_mode(mode: QuotaMode) -> StoreMode {
    match mode {
        QuotaMode::Off => StoreMode::Off,
        QuotaMode::Track => StoreMode::Track,
        QuotaMode::Enforce => StoreMode::Enforce,
    }
}

fn shown_mode(mode: StoreMode) -> QuotaMode {
    match mode {
        StoreMode::Off => QuotaMode::Off,
        StoreMode::Track => QuotaMode::Track,
        StoreMode::Enforce => QuotaMode::Enforce,
    }
}

/// Refuses limits of which one was given and does not go with the other, which was not.
fn check_kept(given: &QuotaLimits, wanted: Limits, own: bool) -> Result<(), Problem> {
    if wanted.warning == NO_LIMIT || wanted.warning <= wanted.limit {
        return Ok(());
    }
    let whose = if own { "that the user has" } else { "that everybody has" };
    let (warning, limit) = (human_bytes(wanted.warning), human_bytes(wanted.limit));
    let (detail, todo) = match (given.warning_bytes, given.limit_bytes) {
        (None, Some(_)) => (
            format!("The warning {whose}, {warning}, is above a limit of {limit}: it would never be given."),
            "Say when the user is warned, too: `--warning SIZE`, or `--warning none`.",
        ),
        (Some(_), None) => (
            format!("A warning at {warning} is above the limit {whose}, {limit}: it would never be given."),
            "Say what the user may have, too: `--limit SIZE`, or `--limit none`.",
        ),
        // Both are the caller's own: the volume says what is wrong with them.
        _ => return Ok(()),
    };
    Err(Problem::new(Code::InvalidRequest, detail).todo(todo))
}

impl Node {
    /// Whether this is a group, or another principal that is no user. Who is not known may be a user who is gone.
    fn is_group(&self, sid: Sid) -> bool {
        let found = self.users().ok().and_then(|users| users.snapshot().find_sid(sid));
        found.is_some_and(|found| found.kind != PrincipalKind::User)
    }

    /// What is known of an owner's name; its SID where nobody has it.
    fn name_of_owner(&self, owner: &Owner) -> String {
        let named = Sid::decode(owner.bytes()).ok().and_then(|sid| self.name_of(sid));
        named.unwrap_or_else(|| owner.to_string())
    }

    fn shown_quota(&self, entry: &QuotaEntry) -> OwnerQuota {
        OwnerQuota {
            owner: self.name_of_owner(&entry.owner),
            sid: entry.owner.to_string(),
            used_bytes: entry.used,
            warning_bytes: shown_limit(entry.limits.warning),
            limit_bytes: shown_limit(entry.limits.limit),
            own_limits: entry.own,
        }
    }

    fn shown_quotas(&self, volume: &str, report: &QuotaReport) -> VolumeQuotas {
        let mut owners: Vec<OwnerQuota> = report.owners.iter().map(|entry| self.shown_quota(entry)).collect();
        owners.sort_by_cached_key(|each| (Reverse((each.per_mille(), each.used_bytes)), each.owner.clone()));
        VolumeQuotas {
            volume: volume.to_owned(),
            mode: shown_mode(report.settings.mode),
            counting: report.counting,
            default_warning_bytes: shown_limit(report.settings.default.warning),
            default_limit_bytes: shown_limit(report.settings.default.limit),
            owners,
        }
    }

    /// What each user has of a volume, and may have: who has the largest part of its limit first.
    pub async fn quota_list(&self, volume: &str) -> Result<VolumeQuotas, Problem> {
        let asked = self.with_store(volume, async move |store| {
            with_quotas(&*store)?.quotas().await.map_err(|error| problem(&error))
        });
        Ok(self.shown_quotas(volume, &asked.await?))
    }

    /// Turns quotas on or off, and says what holds for users without limits of their own.
    pub async fn quota_update(&self, volume: &str, update: QuotaUpdate) -> Result<VolumeQuotas, Problem> {
        let changed = self.with_store(volume, async move |store| {
            let quotas = with_quotas(&*store)?;
            let QuotaSettings { mode, default } =
                quotas.quota_of(Owner::SYSTEM).await.map_err(|error| problem(&error))?.settings;
            let settings = QuotaSettings {
                mode: update.mode.map_or(mode, wanted_mode),
                default: Limits {
                    warning: update.default_warning_bytes.map_or(default.warning, wanted_limit),
                    limit: update.default_limit_bytes.map_or(default.limit, wanted_limit),
                },
            };
            quotas.set_quotas(settings).await.map_err(|error| problem(&error))?;
            quotas.quotas().await.map_err(|error| problem(&error))
        });
        Ok(self.shown_quotas(volume, &changed.await?))
    }

    /// Gives a user limits of its own, or takes them away.
    pub async fn quota_set(
        &self,
        volume: &str,
        owner: &str,
        limits: QuotaLimits,
    ) -> Result<OwnerQuota, Problem> {
        // Who is deleted still owns files, and its SID is all that is left of it.
        let by_sid = owner.parse::<Sid>().ok();
        let sid = match by_sid {
            Some(sid) => sid,
            None => self.principal(owner)?.sid,
        };
        // What was set for a group, by an earlier release or before it was one, can go.
        if self.is_group(sid) && !limits.default {
            let detail = format!("{owner} is a group, and quotas are those of the users who own files.");
            return Err(Problem::new(Code::InvalidRequest, detail)
                .todo("Give each of its members a limit, or everybody (--default-limit)."));
        }
        let mut bytes = Vec::new();
        sid.put(&mut bytes);
        let of = Owner::from_bytes(&bytes)
            .ok_or_else(|| Problem::new(Code::InvalidRequest, format!("{sid} cannot own files.")))?;
        let set = self.with_store(volume, async move |store| {
            let quotas = with_quotas(&*store)?;
            let now = quotas.quota_of(of).await.map_err(|error| problem(&error))?;
            let (own, now) =
                now.owners.first().map_or((false, Limits::NONE), |entry| (entry.own, entry.limits));
            let wanted = (!limits.default).then(|| Limits {
                warning: limits.warning_bytes.map_or(now.warning, wanted_limit),
                limit: limits.limit_bytes.map_or(now.limit, wanted_limit),
            });
            if let Some(wanted) = wanted {
                check_kept(&limits, wanted, own)?;
            }
            quotas.set_quota(of, wanted).await.map_err(|error| problem(&error))?;
            quotas.quota_of(of).await.map_err(|error| problem(&error))
        });
        let report = set.await?;
        let entry = report.owners.first().map(|entry| self.shown_quota(entry));
        entry.ok_or_else(|| Problem::new(Code::Internal, "The volume does not tell the quota that was set."))
    }

    /// One line in the log for each owner that has come to its warning or limit since the last look.
    pub(crate) async fn tell_quotas(&self) {
        let open: Vec<_> = {
            let volumes = self.volumes.lock();
            volumes.iter().filter_map(|(name, slot)| Some((name.clone(), slot.handle.clone()?))).collect()
        };
        for (name, handle) in open {
            let store = handle.store();
            if !store.quota_store().is_some_and(|quotas| quotas.quota_mode() != StoreMode::Off) {
                continue;
            }
            let taken = self.on_shard(handle.shard(), async move || {
                with_quotas(&*store)?.quota_events().await.map_err(|error| problem(&error))
            });
            for event in taken.await.unwrap_or_default() {
                let (owner, used) = (self.name_of_owner(&event.entry.owner), human_bytes(event.entry.used));
                let limits = event.entry.limits;
                let (bound, what) = match event.level {
                    QuotaLevel::Warning => (limits.warning, "a user has come to its quota's warning"),
                    QuotaLevel::Limit => (limits.limit, "a user was refused space by its quota"),
                };
                let bound = human_bytes(bound);
                tracing::info!(volume = name, owner, used, bound, "{what}");
            }
        }
    }
}
