//! Opening: who logs in where, and whether the LUN suits the load.

use iscsi_client::{Disk, Facts, Options};
use iscsi_protocol::IscsiName;
use iscsi_protocol::chap::{ChapUser, Secret};
use iscsi_protocol::url::{Url, without_secrets};
use shard_runtime::{Entropy as _, SystemEntropy};
use spd_engine::{
    Backend, Confirm, EngineError, Lane, LanePlan, Login, Preparation, aligned, fits, may_lose,
};
use spd_profile::Target;

use crate::lane::IscsiLane;

/// The name that we log in with where the address gives none.
const INITIATOR: &str = "iqn.2026-01.io.holdfast:spd";
/// The thread's number in the port's identifier when it is not yet a thread's.
const NO_THREAD: u16 = u16::MAX;

/// How the sessions of a target are opened.
#[derive(Clone, Debug)]
pub(crate) struct Opening {
    options: Options,
    /// The address without its secrets.
    pub(crate) shown: String,
    pub(crate) fua: bool,
}

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

impl Opening {
    fn new(target: &Target, path: &str, login: Option<&Login>, run: [u8; 3]) -> Result<Self, EngineError> {
        let shown = without_secrets(path);
        let wrong = |why: String| EngineError(format!("'{shown}': {why}"));
        let url = Url::parse(path).map_err(|error| wrong(error.to_string()))?;
        let name = IscsiName::parse(INITIATOR).map_err(|error| wrong(error.to_string()))?;
        let initiator = url.initiator.clone().unwrap_or(name);
        let user = match (&url.user, &url.password, login) {
            (Some(name), Some(secret), _) => Some(ChapUser { name: name.clone(), secret: secret.clone() }),
            (Some(name), None, Some(login)) => {
                Some(ChapUser { name: name.clone(), secret: Secret::new(login.password.as_str()) })
            }
            (Some(name), None, None) => {
                return Err(wrong(format!(
                    "what is the secret of user '{name}'? --password-file, or HOLDFAST_SPD_PASSWORD"
                )));
            }
            (None, _, Some(login)) if !login.user.is_empty() => {
                Some(ChapUser { name: login.user.clone(), secret: Secret::new(login.password.as_str()) })
            }
            _ => None,
        };
        let target_user = match (&url.target_user, &url.target_password, &user) {
            (None, None, _) => None,
            (Some(name), Some(secret), Some(_)) => {
                Some(ChapUser { name: name.clone(), secret: secret.clone() })
            }
            _ => {
                return Err(wrong(
                    "mutual CHAP needs a user with a secret, target_user and target_password".into(),
                ));
            }
        };
        let isid = [0x80, run[0], run[1], run[2], 0, 0];
        let options = Options { url, initiator, isid, user, target_user, depth: 1 };
        let mut opening = Self { options, shown, fua: target.write_through };
        opening.set_port(NO_THREAD);
        Ok(opening)
    }

    /// Makes the port the thread's.
    fn set_port(&mut self, thread: u16) {
        let [high, low] = thread.to_be_bytes();
        (self.options.isid[4], self.options.isid[5]) = (high, low);
    }

    /// Opens a session with the unit.
    pub(crate) fn open(&self) -> Result<Disk, iscsi_client::ClientError> {
        Disk::open(&self.options)
    }

    /// What the unit is.
    fn look(&self) -> Result<Facts, EngineError> {
        let disk = self.open().map_err(|error| self.explain(&error))?;
        // A logout that goes wrong harms nobody: we have what we wanted.
        let _ = disk.session.close();
        Ok(disk.facts)
    }

    /// An error of [`Opening::open`] in words.
    pub(crate) fn explain(&self, error: &iscsi_client::ClientError) -> EngineError {
        EngineError(format!("cannot open '{}': {error}", self.shown))
    }

    fn check(&self, target: &Target, facts: &Facts, writes: bool) -> Result<(), EngineError> {
        let shown = &self.shown;
        let target = &Target { path: shown.clone(), ..target.clone() };
        fits(target, facts.capacity.bytes())?;
        let block = u64::from(facts.capacity.block);
        aligned(target, block, &format!("the block of LUN '{shown}': change it"))?;
        if let Some(most) = facts.most_blocks
            && target.blocks().any(|bytes| u64::from(bytes) / block > u64::from(most))
        {
            return Err(EngineError(format!(
                "LUN '{shown}' takes at most {} bytes at once: lower -b",
                u64::from(most) * block
            )));
        }
        if writes && facts.write_protected {
            return Err(EngineError(format!("LUN '{shown}' is write-protected")));
        }
        if writes && self.fua && !facts.fua {
            return Err(EngineError(format!(
                "LUN '{shown}' does not know writes that are durable when answered (FUA): leave out -Sw, -Sh, -S or -h"
            )));
        }
        Ok(())
    }
}
