//! The disks of a pool: adding, retiring, emptying, replacing.

use std::sync::Arc;

use control_api::{AddDisk, Code, DiskState, Done, JobKind, PoolDetail, Problem, RemoveDisk, ReplaceDisk};
use uuid::Uuid;

use super::pools::refuse_no_disk;
use super::{Node, confirm, missing};
use crate::backend::{DiskContent, PoolDisk, PoolHandle};

/// What becomes of a disk that leaves, as the job that follows it says.
fn leaves(kind: JobKind) -> &'static str {
    if kind == JobKind::Replace { "is being replaced" } else { "is being emptied" }
}

impl Node {
    /// The member of a pool that a person names by id, path or GUID.
    fn member(&self, handle: &Arc<dyn PoolHandle>, name: &str) -> Result<control_api::PoolMember, Problem> {
        let by_path = self.disks.find(name).map(|known| known.found.id);
        let info = self.pool_info(handle);
        info.members
            .into_iter()
            .find(|member| {
                member.guid.to_string() == name || (member.disk.is_some() && member.disk == by_path)
            })
            .ok_or_else(|| missing("disk in this pool", name, "holdfast pool show"))
    }

    /// Adds disks.
    pub async fn pool_add_disk(&self, pool: &str, mut request: AddDisk) -> Result<PoolDetail, Problem> {
        let before = self.config.with(|config| config.disks.clone());
        if let Some(disk) = &request.disk {
            let asks = format!("The pool takes disk {disk} over entirely, whatever is on it.");
            let comes = (disk.as_str(), request.overwrite_foreign);
            self.lend_members(pool, comes, (disk, request.confirm.as_deref()), asks).await?;
        }
        let _turns = self.turn_of_pool(pool).await?;
        let _taking = self.taking.lock().await;
        let (guid, handle) = self.pool(pool)?;
        let others: Vec<String> = self.disks_of(guid).into_iter().map(|known| known.found.id).collect();
        self.for_all_nodes(request.disk.as_mut_slice(), &others, &request.select)?;
        if let Err(problem) = self.add_disks(&handle, &request).await {
            self.forget_files(&before, &request.disk).await;
            return Err(problem);
        }
        self.pool_show(pool).await
    }

    async fn add_disks(&self, handle: &Arc<dyn PoolHandle>, request: &AddDisk) -> Result<(), Problem> {
        refuse_no_disk(request.disk.as_slice(), &request.select)?;
        let mut disks = Vec::new();
        if let Some(name) = &request.disk {
            disks.push(self.take_disk(name, request.spare).await?);
        }
        let named = disks.len();
        let taken = self.take_selected(&request.select, request.spare, &mut disks).await;
        let mut added = 0;
        let result = match taken {
            Ok(()) => self.add_taken(handle, request, &disks, named, &mut added).await,
            Err(problem) => Err(problem),
        };
        for disk in disks.iter().take(added) {
            self.probe(&disk.id).await;
        }
        self.name_disks(handle.info().guid, &**handle);
        self.release_disks(disks.split_off(added.min(disks.len()))).await;
        result
    }

    /// Adds disks that are open, the first `named` of which a person named; says in `added` how far it came.
    async fn add_taken(
        &self,
        handle: &Arc<dyn PoolHandle>,
        request: &AddDisk,
        disks: &[PoolDisk],
        named: usize,
        added: &mut usize,
    ) -> Result<(), Problem> {
        let (by_name, selected) = disks.split_at(named.min(disks.len()));
        self.refuse_foreign(by_name, request.overwrite_foreign).await?;
        // Leave to destroy is for disks that somebody has named.
        self.refuse_foreign(selected, false).await?;
        let ids: Vec<&str> = disks.iter().map(|disk| disk.id.as_str()).collect();
        match (&request.disk, ids.as_slice()) {
            (Some(_), [id]) if request.select.is_empty() && request.confirm.as_deref() == Some(id) => {}
            (Some(name), [id]) if request.select.is_empty() => {
                confirm(name, request.confirm.as_deref(), || {
                    vec![format!("The pool takes disk {id} over entirely, whatever is on it.")]
                })?;
            }
            _ => {
                let name = handle.info().name;
                confirm(&name, request.confirm.as_deref(), || {
                    let ids = ids.join(", ");
                    vec![format!("Pool {name} takes these disks over entirely, whatever is on them: {ids}.")]
                })?;
            }
        }
        self.backends.fence.check(disks).await?;
        for (at, disk) in disks.iter().enumerate() {
            let overwrite = request.overwrite_foreign && at < named;
            let taken = async {
                let disk = self.fence_one(handle.info().guid, &**handle, disk.clone()).await?;
                handle.add(disk, overwrite).await
            };
            taken.await.map_err(|mut problem| {
                if disks.len() > 1 {
                    problem.detail = format!(
                        "disk {}, after {at} of {} were added: {}",
                        disk.id,
                        disks.len(),
                        problem.detail
                    );
                }
                problem
            })?;
            *added = at + 1;
        }
        Ok(())
    }

    /// Puts nothing new on a disk and moves away what is on it.
    pub async fn pool_retire_disk(&self, pool: &str, disk: &str) -> Result<PoolDetail, Problem> {
        let _turns = self.turn_of_pool(pool).await?;
        let (_, handle) = self.pool(pool)?;
        self.drain(&handle, self.member(&handle, disk)?.guid).await?;
        self.pool_show(pool).await
    }

    /// Takes back that a disk is to leave.
    pub async fn pool_keep_disk(&self, pool: &str, disk: &str) -> Result<PoolDetail, Problem> {
        let _turns = self.turn_of_pool(pool).await?;
        let (_, handle) = self.pool(pool)?;
        let member = self.member(&handle, disk)?;
        if !matches!(member.state, DiskState::Retiring | DiskState::Failed) {
            let detail =
                format!("disk {disk} is not on its way out of pool {pool}: there is nothing to take back.");
            return Err(Problem::new(Code::WrongState, detail));
        }
        handle.keep(member.guid).await?;
        // What it had shown is known to whoever keeps it: it is retired by itself for more only.
        self.retirements.forgive(&member);
        self.pool_show(pool).await
    }

    /// Begins to empty a member, or to restore elsewhere what it held. A refusal says which disks could be added.
    async fn drain(&self, handle: &Arc<dyn PoolHandle>, member: Uuid) -> Result<(), Problem> {
        handle.drain(member).await.map_err(|problem| match problem.code {
            Code::NoSpace => {
                let name = handle.info().name;
                let mut free: Vec<String> = self
                    .disks
                    .all()
                    .into_iter()
                    .filter(|known| known.content == Some(DiskContent::Empty))
                    .map(|known| known.found.id)
                    .collect();
                free.sort();
                problem.todo(match free.first() {
                    Some(first) => format!(
                        "Add a disk first: `holdfast pool add-disk {name} {first}` (free on this machine: {}).",
                        free.join(", ")
                    ),
                    None => format!("Add a disk first: `holdfast pool add-disk {name} DISK`; no free one is on this machine."),
                })
            }
            _ => problem,
        })
    }

    /// Empties a disk and takes it out.
    pub async fn pool_remove_disk(
        self: &Arc<Self>,
        pool: &str,
        disk: &str,
        request: RemoveDisk,
    ) -> Result<Done, Problem> {
        let _turns = self.turn_of_pool(pool).await?;
        let (guid, handle) = self.pool(pool)?;
        let member = self.member(&handle, disk)?;
        let name = member.disk.clone().unwrap_or_else(|| member.guid.to_string());
        let gone = matches!(member.state, DiskState::Missing | DiskState::Failed);
        confirm(disk, request.confirm.as_deref(), || {
            let how = if gone && member.allocated_bytes > 0 {
                "What it held is restored elsewhere from other copies first; nothing of it can be used any more when it comes back."
            } else {
                "What it holds is moved to the other disks first."
            };
            vec![format!("Disk {name} leaves pool {pool}. {how}")]
        })?;
        self.drain(&handle, member.guid).await?;
        let (now_ms, wall) = self.times();
        let job = self.jobs.start(JobKind::Drain, &format!("disk {name}"), now_ms, wall);
        self.jobs.progress(job, member.allocated_bytes, leaves(JobKind::Drain), now_ms);
        tokio::spawn(self.clone().finish_drain((job, JobKind::Drain), guid, member.guid, name.clone()));
        Ok(Done {
            message: format!("Disk {name} is being emptied and then leaves the pool."),
            job: Some(job),
            node: None,
        })
    }

    /// Follows a drain and takes the disk out at its end.
    async fn finish_drain(
        self: Arc<Self>,
        (job, kind): (u64, JobKind),
        pool: Uuid,
        member: Uuid,
        name: String,
    ) {
        let end = loop {
            tokio::select! {
                () = tokio::time::sleep(std::time::Duration::from_millis(300)) => {}
                // The pool remembers the drain; `pool remove-disk` goes on with it after the next start.
                () = self.stopped() => return,
            }
            let Some(handle) = self.pools.lock().get(&pool).and_then(|slot| slot.handle.clone()) else {
                break Err("its pool was closed".to_owned());
            };
            let now = handle.info().members.into_iter().find(|m| m.guid == member);
            let stays = |member: &control_api::PoolMember| {
                !matches!(member.state, DiskState::Retiring | DiskState::Failed)
            };
            if now.as_ref().is_some_and(stays) {
                let why = format!("Disk {name} stays in the pool: `holdfast pool keep-disk` took that back.");
                return self.jobs.cancel(job, why);
            }
            let left = now.map_or(0, |member| member.allocated_bytes);
            self.jobs.progress(job, left, leaves(kind), self.times().0);
            if left == 0 {
                let _turn = self.turn(pool).await;
                break handle.remove(member).await.map_err(|problem| problem.detail);
            }
        };
        let done = end.is_ok();
        self.jobs.end(
            job,
            end.map(|()| {
                if kind == JobKind::Replace {
                    format!("What disk {name} held is on other disks, and it has left the pool.")
                } else {
                    format!("Disk {name} is empty and has left the pool.")
                }
            }),
        );
        if done {
            self.release_disk(&name).await;
            self.lend_no_more(std::slice::from_ref(&name)).await;
        }
    }

    /// Refuses a disk that cannot come to a pool, before anything is done for that. Whoever calls has the lock for taking disks.
    pub(super) async fn refuse_unusable(&self, name: &str, overwrite: bool) -> Result<(), Problem> {
        let disk = self.take_disk(name, false).await?;
        let refused = self.refuse_foreign(std::slice::from_ref(&disk), overwrite).await;
        self.release_disks(vec![disk]).await;
        refused
    }

    /// Gives what a lost disk held to another one.
    pub async fn pool_replace_disk(
        self: &Arc<Self>,
        pool: &str,
        disk: &str,
        mut request: ReplaceDisk,
    ) -> Result<Done, Problem> {
        let mut named = disk.to_owned();
        if let Some(with) = &request.with {
            if let Ok((_, handle)) = self.pool(pool) {
                // One that is lent has another name then.
                named = self.member(&handle, disk)?.guid.to_string();
            }
            let asks = format!(
                "Disk {disk} is given up: what it holds is restored elsewhere from other copies, and it leaves pool {pool}."
            );
            let comes = (with.as_str(), request.overwrite_foreign);
            self.lend_members(pool, comes, (disk, request.confirm.as_deref()), asks).await?;
        }
        let _turns = self.turn_of_pool(pool).await?;
        let _taking = self.taking.lock().await;
        let (guid, handle) = self.pool(pool)?;
        let others: Vec<String> = self.disks_of(guid).into_iter().map(|known| known.found.id).collect();
        self.for_all_nodes(request.with.as_mut_slice(), &others, &[])?;
        let member = self.member(&handle, &named)?;
        let name = member.disk.clone().unwrap_or_else(|| member.guid.to_string());
        if let Some(with) = &request.with {
            // What cannot be is refused before anybody is asked.
            self.refuse_unusable(with, request.overwrite_foreign).await?;
        }
        confirm(disk, request.confirm.as_deref(), || {
            vec![format!(
                "Disk {name} is given up: what it holds is restored elsewhere from other copies, and it leaves pool {pool}."
            )]
        })?;
        if let Some(with) = &request.with {
            let add = AddDisk {
                disk: Some(with.clone()),
                select: Vec::new(),
                spare: false,
                overwrite_foreign: request.overwrite_foreign,
                confirm: Some(with.clone()),
            };
            self.add_disks(&handle, &add).await?;
        }
        self.drain(&handle, member.guid).await?;
        let (now_ms, wall) = self.times();
        let job = self.jobs.start(JobKind::Replace, &format!("disk {name}"), now_ms, wall);
        self.jobs.progress(job, member.allocated_bytes, leaves(JobKind::Replace), now_ms);
        tokio::spawn(self.clone().finish_drain((job, JobKind::Replace), guid, member.guid, name.clone()));
        Ok(Done {
            message: format!("What disk {name} held is being restored elsewhere."),
            job: Some(job),
            node: None,
        })
    }
}
