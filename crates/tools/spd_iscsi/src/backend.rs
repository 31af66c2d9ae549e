//! [`IscsiBackend`]: the LUNs of a run, found and checked before it begins.

use iscsi_client::Facts;
use shard_runtime::{Entropy as _, SystemEntropy};
use spd_engine::{Backend, Confirm, EngineError, Lane, LanePlan, Login, Preparation, may_lose};
use spd_profile::Target;

use crate::lane::IscsiLane;
use crate::open::Opening;

/// LUNs of iSCSI targets, found and checked.
pub struct IscsiBackend {
    openings: Vec<(Opening, Facts)>,
}

impl IscsiBackend {
    /// Checks that all LUNs can be opened and suit the load, and asks before anything is lost: what is on a LUN is
    /// somebody's. `logins` has who logs in for each target.
    ///
    /// # Errors
    /// When a LUN cannot be reached or does not suit, or its loss was not agreed to.
    pub fn open(
        targets: &[Target],
        paths: &[String],
        logins: &[Option<Login>],
        how: Preparation,
        confirm: &dyn Confirm,
    ) -> Result<Self, EngineError> {
        // Ports of this run: a number that no other run has, and one for each thread (RFC 7143 11.12.5, random form).
        let run = SystemEntropy.next_u64().to_be_bytes();
        let mut openings = Vec::new();
        for ((target, path), login) in targets.iter().zip(paths).zip(logins) {
            let writes = target.write_percent > 0 || how.verify;
            let opening = Opening::new(target, path, login.as_ref(), [run[0], run[1], run[2]])?;
            if target.create.is_some() {
                return Err(EngineError(format!(
                    "-c makes files, and '{}' is a LUN, which has its size: leave out -c",
                    opening.shown
                )));
            }
            let facts = opening.look()?;
            opening.check(target, &facts, writes)?;
            if writes {
                may_lose(confirm, &format!("all data of LUN {}", opening.shown))?;
            }
            openings.push((opening, facts));
        }
        Ok(Self { openings })
    }
}

impl Backend for IscsiBackend {
    fn sizes(&self) -> Vec<u64> {
        self.openings.iter().map(|(_, facts)| facts.capacity.bytes()).collect()
    }

    fn joins_targets(&self) -> bool {
        false
    }

    fn lane(&self, plan: &LanePlan<'_>) -> Result<Box<dyn Lane>, EngineError> {
        let [target] = plan.targets else {
            return Err(EngineError(
                "a thread has one LUN: use -t (threads per target) instead of -F".into(),
            ));
        };
        let Some((opening, facts)) = self.openings.get(*target) else {
            return Err(EngineError("no such target".into()));
        };
        let mut opening = opening.clone();
        opening.options.depth = plan.slots.len();
        opening.set_port(plan.thread as u16);
        Ok(Box::new(IscsiLane::new(opening, facts.clone(), plan)?))
    }
}
