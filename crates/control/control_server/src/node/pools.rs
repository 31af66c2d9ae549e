//! Pools: opening, making, changing.

use std::sync::Arc;

use control_api::{
    Code, Done, PoolConfig, PoolCreate, PoolDetail, PoolImport, PoolMember, Problem, Selector, check_name,
    check_slab_bytes, many, natural_order,
};
use uuid::Uuid;

use super::path::PATIENCE;
use super::pool_summary::bring_back;
use super::{Node, confirm, missing, taken};
use crate::backend::{DiskContent, Fenced, NewPool, OpenTold, PoolDisk, PoolHandle, PoolInfo};

impl Node {
    /// The open pool of this name or GUID.
    pub(super) fn pool(&self, name: &str) -> Result<(Uuid, Arc<dyn PoolHandle>), Problem> {
        let pools = self.pools.lock();
        let found = pools.iter().find(|(guid, slot)| slot.name == name || guid.to_string() == name);
        let (guid, slot) = found.ok_or_else(|| missing("pool", name, "holdfast pool list"))?;
        match &slot.handle {
            Some(handle) => Ok((*guid, handle.clone())),
            None if let Some(problem) = self.not_here(*guid) => {
                Err(Problem { detail: format!("pool {}: {}.", slot.name, problem.detail), ..problem })
            }
            None => Err(Problem::new(
                Code::WrongState,
                format!(
                    "pool {} is not open: {}.",
                    slot.name,
                    slot.reason.as_deref().or(self.coming(*guid)).unwrap_or("it is being opened")
                ),
            )
            .todo(slot.todo.as_deref().unwrap_or("`holdfast status` says what to do."))),
        }
    }

    /// The pool of this name, or the only one.
    pub(super) fn pool_or_only(&self, name: Option<&str>) -> Result<(Uuid, Arc<dyn PoolHandle>), Problem> {
        if let Some(name) = name {
            return self.pool(name);
        }
        let names: Vec<String> = self.pools.lock().values().map(|slot| slot.name.clone()).collect();
        match names.as_slice() {
            [only] => self.pool(only),
            [] => Err(Problem::new(Code::NotFound, "There is no pool yet.")
                .todo("Make one with `holdfast pool create`.")),
            _ => Err(Problem::new(
                Code::InvalidRequest,
                format!("There are several pools: {}.", names.join(", ")),
            )
            .todo("Say which one with --pool.")),
        }
    }

    /// What a pool is now, members with the ids of their disks.
    pub(super) fn pool_info(&self, handle: &Arc<dyn PoolHandle>) -> PoolInfo {
        let mut info = handle.info();
        for member in &mut info.members {
            member.disk = self.claimant(member.guid).map(|known| known.found.id);
            self.retirements.explain(member);
        }
        let name = |member: &PoolMember| member.disk.clone().unwrap_or_default();
        info.members.sort_by(|a, b| a.state.cmp(&b.state).then_with(|| natural_order(&name(a), &name(b))));
        info.spaces
            .sort_by(|a, b| (a.state.redundancy, &a.state.name).cmp(&(b.state.redundancy, &b.state.name)));
        info
    }

    /// Makes a pool.
    pub async fn pool_create(&self, mut request: PoolCreate) -> Result<PoolDetail, Problem> {
        drop(self.changes.lock().await);
        let _taking = self.taking.lock().await;
        self.refuse_new_pool(&request.name, request.slab_bytes)?;
        refuse_no_disk(&request.disks, &request.select)?;
        let named: Vec<String> = request.disks.iter().chain(&request.spares).cloned().collect();
        for names in [&mut request.disks, &mut request.spares] {
            self.for_all_nodes(names, &named, &request.select)?;
        }
        let before = self.config.with(|config| config.disks.clone());
        let mut disks = Vec::new();
        let wanted = request
            .disks
            .iter()
            .map(|disk| (disk, false))
            .chain(request.spares.iter().map(|disk| (disk, true)));
        let mut result = Ok(());
        for (name, spare) in wanted {
            match self.take_disk(name, spare).await {
                Ok(disk) => disks.push(disk),
                Err(problem) => {
                    result = Err(problem);
                    break;
                }
            }
        }
        let named = disks.len();
        let result = match result {
            Ok(()) => self.take_selected(&request.select, false, &mut disks).await,
            Err(problem) => Err(problem),
        };
        let result = match result {
            Ok(()) => self.make_pool(&request, &disks, named).await,
            Err(problem) => Err(problem),
        };
        if let Err(problem) = result {
            self.release_disks(disks).await;
            self.forget_files(&before, request.disks.iter().chain(&request.spares)).await;
            return Err(problem);
        }
        self.pool_show(&request.name).await
    }

    /// Refuses a new pool for its name or slab size.
    pub(super) fn refuse_new_pool(&self, name: &str, slab_bytes: Option<u64>) -> Result<(), Problem> {
        check_name("pool", name)?;
        if let Some(Err(why)) = slab_bytes.map(check_slab_bytes) {
            return Err(Problem::new(Code::InvalidRequest, why));
        }
        match self.config.with(|config| config.pools.iter().any(|pool| pool.name == name)) {
            true => Err(taken("pool", name)),
            false => Ok(()),
        }
    }

    /// Makes a pool of `disks`, the first `named` of which a person named; the others were selected.
    async fn make_pool(&self, request: &PoolCreate, disks: &[PoolDisk], named: usize) -> Result<(), Problem> {
        let mut ids: Vec<&str> = disks.iter().map(|disk| disk.id.as_str()).collect();
        ids.sort_by(|a, b| natural_order(a, b));
        if ids.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(Problem::new(Code::InvalidRequest, "A disk is named twice."));
        }
        let (by_name, selected) = disks.split_at(named.min(disks.len()));
        self.refuse_foreign(by_name, request.overwrite_foreign).await?;
        // Leave to destroy is for disks that somebody has named.
        self.refuse_foreign(selected, false).await?;
        confirm(&request.name, request.confirm.as_deref(), || {
            vec![format!(
                "Pool {} takes these disks over entirely, whatever is on them: {}.",
                request.name,
                ids.join(", ")
            )]
        })?;
        let new = NewPool {
            name: request.name.clone(),
            slab_bytes: request.slab_bytes,
            overwrite_foreign: request.overwrite_foreign,
        };
        self.backends.fence.check(disks).await?;
        if let Some(held) = self.backends.fence.held(disks).await? {
            // The owner of what was on them, which may be destroyed: it must not write behind us.
            let fenced = self.backends.fence.fence(Uuid::nil(), held.epoch + 1, disks.to_vec()).await?;
            if let Fenced::Held(held) = fenced {
                return Err(held.problem(&request.name));
            }
        }
        let handle = self.backends.pools.create(new, disks.to_vec()).await?;
        let info = handle.info();
        let guid = info.guid;
        // Before anybody can know of it: who finds it in the configuration and not open would open it.
        let turn = self.turn(guid).await;
        if self.is_driven() {
            return self.hand_in(request, disks, handle, turn).await;
        }
        self.backends.owner.made(guid, info.epoch).await?;
        self.name_pool(&request.name, guid)?;
        for disk in disks {
            self.probe(&disk.id).await;
        }
        self.took_over(guid, &request.name, handle).await?;
        self.publish(&turn).await;
        Ok(())
    }

    /// Takes a pool into the configuration.
    pub(super) fn name_pool(&self, name: &str, guid: Uuid) -> Result<(), Problem> {
        self.config.change(|config| {
            if config.pools.iter().any(|pool| pool.name == name) {
                return Err(taken("pool", name));
            }
            config.pools.push(PoolConfig::new(name, guid));
            Ok(())
        })
    }

    /// Refuses disks with something on them, all at once, unless told to destroy it.
    pub(super) async fn refuse_foreign(&self, disks: &[PoolDisk], overwrite: bool) -> Result<(), Problem> {
        let mut found = Vec::new();
        for disk in disks {
            found.push((disk.id.clone(), disk.disk.probe().await?));
        }
        refuse_content(&found, overwrite)
    }

    /// Takes over a pool that is on disks of this machine.
    pub async fn pool_import(&self, request: PoolImport) -> Result<PoolDetail, Problem> {
        drop(self.changes.lock().await);
        let taking = self.taking.lock().await;
        for disk in &request.disks {
            // A member of a pool that is this node's already is one that comes back.
            if !self.is_member_here(disk).await? {
                let taken = self.take_disk(disk, false).await?;
                // What another node has done with it since it was looked at.
                self.probe(&taken.id).await;
            }
        }
        self.look().await;
        let mut found: Vec<(String, Uuid)> = self
            .disks
            .all()
            .into_iter()
            .filter_map(|known| match known.content {
                Some(DiskContent::Member { pool, pool_name, .. }) => Some((pool_name, pool)),
                _ => None,
            })
            .filter(|(name, guid)| *name == request.pool || guid.to_string() == request.pool)
            .collect();
        found.sort();
        found.dedup();
        let (own_name, guid) = match found.as_slice() {
            [one] => one.clone(),
            [] => return Err(missing("pool", &request.pool, "holdfast disk list")),
            _ => {
                let which: Vec<String> = found.iter().map(|(_, guid)| self.which_pool(*guid)).collect();
                let detail = format!("Several pools are named {}: {}.", request.pool, which.join("; "));
                return Err(Problem::new(Code::InvalidRequest, detail).todo(
                    "Name the one to import by its GUID: `holdfast pool import GUID`, with `--name NEW` where this node has a pool of the name.",
                ));
            }
        };
        let known = self.pool_name(guid);
        if let (Some(known), Some(wanted)) = (&known, &request.name)
            && known != wanted
        {
            let detail = format!("pool {known} is this node's already, under that name.");
            return Err(Problem::new(Code::WrongState, detail)
                .todo(format!("`holdfast pool export {known}` lets go of it first.")));
        }
        if let Some(wanted) = &request.name {
            check_name("pool", wanted)?;
        }
        let name = known.or_else(|| request.name.clone()).unwrap_or(own_name);
        let same_name = |pool: &PoolConfig| pool.name == name && pool.guid != guid;
        if self.config.with(|config| config.pools.iter().any(same_name)) {
            return Err(taken("pool", &name).todo(format!(
                "`holdfast pool import {guid} --name NEW` takes it over under another name; its volumes keep theirs."
            )));
        }
        let unfenced = if self.is_driven() { self.unfenced_here(guid).await } else { None };
        // Whoever says yes says it to all of this.
        let mut dangers = Vec::new();
        if request.accept_loss {
            dangers.push(format!(
                "Pool {name} is opened although newer changes may be on disks that are not there; those changes are given up."
            ));
        }
        dangers.extend(unfenced.iter().flat_map(|unfenced| unfenced.told(&name)));
        if !dangers.is_empty() {
            confirm(&name, request.confirm.as_deref(), || dangers)?;
        }
        self.config.change(|config| {
            if !config.pools.iter().any(|pool| pool.guid == guid) {
                if config.pools.iter().any(|pool| pool.name == name) {
                    return Err(taken("pool", &name));
                }
                config.pools.push(PoolConfig::new(&name, guid));
            }
            Ok(())
        })?;
        // The pool is waited for without keeping others from changes.
        drop(taking);
        // Now that it is this node's, its disks are kept open.
        for known in self.disks.all() {
            if matches!(&known.content, Some(DiskContent::Member { pool, .. }) if *pool == guid) {
                self.probe(&known.found.id).await;
            }
        }
        let told = OpenTold {
            accept_loss: request.accept_loss,
            take_over: true,
            accept_unfenced: unfenced.is_some(),
        };
        if self.is_driven() {
            self.take_in(guid, told).await?;
        } else {
            self.open_pools(Some((guid, told))).await;
        }
        self.look().await;
        if let Ok(turn) = tokio::time::timeout(PATIENCE, self.turn(guid)).await {
            self.tell_of_members(guid, &turn).await;
        }
        self.retry_closed().await;
        self.pool_show(&guid.to_string()).await
    }

    /// One of several pools of one name: its GUID, what it is to this node, and its disks that are here.
    fn which_pool(&self, guid: Uuid) -> String {
        let disks: Vec<String> = self
            .disks
            .all()
            .into_iter()
            .filter(|known| matches!(&known.content, Some(DiskContent::Member { pool, .. }) if *pool == guid))
            .map(|known| known.found.id)
            .collect();
        let disks = disks.join(", ");
        match self.pool_name(guid) {
            Some(name) if self.is_open(guid) => format!("{guid} is open on this node as {name} ({disks})"),
            Some(name) => format!("{guid} is this node's pool {name}, which is not open ({disks})"),
            None => format!("{guid} is not this node's ({disks})"),
        }
    }

    /// Destroys a pool.
    pub async fn pool_delete(&self, name: &str, confirmed: Option<String>) -> Result<Done, Problem> {
        let _turns = self.turn_of_pool(name).await?;
        self.delete_leftovers().await;
        let (guid, handle) = self.pool(name)?;
        let info = handle.info();
        let orphans = self.refuse_held(&info)?;
        confirm(&info.name, confirmed.as_deref(), || {
            let disks = many(info.members.len() as u64, "disk");
            let mut told = vec![format!("Pool {} is destroyed; its {disks} become free.", info.name)];
            told.extend(orphans.iter().map(|volume| {
                format!("It holds a log of volume {volume}, which is in no pool of this node: what is only in the log is lost.")
            }));
            told
        })?;
        let disks: Vec<String> =
            self.pool_info(&handle).members.into_iter().filter_map(|member| member.disk).collect();
        let members = self.members(guid).into_iter().map(|(_, disk)| disk).collect();
        handle.destroy(members).await?;
        drop(handle);
        self.config.change(|config| {
            config.pools.retain(|pool| pool.guid != guid);
            Ok(())
        })?;
        self.pools.lock().remove(&guid);
        self.logs.forget_pool(guid);
        self.restarts.forget_pool(guid);
        self.full_restarts.forget_pool(guid);
        if let Err(problem) = self.backends.owner.forget(guid).await {
            tracing::warn!(pool = info.name, %problem, "what is kept of a pool that is destroyed stays");
        }
        for disk in &disks {
            self.release_disk(disk).await;
        }
        self.lend_no_more(&disks).await;
        Ok(Done::new(format!("Pool {} is destroyed.", info.name)))
    }
}

/// The same problem of opening a pool, with what to do about this pool.
pub(super) fn with_verb(mut problem: Problem, pool: &str) -> Problem {
    match problem.code {
        Code::NotEnoughDisks | Code::Unavailable => problem.todo = Some(bring_back(pool)),
        Code::InUse => {
            problem.todo = Some(format!(
                "Export it there (`holdfast pool export {pool}`); or, if that node does not use it any more, `holdfast pool import {pool}` here."
            ));
        }
        _ => {}
    }
    problem
}

/// Refuses disks with something on them, all at once, unless told to destroy it.
pub(super) fn refuse_content(found: &[(String, DiskContent)], overwrite: bool) -> Result<(), Problem> {
    let foreign = found.iter().filter_map(|(id, content)| match content {
        DiskContent::Empty => None,
        DiskContent::Foreign(what) => Some(format!("disk {id}: {what}")),
        DiskContent::Member { pool_name, pool, .. } => {
            Some(format!("disk {id}: a member of Holdfast pool {pool_name} ({pool})"))
        }
    });
    let foreign: Vec<String> = foreign.collect();
    if foreign.is_empty() || overwrite {
        return Ok(());
    }
    let mut problem = Problem::new(Code::ForeignData, "There is data of others on the disks.")
        .todo("Choose other disks, or repeat with --overwrite-foreign to destroy this data.");
    problem.destroys = foreign;
    Err(problem)
}

/// Refuses what asks for disks and names none.
pub(super) fn refuse_no_disk<T>(named: &[T], select: &[Selector]) -> Result<(), Problem> {
    match named.is_empty() && select.is_empty() {
        true => Err(Problem::new(Code::InvalidRequest, "No disk is named or selected for the pool.")),
        false => Ok(()),
    }
}

/// Runs all of them together to their ends.
pub(super) async fn join_all<F: Future<Output = ()>>(futures: Vec<F>) {
    use futures_util::stream::{FuturesUnordered, StreamExt};
    let mut running: FuturesUnordered<F> = futures.into_iter().collect();
    while running.next().await.is_some() {}
}
