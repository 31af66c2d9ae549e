//! LUNs: files of volumes that targets serve.

mod served;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use control_api::{
    Code, Config, Done, FileCreate, FileEntry, FileKind, Lun, LunConfig, LunCreate, LunFormat, LunState,
    LunUpdate, Problem, check_name, human_bytes, many,
};
use file_store::Access;
use futures_util::StreamExt as _;
use uuid::Uuid;

use super::all_sessions::{AllSessions, Elsewhere};
use super::known::Impaired;
use super::lun_images::size_of_image;
use super::lun_sizes::{enough_memory, room_in_memory, whole_blocks};
use super::placing::{group_of, place};
use super::{LOOKED_AT_ONCE, Node, confirm, missing, taken, to_its_end, within_patience};
use crate::files;

use served::Served;

impl Node {
    pub(super) fn lun_config(&self, name: &str) -> Result<LunConfig, Problem> {
        let found = self.config.with(|config| config.luns.iter().find(|lun| lun.name == name).cloned());
        found.ok_or_else(|| missing("LUN", name, "holdfast lun list"))
    }

    async fn describe_lun(&self, config: LunConfig, impaired: Option<&Impaired>, served: &Served) -> Lun {
        let mut problem = self.why_unserved(&format!("lun {}", config.name));
        let (mut size, mut allocated) = (0, 0);
        match within_patience(&config.volume, self.lun_stat(&config)).await {
            Ok(file) => {
                (size, allocated) = (file.size_bytes, file.allocated_bytes);
                if config.format == LunFormat::Vhdx {
                    let image = served.images.get(&config.name).cloned().unwrap_or_default();
                    size = image.size_bytes;
                    problem = problem.or(image.problem);
                }
            }
            Err(why) => {
                let stranger = self.refuse_stranger(&config).err();
                problem = Some(stranger.unwrap_or(why).detail);
            }
        }
        let lost = problem.is_some() || impaired.is_some_and(|impaired| impaired.wholly);
        let serving = if lost { LunState::Offline } else { config.state };
        let problem = problem.or_else(|| impaired.map(|impaired| impaired.why.clone()));
        let caching = served.caching.contains(&config.name);
        let write_cache_now = served.caches.get(&config.name).cloned();
        let reservations = served.reservations.get(&config.name).cloned();
        let lost_writes = served.lost_writes.get(&config.name).cloned().unwrap_or_default();
        Lun {
            config,
            size_bytes: size,
            allocated_bytes: allocated,
            serving,
            caching,
            write_cache_now,
            reservations,
            lost_writes,
            problem,
        }
    }

    /// The file of a LUN.
    pub(super) async fn lun_stat(&self, lun: &LunConfig) -> Result<FileEntry, Problem> {
        let (handle, path) = (self.volume_of(lun)?, lun.path.clone());
        let store = handle.store();
        self.on_shard(handle.shard(), move || async move { files::stat(&*store, &path).await }).await
    }

    /// LUNs, those in trouble first.
    pub async fn lun_list(&self) -> Result<Vec<Lun>, Problem> {
        let (impaired, served) = (self.impaired(), self.served_luns());
        let configs = self.config.with(|config| config.luns.clone());
        let mut describing = Vec::new();
        for config in configs {
            let impaired = self.impaired_of(&impaired, &config);
            describing.push(self.describe_lun(config, impaired, &served));
        }
        // A volume that does not answer is waited for once, however many LUNs are on it.
        let mut luns: Vec<Lun> =
            futures_util::stream::iter(describing).buffered(LOOKED_AT_ONCE).collect().await;
        luns.sort_by(|a, b| {
            (a.problem.is_none(), a.serving, &a.config.name).cmp(&(
                b.problem.is_none(),
                b.serving,
                &b.config.name,
            ))
        });
        Ok(luns)
    }

    /// A LUN.
    pub async fn lun_show(&self, name: &str) -> Result<Lun, Problem> {
        let config = self.lun_config(name)?;
        let impaired = self.impaired();
        let impaired = self.impaired_of(&impaired, &config);
        Ok(self.describe_lun(config, impaired, &self.served_luns()).await)
    }

    /// Makes a LUN.
    pub async fn lun_create(self: &Arc<Self>, request: LunCreate) -> Result<Lun, Problem> {
        let node = Arc::clone(self);
        to_its_end(async move { node.make_lun(request).await }).await
    }

    /// The configuration with a new LUN. Everything but the file is checked, so that a refused request leaves nothing behind.
    fn with_lun(&self, config: &Config, request: &LunCreate) -> Result<(Config, LunConfig), Problem> {
        check_name("LUN", &request.name)?;
        if self.lun_config(&request.name).is_ok() {
            return Err(taken("LUN", &request.name));
        }
        let volume = self.volume_or_only(request.volume.as_deref())?;
        let mut wanted = config.clone();
        let mut lun = LunConfig {
            guid: Some(new_guid()?),
            volume_guid: self.volume_guid(&volume),
            format: request.format,
            parents_anywhere: request.parents_anywhere,
            block_size: request.block_size.unwrap_or(512),
            write_cache: request.write_cache,
            write_cache_in: request.write_cache_in.clone(),
            ..LunConfig::new(
                &request.name,
                &volume,
                request.path.clone().unwrap_or_else(|| format!("/luns/{}", request.name)),
            )
        };
        for map in &request.map {
            let group = group_of(&mut wanted.groups, map)?;
            let map = place(&wanted, &request.name, &lun.map, group, map)?;
            lun.map.push(map);
        }
        wanted.luns.push(lun.clone());
        wanted.check().and_then(|()| wanted.check_changed(config))?;
        Ok((wanted, lun))
    }

    async fn make_lun(&self, request: LunCreate) -> Result<Lun, Problem> {
        let request = self.of_image(request).await?;
        if let (Some(cache), Some(room)) = (&request.write_cache_in, self.backends.iscsi.cache_room()) {
            room_in_memory(cache, room)?;
        }
        let (lun, _making) = {
            let _changing = self.changes.lock().await;
            let (_, lun) = self.with_lun(&self.config.current().config, &request)?;
            (lun, Making::begin(self, &request.name)?)
        };
        // What is reserved takes as long as disks need: others change meanwhile what they like, so it is looked at again.
        let made = self.lun_file(&request, &lun.volume, &lun.path, lun.block_size).await?;
        let _turns = self.turn_of_volume(&lun.volume).await?;
        if let Err(problem) = self.add_lun(&request, &lun).await {
            // All nodes may have it though the store has not answered: its file stays until that is known.
            let certain = self.config.catch_up().is_ok();
            if made && certain && self.refuse_lun_data(&lun.volume, &lun.path).await.is_ok() {
                // The first problem is the one to tell.
                let _ = self.remove_file(&lun.volume, &lun.path).await;
            }
            return Err(problem);
        }
        self.serve_lun(&lun).await;
        self.lun_show(&request.name).await
    }

    /// Serves a LUN as the configuration says, and lets those log in to targets who see it.
    pub(super) async fn serve_lun(&self, lun: &LunConfig) {
        self.serve_pool(self.pool_of(lun)).await;
        self.serve_node().await;
    }

    /// Adds a LUN whose file is there.
    async fn add_lun(&self, request: &LunCreate, before: &LunConfig) -> Result<(), Problem> {
        let file = self.file_stat(&before.volume, &before.path).await?;
        self.refuse_second_lun(&before.volume, &file, None).await?;
        let _changing = self.changes.lock().await;
        self.config.change(|config| {
            let (wanted, lun) = self.with_lun(config, request)?;
            if (&lun.volume, lun.volume_guid) != (&before.volume, before.volume_guid) {
                let detail =
                    format!("Volume {} is another one since LUN {} was begun.", lun.volume, lun.name);
                return Err(Problem::new(Code::WrongState, detail).todo("Try again."));
            }
            *config = wanted;
            Ok(())
        })
    }

    /// Finds or makes the file of a LUN; says whether it was made.
    async fn lun_file(
        &self,
        request: &LunCreate,
        volume: &str,
        path: &str,
        block: u32,
    ) -> Result<bool, Problem> {
        match (self.file_stat(volume, path).await, request.size_bytes) {
            (Ok(file), size) => {
                if file.kind == FileKind::Directory {
                    return Err(Problem::new(Code::InvalidRequest, format!("{path} is a directory.")));
                }
                if request.format == LunFormat::Vhdx {
                    // The size is that of the disk in it, which was looked at.
                    return self.refuse_second_lun(volume, &file, None).await.map(|()| false);
                }
                if size.is_some_and(|size| size != file.size_bytes) {
                    return Err(Problem::new(
                        Code::AlreadyExists,
                        format!(
                            "{path} of volume {volume} is there already, with {} ({} bytes).",
                            human_bytes(file.size_bytes),
                            file.size_bytes
                        ),
                    )
                    .todo("Leave the size out to use it as it is, or choose another --path."));
                }
                whole_blocks(&format!("The file {path} of volume {volume}"), file.size_bytes, block)?;
                enough_memory(request.write_cache_in.as_ref(), file.size_bytes)?;
                self.refuse_second_lun(volume, &file, None).await?;
                if request.reserve {
                    self.reserve_file((volume, &self.volume(volume)?), &file).await?;
                }
                Ok(false)
            }
            (Err(problem), Some(size)) if problem.code == Code::NotFound => {
                whole_blocks(&format!("LUN {}", request.name), size, block)?;
                enough_memory(request.write_cache_in.as_ref(), size)?;
                let create = FileCreate {
                    path: path.into(),
                    kind: FileKind::File,
                    size_bytes: size,
                    reserve: request.reserve,
                    parents: true,
                };
                self.file_create(volume, create).await?;
                Ok(true)
            }
            (Err(problem), None) if problem.code == Code::NotFound => {
                Err(problem.todo("Say how large the LUN is with --size to make the file."))
            }
            (Err(problem), _) => Err(problem),
        }
    }

    /// Refuses that a file becomes a LUN's that is another one's, by whichever name: two disks would overwrite each other.
    pub(super) async fn refuse_second_lun(
        &self,
        volume: &str,
        file: &FileEntry,
        except: Option<&str>,
    ) -> Result<(), Problem> {
        match self.lun_of(volume, file, except).await {
            Some((lun, name)) => Err(Problem::new(
                Code::InUse,
                format!("{} of volume {volume} is the file of LUN {lun} ({name}).", file.path),
            )
            .todo(format!("Map LUN {lun} to more initiators (`holdfast lun map`), or choose another file."))),
            None => Ok(()),
        }
    }

    /// Refuses a configuration in which a LUN that was not there before is made of another one's file.
    pub(super) async fn refuse_second_luns(&self, have: &Config, want: &Config) -> Result<(), Problem> {
        let place = |lun: &LunConfig| (upcase::upper(&lun.volume), lun.volume_guid, upcase::upper(&lun.path));
        let known: BTreeSet<(String, Option<Uuid>, String)> = have.luns.iter().map(place).collect();
        let mut files: BTreeMap<(String, u64), String> = BTreeMap::new();
        // Nothing is asked for where no LUN comes or moves; those that were there come first.
        if want.luns.iter().all(|lun| known.contains(&place(lun))) {
            return Ok(());
        }
        let (old, new): (Vec<_>, Vec<_>) = want.luns.iter().partition(|lun| known.contains(&place(lun)));
        let old_ones = old.len();
        for (index, lun) in old.into_iter().chain(new).enumerate() {
            let Ok(file) = self.lun_stat(lun).await else { continue };
            let other = files.insert((lun.volume.clone(), file.file_id), lun.name.clone());
            if let Some(other) = other.filter(|_| index >= old_ones) {
                return Err(Problem::new(
                    Code::InvalidRequest,
                    format!(
                        "{} of volume {} is the file of LUN {other}, and LUN {} would be made of it, too.",
                        lun.path, lun.volume, lun.name
                    ),
                )
                .todo("Each LUN has a file of its own. Nothing was changed."));
            }
        }
        Ok(())
    }

    async fn remove_file(&self, volume: &str, path: &str) -> Result<(), Problem> {
        let handle = self.volume(volume)?;
        let (store, path) = (handle.store(), path.to_owned());
        self.on_shard(handle.shard(), move || async move { files::remove(&*store, &path).await }).await
    }

    /// Changes a LUN.
    pub async fn lun_update(&self, name: &str, request: LunUpdate) -> Result<Lun, Problem> {
        // Anything else ends nothing that a host has.
        let ends = request.state.is_some()
            || request.size_bytes.is_some()
            || request.volume.is_some()
            || request.path.is_some();
        let elsewhere = if ends { self.sessions_elsewhere().await } else { Elsewhere::none() };
        let turns = self
            .turns_of(|node| {
                let of =
                    node.lun_config(name).map(|lun| lun.volume).into_iter().chain(request.volume.clone());
                of.flat_map(|volume| node.pools_of_volume(&volume)).collect()
            })
            .await?;
        let all = self.all_sessions(elsewhere);
        let lun = self.lun_config(name)?;
        self.refuse_change(&lun, &request, &all)?;
        let place = self.lun_place(&lun, &request, &all).await?;
        if let Some(size) = request.size_bytes {
            whole_blocks(&format!("LUN {name}"), size, lun.block_size)?;
            let file = self.lun_stat(&lun).await?;
            let now = match lun.format {
                LunFormat::Raw => file.size_bytes,
                LunFormat::Vhdx => size_of_image(name, self.image_now(name))?,
            };
            if size < now {
                confirm(name, request.confirm.as_deref(), || self.shrinking(&lun, now, size, &all))?;
            }
            if lun.format == LunFormat::Vhdx {
                self.backends.iscsi.resize_image(name, size).await?;
            } else {
                let handle = self.volume_of(&lun)?;
                if request.reserve {
                    // Before it has grown.
                    let lacking = size.saturating_sub(file.allocated_bytes);
                    self.refuse_no_room((&lun.volume, &handle), lacking).await?;
                }
                let (store, path) = (handle.store(), lun.path.clone());
                self.on_shard(handle.shard(), move || async move {
                    let file = files::open_shared(&*store, &path, Access::READ_WRITE, files::KEPT).await?;
                    file.set_size(size).await.map_err(|error| files::problem(&error))
                })
                .await?;
            }
        }
        let changing = self.changes.lock().await;
        self.config.change(|config| {
            let lun = find(&mut config.luns, name)?;
            if let Some(place) = &place {
                place.put(lun);
            }
            if let Some(state) = request.state {
                lun.state = state;
                lun.reason = request.reason.clone().unwrap_or_default();
            }
            if let Some(cache) = request.write_cache {
                lun.write_cache = cache;
            }
            if let Some(initiators) = request.initiator_write_cache {
                lun.initiator_write_cache = initiators;
            }
            Ok(())
        })?;
        drop(changing);
        let after = self.lun_config(name)?;
        if self.pool_of(&after) != self.pool_of(&lun) {
            // Let go of where it was, before it is opened where it is.
            self.serve_pool(self.pool_of(&lun)).await;
        }
        self.serve_lun(&after).await;
        drop(turns);
        if request.reserve {
            // As long as that takes, others change what they like.
            let reserved = async {
                // It may have another file since.
                let lun = self.lun_config(name)?;
                self.reserve_file((&lun.volume, &self.volume_of(&lun)?), &self.lun_stat(&lun).await?).await
            };
            reserved.await.map_err(|mut problem| {
                problem.detail = format!(
                    "LUN {name} has what else was asked for, and is not reserved: {}",
                    problem.detail
                );
                problem
            })?;
        }
        self.lun_show(name).await
    }

    /// What becomes of a LUN that shrinks, and whose disk it is.
    fn shrinking(&self, lun: &LunConfig, now: u64, size: u64, all: &AllSessions) -> Vec<String> {
        let mut lines = vec![format!(
            "LUN {} shrinks from {} to {}: its last {} ({} bytes) are lost.",
            lun.name,
            human_bytes(now),
            human_bytes(size),
            human_bytes(now - size),
            now - size
        )];
        lines.extend(self.users_of(lun, all));
        if lines.len() == 1 {
            lines.push("No initiator is connected to it.".to_owned());
        }
        lines
    }

    /// Takes a LUN away.
    pub async fn lun_delete(
        &self,
        name: &str,
        keep_file: bool,
        confirmed: Option<String>,
    ) -> Result<Done, Problem> {
        let elsewhere = self.sessions_elsewhere().await;
        let _turns = self
            .turns_of(|node| {
                node.lun_config(name).map_or(Vec::new(), |lun| node.pools_of_volume(&lun.volume))
            })
            .await?;
        let all = self.all_sessions(elsewhere);
        let lun = self.lun_config(name)?;
        let others = match self.lun_stat(&lun).await {
            Ok(file) => file.names.saturating_sub(1),
            // The file of another volume is not its own, and one that cannot be reached cannot be removed.
            Err(problem) if !keep_file && problem.code != Code::NotFound => {
                return Err(problem.todo(format!(
                    "`holdfast lun delete {name} --keep-file` takes the LUN away; its file stays where it is."
                )));
            }
            Err(_) => 0,
        };
        confirm(name, confirmed.as_deref(), || {
            let file = format!("{}:{}", lun.volume, lun.path);
            let goes = if keep_file {
                format!("LUN {name} disappears from initiators; its file {file} stays.")
            } else if others > 0 {
                format!(
                    "LUN {name} disappears from initiators, and the name {file} goes; its data stays under {} (hard links) of the file.",
                    many(others.into(), "other name")
                )
            } else {
                format!(
                    "LUN {name} disappears from initiators, and its file {file} with all data is destroyed."
                )
            };
            [goes].into_iter().chain(self.users_of(&lun, &all)).collect()
        })?;
        let pool = self.pool_of(&lun);
        let changing = self.changes.lock().await;
        self.config.change(|config| {
            if !config.luns.contains(&lun) {
                let detail = format!("LUN {name} has just been changed.");
                return Err(Problem::new(Code::WrongState, detail).todo("Look at it, and try again."));
            }
            config.remove_luns(|lun| lun.name == name);
            Ok(())
        })?;
        drop(changing);
        // Closes the file before it is removed.
        self.serve_pool(pool).await;
        self.serve_node().await;
        if !keep_file {
            match self.remove_file(&lun.volume, &lun.path).await {
                Err(problem) if problem.code == Code::NotFound => {}
                other => other?,
            }
        }
        Ok(Done::new(format!("LUN {name} is gone.")))
    }
}

/// The name of a LUN that is being made, which no other one gets meanwhile.
struct Making<'a>(&'a Node, String);

impl<'a> Making<'a> {
    fn begin(node: &'a Node, name: &str) -> Result<Self, Problem> {
        if !node.making.lock().insert(name.to_owned()) {
            let detail = format!("LUN {name} is being made.");
            return Err(Problem::new(Code::InUse, detail).todo("Wait for that, or choose another name."));
        }
        Ok(Self(node, name.to_owned()))
    }
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        self.0.making.lock().remove(&self.1);
    }
}

pub(super) fn find<'a>(luns: &'a mut [LunConfig], name: &str) -> Result<&'a mut LunConfig, Problem> {
    luns.iter_mut().find(|lun| lun.name == name).ok_or_else(|| missing("LUN", name, "holdfast lun list"))
}

/// A new random identity. Its version, 8, says that initiators see it as a locally assigned designator (NAA 3); LUNs that
/// were made earlier have version 4, and keep the designator that they had.
pub(super) fn new_guid() -> Result<Uuid, Problem> {
    Ok(uuid::Builder::from_custom_bytes(crate::entropy()?).into_uuid())
}
