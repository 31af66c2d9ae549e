//! Who the permissions of shares are for. The configuration keeps the SIDs of users and groups: one that is made later under the name of
//! one that is gone, or that has another name now, is another one, and gets nothing of it. People write and read names.

use control_api::{Code, Config, Problem, ShareConfig, SharePermission};
use smb_protocol::security::Sid;

use super::Node;

/// The SID that is written so, in the one way in which it is kept.
fn sid(who: &str) -> Option<String> {
    who.parse::<Sid>().ok().map(|sid| sid.to_string())
}

/// What the configuration keeps of permissions: a SID, whether or not somebody has it now.
fn is_settled(permission: &SharePermission) -> bool {
    sid(&permission.who).is_some_and(|sid| sid == permission.who)
}

impl Node {
    /// Permissions as the configuration keeps them.
    ///
    /// # Errors
    /// When a name means nobody, or two of them mean the same.
    pub(super) fn settled(&self, permissions: &[SharePermission]) -> Result<Vec<SharePermission>, Problem> {
        let mut settled: Vec<SharePermission> = Vec::new();
        for permission in permissions {
            let who = match sid(&permission.who) {
                Some(sid) => sid,
                None => self.principal(&permission.who)?.sid.to_string(),
            };
            if settled.iter().any(|there| there.who == who) {
                let detail = format!("{} has two permissions.", permission.who);
                return Err(Problem::new(Code::InvalidRequest, detail).todo("Keep the one that is meant."));
            }
            settled.push(SharePermission { who, right: permission.right });
        }
        Ok(settled)
    }

    /// Makes the permissions of a wanted configuration those of users and groups that there are.
    ///
    /// # Errors
    /// As [`Self::settled`].
    pub(super) fn settle_wanted_permissions(&self, want: &mut Config) -> Result<(), Problem> {
        for share in &mut want.shares {
            // Also where the users cannot be read now.
            if !share.permissions.iter().all(is_settled) {
                share.permissions = self.settled(&share.permissions)?;
            }
        }
        Ok(())
    }

    /// Earlier releases kept names: they become those of who has them now. What a name of nobody gave is taken away, so that nobody has it
    /// later. Of two names of one, the greater right stays, which is what counted.
    pub(super) fn settle_permissions(&self) {
        let named =
            |config: &Config| config.shares.iter().any(|share| !share.permissions.iter().all(is_settled));
        let Ok(users) = self.users() else { return };
        // Whom this node does not know yet may be there all the same.
        if !self.config.with(named) || users.catch_up().is_err() || users.is_behind() {
            return;
        }
        let directory = users.snapshot();
        let machine = self.backends.smb.info().netbios_name;
        let changed = self.config.change(|config| {
            for share in &mut config.shares {
                let mut settled: Vec<SharePermission> = Vec::new();
                for SharePermission { who, right } in std::mem::take(&mut share.permissions) {
                    let named = || directory.find_name(&who, &machine).map(|found| found.sid.to_string());
                    let Some(found) = sid(&who).or_else(named) else {
                        tracing::warn!(
                            share = share.name,
                            who,
                            ?right,
                            "a permission was for somebody who is not there, and is taken away"
                        );
                        continue;
                    };
                    match settled.iter_mut().find(|there| there.who == found) {
                        Some(there) => there.right = there.right.max(right),
                        None => settled.push(SharePermission { who: found, right }),
                    }
                }
                share.permissions = settled;
            }
            Ok(())
        });
        if let Err(problem) = changed {
            tracing::warn!(%problem, "permissions of shares are by names, and give nothing until they are kept otherwise");
        }
    }

    /// A share with its permissions as people read them.
    pub(super) fn with_names(&self, mut share: ShareConfig) -> ShareConfig {
        let Ok(users) = self.users() else { return share };
        let directory = users.snapshot();
        for permission in &mut share.permissions {
            let known = permission.who.parse().ok().and_then(|sid| directory.find_sid(sid));
            if let Some(name) = known.map(|known| known.name).filter(|name| !name.is_empty()) {
                permission.who = name;
            }
        }
        share
    }

    /// Whom somebody means of those who have permissions.
    pub(super) fn settled_name(&self, who: &str) -> String {
        // Of somebody who is gone there is the SID.
        sid(who).or_else(|| Some(self.principal(who).ok()?.sid.to_string())).unwrap_or_else(|| who.to_owned())
    }
}
