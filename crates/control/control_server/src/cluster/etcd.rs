//! How the members of the cluster's etcd are: looked at from time to time, as nothing else notices one that is away.

use std::sync::Arc;
use std::time::Duration;

use cluster_store_etcd::{EtcdHealth, EtcdStore};
use control_api::EtcdMemberStatus;
use managed_etcd::QUOTA_BYTES;
use parking_lot::Mutex;

/// Between looks.
const EVERY: Duration = Duration::from_secs(10);

/// The etcd that nodes share, where it is one.
pub(super) struct SharedEtcd {
    store: EtcdStore,
    /// Its nodes run it, with a quota that is known.
    managed: bool,
    members: Mutex<Vec<EtcdMemberStatus>>,
}

impl SharedEtcd {
    pub(super) fn new(store: EtcdStore, managed: bool) -> Self {
        Self { store, managed, members: Mutex::default() }
    }

    /// As they were found last.
    pub(super) fn members(&self) -> Vec<EtcdMemberStatus> {
        self.members.lock().clone()
    }

    /// Looks, for ever.
    pub(super) async fn watch_over(self: Arc<Self>) {
        loop {
            let health = self.store.health().await;
            let quota = self.managed.then_some(QUOTA_BYTES);
            *self.members.lock() = health.into_iter().map(|member| told(member, quota)).collect();
            tokio::time::sleep(EVERY).await;
        }
    }
}

fn told(member: EtcdHealth, quota_bytes: Option<u64>) -> EtcdMemberStatus {
    let url = member.url;
    match member.told {
        Ok(told) => EtcdMemberStatus {
            url,
            bytes: Some(told.bytes),
            quota_bytes,
            is_full: told.is_full(),
            trouble: (!told.troubles.is_empty()).then(|| told.troubles.join("; ")),
        },
        Err(why) => EtcdMemberStatus { url, quota_bytes, trouble: Some(why), ..EtcdMemberStatus::default() },
    }
}
