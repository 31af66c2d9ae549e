//! The spaces of logs: found, made, put before volumes in use and taken away.

use std::sync::{Arc, Weak};

use control_api::{Code, Problem, Provisioning, Resiliency};
use pool::Guid;

use super::super::room::explain_no_room;
use super::SystemPool;
use crate::backend::{NewLog, NewSpace, PoolHandle, log_name};
use crate::system::storage::Storage;
use crate::system::volumes::SystemVolume;

impl SystemPool {
    /// The pool that has the space of the log of a volume's space, and the space of the log.
    pub(super) fn find_log(&self, volume: &pool::Space) -> Option<(Arc<Self>, Arc<pool::Space>)> {
        let opened: Vec<Arc<Self>> = self.opened.lock().iter().filter_map(Weak::upgrade).collect();
        let name = log_name(&volume.name(), &volume.guid().to_string());
        opened.into_iter().find_map(|pool| {
            let space = pool.pool.space(&name)?;
            Some((pool, space))
        })
    }

    pub(super) fn storage(&self, name: &str) -> Result<Storage, Problem> {
        let space = self.space(name)?;
        let log = self.find_log(&space).map(|(_, log)| log);
        Ok(Storage::new(space, log, &self.surroundings))
    }

    /// Makes the space of a log, which stands the loss of as many disks as the volume: it holds what the volume does not have yet.
    pub(super) async fn create_log(
        &self,
        volume: &NewSpace,
        space: &pool::Space,
        log: NewLog,
    ) -> Result<Arc<pool::Space>, Problem> {
        let opened: Vec<Arc<Self>> = self.opened.lock().iter().filter_map(Weak::upgrade).collect();
        let guid = Guid(log.pool.into_bytes());
        let Some(home) = opened.into_iter().find(|pool| pool.pool.guid() == guid) else {
            return Err(Problem::new(Code::WrongState, "The pool of the log is not open."));
        };
        let spec = home.spec(&NewSpace {
            name: log_name(&volume.name, &space.guid().to_string()),
            size_bytes: log.size_bytes,
            // Small writes are what it is for: copies, not parity.
            resiliency: match volume.resiliency {
                Resiliency::Parity1 => Resiliency::Mirror2,
                Resiliency::Parity2 => Resiliency::Mirror3,
                mirror => mirror,
            },
            provisioning: Provisioning::Fixed,
            columns: None,
            interleave_bytes: None,
            log: None,
            ..volume.clone()
        })?;
        let shape = spec.clone();
        let made = home.at_home(move |pool| async move { pool.create_space(spec).await }).await;
        made.map_err(|problem| explain_no_room(&home.pool, problem, &shape))
    }

    /// Destroys the space of a log that was found.
    pub(super) async fn delete_log(&self, log: Option<(Arc<Self>, Arc<pool::Space>)>) -> Result<(), Problem> {
        let Some((home, space)) = log else { return Ok(()) };
        let id = space.id();
        drop(space);
        home.at_home(move |pool| async move { pool.delete_space(id).await }).await
    }

    /// Keeps an open volume in mind, and deletes a space that was made for a log which it does not have: adding or removing
    /// one was interrupted.
    pub(super) async fn keep_volume(&self, name: &str, volume: Arc<SystemVolume>) -> Arc<SystemVolume> {
        self.volumes.lock().insert(name.to_owned(), Arc::downgrade(&volume));
        if volume.has_leftover() {
            self.delete_leftover_of(name).await;
        }
        volume
    }

    async fn delete_leftover_of(&self, name: &str) {
        let Ok(space) = self.space(name) else { return };
        let Some((home, log)) = self.find_log(&space) else { return };
        // Of a pool that does nothing more until it is opened again: then is the time.
        if home.pool.has_stopped() {
            return;
        }
        match self.delete_log(Some((home, log))).await {
            Ok(()) => tracing::info!(volume = name, "the space of a log that nobody asks for is deleted"),
            Err(problem) => {
                tracing::warn!(volume = name, %problem, "the space of a log that nobody asks for stays")
            }
        }
    }

    /// Deletes spaces of logs that the open volumes of this pool do not ask for: the pools that they lie in were away when the
    /// logs were removed, or opened later than the volumes. Changes of logs wait meanwhile.
    pub(super) async fn delete_leftover_logs(&self) {
        let open: Vec<_> = {
            let volumes = self.volumes.lock();
            volumes.iter().filter_map(|(name, volume)| Some((name.clone(), volume.upgrade()?))).collect()
        };
        for (name, volume) in open {
            if volume.wants_no_log() {
                self.delete_leftover_of(&name).await;
            }
        }
    }

    fn opened_volume(&self, name: &str) -> Result<Arc<SystemVolume>, Problem> {
        let volume = self.volumes.lock().get(name).and_then(Weak::upgrade);
        volume.ok_or_else(|| Problem::new(Code::WrongState, format!("volume {name} is not open.")))
    }

    /// Makes the space of a log and puts the log before the open volume.
    pub(super) async fn add_log_to(&self, name: &str, log: NewLog) -> Result<(), Problem> {
        let (volume, space) = (self.opened_volume(name)?, self.space(name)?);
        if volume.has_log() {
            return Err(Problem::new(Code::AlreadyExists, format!("volume {name} has a log."))
                .todo("To replace it by another one, remove it first."));
        }
        if !volume.wants_no_log() {
            let detail = format!("whether volume {name} has a log is found out when it is opened again.");
            return Err(
                Problem::new(Code::WrongState, detail).todo(format!("`holdfast volume reopen {name} --yes`"))
            );
        }
        // One that was interrupted before, by a client that went away.
        self.delete_log(self.find_log(&space)).await?;
        let described = self.info().spaces.into_iter().find(|space| space.state.name == name);
        let Some(described) = described else {
            return Err(Problem::new(Code::NotFound, format!("there is no volume {name}.")));
        };
        let like = NewSpace {
            name: name.to_owned(),
            size_bytes: described.size_bytes,
            resiliency: described.state.resiliency,
            provisioning: described.provisioning,
            columns: None,
            interleave_bytes: None,
            integrity: Some(described.integrity),
            log: None,
        };
        let made = self.create_log(&like, &space, log).await?;
        let Err(failed) = volume.add_log(made).await else { return Ok(()) };
        if failed.space_is_free
            && let Err(problem) = self.delete_log(self.find_log(&space)).await
        {
            tracing::warn!(volume = name, %problem, "the space of a log that could not be added stays");
        }
        Err(failed.problem)
    }

    /// Takes the log of the open volume away and deletes its space.
    pub(super) async fn remove_log_of(&self, name: &str) -> Result<(), Problem> {
        let (volume, space) = (self.opened_volume(name)?, self.space(name)?);
        volume.remove_log().await?;
        if let Err(problem) = self.delete_log(self.find_log(&space)).await {
            // It is found by the next opening of the volume, or by whoever adds another log.
            tracing::warn!(volume = name, %problem, "the space of a log that was removed stays");
        }
        Ok(())
    }
}
