//! Routes of quotas.

use super::Method::{Patch, Put};
use super::Role::{Administrator, Viewer};
use super::{Route, get, json, send};
use crate::*;

/// The routes.
pub(super) const QUOTAS: &[Route] = &[
    get(
        Viewer,
        "/volumes/{volume}/quotas",
        "quota_list",
        "What each user has of a volume, and may have.",
        json::<VolumeQuotas>(),
    ),
    send(
        Administrator,
        Patch,
        "/volumes/{volume}/quotas",
        "quota_update",
        "Turns quotas on or off, and says what holds for users without limits of their own.",
        json::<QuotaUpdate>(),
        json::<VolumeQuotas>(),
    ),
    send(
        Administrator,
        Put,
        "/volumes/{volume}/quotas/{owner}",
        "quota_set",
        "Gives a user limits of its own, or takes them away. The user is a name or a SID.",
        json::<QuotaLimits>(),
        json::<OwnerQuota>(),
    ),
];
