//! The contract of block devices holds, whatever the log does meanwhile.

use block_conformance::{Options as Length, Subject, SubjectFuture};
use block_device::Device;
use parking_lot::Mutex;
use sim::{Survival, on_shard};
use std::sync::Arc;

use super::Rig;

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
        Box::pin(async move {
            let rig = rig?;
            rig.power.cut(Survival::Sectors(50));
            rig.power.restore();
            Some(Self::device(rig).await)
        })
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
