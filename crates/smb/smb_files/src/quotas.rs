//! Quotas of users as clients see and set them (MS-FSA 2.1.5.20 and 2.1.5.21, MS-FSCC 2.4.41 and 2.5.2).
//!
//! Who is no administrator is told of its own quota, and of nobody else's. Any open of the volume will do to ask.

use file_store::{
    NO_LIMIT, Owner, QuotaEntry, QuotaLimits, QuotaMode, QuotaSettings, QuotaStore, StoreFuture,
};
use smb_protocol::NtStatus;
use smb_protocol::access::AccessMask;
use smb_protocol::fscc::quota::{QueryQuota, Quota, push_quota, quota_writer, quotas};
use smb_protocol::fscc::volume::ControlInformation;
use smb_protocol::security::Sid;
use smb_protocol::wire::Wire as _;

use crate::error::{FileError, Result, refuse};
use crate::file_system::Open;
use crate::times::file_time;

/// FileSystemControlFlags (MS-FSCC 2.5.2): what is counted, and what is refused.
const TRACK: u32 = 0x1;
const ENFORCE: u32 = 0x2;
/// Events go to the node's log, whatever a client would like.
const LOG_THRESHOLD: u32 = 0x10;
const LOG_LIMIT: u32 = 0x20;
/// Not all is counted yet.
const INCOMPLETE: u32 = 0x100;
const REBUILDING: u32 = 0x200;
/// Most users whose quotas one request asks for, or sets: each is a look at the volume, or a change of it, by itself.
const USERS_MAX: usize = 1024;

/// A change of quotas, for who records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaChange {
    /// What holds for everybody; what did is absent where the volume did not tell.
    Everybody {
        /// Before.
        old: Option<QuotaSettings>,
        /// After.
        new: QuotaSettings,
    },
    /// A user's own limits; absent where it has none.
    User {
        /// Who it is.
        sid: Sid,
        /// Before.
        old: Option<QuotaLimits>,
        /// After.
        new: Option<QuotaLimits>,
    },
}

/// What a request has changed of quotas so far. It stays true wherever the request ends, also when it is dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuotaChanges {
    /// What is done.
    pub done: Vec<QuotaChange>,
    /// What was begun, and may be done or not.
    pub begun: Option<QuotaChange>,
}

impl QuotaChanges {
    async fn make(&mut self, change: QuotaChange, work: StoreFuture<'_, ()>) -> Result<()> {
        self.begun = Some(change);
        let made = work.await;
        let begun = self.begun.take();
        made?;
        self.done.extend(begun);
        Ok(())
    }
}

fn owner(sid: &Sid) -> Option<Owner> {
    let mut bytes = Vec::new();
    sid.put(&mut bytes);
    Owner::from_bytes(&bytes)
}

fn shown(entry: &QuotaEntry) -> Option<Quota> {
    Some(Quota {
        sid: Sid::decode(entry.owner.bytes()).ok()?,
        change_time: file_time(entry.changed),
        used: entry.used,
        threshold: entry.limits.warning,
        limit: entry.limits.limit,
    })
}

/// What a client wants as a limit. What is negative in the protocol's signed numbers says that there is none, or is to be none.
fn wanted(limit: u64) -> u64 {
    if limit > i64::MAX as u64 { NO_LIMIT } else { limit }
}

/// Limits that make sense: a warning above the limit would never be given, and who set it would not know.
fn limits(warning: u64, limit: u64) -> Result<QuotaLimits> {
    let limits = QuotaLimits { warning: wanted(warning), limit: wanted(limit) };
    if limits.warning != NO_LIMIT && limits.warning > limits.limit {
        return refuse(NtStatus::INVALID_PARAMETER, "a quota's warning above its limit");
    }
    Ok(limits)
}

impl Open {
    /// The quotas of the store; none where it has none.
    fn quota_store(&self) -> Option<&dyn QuotaStore> {
        self.core.store.quota_store()
    }

    /// Whether quotas are on.
    pub(crate) fn has_quotas(&self) -> bool {
        self.quota_store().is_some_and(|quotas| quotas.quota_mode() != QuotaMode::Off)
    }

    fn quotas_on(&self) -> Result<&dyn QuotaStore> {
        let on = self.quota_store().filter(|quotas| quotas.quota_mode() != QuotaMode::Off);
        on.ok_or_else(|| FileError::new(NtStatus::NOT_SUPPORTED, "there are no quotas, or they are off"))
    }

    /// What the user of this open may have in all, and still take; neither where nothing limits it now.
    pub(crate) async fn own_limit(&self) -> Result<(u64, u64)> {
        let none = (NO_LIMIT, NO_LIMIT);
        let enforced = self.quota_store().filter(|quotas| quotas.quota_mode() == QuotaMode::Enforce);
        let Some((quotas, owner)) = enforced.zip(owner(&self.caller.token.user)) else { return Ok(none) };
        let report = quotas.quota_of(owner).await?;
        let entry = report.owners.first().filter(|_| !report.counting);
        Ok(entry.map_or(none, |entry| (entry.limits.limit, entry.left())))
    }

    /// Quotas are changed by administrators, through shares that let them change what is there: a share for reading changes nothing of
    /// its volume, whoever comes by it and whatever the handle is of.
    fn may_set_quotas(&self) -> Result<()> {
        let allowed = self.caller.share.maximal_access.contains(AccessMask::WRITE_DATA);
        if !self.caller.token.is_admin || !allowed {
            return refuse(
                NtStatus::ACCESS_DENIED,
                "quotas are the administrators', through shares that allow changes",
            );
        }
        Ok(())
    }

    /// FileFsControlInformation: the administrators'.
    pub(crate) async fn quota_control(&self) -> Result<ControlInformation> {
        let mut shown = ControlInformation {
            default_threshold: NO_LIMIT,
            default_limit: NO_LIMIT,
            ..ControlInformation::default()
        };
        let Ok(quotas) = self.quotas_on() else { return Ok(shown) };
        if !self.caller.token.is_admin {
            return refuse(NtStatus::ACCESS_DENIED, "quotas are the administrators'");
        }
        let report = quotas.quota_of(Owner::ADMINISTRATORS).await?;
        shown.default_threshold = report.settings.default.warning;
        shown.default_limit = report.settings.default.limit;
        let mode = match report.settings.mode {
            QuotaMode::Off => 0,
            QuotaMode::Track => TRACK,
            QuotaMode::Enforce => ENFORCE,
        };
        let counting = if report.counting { INCOMPLETE | REBUILDING } else { 0 };
        shown.flags = mode | counting | LOG_THRESHOLD | LOG_LIMIT;
        Ok(shown)
    }

    /// Sets FileFsControlInformation.
    pub(crate) async fn set_quota_control(&self, buffer: &[u8], changes: &mut QuotaChanges) -> Result<()> {
        self.may_set_quotas()?;
        let Some(quotas) = self.quota_store() else {
            return refuse(NtStatus::ACCESS_DENIED, "the volume has no quotas");
        };
        let wanted = ControlInformation::decode(buffer)?;
        let mode = match wanted.flags {
            flags if flags & ENFORCE != 0 => QuotaMode::Enforce,
            flags if flags & TRACK != 0 => QuotaMode::Track,
            _ => QuotaMode::Off,
        };
        let default = limits(wanted.default_threshold, wanted.default_limit)?;
        let new = QuotaSettings { mode, default };
        // What is told of it must not make it fail.
        let old = quotas.quota_of(Owner::ADMINISTRATORS).await.ok().map(|report| report.settings);
        changes.make(QuotaChange::Everybody { old, new }, quotas.set_quotas(new)).await
    }

    /// QUERY_INFO about quotas.
    ///
    /// # Errors
    /// NOT_SUPPORTED where they are off, NO_MORE_ENTRIES at the end of the list, BUFFER_TOO_SMALL where not one entry fits,
    /// INVALID_PARAMETER where more users are named than one request may.
    pub async fn query_quota(&self, input: &[u8], limit: usize, out: &mut Vec<u8>) -> Result<()> {
        let quotas = self.quotas_on()?;
        let query = QueryQuota::decode(input)?;
        if query.users.len() > USERS_MAX {
            return refuse(NtStatus::INVALID_PARAMETER, "quotas of too many users at once");
        }
        let (own, is_admin) = (self.caller.token.user, self.caller.token.is_admin);
        let asked = !query.users.is_empty();
        let mut found: Vec<Quota> = Vec::new();
        if !asked && is_admin {
            found.extend(quotas.quotas().await?.owners.iter().filter_map(shown));
        } else {
            let whom = if asked { query.users } else { vec![own] };
            for sid in whom.iter().filter(|sid| is_admin || **sid == own) {
                let Some(owner) = owner(sid) else { continue };
                found.extend(quotas.quota_of(owner).await?.owners.iter().filter_map(shown));
            }
        }
        // A list that names users is answered at once; the list of all goes on where the answer before it ended.
        let start = if asked || query.restart { 0 } else { self.state.lock().quota_index };
        if start >= found.len() {
            return refuse(NtStatus::NO_MORE_ENTRIES, "");
        }
        let mut list = quota_writer(out, limit);
        let most = if query.single { 1 } else { usize::MAX };
        let told =
            found.iter().skip(start).take(most).take_while(|quota| push_quota(&mut list, quota)).count();
        if told == 0 {
            return refuse(NtStatus::BUFFER_TOO_SMALL, "not one quota fits");
        }
        if !asked {
            self.state.lock().quota_index = start + told;
        }
        Ok(())
    }

    /// SET_INFO about quotas; `changes` has what is done. A limit of -2 takes an owner's own limits away. Quotas are those of users: `is_group` knows who is none.
    ///
    /// # Errors
    /// NOT_SUPPORTED where they are off, ACCESS_DENIED for who is no administrator, and over a share that allows no changes,
    /// INVALID_PARAMETER.
    pub async fn set_quota(
        &self,
        buffer: &[u8],
        is_group: &dyn Fn(Sid) -> bool,
        changes: &mut QuotaChanges,
    ) -> Result<()> {
        let quotas = self.quotas_on()?;
        self.may_set_quotas()?;
        // All of it makes sense before any of it is done.
        for (owner, new) in quotas_of(buffer, is_group)? {
            let before = quotas.quota_of(owner).await.ok();
            let entry = before.as_ref().and_then(|report| report.owners.first());
            let old = entry.filter(|entry| entry.own).map(|entry| entry.limits);
            let sid = Sid::decode(owner.bytes())?;
            changes.make(QuotaChange::User { sid, old, new }, quotas.set_quota(owner, new)).await?;
        }
        Ok(())
    }
}

fn quotas_of(buffer: &[u8], is_group: &dyn Fn(Sid) -> bool) -> Result<Vec<(Owner, Option<QuotaLimits>)>> {
    /// In place of a limit: the entry goes (MS-FSCC 2.4.41).
    const REMOVE: u64 = -2_i64 as u64;
    let mut all = Vec::new();
    for quota in quotas(buffer).take(USERS_MAX + 1) {
        let quota = quota?;
        let owner = owner(&quota.sid).filter(Owner::can_be_limited);
        let Some(owner) = owner.filter(|_| all.len() < USERS_MAX) else {
            return refuse(NtStatus::INVALID_PARAMETER, "a quota that cannot be set, or too many of them");
        };
        let limits = match quota.limit {
            REMOVE => None,
            // What a group owns is not what its members own. What was set for one earlier can go.
            _ if is_group(quota.sid) => {
                return refuse(NtStatus::INVALID_PARAMETER, "a quota for a group");
            }
            limit => Some(limits(quota.threshold, limit)?),
        };
        all.push((owner, limits));
    }
    if all.is_empty() {
        return refuse(NtStatus::INVALID_PARAMETER, "no quota to be set");
    }
    Ok(all)
}
