//! `config apply`: makes the configuration what a file says.

use std::collections::BTreeSet;

use control_api::{Code, Config, ConfigDiff, ConfigRequest, LunConfig, Problem, Session, ShareConfig, many};

use super::all_sessions::AllSessions;
use super::log_homes::Holder;
use super::luns::new_guid;
use super::moves::share_ends;
use super::path::{PATIENCE, Release};
use super::pools::join_all;
use super::ties::{all_on_volumes, all_on_volumes_mut, follow_name, keep_tie};
use super::{Node, chap};
use crate::backend::DiskContent;

impl Node {
    /// Puts a configuration in place, or says what would change.
    ///
    /// # Errors
    /// When it makes no sense, or takes something away and is not confirmed. Nothing has changed then.
    pub async fn config_apply(&self, request: ConfigRequest) -> Result<ConfigDiff, Problem> {
        let elsewhere = self.sessions_elsewhere().await;
        let changing = self.changes.lock().await;
        let all = self.all_sessions(elsewhere);
        let have = self.config.get();
        let mut want = request.config;
        let mut warnings = self.follow_names(&mut want);
        keep_identities(&have, &mut want)?;
        self.settle_wanted_roles(&have, &mut want)?;
        self.settle_wanted_permissions(&mut want)?;
        self.refuse_two_volumes(&want)?;
        want.check()?;
        want.check_changed(&have)?;
        self.refuse_second_luns(&have, &want).await?;
        let items = have.diff(&want);
        let mut told: Vec<String> = Vec::new();
        if let Some(whose) = self.whose_config(request.of_node.as_deref(), request.of_machine.as_deref()) {
            told.push(format!(
                "{whose} This node, {}, would open the pools, serve the targets and shares, and listen on the addresses that are in it. \
                 Two nodes must never do so at the same time.",
                self.name()
            ));
        }
        if request.dry_run || items.is_empty() {
            warnings.extend(told);
            warnings.extend(self.ends_with(&have, &want, &all).await);
            return Ok(ConfigDiff { items, applied: !request.dry_run, warnings });
        }
        let removed = items.iter().filter(|change| change.sign == '-');
        told.extend(removed.map(|change| format!("{} is taken away.", change.subject)));
        told.extend(self.ends_with(&have, &want, &all).await);
        if !told.is_empty() {
            super::confirm("apply", request.confirm.as_deref(), || told)?;
        }
        self.config.change(|config| {
            // Another node may have made something that nobody has been asked about: `change` brings that in first.
            if self.is_driven() && *config != have {
                let detail = "Somebody has changed the configuration on another node meanwhile.";
                return Err(Problem::new(Code::WrongState, detail).todo(
                    "Nothing was changed. Look at what it is now with `holdfast config show`, and try again.",
                ));
            }
            *config = want.clone();
            Ok(())
        })?;
        // What follows goes by the configuration as it is then: nobody has to wait for pools.
        drop(changing);
        self.look().await;
        // Disks of pools that are this node's from now on are kept open.
        join_all(self.disks.all().iter().map(|known| self.probe(&known.found.id)).collect()).await;
        self.close_dropped_pools().await;
        self.open_pools(None).await;
        self.reconcile().await;
        // First what the others come of.
        let closed = self.closed_pools().into_iter();
        warnings.extend(closed.map(|(name, why)| format!("pool {name}: it is not open: {why}")));
        warnings.extend(self.all_unserved().iter().map(|(subject, why)| format!("{subject}: {why}")));
        Ok(ConfigDiff { items, applied: true, warnings })
    }

    /// What clients lose, in sentences: what is served no more, and what leads elsewhere under the name or identity that they know.
    async fn ends_with(&self, have: &Config, want: &Config, all: &AllSessions) -> Vec<String> {
        let mut told = Vec::new();
        let gone: Vec<&str> = have
            .smb
            .listen
            .iter()
            .filter(|address| !want.smb.listen.contains(address))
            .map(String::as_str)
            .collect();
        if !gone.is_empty() {
            let (sessions, opens) = (self.backends.smb.sessions().len(), self.backends.smb.opens().len());
            let clients = format!(
                "{} and {} there are now; a client whose connection breaks does not come back that way.",
                many(sessions as u64, "session"),
                many(opens as u64, "open file")
            );
            let addresses = gone.join(", ");
            told.push(if want.smb.listen.is_empty() {
                format!("SMB is not served any more, as no address is given for it ({addresses} until now): {clients}")
            } else {
                format!("SMB is not served on {addresses} any more: {clients}")
            });
        }
        if let Ok(users) = self.users() {
            told.extend(self.api_sessions_ending(&users.snapshot(), &want.http));
        }
        told.extend(chap::undiscovered(have, want, all));
        for target in want.targets.iter().map(|target| target.name.as_str()) {
            if have.targets.iter().any(|there| there.name == target) {
                told.extend(chap::opening(have, want, target));
                told.extend(chap::ending(have, want, target, all));
            }
        }
        for share in &have.shares {
            let stays = want.shares.iter().find(|there| upcase::same(&there.name, &share.name));
            let elsewhere = |there: &&ShareConfig| {
                there.folder != share.folder
                    || there.volume_guid != share.volume_guid
                    || there.volume != share.volume
            };
            let Ok(mut now) = self.share_show(&share.name).await else { continue };
            // Another node may serve it.
            let on_it = |session: &&Session| {
                let shares = session.smb.iter().flat_map(|smb| &smb.shares);
                shares.into_iter().any(|name| upcase::same(name, &share.name))
            };
            now.sessions = now.sessions.max(all.items.iter().filter(on_it).count() as u64);
            let ends = share_ends(&now);
            match (stays.filter(elsewhere), stays, ends) {
                (Some(there), _, Some(ends)) => told.push(format!(
                    "Share {} shows {}:{} from now on: {ends}.",
                    share.name, there.volume, there.folder
                )),
                (None, None, Some(ends)) => told.push(format!("Share {}: {ends}.", share.name)),
                _ => {}
            }
        }
        for lun in &have.luns {
            let same = |there: &&LunConfig| there.name == lun.name && there.guid == lun.guid;
            let Some(there) = want.luns.iter().find(same) else { continue };
            let made_of =
                |lun: &LunConfig| (lun.volume.clone(), lun.volume_guid, lun.path.clone(), lun.format);
            if made_of(there) != made_of(lun) {
                told.push(format!(
                    "LUN {} is made of {}:{} and stays the disk that initiators know: unless that has the same bytes as {}:{}, what they have in memory of it destroys it.",
                    lun.name, there.volume, there.path, lun.volume, lun.path
                ));
                told.extend(self.users_of(lun, all));
            }
        }
        // That a node has not answered is told once, and with whatever is taken from somebody who may be there.
        if let Some(unknown) = all.unknown() {
            let asked =
                told.contains(&unknown) || have.shares.iter().any(|share| !want.shares.contains(share));
            told.retain(|line| *line != unknown);
            told.extend(asked.then_some(unknown));
        }
        told
    }

    /// A document that was written before a volume got another name means the volume, where no other one can be meant by the name.
    /// Says what was taken so.
    fn follow_names(&self, want: &mut Config) -> Vec<String> {
        let holders = self.holders();
        if holders.iter().any(|holder| holder.spaces.is_none()) {
            return Vec::new();
        }
        let there: BTreeSet<&String> = holders.iter().flat_map(Holder::volumes).collect();
        let names = self.names_now();
        let mut said = Vec::new();
        for item in all_on_volumes_mut(want).filter(|item| !there.contains(&item.volume().to_owned())) {
            let before = item.volume().to_owned();
            if follow_name(item, &names) {
                let now = item.volume().to_owned();
                said.push(format!(
                    "{}: there is no volume {before}; by its `volume_guid` it is on volume {now}, and is so still.",
                    item.subject()
                ));
            }
        }
        said
    }

    /// Refuses that something is on one volume by its name, and on another one by its identity.
    fn refuse_two_volumes(&self, want: &Config) -> Result<(), Problem> {
        let names = self.names_now();
        for item in all_on_volumes(want) {
            let Some(guid) = item.volume_guid() else { continue };
            if let Some(name) = names.get(&guid).filter(|name| *name != item.volume()) {
                let detail = format!(
                    "{} is on volume {}, and its `volume_guid` is that of volume {name}.",
                    item.subject(),
                    item.volume()
                );
                return Err(Problem::new(Code::InvalidRequest, detail).todo(format!(
                    "Write `volume = \"{name}\"` to leave it where it is. Without `volume_guid` it is made of the volume {} instead, \
                     which has other data. Nothing was changed.",
                    item.volume()
                )));
            }
        }
        Ok(())
    }

    /// Closes pools that the configuration no longer names. Their data stays on their disks.
    pub(super) async fn close_dropped_pools(&self) {
        let wanted: Vec<uuid::Uuid> =
            self.config.with(|config| config.pools.iter().map(|pool| pool.guid).collect());
        let dropped: Vec<uuid::Uuid> =
            self.pools.lock().keys().filter(|guid| !wanted.contains(guid)).copied().collect();
        let closing = dropped.into_iter().filter_map(|guid| {
            let node = self.arc()?;
            let closing = tokio::spawn(async move {
                let turn = node.turn(guid).await;
                if node.config.with(|config| config.pools.iter().any(|pool| pool.guid == guid)) {
                    return;
                }
                // What was not closed cleanly is in the log, and is recovered by who opens it.
                drop(node.give_up(&turn, Release::No).await);
                node.pools.lock().remove(&guid);
                node.logs.forget_pool(guid);
                node.restarts.forget_pool(guid);
                node.full_restarts.forget_pool(guid);
                let disks = node.disks.all();
                let of_pool = disks.iter().filter(
                    |known| matches!(&known.content, Some(DiskContent::Member { pool, .. }) if *pool == guid),
                );
                join_all(of_pool.map(|known| node.probe(&known.found.id)).collect()).await;
            });
            Some(tokio::time::timeout(PATIENCE, closing))
        });
        // One that does not answer is closed when it does.
        let _ = futures_util::future::join_all(closing.collect::<Vec<_>>()).await;
    }
}

/// LUNs keep the identity that initiators know them by; new ones get one. LUNs and shares keep the volumes that they are on.
fn keep_identities(have: &Config, want: &mut Config) -> Result<(), Problem> {
    for lun in &mut want.luns {
        keep_tie(&have.luns, lun, |a, b| a.name == b.name);
    }
    for share in &mut want.shares {
        keep_tie(&have.shares, share, |a, b| upcase::same(&a.name, &b.name));
    }
    for policy in &mut want.volumes {
        keep_tie(&have.volumes, policy, |a, b| a.name == b.name);
    }
    for lun in want.luns.iter_mut().filter(|lun| lun.guid.is_none()) {
        lun.guid = match have.luns.iter().find(|there| there.name == lun.name).and_then(|there| there.guid) {
            Some(guid) => Some(guid),
            None => Some(new_guid()?),
        };
    }
    Ok(())
}
