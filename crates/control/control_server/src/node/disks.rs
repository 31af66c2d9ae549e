//! Disks: what is there, what is on it, overrides and faults.

use std::path::Path;
use std::time::Duration;

use control_api::{
    Code, Disk, DiskConfig, DiskState, DiskUpdate, FaultKind, FaultRequest, MediaType, NodeDisk, Problem,
    RescanReport, is_network_disk, natural_order,
};
use uuid::Uuid;

use super::counters::io_counters;
use super::disk_table::{Known, file_disk};
use super::path::PATIENCE;
use super::pools::join_all;
use super::{Node, missing};
use crate::backend::{DiskContent, PoolDisk};

/// How often, and after which time, disks that somebody has open are looked at again when the node starts: five
/// seconds in all. Later the rescans do it.
pub(super) const BUSY_LOOKS: u32 = 100;
pub(super) const BUSY_PAUSE: Duration = Duration::from_millis(50);

/// How long is waited for a disk to say what is on it: about as long as one takes that spins up. One that takes longer joins its pool later.
const ANSWERS_WITHIN: Duration = PATIENCE;

impl Node {
    /// Looks which disks there are and what is on those that were not there before. Returns the ids of new and
    /// of gone ones.
    pub(super) async fn look(&self) -> (Vec<String>, Vec<String>) {
        let _looking = self.looking.lock().await;
        self.look_again().await
    }

    /// The same, by who has the lock for looking.
    pub(super) async fn look_again(&self) -> (Vec<String>, Vec<String>) {
        let configured = self.config.with(|config| config.disks.clone());
        let mut found = match self.backends.disks.discover().await {
            Ok(found) => found,
            Err(problem) => {
                tracing::warn!(%problem, "the machine's disks can't be listed");
                Vec::new()
            }
        };
        found.extend(configured.iter().filter_map(file_disk));
        self.lend(&configured, &mut found).await;
        found.extend(self.units_there(&configured).await);
        let (new, gone) = self.disks.update(found, &configured);
        for id in &gone {
            // The handle leads to a device that is no more; what comes back gets a new one.
            self.disks.change(id, |known| known.open = None);
        }
        // Disks of pools that other nodes own are busy for as long as these do.
        if !self.is_driven() {
            self.look_at_busy().await;
        }
        self.look_at_units().await;
        // A disk that does not answer is waited for once, whatever number of them there is.
        let replaced = self.let_go_of_replaced();
        join_all(new.iter().chain(&replaced).map(|id| self.probe(id)).collect()).await;
        self.look_for_needed().await;
        (new, gone)
    }

    /// Opens what belongs to pools of the configuration.
    pub(super) async fn open_disks(&self) {
        self.look().await;
        if self.is_driven() || self.config.with(|config| config.pools.is_empty()) {
            return;
        }
        // A node that was killed has its disks until the kernel has ended its last requests, which is not
        // before its process is gone. A pool that is opened without them is reduced, or not opened at all.
        for _ in 0..BUSY_LOOKS {
            if !self.look_at_busy().await {
                return;
            }
            tokio::time::sleep(BUSY_PAUSE).await;
        }
    }

    /// Looks at disks again that somebody had open; whether there were any.
    async fn look_at_busy(&self) -> bool {
        let busy: Vec<Known> =
            self.disks.all().into_iter().filter(|known| known.present && known.busy).collect();
        join_all(busy.iter().map(|known| self.probe(&known.found.id)).collect()).await;
        !busy.is_empty()
    }

    /// Looks what is on a disk, and does not wait for one that does not answer: what is on it, is known when it does. Keeps it open
    /// if it belongs to a pool of this node.
    pub(super) async fn probe(&self, id: &str) {
        let (Some(known), Some(node)) = (self.disks.find(id), self.arc()) else { return };
        if known.hangs {
            return;
        }
        let looked_at = known.found.id;
        let looking = tokio::spawn(async move {
            node.probe_alone(&looked_at).await;
        });
        if tokio::time::timeout(ANSWERS_WITHIN, looking).await.is_err() {
            tracing::error!(disk = id, "a disk does not answer: the node goes on without it until it does");
            self.disks.change(id, |known| {
                known.hangs = true;
                known.trouble = Some("it does not answer".to_owned());
            });
        }
    }

    /// Looks what is on a disk; one look at each at a time.
    async fn probe_alone(&self, id: &str) {
        let Some(known) = self.disks.find(id) else { return };
        let _alone = known.turn.clone().lock_owned().await;
        let Some(known) = self.disks.find(id) else { return };
        if known.found.in_use_by.is_some() {
            return;
        }
        let open = match known.open {
            Some(open) => Ok(open),
            None => self.backends.disks.open(&known.found).await,
        };
        let (open, content) = match open {
            Ok(open) => {
                let content = open.probe().await;
                (Some(open), content)
            }
            Err(problem) => (None, Err(problem)),
        };
        let ours = |content: &DiskContent| match content {
            DiskContent::Member { pool, .. } => self.owns_pool(*pool),
            _ => false,
        };
        self.disks.change(id, |known| known.hangs = false);
        self.disks.change(id, |known| match content {
            Ok(content) => {
                // A disk that isn't ours is not kept open: others may want to use it.
                known.open = open.filter(|_| ours(&content));
                known.content = Some(content);
                known.trouble = None;
                known.busy = false;
            }
            Err(problem) => {
                known.open = None;
                known.busy = problem.code == Code::InUse;
                known.trouble = Some(problem.detail);
            }
        });
    }

    /// What is known of the disks of a pool, as far as they have been looked at.
    pub(super) fn disks_of(&self, pool: Uuid) -> Vec<Known> {
        let of = |known: &Known| matches!(&known.content, Some(DiskContent::Member { pool: of, .. }) if *of == pool);
        self.disks.all().into_iter().filter(of).collect()
    }

    /// Why no disk of a pool can be used.
    pub(super) fn no_disks(&self, pool: Uuid) -> Problem {
        if self.disks_of(pool).iter().any(|known| known.present && known.busy) {
            return Problem::new(Code::InUse, "another process has its disks open");
        }
        Problem::new(Code::Unavailable, "none of its disks is on this machine")
    }

    fn owns_pool(&self, guid: Uuid) -> bool {
        let here = !self.is_driven() || self.is_open(guid) || self.path(guid).is_under_way();
        here && self.config.with(|config| config.pools.iter().any(|pool| pool.guid == guid))
    }

    /// A disk that a person named, for a pool: known or a file, not in use, open.
    pub(super) async fn take_disk(&self, name: &str, spare: bool) -> Result<PoolDisk, Problem> {
        let known = self.known_or_file(name).await?;
        let id = known.found.id.clone();
        self.refuse_used(&known)?;
        if known.open.is_none() {
            let open = self.backends.disks.open(&known.found).await?;
            self.disks.change(&id, |known| known.open = Some(open));
        }
        let known = self.disks.find(&id);
        known
            .and_then(|known| pool_disk(&known, spare))
            .ok_or_else(|| Problem::new(Code::Unavailable, format!("disk {id} has just left.")))
    }

    /// Whether a disk that a person named, known or a file, belongs to a pool of this node.
    pub(super) async fn is_member_here(&self, name: &str) -> Result<bool, Problem> {
        let known = self.known_or_file(name).await?;
        Ok(match &known.content {
            Some(DiskContent::Member { pool, .. }) => self.owns_pool(*pool),
            _ => false,
        })
    }

    /// Refuses a disk that the machine or a pool of this node uses.
    pub(super) fn refuse_used(&self, known: &Known) -> Result<(), Problem> {
        let id = &known.found.id;
        if let Some(user) = &known.found.in_use_by {
            return Err(Problem::new(Code::InUse, format!("disk {id} is in use: {user}."))
                .todo("Unmount or release it first, or choose another disk."));
        }
        if let Some(DiskContent::Member { pool, pool_name, .. }) = &known.content
            // Whichever node of a cluster has that pool.
            && self.config.with(|config| config.pools.iter().any(|known| known.guid == *pool))
        {
            return Err(Problem::new(
                Code::InUse,
                format!("disk {id} belongs to pool {}.", self.pool_name(*pool).as_ref().unwrap_or(pool_name)),
            )
            .todo("Remove it from that pool first, or choose another disk."));
        }
        Ok(())
    }

    /// Gives back what [`Node::take_disk`] took but was not used: first the handles, as a disk that this node itself has open
    /// cannot be opened to be looked at.
    pub(super) async fn release_disks(&self, disks: Vec<PoolDisk>) {
        let ids: Vec<String> = disks.iter().map(|disk| disk.id.clone()).collect();
        drop(disks);
        for id in ids {
            self.release_disk(&id).await;
        }
    }

    /// Takes files out of the configuration again that a request that has failed has named, and that were not in it before; but none
    /// that is a member now.
    pub(super) async fn forget_files<'a>(
        &self,
        before: &[DiskConfig],
        named: impl IntoIterator<Item = &'a String>,
    ) {
        let (of_nodes, paths): (Vec<&String>, Vec<&String>) =
            named.into_iter().partition(|name| NodeDisk::parse(name).is_some());
        let paths = paths.into_iter().filter_map(|name| Path::new(name).canonicalize().ok());
        // Another node may have made one of them a member meanwhile, of a pool of its own.
        for id in &of_nodes {
            self.probe(id).await;
        }
        let is_member = |known: &Known| match &known.content {
            Some(DiskContent::Member { pool, .. }) => {
                self.config.with(|config| config.pools.iter().any(|known| known.guid == *pool))
            }
            _ => false,
        };
        let ids: Vec<String> = paths
            .map(|path| path.to_string_lossy().into_owned())
            .chain(of_nodes.into_iter().cloned())
            .filter(|id| !self.disks.find(id).is_some_and(|known| is_member(&known)))
            .collect();
        let goes = |disk: &DiskConfig| ids.contains(&disk.id) && !before.iter().any(|had| had.id == disk.id);
        let forgotten = self.config.change(|config| {
            config.disks.retain(|disk| !goes(disk));
            Ok(())
        });
        if let Err(problem) = forgotten {
            tracing::warn!(%problem, "disks that are not used stay in the configuration");
        }
        self.look().await;
    }

    /// Looks at a disk anew that this node has used. Nothing else holds it.
    pub(super) async fn release_disk(&self, id: &str) {
        self.disks.change(id, |known| known.open = None);
        self.probe(id).await;
    }

    /// A disk that a person named. A file that is not known yet becomes known, in the configuration too.
    async fn known_or_file(&self, name: &str) -> Result<Known, Problem> {
        if let Some(known) = self.disks.find(name).filter(|known| known.present) {
            return Ok(known);
        }
        if NodeDisk::parse(name).is_some() {
            return self.node_disk(name).await;
        }
        if is_network_disk(name) {
            return self.unit(name).await;
        }
        let regular = Path::new(name).is_absolute() && Path::new(name).is_file();
        if !regular {
            return Err(missing("disk", name, "holdfast disk list"));
        }
        let id = Path::new(name)
            .canonicalize()
            .map_err(|error| Problem::new(Code::Io, format!("{name}: {error}")))?
            .to_string_lossy()
            .into_owned();
        self.config.change(|config| {
            if !config.disks.iter().any(|disk| disk.id == id) {
                config.disks.push(DiskConfig::new(&*id));
            }
            Ok(())
        })?;
        self.look().await;
        self.disks.find(&id).ok_or_else(|| missing("disk", name, "holdfast disk list"))
    }

    /// Disks, those in trouble first.
    pub async fn disk_list(&self) -> Result<Vec<Disk>, Problem> {
        // A copy of a disk in use that has gone is missed by nobody.
        let is_told = |known: &&Known| known.present || self.original_of(known).is_none();
        let known = self.disks.all();
        let mut disks: Vec<Disk> = known.iter().filter(is_told).map(|known| self.describe(known)).collect();
        // Members that no disk of the machine is known for.
        for slot in self.pools.lock().values() {
            let Some(handle) = &slot.handle else { continue };
            for member in handle.info().members {
                if !disks.iter().any(|disk| disk.guid == Some(member.guid)) {
                    disks.push(Disk {
                        id: member.guid.to_string(),
                        path: None,
                        state: member.state,
                        reason: member.reason.or_else(|| Some("it is not on this machine".into())),
                        size_bytes: member.size_bytes,
                        media: member.media,
                        model: None,
                        serial: None,
                        vendor: None,
                        bus: None,
                        node: member.node,
                        enclosure: member.enclosure,
                        slot: member.slot,
                        pool: Some(slot.name.clone()),
                        guid: Some(member.guid),
                        io: None,
                        faults: Vec::new(),
                    });
                }
            }
        }
        disks.sort_by(|a, b| a.state.cmp(&b.state).then_with(|| natural_order(&a.id, &b.id)));
        Ok(disks)
    }

    pub(super) fn describe(&self, known: &Known) -> Disk {
        let found = &known.found;
        let mut disk = Disk {
            id: found.id.clone(),
            path: known.present.then(|| found.path.clone()),
            state: DiskState::Free,
            reason: known.trouble.clone(),
            size_bytes: found.size_bytes,
            media: found.media,
            model: found.model.clone(),
            serial: found.serial.clone(),
            vendor: found.vendor.clone(),
            bus: found.bus.clone(),
            node: NodeDisk::parse(&found.id).map(|disk| disk.node.to_owned()),
            enclosure: found.enclosure.clone(),
            slot: found.slot.clone(),
            pool: None,
            guid: None,
            io: known.open.as_ref().and_then(|open| open.counters()).map(io_counters),
            faults: known.faults.iter().map(|rule| rule.to_string()).collect(),
        };
        if let Some(user) = &found.in_use_by {
            disk.state = DiskState::InUse;
            disk.reason = Some(user.clone());
            return disk;
        }
        if let Some(original) = self.original_of(known) {
            disk.state = DiskState::Foreign;
            disk.reason = Some(format!("it is a copy of disk {}, and not used", original.found.id));
            return disk;
        }
        match &known.content {
            Some(DiskContent::Member { pool, pool_name, disk: guid }) => {
                disk.guid = Some(*guid);
                let pools = self.pools.lock();
                let slot = pools.get(pool);
                disk.pool = Some(slot.map_or(pool_name, |slot| &slot.name).clone());
                let info = slot.and_then(|slot| slot.handle.as_ref()).map(|handle| handle.info());
                let member =
                    info.and_then(|info| info.members.into_iter().find(|member| member.guid == *guid));
                let elsewhere = if member.is_none() { self.not_here(*pool) } else { None };
                (disk.state, disk.reason) = match member {
                    Some(member) if known.present => (member.state, member.reason),
                    Some(_) => (DiskState::Missing, Some(not_here(&found.id))),
                    None if elsewhere.is_some() => {
                        (DiskState::OtherPool, elsewhere.map(|problem| problem.detail))
                    }
                    None if slot.is_some() => (
                        DiskState::Failed,
                        Some("its pool is not open or no longer counts it as a member".into()),
                    ),
                    None => (
                        DiskState::OtherPool,
                        Some(format!(
                            "pool {pool_name} is not this node's; `holdfast pool import {pool_name}` takes it over"
                        )),
                    ),
                };
            }
            Some(DiskContent::Foreign(what)) => {
                disk.state = DiskState::Foreign;
                disk.reason = Some(what.clone());
            }
            Some(DiskContent::Empty) => {}
            None => disk.state = DiskState::Failed,
        }
        if vanished(known) {
            disk.state = DiskState::Missing;
        }
        disk
    }

    /// A disk as it is listed.
    fn shown(&self, id: &str) -> Result<Disk, Problem> {
        let known = self.disks.find(id).ok_or_else(|| missing("disk", id, "holdfast disk list"))?;
        Ok(self.describe(&known))
    }

    /// Looks for new and returned disks.
    pub async fn disk_rescan(&self) -> Result<RescanReport, Problem> {
        drop(self.changes.lock().await);
        let report = self.rescan().await;
        self.retry_closed().await;
        Ok(report)
    }

    /// Says what a disk doesn't.
    pub async fn disk_set(&self, name: &str, update: DiskUpdate) -> Result<Disk, Problem> {
        let _changing = self.changes.lock().await;
        let id = self.known_or_file(name).await?.found.id;
        self.config.change(|config| {
            let disk = match config.disks.iter_mut().position(|disk| disk.id == id) {
                Some(at) => &mut config.disks[at],
                None => {
                    config.disks.push(DiskConfig::new(&*id));
                    let last = config.disks.len() - 1;
                    &mut config.disks[last]
                }
            };
            if let Some(media) = update.media {
                disk.media = Some(media).filter(|media| *media != MediaType::Unspecified);
            }
            for (text, update) in [
                (&mut disk.enclosure, &update.enclosure),
                (&mut disk.slot, &update.slot),
                (&mut disk.model, &update.model),
                (&mut disk.serial, &update.serial),
            ] {
                if let Some(update) = update {
                    *text = Some(update.clone()).filter(|text| !text.is_empty());
                }
            }
            Ok(())
        })?;
        self.look().await;
        self.shown(&id)
    }

    /// Switches faults on, for tests.
    pub async fn disk_fault(&self, name: &str, request: FaultRequest) -> Result<Disk, Problem> {
        drop(self.changes.lock().await);
        let known = self.disks.find(name).ok_or_else(|| missing("disk", name, "holdfast disk list"))?;
        let Some(open) = known.open else {
            return Err(Problem::new(Code::WrongState, format!("disk {name} is not open."))
                .todo("Faults can be switched on for disks of this node's pools."));
        };
        open.set_faults(&request.rules)?;
        self.disks.change(&known.found.id, |known| known.faults = request.rules);
        // The pool learns at once what it would otherwise find out at the next look.
        self.rescan().await;
        self.retry_closed().await;
        self.shown(&known.found.id)
    }
}

/// Why a disk that is missing is not there.
fn not_here(id: &str) -> String {
    match NodeDisk::parse(id) {
        Some(disk) => format!("node {} is away, or does not lend it", disk.node),
        None => "it is not on this machine any more".to_owned(),
    }
}

/// Whether a fault makes the disk look gone.
pub(super) fn vanished(known: &Known) -> bool {
    known.faults.iter().any(|rule| rule.kind == FaultKind::Vanish)
}

pub(super) fn pool_disk(known: &Known, spare: bool) -> Option<PoolDisk> {
    Some(PoolDisk {
        disk: known.open.clone()?,
        id: known.found.id.clone(),
        media: known.found.media,
        enclosure: known.found.enclosure.clone(),
        slot: known.found.slot.clone(),
        spare,
    })
}
