//! Two targets of different kinds as those of one run.

use crate::backend::{Backend, Lane, LanePlan};
use crate::error::EngineError;

/// Targets that are opened each in its own way, for a run whose threads have one of them each, or are copies.
pub struct Joined([Box<dyn Backend>; 2]);

impl Joined {
    /// Joins backends that have one target each.
    #[must_use]
    pub fn new(first: Box<dyn Backend>, second: Box<dyn Backend>) -> Self {
        Self([first, second])
    }
}

impl Backend for Joined {
    fn sizes(&self) -> Vec<u64> {
        self.0.iter().flat_map(|backend| backend.sizes()).collect()
    }

    fn lane(&self, plan: &LanePlan<'_>) -> Result<Box<dyn Lane>, EngineError> {
        let [target] = plan.targets else {
            return Err(EngineError::new("targets of different kinds have no lane in common"));
        };
        let backend = self.0.get(*target).ok_or_else(|| EngineError::new("no such target"))?;
        let LanePlan { thread, slots, source, .. } = *plan;
        backend.lane(&LanePlan { thread, targets: &[0], slots, source })
    }

    fn joins_targets(&self) -> bool {
        false
    }

    fn gone(&self) -> Option<String> {
        self.0.iter().find_map(|backend| backend.gone())
    }

    /// Both are closed, whatever comes of the first.
    fn close(&self) -> Result<(), EngineError> {
        let [first, second] = &self.0;
        let (first, second) = (first.close(), second.close());
        first.and(second)
    }
}
