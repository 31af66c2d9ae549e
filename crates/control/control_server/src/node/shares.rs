//! Shares: folders of volumes that SMB clients see.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use control_api::{
    Code, Done, FileCreate, FileKind, Problem, Session, Share, ShareConfig, ShareCreate, SharePermission,
    ShareRight, ShareUpdate, check_share_name, many,
};
use file_store::{FileKind as StoreKind, FileStore};
use smb_security::{Level, Permission};

use super::known::Impaired;
use super::{Node, confirm, missing, taken};
use crate::files;

/// Names of shares are compared as Windows does.
fn same(a: &str, b: &str) -> bool {
    upcase::same(a, b)
}

/// How many sessions and opens each share has, by its name in capitals.
#[derive(Default)]
struct Use(BTreeMap<String, (u64, u64)>);

impl Use {
    fn of(&self, share: &str) -> (u64, u64) {
        self.0.get(&upcase::upper(share)).copied().unwrap_or_default()
    }
}

impl Node {
    fn share_config(&self, name: &str) -> Result<ShareConfig, Problem> {
        let found =
            self.config.with(|config| config.shares.iter().find(|share| same(&share.name, name)).cloned());
        found.ok_or_else(|| missing("share", name, "holdfast share list"))
    }

    /// The shares whose folders are in a volume.
    pub(super) fn shares_of(&self, volume: &str) -> Vec<String> {
        self.config.with(|config| {
            let of = config.shares.iter().filter(|share| self.is_on(*share, volume));
            of.map(|share| share.name.clone()).collect()
        })
    }

    fn describe_share(&self, config: ShareConfig, impaired: Option<&Impaired>, used: &Use) -> Share {
        let problem = self.why_unserved(&format!("share {}", config.name));
        let traffic = self.backends.smb.traffic(&config.name);
        let (sessions, opens) = used.of(&config.name);
        Share {
            online: traffic.is_some() && !impaired.is_some_and(|impaired| impaired.wholly),
            problem: problem.or_else(|| impaired.map(|impaired| impaired.why.clone())),
            sessions,
            opens,
            traffic: traffic.unwrap_or_default(),
            config: self.with_names(config),
        }
    }

    /// Shares, those in trouble first.
    pub async fn share_list(&self) -> Result<Vec<Share>, Problem> {
        Ok(self.shares_used_by(&self.backends.smb.sessions()))
    }

    /// The same by one who has listed the sessions already.
    pub(super) fn shares_used_by(&self, sessions: &[Session]) -> Vec<Share> {
        let configs = self.config.with(|config| config.shares.clone());
        let (impaired, used) = (self.impaired(), self.shares_in_use(sessions));
        let describe = |config: ShareConfig| {
            let impaired = self.impaired_of(&impaired, &config);
            self.describe_share(config, impaired, &used)
        };
        let mut shares: Vec<Share> = configs.into_iter().map(describe).collect();
        let key = |share: &Share| (share.online, share.problem.is_none(), upcase::upper(&share.config.name));
        shares.sort_by_key(key);
        shares
    }

    /// A share.
    pub async fn share_show(&self, name: &str) -> Result<Share, Problem> {
        let config = self.share_config(name)?;
        let impaired = self.impaired();
        let impaired = self.impaired_of(&impaired, &config);
        Ok(self.describe_share(config, impaired, &self.shares_in_use(&self.backends.smb.sessions())))
    }

    /// Looks once, for however many shares.
    fn shares_in_use(&self, sessions: &[Session]) -> Use {
        let mut counts = Use::default();
        for smb in sessions.iter().filter_map(|session| session.smb.as_ref()) {
            // A session that has connected to a share several times is one.
            let shares: BTreeSet<String> = smb.shares.iter().map(|share| upcase::upper(share)).collect();
            for share in shares {
                counts.0.entry(share).or_default().0 += 1;
            }
        }
        for (share, opens) in self.backends.smb.open_counts() {
            counts.0.entry(upcase::upper(&share)).or_default().1 += opens;
        }
        counts
    }

    /// Makes a share, and its folder if that isn't there.
    pub async fn share_create(&self, request: ShareCreate) -> Result<Share, Problem> {
        let _turns = self
            .turns_of(|node| {
                let volume = node.volume_or_only(request.volume.as_deref());
                volume.map_or(Vec::new(), |volume| node.pools_of_volume(&volume))
            })
            .await?;
        check_share_name(&request.name)?;
        if self.share_config(&request.name).is_ok() {
            return Err(taken("share", &request.name));
        }
        let volume = self.volume_or_only(request.volume.as_deref())?;
        let share = ShareConfig {
            folder: request.folder.unwrap_or_else(|| format!("/shares/{}", request.name)),
            name: request.name,
            volume_guid: self.volume_guid(&volume),
            volume,
            comment: request.comment,
            kind: request.kind,
            encrypt: request.encrypt,
            caching: request.caching,
            access_based_enumeration: request.access_based_enumeration,
            hidden: request.hidden,
            read_only: request.read_only,
            permissions: self.settled(&request.permissions)?,
        };
        // Everything but the folder is checked first, so that a refused request leaves nothing behind.
        let mut wanted = self.config.get();
        wanted.shares.push(share.clone());
        wanted.check()?;
        let permissions = self.resolve(&share.permissions)?;
        self.share_folder(&share, permissions, request.preset_folder).await?;
        let name = share.name.clone();
        {
            let _changing = self.changes.lock().await;
            self.config.change(|config| {
                config.shares.push(share.clone());
                Ok(())
            })?;
        }
        self.serve_share(&name).await?;
        self.share_show(&name).await
    }

    /// Serves a share as the configuration says.
    async fn serve_share(&self, name: &str) -> Result<(), Problem> {
        self.serve_pool(self.pool_of(&self.share_config(name)?)).await;
        Ok(())
    }

    /// Who is meant by permissions.
    fn resolve(&self, permissions: &[SharePermission]) -> Result<Vec<Permission>, Problem> {
        let level = |right| match right {
            ShareRight::Read => Level::Read,
            ShareRight::Change => Level::Change,
            ShareRight::Full => Level::Full,
        };
        let found = permissions.iter().map(|each| {
            // Of somebody who is gone there is the SID.
            let sid = each.who.parse().or_else(|_| self.principal(&each.who).map(|found| found.sid))?;
            Ok(Permission { sid, level: level(each.right) })
        });
        found.collect()
    }

    /// Finds or makes the folder of a share. A new one, or one that nobody has given permissions yet, gets the share's.
    async fn share_folder(
        &self,
        share: &ShareConfig,
        permissions: Vec<Permission>,
        preset: bool,
    ) -> Result<(), Problem> {
        self.volume_of(share)?;
        match self.file_stat(&share.volume, &share.folder).await {
            Ok(entry) if entry.kind == FileKind::File => {
                return Err(Problem::new(
                    Code::InvalidRequest,
                    format!("{} of volume {} is a file, not a folder.", share.folder, share.volume),
                ));
            }
            Ok(_) => {}
            Err(problem) if problem.code == Code::NotFound => {
                let create = FileCreate {
                    path: share.folder.clone(),
                    kind: FileKind::Directory,
                    size_bytes: 0,
                    reserve: false,
                    parents: true,
                };
                self.file_create(&share.volume, create).await?;
            }
            Err(problem) => return Err(problem),
        }
        let folder = share.folder.clone();
        self.with_store(&share.volume, async move |store| {
            preset_folder(store, &folder, &permissions, preset).await
        })
        .await
    }

    /// Changes a share.
    pub async fn share_update(&self, name: &str, update: ShareUpdate) -> Result<Share, Problem> {
        let _turns = self
            .turns_of(|node| {
                let of = node.share_config(name).map(|share| share.volume).into_iter();
                of.chain(update.volume.clone()).flat_map(|volume| node.pools_of_volume(&volume)).collect()
            })
            .await?;
        let before = self.share_config(name)?;
        let mut share = before.clone();
        self.move_share(&mut share, &update).await?;
        let ShareUpdate {
            comment,
            kind,
            encrypt,
            caching,
            access_based_enumeration,
            hidden,
            read_only,
            grant,
            revoke,
            preset_folder,
            volume: _,
            folder: _,
            confirm: _,
        } = update;
        share.comment = comment.unwrap_or(share.comment);
        share.kind = kind.unwrap_or(share.kind);
        share.encrypt = encrypt.unwrap_or(share.encrypt);
        share.caching = caching.unwrap_or(share.caching);
        share.access_based_enumeration = access_based_enumeration.unwrap_or(share.access_based_enumeration);
        share.hidden = hidden.unwrap_or(share.hidden);
        share.read_only = read_only.unwrap_or(share.read_only);
        for who in &revoke {
            let before = share.permissions.len();
            let is = self.settled_name(who);
            share.permissions.retain(|there| there.who != is);
            if share.permissions.len() == before {
                return Err(Problem::new(
                    Code::NotFound,
                    format!("share {} has no permission for {who}.", share.name),
                )
                .todo(format!("`holdfast share show {}` lists its permissions.", share.name)));
            }
        }
        for permission in self.settled(&grant)? {
            match share.permissions.iter_mut().find(|there| there.who == permission.who) {
                Some(there) => there.right = permission.right,
                None => share.permissions.push(permission),
            }
        }
        let mut wanted = self.config.get();
        wanted.shares.retain(|there| !same(&there.name, name));
        wanted.shares.push(share.clone());
        wanted.check()?;
        if preset_folder {
            let permissions = self.resolve(&share.permissions)?;
            self.share_folder(&share, permissions, true).await?;
        }
        let name = share.name.clone();
        {
            let _changing = self.changes.lock().await;
            self.config.change(|config| {
                let there = config.shares.iter_mut().find(|there| same(&there.name, &name));
                match there.filter(|there| **there == before) {
                    Some(there) => *there = share.clone(),
                    None => return Err(just_changed(&name)),
                }
                Ok(())
            })?;
        }
        if self.pool_of(&self.share_config(&name)?) != self.pool_of(&before) {
            // Let go of where it was, before it is served where it is.
            self.serve_pool(self.pool_of(&before)).await;
        }
        self.serve_share(&name).await?;
        self.share_show(&name).await
    }

    /// Takes a share away. Its folder stays.
    pub async fn share_delete(&self, name: &str, confirmed: Option<String>) -> Result<Done, Problem> {
        let _turns = self
            .turns_of(|node| {
                let share = node.share_config(name);
                share.map_or(Vec::new(), |share| node.pools_of_volume(&share.volume))
            })
            .await?;
        let (config, share) = (self.share_config(name)?, self.share_show(name).await?);
        let name = config.name.clone();
        confirm(&name, confirmed.as_deref(), || {
            vec![format!(
                "Share {name} disappears: {} and {} on it end. The folder {} of volume {} stays.",
                many(share.sessions, "session"),
                many(share.opens, "open file"),
                share.config.folder,
                share.config.volume
            )]
        })?;
        let pool = self.pool_of(&config);
        {
            let _changing = self.changes.lock().await;
            self.config.change(|now| {
                if !now.shares.contains(&config) {
                    return Err(just_changed(&name));
                }
                now.shares.retain(|there| there.name != name);
                Ok(())
            })?;
        }
        self.serve_pool(pool).await;
        Ok(Done::new(format!("Share {name} is gone.")))
    }

    /// Refuses to remove or move a folder that a share needs.
    pub(super) fn refuse_share_folder(&self, volume: &str, path: &str) -> Result<(), Problem> {
        let parts = files::split(path)?;
        let inside = |share: &&ShareConfig| {
            let names = files::split(&share.folder).unwrap_or_default();
            self.is_on(*share, volume)
                && names.len() >= parts.len()
                && parts.iter().zip(&names).all(|(a, b)| same(a, b))
        };
        let name =
            self.config.with(|config| config.shares.iter().find(inside).map(|share| share.name.clone()));
        match name {
            Some(name) => Err(Problem::new(
                Code::InUse,
                format!("{path} of volume {volume} holds the folder of share {name}."),
            )
            .todo(format!("Delete the share first: `holdfast share delete {name}`."))),
            None => Ok(()),
        }
    }
}

/// Whoever asked has seen another share than there is now.
fn just_changed(name: &str) -> Problem {
    Problem::new(Code::WrongState, format!("Share {name} has just been changed."))
        .todo("Look at it, and try again.")
}

/// Gives a folder the permissions of its share, when it has none of its own or `anyway`.
async fn preset_folder(
    store: Arc<dyn FileStore>,
    folder: &str,
    permissions: &[Permission],
    anyway: bool,
) -> Result<(), Problem> {
    let (file, kind) = files::resolve(&*store, folder).await?;
    if kind != StoreKind::Directory {
        return Err(Problem::new(Code::InvalidRequest, format!("{folder} is a file, not a folder.")));
    }
    let failed = |error| {
        let mut problem = files::problem(&error);
        problem.detail = format!("the permissions of {folder}: {}", problem.detail);
        problem
    };
    if !anyway && !store.security(file).await.map_err(failed)?.is_empty() {
        return Ok(());
    }
    let descriptor = smb_security::folder(permissions).encode();
    store.set_security(file, descriptor).await.map_err(failed)
}
