//! What the iSCSI server knows of LUNs, to be shown with them.

use std::collections::{BTreeMap, BTreeSet};

use control_api::{LunReservations, LunWriteCacheNow};

use crate::backend::ImageNow;
use crate::node::Node;

/// LUNs that are served, as the iSCSI server has them.
pub(super) struct Served {
    /// Those that acknowledge writes before they are durable.
    pub(super) caching: BTreeSet<String>,
    /// Images that LUNs are made of, by the LUN's name.
    pub(super) images: BTreeMap<String, ImageNow>,
    /// What keeps writes from their files, by the LUN's name.
    pub(super) caches: BTreeMap<String, LunWriteCacheNow>,
    /// What initiators have reserved, by the LUN's name.
    pub(super) reservations: BTreeMap<String, LunReservations>,
    /// Who is to be told of lost writes, by the LUN's name.
    pub(super) lost_writes: BTreeMap<String, Vec<String>>,
}

impl Node {
    /// What is known of LUNs that are served. Asked for once, for however many LUNs.
    pub(super) fn served_luns(&self) -> Served {
        let caches = self.backends.iscsi.write_caches().into_iter();
        let caching = caches.filter(|(_, on)| *on).map(|(name, _)| name).collect();
        let reservations = self.backends.iscsi.reservations().into_iter().collect();
        let lost_writes = self.backends.iscsi.lost_writes().into_iter().collect();
        Served {
            caching,
            images: self.backends.iscsi.images().into_iter().collect(),
            caches: self.backends.iscsi.caches().into_iter().collect(),
            reservations,
            lost_writes,
        }
    }
}
