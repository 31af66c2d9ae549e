//! Opening: who logs in where, and whether the LUN suits the load.

use iscsi_client::{Disk, Facts, Options};
use iscsi_protocol::IscsiName;
use iscsi_protocol::chap::{ChapUser, Secret};
use iscsi_protocol::url::{Url, without_secrets};
use spd_engine::{EngineError, Login, aligned, fits};
use spd_profile::Target;

/// The name that we log in with where the address gives none.
const INITIATOR: &str = "iqn.2026-01.io.holdfast:spd";
/// The thread's number in the port's identifier when it is not yet a thread's.
const NO_THREAD: u16 = u16::MAX;

/// How the sessions of a target are opened.
#[derive(Clone, Debug)]
pub(crate) struct Opening {
    pub(crate) options: Options,
    /// The address without its secrets.
    pub(crate) shown: String,
    pub(crate) fua: bool,
}

impl Opening {
    /// How the LUN at `path` is opened: by whom, and with which port of this run.
    pub(crate) fn new(
        target: &Target,
        path: &str,
        login: Option<&Login>,
        run: [u8; 3],
    ) -> Result<Self, EngineError> {
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
    pub(crate) fn set_port(&mut self, thread: u16) {
        let [high, low] = thread.to_be_bytes();
        (self.options.isid[4], self.options.isid[5]) = (high, low);
    }

    /// Opens a session with the unit.
    pub(crate) fn open(&self) -> Result<Disk, iscsi_client::ClientError> {
        Disk::open(&self.options)
    }

    /// What the unit is.
    pub(crate) fn look(&self) -> Result<Facts, EngineError> {
        let disk = self.open().map_err(|error| self.explain(&error))?;
        // A logout that goes wrong harms nobody: we have what we wanted.
        let _ = disk.session.close();
        Ok(disk.facts)
    }

    /// An error of [`Opening::open`] in words.
    pub(crate) fn explain(&self, error: &iscsi_client::ClientError) -> EngineError {
        EngineError(format!("cannot open '{}': {error}", self.shown))
    }

    pub(crate) fn check(&self, target: &Target, facts: &Facts, writes: bool) -> Result<(), EngineError> {
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
