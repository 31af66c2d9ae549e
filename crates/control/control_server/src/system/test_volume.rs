//! A volume that is a store and nothing more, for tests of what serves volumes.

use std::sync::Arc;

use control_api::CheckFinding;
use file_store::FileStore;
use uuid::Uuid;

use crate::backend::{VolumeHandle, Work};
use crate::images::parentage::Parentage;
use crate::memory::now;

/// A volume.
pub(super) struct TestVolume {
    pub(super) store: Arc<dyn FileStore>,
    pub(super) guid: u128,
    /// What keeps the parents of its images, where something does.
    pub(super) parentage: Option<Arc<Parentage>>,
}

impl TestVolume {
    /// One on this store.
    pub(super) fn new(store: Arc<dyn FileStore>) -> Self {
        Self { store, guid: 7, parentage: None }
    }
}

impl VolumeHandle for TestVolume {
    fn store(&self) -> Arc<dyn FileStore> {
        self.store.clone()
    }

    fn parentage(&self) -> Option<Arc<Parentage>> {
        self.parentage.clone()
    }

    fn shard(&self) -> usize {
        0
    }

    fn guid(&self) -> Uuid {
        Uuid::from_u128(self.guid)
    }

    fn cluster(&self) -> u32 {
        4096
    }

    fn check(&self, _: bool) -> Work<'_, Vec<CheckFinding>> {
        now(Ok(Vec::new()))
    }

    fn close(&self) -> Work<'_, ()> {
        now(Ok(()))
    }
}
