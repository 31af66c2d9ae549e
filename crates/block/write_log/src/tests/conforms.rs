//! The contract of block devices holds, whatever the log does meanwhile.

use block_conformance::{Options as Length, Subject, SubjectFuture};
use block_device::Device;
use parking_lot::Mutex;
use sim::{Survival, on_shard};
use std::sync::Arc;

use super::Rig;
use crate::OptionalLog;

struct Logged {
    seed: u64,
    block_size: u32,
    small: u64,
    rig: Mutex<Option<Arc<Rig>>>,
}

impl Logged {
    fn device(rig: Arc<Rig>) -> SubjectFuture<'static, Device> {
        Box::pin(async move {
            let log: Device = rig.open().await.expect("open");
            log
        })
    }
}

/// The rig after the power was away, with half of what was not flushed.
fn after_a_cut(rig: Arc<Rig>) -> Arc<Rig> {
    rig.power.cut(Survival::Sectors(50));
    rig.power.restore();
    rig
}

impl Subject for Logged {
    fn create(&self) -> SubjectFuture<'_, Device> {
        let mut rig = Rig::new(self.seed, 600 << 10, 14 << 20, self.block_size);
        rig.options.small = self.small;
        let rig = Arc::new(rig);
        *self.rig.lock() = Some(Arc::clone(&rig));
        Box::pin(async move {
            rig.create().await.expect("create");
            Self::device(rig).await
        })
    }

    fn power_cut(&self, device: Device) -> SubjectFuture<'_, Option<Device>> {
        drop(device);
        let rig = self.rig.lock().clone();
        Box::pin(async move { Some(Self::device(after_a_cut(rig?)).await) })
    }
}

/// A device that may have a log: it never had one, has one, or lost it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Optional {
    Never,
    Has,
    Lost,
}

struct MayBeLogged {
    kind: Optional,
    rig: Mutex<Option<Arc<Rig>>>,
}

impl MayBeLogged {
    fn device(rig: Arc<Rig>) -> SubjectFuture<'static, Device> {
        Box::pin(async move {
            let front: Option<Device> = Some(rig.front.device());
            let opened = OptionalLog::open(front, rig.back.device(), rig.options, &rig.entropy).await;
            let device: Device = Arc::new(opened.expect("open"));
            device
        })
    }
}

impl Subject for MayBeLogged {
    fn create(&self) -> SubjectFuture<'_, Device> {
        let rig = Arc::new(Rig::new(5, 600 << 10, 14 << 20, 4096));
        *self.rig.lock() = Some(Arc::clone(&rig));
        Box::pin(async move {
            if self.kind != Optional::Never {
                rig.create().await.expect("create");
            }
            if self.kind == Optional::Lost {
                let front: Option<Device> = Some(rig.front.device());
                let opened = OptionalLog::open(front, rig.back.device(), rig.options, &rig.entropy).await;
                opened.expect("open").detach().await.expect("detach");
            }
            Self::device(rig).await
        })
    }

    fn power_cut(&self, device: Device) -> SubjectFuture<'_, Option<Device>> {
        drop(device);
        let rig = self.rig.lock().clone();
        Box::pin(async move { Some(Self::device(after_a_cut(rig?)).await) })
    }
}

#[test]
fn a_device_that_may_have_a_log_conforms() {
    for kind in [Optional::Never, Optional::Has, Optional::Lost] {
        let subject = MayBeLogged { kind, rig: Mutex::default() };
        on_shard(block_conformance::run(&subject, Length::seeded(7)))
            .expect("event loop")
            .unwrap_or_else(|failure| panic!("{kind:?}: {failure}"));
    }
}

#[test]
fn a_log_conforms() {
    for (seed, block_size, small) in [(1, 4096, 64 << 10), (2, 512, 64 << 10), (3, 4096, 4096), (4, 512, 0)] {
        let subject = Logged { seed, block_size, small, rig: Mutex::default() };
        on_shard(block_conformance::run(&subject, Length::seeded(seed)))
            .expect("event loop")
            .unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
    }
}
