//! The node's memory: the read cache, its size, and which volumes use it how; the logs of volumes; and what requests under
//! way may take.

use std::sync::Arc;

use control_api::{
    CachePolicyUpdate, CacheStatus, CacheUpdate, Code, Config, Done, LogCreate, Problem, Volume, VolumeConfig,
};
use read_cache::MemorySample;
use uuid::Uuid;

use super::ties::lies_in;
use super::{Node, VolumeSlot, confirm, to_its_end};
use crate::system::read_counters;

/// What the cache takes of the machine's memory when nothing was said, and what requests may take, each as a divisor.
const MEMORY_PART: u64 = 8;

impl Node {
    /// Makes the cache and its use by volumes what the configuration says.
    pub(super) fn apply_caches(&self, config: &Config) {
        let cache = &self.backends.cache;
        let unsaid = || MemorySample::now().map_or(0, |sample| sample.total / MEMORY_PART);
        let limit = config.cache.read_bytes.unwrap_or_else(unsaid);
        if cache.sizes().limit != limit {
            cache.set_limit(limit);
        }
        let requests = config.cache.request_bytes.unwrap_or_else(unsaid);
        self.backends.budget.resize(usize::try_from(requests).unwrap_or(usize::MAX));
        self.backends.write_caches.set_total(config.cache.write_bytes.unwrap_or_else(unsaid));
        let volumes: Vec<_> = {
            let volumes = self.volumes.lock();
            let open =
                |(name, slot): (&String, &VolumeSlot)| Some((name.clone(), slot.space, slot.handle.clone()?));
            volumes.iter().filter_map(open).collect()
        };
        for (name, space, handle) in volumes {
            handle.set_cache(&policy(config, &name, space));
        }
    }

    /// Gives memory back when the machine is short of it, and takes it again.
    pub(super) async fn balance_caches(&self) {
        let cache = self.backends.cache.clone();
        // Reads files and may free much: not for the threads of the control plane. When the node stops there is no next time.
        let _ = tokio::task::spawn_blocking(move || {
            if let Some(sample) = MemorySample::now() {
                cache.balance(sample);
            }
        })
        .await;
    }

    /// How a volume is cached.
    pub(super) fn cache_policy(&self, name: &str, space: Uuid) -> VolumeConfig {
        self.config.with(|config| policy(config, name, space))
    }

    /// Changes how the volume of this name in this space is cached, and does it if the volume is open.
    pub(super) fn set_cache_policy(
        &self,
        name: &str,
        space: Uuid,
        update: CachePolicyUpdate,
    ) -> Result<(), Problem> {
        if update == CachePolicyUpdate::default() {
            return Ok(());
        }
        let mut wanted = self.cache_policy(name, space);
        wanted.volume_guid = Some(space);
        wanted.read_cache = update.read_cache.unwrap_or(wanted.read_cache);
        wanted.read_ahead = update.read_ahead.unwrap_or(wanted.read_ahead);
        self.config.change(|config| {
            config.volumes.retain(|volume| !lies_in(volume, name, space));
            config.volumes.push(wanted.clone());
            Ok(())
        })?;
        if self.volume_guid(name) == Some(space)
            && let Ok(handle) = self.volume(name)
        {
            handle.set_cache(&wanted);
        }
        Ok(())
    }

    /// Puts a log before a volume in use. Goes on when the client goes away.
    ///
    /// # Errors
    /// When the volume is not open, has a log, or there is no room for one.
    pub async fn volume_log_add(self: &Arc<Self>, name: &str, request: LogCreate) -> Result<Volume, Problem> {
        let (node, name) = (Arc::clone(self), name.to_owned());
        to_its_end(async move {
            let wanted = request.pool.clone();
            let _turns = node
                .turns_of(|node| {
                    let log = wanted.iter().flat_map(|pool| node.pools_named(pool));
                    node.pools_of_volume(&name).into_iter().chain(log).collect()
                })
                .await?;
            let (guid, pool, _) = node.space(&name)?;
            if node.volume(&name)?.log().is_some() {
                return Err(Problem::new(Code::AlreadyExists, format!("volume {name} has a log.")).todo(
                    format!("To replace it by another one: `holdfast volume log remove {name}` first."),
                ));
            }
            let log = node.new_log(guid, &request)?;
            pool.add_log(&name, log).await?;
            node.note_logs();
            tracing::info!(volume = name, "a log was added");
            node.volume_show(&name, None).await
        })
        .await
    }

    /// Brings what is in a volume's log to the volume and takes the log away, in use. Goes on when the client goes away.
    ///
    /// # Errors
    /// When the volume is not open or has no log, or its own disks fail: the log stays then.
    pub async fn volume_log_remove(self: &Arc<Self>, name: &str) -> Result<Volume, Problem> {
        let (node, name) = (Arc::clone(self), name.to_owned());
        to_its_end(async move {
            let _turns = node.turn_of_volume(&name).await?;
            let (_, pool, _) = node.space(&name)?;
            if node.volume(&name)?.log().is_none() {
                return Err(Problem::new(Code::NotFound, format!("volume {name} has no log."))
                    .todo("`holdfast volume list` says which volumes have one."));
            }
            pool.remove_log(&name).await?;
            node.note_logs();
            tracing::info!(volume = name, "its log was removed");
            node.volume_show(&name, None).await
        })
        .await
    }

    /// Opens a volume whose log is lost, without what was only there; or deletes a log whose volume is in no pool of this node.
    pub async fn volume_give_up_log(&self, name: &str, confirmed: Option<String>) -> Result<Done, Problem> {
        let _turns = self.turn_of_volume(name).await?;
        if let Some((pool, space)) = self.orphan_log(name) {
            confirm(name, confirmed.as_deref(), || {
                vec![format!(
                    "Volume {name} is in no pool of this node. What was written to it and lies only in its log is lost, though it was acknowledged."
                )]
            })?;
            let handle = self.open_handles().into_iter().find(|(guid, _)| *guid == pool);
            if let Some((_, handle)) = handle {
                handle.delete_space(&space).await?;
            }
            self.note_logs();
            return Ok(Done::new(format!("The log of volume {name} is deleted.")));
        }
        let (guid, pool, _) = self.space(name)?;
        if let Ok(volume) = self.volume(name) {
            let of_log = if volume.log().is_some() { "its log is there" } else { "it has no log" };
            return Err(Problem::new(Code::WrongState, format!("volume {name} is open: {of_log}.")));
        }
        let waits = self.volumes.lock().get(name).filter(|slot| !slot.lacks_log && !slot.damaged).cloned();
        if let Some(slot) = waits {
            let why = slot.reason.unwrap_or_else(|| "it is being opened".into());
            let detail = format!("volume {name} does not wait for its log: {why}.");
            return Err(Problem::new(Code::WrongState, detail).todo("`holdfast status` says what to do."));
        }
        confirm(name, confirmed.as_deref(), || {
            vec![format!(
                "What was written to volume {name} and lies only in its log is lost, though it was acknowledged."
            )]
        })?;
        pool.give_up_log(name).await?;
        self.open_volumes(guid).await;
        self.serve_pool(Some(guid)).await;
        let has_log = self.volume(name)?.log().is_some();
        // The volume still asks for the one that is lost: its user has given that up.
        if has_log && let Err(problem) = pool.remove_log(name).await {
            return Err(Problem::new(
                problem.code,
                format!("volume {name} is open, and still asks for its log: {}", problem.detail),
            )
            .todo(format!("`holdfast volume log remove {name}`")));
        }
        self.note_logs();
        Ok(Done::new(format!("Volume {name} is open, without a log.")))
    }

    /// The read cache.
    pub async fn cache_show(&self) -> Result<CacheStatus, Problem> {
        let (sizes, counters) = (self.backends.cache.sizes(), self.backends.cache.counters());
        Ok(CacheStatus {
            limit_bytes: sizes.limit,
            limit_in_force_bytes: sizes.in_force,
            held_bytes: sizes.held,
            counters: read_counters(&counters),
        })
    }

    /// Changes the size of the read cache.
    pub async fn cache_update(&self, request: CacheUpdate) -> Result<CacheStatus, Problem> {
        let _changing = self.changes.lock().await;
        self.config.change(|config| {
            config.cache.read_bytes = request.read_bytes;
            Ok(())
        })?;
        self.apply_caches(&self.config.get());
        self.cache_show().await
    }
}

/// How the volume of this name in this space is cached. What says only a name may be of another volume: what says which one
/// counts first.
fn policy(config: &Config, name: &str, space: Uuid) -> VolumeConfig {
    let own = config.volumes.iter().find(|volume| volume.volume_guid == Some(space));
    let said = own.or_else(|| config.volumes.iter().find(|volume| lies_in(*volume, name, space)));
    said.cloned().unwrap_or_else(|| VolumeConfig::unsaid(name))
}
