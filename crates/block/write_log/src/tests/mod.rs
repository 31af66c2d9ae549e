//! What the log promises: the contract of block devices, nothing acknowledged lost at any cut, and defects noticed.

mod behaves;
mod conforms;
mod crash;
mod exchange;
mod oracle;

use std::sync::Arc;
use std::time::Duration;

use aligned_buffer::SharedBuf;
use block_device::{BlockError, Device, UnmapBehavior};
use shard_runtime::SeededEntropy;
use sim::{Dice, Pace, Power, SimDisk, SimSpec};
use write_log_format::Entry;

use crate::core::Inner;
use crate::{Options, WriteLog};

/// A defect put in on purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sabotage {
    #[default]
    None,
    /// Replays the last entries first.
    ReplayBackwards,
    /// Leaves older entries of what was changed on the back in force.
    ForgetNothing,
    /// Gives up entries in the ring before the back has them durably.
    SkipFlush,
    /// Drops pieces before what takes their place is durable on the back.
    VolatileBack,
    /// Gives up entries before what took their place is committed.
    AdvanceEarly,
    /// Says that the back has everything before it has.
    DetachUnemptied,
    /// Says that a log counts before its front is ready.
    LabelBeforeFront,
}

pub(crate) fn sabotage_replay(sabotage: Sabotage, inner: &mut Inner, batches: Vec<(Entry, u64, SharedBuf)>) {
    if sabotage == Sabotage::ReplayBackwards {
        inner.pieces = Default::default();
        for (entry, number, data) in batches.into_iter().rev() {
            crate::open::apply(inner, &entry, number, data);
        }
    }
}

/// Two disks on one supply, and what is to be opened on them.
struct Rig {
    power: Arc<Power>,
    front: Arc<SimDisk>,
    back: Arc<SimDisk>,
    options: Options,
    entropy: SeededEntropy,
}

impl Rig {
    fn new(seed: u64, front: usize, back: usize, block_size: u32) -> Self {
        let power = Power::new(Dice::new(seed));
        // Some disks answer at once or late, so that what began later often ends first.
        let pace =
            if seed.is_multiple_of(2) { Pace { turns: 40, ..Pace::default() } } else { Pace::default() };
        let spec = |size| SimSpec { size, block_size, unmap: UnmapBehavior::Zeroes, pace };
        let front = SimDisk::new(&power, &SimSpec { block_size: 4096, ..spec(front) });
        let back = SimDisk::new(&power, &spec(back));
        let options = Options { small: 16 << 10, quiet: Duration::from_millis(3), ..Options::default() };
        Self { power, front, back, options, entropy: SeededEntropy::new(seed) }
    }

    async fn create(&self) -> Result<(), BlockError> {
        WriteLog::create(&self.front.device(), &self.back.device(), &self.entropy).await
    }

    async fn open(&self) -> Result<Arc<WriteLog>, BlockError> {
        let front: Option<Device> = self.front.is_present().then(|| self.front.device());
        WriteLog::open(front, self.back.device(), self.options, &self.entropy, false).await.map(Arc::new)
    }
}
