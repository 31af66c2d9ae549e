//! Volumes and shares: what of the configuration can be served, and why the rest cannot.

use std::collections::BTreeMap;
use std::sync::Arc;

use control_api::{Code, Problem, ShareCaching, ShareKind, ShareRight};
use shard_runtime::SystemEntropy;
use smb_files::{FileSystem, VolumeOptions};
use smb_protocol::security::Sid;
use smb_protocol::tree::CachingMode;
use smb_protocol::{FileTime, Guid};
use smb_server::{ShareConfig, SharePermission};
use tokio::sync::OwnedMutexGuard;
use uuid::Uuid;

use super::{InEffect, Served, ServedVolume, Smb};
use crate::backend::{HELD_ELSEWHERE, OpenVolume, VolumeHandle, WantedShares, on_shard};
use crate::files;

/// What clients take a volume's file system for: they decide by the name what to try, and this one can do what NTFS can.
const KIND: &str = "NTFS";

/// Volumes that are open and cannot be served, with the reasons.
#[derive(Default)]
pub(super) struct Unserved {
    volumes: BTreeMap<String, String>,
}

/// What is wanted of a pool is put into effect one after the other: this is whose turn it is, for as long as something of it goes on.
pub(super) type Turn = Arc<OwnedMutexGuard<()>>;

pub(super) fn key(name: &str) -> String {
    upcase::upper(name)
}

fn same(a: &Arc<dyn VolumeHandle>, b: &Arc<dyn VolumeHandle>) -> bool {
    Arc::ptr_eq(a, b)
}

impl InEffect {
    /// What is served of volumes that have another name now goes on under it.
    fn follow_names(&mut self, pool: Option<Uuid>, volumes: &[OpenVolume]) {
        let Self { volumes: served, shares, prepared, .. } = self;
        let mut followed = BTreeMap::new();
        for (before, volume) in std::mem::take(served) {
            let is_this = |there: &&OpenVolume| volume.pool == pool && same(&there.volume, &volume.handle);
            let name = volumes.iter().find(is_this).map_or(&before, |there| &there.name).clone();
            if name != before {
                volume.files.set_label(&name);
                followed.insert(before, name.clone());
            }
            served.insert(name, volume);
        }
        for share in shares.values_mut().chain(prepared.values_mut()).filter(|share| share.pool == pool) {
            if let Some(name) = followed.get(&share.config.volume) {
                share.config.volume.clone_from(name);
            }
        }
    }
}

impl Smb {
    /// Takes away shares of a pool that are no longer wanted, lead elsewhere, or whose volume is gone; then lets go of the volumes
    /// that are gone.
    pub(super) fn close_shares(&self, pool: Option<Uuid>, wanted: &WantedShares) {
        let mut now = self.in_effect.lock();
        now.follow_names(pool, &wanted.volumes);
        let there = |name: &str, handle: &Arc<dyn VolumeHandle>| {
            wanted.volumes.iter().any(|volume| volume.name == name && same(&volume.volume, handle))
        };
        let (mut unwanted, mut gone): (Vec<String>, Vec<String>) = Default::default();
        for (name, served) in now.shares.iter().chain(&now.prepared).filter(|(_, served)| served.pool == pool)
        {
            let wanted = wanted.shares.iter().any(|share| {
                key(&share.name) == *name
                    && share.volume == served.config.volume
                    && share.folder == served.config.folder
            });
            let volume = now.volumes.get(&served.config.volume);
            if !wanted {
                unwanted.push(name.clone());
            } else if !volume.is_some_and(|volume| there(&served.config.volume, &volume.handle)) {
                gone.push(name.clone());
            }
        }
        for name in &gone {
            self.server.release_share(name);
        }
        for name in &unwanted {
            self.server.remove_share(name);
        }
        for name in gone.into_iter().chain(unwanted) {
            now.shares.remove(&name);
            now.prepared.remove(&name);
            now.astray.remove(&name);
            tracing::info!(share = name, "share is closed");
        }
        now.volumes.retain(|name, volume| volume.pool != pool || there(name, &volume.handle));
    }

    /// Makes a file system for each volume of a pool that has none yet, brings back what clients had open in it, and only then lets
    /// clients connect to its shares, if they are to. Says why shares stay away.
    pub(super) async fn open_volumes(
        &self,
        pool: Option<Uuid>,
        wanted: &WantedShares,
        turn: &Turn,
    ) -> Result<Unserved, Problem> {
        let mut unserved = Unserved::default();
        for OpenVolume { name, volume, undecided } in wanted.volumes.iter().cloned() {
            let known = self.in_effect.lock().volumes.get(&name).map(|volume| volume.pool);
            match known {
                Some(of) if of == pool => continue,
                Some(_) => {
                    unserved.volumes.insert(name, HELD_ELSEWHERE.to_owned());
                    continue;
                }
                None => {}
            }
            // To bring back what clients had open is to give up what was open in shares that are not there.
            if !undecided.is_empty() {
                let why = format!(
                    "volume {name} is not served before it is said whether the shares {} are on it: what clients have open in them would be lost",
                    undecided.join(", ")
                );
                unserved.volumes.insert(name, why);
                continue;
            }
            let store = volume.store();
            let created = on_shard(&*self.shards, volume.shard(), {
                let store = store.clone();
                move || async move { Ok(store.info(store.root()).await.map_or(0, |info| info.times.created)) }
            });
            let created = FileTime::from_unix_nanos(i64::try_from(created.await?).unwrap_or(i64::MAX));
            let guid = volume.guid();
            let options = VolumeOptions {
                label: name.clone(),
                serial: guid.as_u64_pair().0 ^ guid.as_u64_pair().1,
                id: Guid(guid.to_bytes_le()),
                created,
                cluster: volume.cluster(),
                kind: KIND.to_owned(),
            };
            let files = FileSystem::new(store, self.clock.clone(), Arc::new(SystemEntropy), options);
            let below = volume.clone();
            files.limit_space(move |from| below.can_hold_behind(from));
            self.disks.serve(pool, &files, &volume);
            let served = ServedVolume { pool, handle: volume, files };
            if let Err(problem) = self.open_volume(wanted, &name, served, turn).await {
                tracing::error!(volume = name, reason = problem.detail, "the volume's shares stay away");
                unserved.volumes.insert(name, problem.detail);
            }
        }
        Ok(unserved)
    }

    /// Brings back what clients had open in a volume, then publishes its shares. All of it happens whether or not anybody
    /// waits for it, and keeps its turn until then.
    async fn open_volume(
        &self,
        wanted: &WantedShares,
        name: &str,
        volume: ServedVolume,
        turn: &Turn,
    ) -> Result<(), Problem> {
        let mut prepared = Vec::new();
        for share in wanted.shares.iter().filter(|share| share.volume == name) {
            let (permissions, _) = self.permissions(share);
            let config = share_config(share, volume.files.clone(), permissions.clone());
            // One that cannot be made is looked at again with all shares, and what is wrong with it told then.
            if self.server.prepare_share(config).is_ok() {
                prepared.push(Served { pool: volume.pool, config: share.clone(), permissions });
            }
        }
        let (server, in_effect, turn) = (self.server.clone(), self.in_effect.clone(), turn.clone());
        let (name, shard, admit) = (name.to_owned(), volume.handle.shard(), wanted.admit);
        let restoring = on_shard(&*self.shards, shard, move || async move {
            let _turn = turn;
            let restored = server.restore(&volume.files).await;
            let mut now = in_effect.lock();
            match restored {
                Ok(restored) => {
                    tracing::info!(
                        volume = name,
                        opens = restored.opens,
                        given_up = restored.given_up,
                        "volume is ready for SMB"
                    );
                    now.volumes.insert(name, volume);
                    for served in prepared {
                        let key = key(&served.config.name);
                        if admit {
                            server.publish_share(&served.config.name);
                            now.shares.insert(key, served);
                        } else {
                            now.prepared.insert(key, served);
                        }
                    }
                    Ok(())
                }
                Err(status) => {
                    for served in prepared {
                        server.release_share(&served.config.name);
                    }
                    Err(Problem::new(
                        Code::Io,
                        format!("what clients had open cannot be brought back: {status}"),
                    ))
                }
            }
        });
        restoring.await
    }

    /// Lets clients connect to the shares of a pool that have waited for it.
    pub(super) fn publish_prepared(&self, pool: Option<Uuid>) {
        let mut now = self.in_effect.lock();
        let InEffect { prepared, shares, .. } = &mut *now;
        for (key, served) in std::mem::take(prepared) {
            if served.pool == pool {
                self.server.publish_share(&served.config.name);
                shares.insert(key, served);
            } else {
                prepared.insert(key, served);
            }
        }
    }

    /// Serves the shares of a pool whose volumes are there; says what is wrong with the others.
    pub(super) fn put_shares(
        &self,
        pool: Option<Uuid>,
        wanted: &WantedShares,
        unserved: &Unserved,
    ) -> Vec<(String, String)> {
        let mut trouble = Vec::new();
        let mut now = self.in_effect.lock();
        for share in &wanted.shares {
            let mut wrong = |why: String| trouble.push((format!("share {}", share.name), why));
            let volume = now.volumes.get(&share.volume).filter(|volume| volume.pool == pool);
            let Some(files) = volume.map(|volume| volume.files.clone()) else {
                let why = unserved.volumes.get(&share.volume).cloned();
                wrong(why.unwrap_or_else(|| format!("volume {} is not there", share.volume)));
                continue;
            };
            let (permissions, unknown) = self.permissions(share);
            if !unknown.is_empty() {
                wrong(format!(
                    "its permissions are for {}, and there is no such user or group",
                    unknown.join(", ")
                ));
            }
            let before = now.shares.get(&key(&share.name));
            if before.is_some_and(|served| served.pool != pool) {
                wrong(HELD_ELSEWHERE.to_owned());
                continue;
            }
            if before.is_some_and(|served| served.config == *share && served.permissions == permissions) {
                continue;
            }
            let config = share_config(share, files, permissions.clone());
            let put = match before {
                Some(_) => self.server.update_share(config),
                None => self.server.add_share(config),
            };
            match put {
                Ok(()) => {
                    let served = Served { pool, config: share.clone(), permissions };
                    now.shares.insert(key(&share.name), served);
                }
                Err(error) => wrong(error.to_string()),
            }
        }
        trouble
    }

    /// Who a share's permissions are for, and those of them that are not known. What is still by a name gives nothing: who has that
    /// name may be another one.
    fn permissions(&self, share: &control_api::ShareConfig) -> (Vec<SharePermission>, Vec<String>) {
        let directory = self.users.as_ref().map(|users| users.snapshot());
        let (mut permissions, mut unknown) = (Vec::new(), Vec::new());
        for permission in &share.permissions {
            let sid = permission.who.parse::<Sid>().ok();
            let right = match permission.right {
                ShareRight::Read => smb_server::ShareRight::Read,
                ShareRight::Change => smb_server::ShareRight::Change,
                ShareRight::Full => smb_server::ShareRight::Full,
            };
            permissions.extend(sid.map(|who| SharePermission { who, right }));
            let known = |sid| directory.as_ref().is_some_and(|all| all.find_sid(sid).is_some());
            if !sid.is_some_and(known) {
                unknown.push(permission.who.clone());
            }
        }
        (permissions, unknown)
    }

    /// Shares whose folder cannot be found.
    pub(super) async fn missing_folders(&self, shares: &[control_api::ShareConfig]) -> Vec<(String, String)> {
        let mut trouble = Vec::new();
        for share in shares {
            let found = self.in_effect.lock().volumes.get(&share.volume).map(|volume| volume.handle.clone());
            let Some(volume) = found else { continue };
            let (store, folder) = (volume.store(), share.folder.clone());
            let looked = on_shard(&*self.shards, volume.shard(), move || async move {
                files::resolve(&*store, &folder).await
            });
            let why = match looked.await {
                Ok((_, file_store::FileKind::Directory)) => None,
                Ok(_) => Some(format!("{} is a file, not a folder", share.folder)),
                Err(problem) => Some(problem.detail),
            };
            let mut now = self.in_effect.lock();
            match why {
                None => drop(now.astray.remove(&key(&share.name))),
                Some(why) => {
                    now.astray.insert(key(&share.name));
                    trouble.push((format!("share {}", share.name), why));
                }
            }
        }
        trouble
    }
}

fn share_config(
    share: &control_api::ShareConfig,
    files: FileSystem,
    permissions: Vec<SharePermission>,
) -> ShareConfig {
    ShareConfig {
        name: share.name.clone(),
        comment: share.comment.clone(),
        files,
        folder: share.folder.trim_start_matches('/').replace('/', "\\"),
        permissions,
        kind: match share.kind {
            ShareKind::ScaleOut => smb_server::ShareKind::ScaleOut,
            ShareKind::Clustered => smb_server::ShareKind::Clustered,
            ShareKind::Plain => smb_server::ShareKind::Plain,
        },
        encrypt: share.encrypt,
        caching: match share.caching {
            ShareCaching::None => CachingMode::None,
            ShareCaching::Manual => CachingMode::Manual,
            ShareCaching::Documents => CachingMode::Auto,
            ShareCaching::Programs => CachingMode::Vdo,
        },
        access_based_enumeration: share.access_based_enumeration,
        hidden: share.hidden,
        read_only: share.read_only,
    }
}
