//! [`SmbBackend`]: the files of a run, opened and checked before it begins.

use smb_protocol::access::CreateDisposition;
use spd_engine::{Backend, Confirm, EngineError, Lane, LanePlan, Login, Preparation, fits};
use spd_profile::Target;

use crate::lane::SmbLane;
use crate::open::Opening;

/// Files of SMB servers, found and checked.
pub struct SmbBackend {
    openings: Vec<Opening>,
    sizes: Vec<u64>,
}

impl SmbBackend {
    /// Makes files (-c), asks before anything is lost, and checks that all targets can be opened. A file on a server has no
    /// mark that says who made it: every one that exists is somebody's.
    ///
    /// `logins` has who logs in for each target.
    ///
    /// # Errors
    /// When a file cannot be reached, made or opened, or its loss was not agreed to.
    pub fn open(
        targets: &[Target],
        paths: &[String],
        logins: &[Option<Login>],
        how: Preparation,
        confirm: &dyn Confirm,
    ) -> Result<Self, EngineError> {
        let (mut openings, mut sizes) = (Vec::new(), Vec::new());
        for ((target, path), login) in targets.iter().zip(paths).zip(logins) {
            let opening = Opening::new(target, path, login.as_ref(), how.verify)?;
            if target.create.is_some() || opening.writes {
                opening.prepare(target, how, confirm)?;
            }
            let opened = opening.open(CreateDisposition::OPEN).map_err(|error| opening.explain(&error))?;
            if u64::from(target.block) > u64::from(opened.connection.max_transfer) {
                return Err(EngineError(format!(
                    "'{path}': the server takes at most {} bytes at once: lower -b",
                    opened.connection.max_transfer
                )));
            }
            fits(target, opened.size)?;
            sizes.push(opened.size);
            openings.push(opening);
        }
        Ok(Self { openings, sizes })
    }
}

impl Backend for SmbBackend {
    fn sizes(&self) -> Vec<u64> {
        self.sizes.clone()
    }

    fn joins_targets(&self) -> bool {
        false
    }

    fn lane(&self, plan: &LanePlan<'_>) -> Result<Box<dyn Lane>, EngineError> {
        let [target] = plan.targets else {
            return Err(EngineError(
                "a thread has one file of a server: use -t (threads per target) instead of -F".into(),
            ));
        };
        let Some(opening) = self.openings.get(*target) else {
            return Err(EngineError("no such target".into()));
        };
        Ok(Box::new(SmbLane::new(opening.clone(), plan)?))
    }
}
