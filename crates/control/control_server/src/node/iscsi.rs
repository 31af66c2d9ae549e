//! Targets, initiator groups, portals: changes of the configuration, put into effect.

use control_api::{
    Code, Config, Done, GroupConfig, GroupUpdate, IscsiConfig, IscsiUpdate, PortalConfig, PortalInfo,
    Problem, Target, TargetConfig, TargetUpdate, TargetUser, check_name, many,
};

use super::{Node, chap, confirm, missing, taken};

impl Node {
    /// Changes the configuration and puts the change into effect.
    pub(super) async fn change<T>(
        &self,
        change: impl FnMut(&mut Config) -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        let value = self.config.change(change)?;
        self.reconcile().await;
        Ok(value)
    }

    /// What holds for all targets.
    pub fn iscsi_show(&self) -> IscsiConfig {
        self.config.with(|config| config.iscsi.clone())
    }

    /// Changes what holds for all targets.
    pub async fn iscsi_update(&self, update: IscsiUpdate) -> Result<IscsiConfig, Problem> {
        let elsewhere = self.sessions_elsewhere().await;
        let _changing = self.changes.lock().await;
        let all = self.all_sessions(elsewhere);
        let before = self.config.get();
        let mut after = before.clone();
        after.iscsi.discovery_chap = update.discovery_chap.unwrap_or(after.iscsi.discovery_chap);
        let told = chap::undiscovered(&before, &after, &all);
        if !told.is_empty() {
            confirm("discovery", update.confirm.as_deref(), || told)?;
        }
        self.change(|config| {
            if let Some(chap) = update.discovery_chap {
                config.iscsi.discovery_chap = chap;
            }
            Ok(config.iscsi.clone())
        })
        .await
    }

    /// Targets, by name.
    pub async fn target_list(&self) -> Result<Vec<Target>, Problem> {
        let config = self.config.get();
        let sessions = self.backends.iscsi.sessions();
        let mut targets: Vec<Target> = config
            .targets
            .iter()
            .map(|target| Target {
                name: target.name.clone(),
                alias: target.alias.clone(),
                portal_groups: target.portal_groups.clone(),
                chap_users: target
                    .auth
                    .chap
                    .iter()
                    .map(|user| TargetUser { user: user.user.clone(), groups: user.groups.clone() })
                    .collect(),
                chap_off: target.auth.chap_off,
                mutual_chap: target.auth.mutual.is_some(),
                luns: config
                    .luns
                    .iter()
                    .filter(|lun| lun.map.iter().any(|map| map.target == target.name))
                    .count() as u64,
                sessions: sessions.iter().filter(|session| session.target == target.name).count() as u64,
            })
            .collect();
        targets.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(targets)
    }

    async fn target(&self, name: &str) -> Result<Target, Problem> {
        let targets = self.target_list().await?;
        targets
            .into_iter()
            .find(|target| target.name == name)
            .ok_or_else(|| missing("target", name, "holdfast target list"))
    }

    /// Makes a target.
    pub async fn target_create(&self, target: TargetConfig) -> Result<Target, Problem> {
        let _changing = self.changes.lock().await;
        let name = target.name.clone();
        self.change(|config| {
            if config.targets.iter().any(|there| there.name == target.name) {
                return Err(taken("target", &target.name));
            }
            config.targets.push(target.clone());
            Ok(())
        })
        .await?;
        self.target(&name).await
    }

    /// Changes a target.
    pub async fn target_update(&self, name: &str, update: TargetUpdate) -> Result<Target, Problem> {
        let elsewhere = self.sessions_elsewhere().await;
        let _changing = self.changes.lock().await;
        let all = self.all_sessions(elsewhere);
        let before = self.config.get();
        let mut after = before.clone();
        let target = after.targets.iter_mut().find(|target| target.name == name);
        let target = target.ok_or_else(|| missing("target", name, "holdfast target list"))?;
        chap::update_auth(target, &update)?;
        if let Some(alias) = update.alias {
            target.alias = alias;
        }
        if let Some(groups) = update.portal_groups {
            target.portal_groups = groups;
        }
        after.check()?;
        // Whoever takes one user away by name knows that.
        let by_name = update.remove_user.is_some();
        let mut told = if by_name { Vec::new() } else { chap::opening(&before, &after, name) };
        told.extend(chap::ending(&before, &after, name, &all));
        if !told.is_empty() {
            confirm(name, update.confirm.as_deref(), || told)?;
        }
        let of = |config: &Config| config.targets.iter().find(|target| target.name == name).cloned();
        let (was, becomes) = (of(&before), of(&after));
        // Only this target: what else another node has changed meanwhile stays.
        self.change(|config| {
            let there = config.targets.iter_mut().find(|target| target.name == name);
            match (there.filter(|there| Some(&**there) == was.as_ref()), &becomes) {
                (Some(there), Some(becomes)) => *there = becomes.clone(),
                _ => {
                    let detail = format!("Target {name} has just been changed on another node.");
                    return Err(Problem::new(Code::WrongState, detail)
                        .todo("Nothing was changed. Look at it, and try again."));
                }
            }
            Ok(())
        })
        .await?;
        self.target(name).await
    }

    /// Takes a target away.
    pub async fn target_delete(&self, name: &str, confirmed: Option<String>) -> Result<Done, Problem> {
        let elsewhere = self.sessions_elsewhere().await;
        let _changing = self.changes.lock().await;
        let all = self.all_sessions(elsewhere);
        let target = self.target(name).await?;
        confirm(name, confirmed.as_deref(), || {
            let sessions = all.items.iter().filter(|session| session.target == name).count();
            let mut told = vec![format!(
                "Target {name} disappears: what is connected to it ends ({}), what is seen through it is no longer ({}). All data stays.",
                many(sessions as u64, "session"),
                many(target.luns, "LUN")
            )];
            told.extend(all.unknown());
            told
        })?;
        self.change(|config| {
            config.targets.retain(|target| target.name != name);
            config.luns.iter_mut().for_each(|lun| lun.map.retain(|map| map.target != name));
            Ok(())
        })
        .await?;
        Ok(Done::new(format!("Target {name} is gone.")))
    }

    /// Initiator groups.
    pub fn group_list(&self) -> Vec<GroupConfig> {
        let mut groups = self.config.with(|config| config.groups.clone());
        groups.sort_by(|a, b| a.name.cmp(&b.name));
        groups
    }

    /// Makes an initiator group.
    pub async fn group_create(&self, group: GroupConfig) -> Result<GroupConfig, Problem> {
        let _changing = self.changes.lock().await;
        check_name("initiator group", &group.name)?;
        self.change(|config| {
            if config.groups.iter().any(|there| there.name == group.name) {
                return Err(taken("initiator group", &group.name));
            }
            config.groups.push(group.clone());
            Ok(group.clone())
        })
        .await
    }

    /// Changes an initiator group.
    pub async fn group_update(&self, name: &str, update: GroupUpdate) -> Result<GroupConfig, Problem> {
        let elsewhere = self.sessions_elsewhere().await;
        let _changing = self.changes.lock().await;
        let all = self.all_sessions(elsewhere);
        let before = self.config.get();
        let mut after = before.clone();
        change_group(&mut after, name, &update)?;
        after.check().and_then(|()| after.check_changed(&before))?;
        let told = self.losing(&before, &after, &all, |lun| lun.map.iter().any(|map| map.group == name));
        if !told.is_empty() {
            confirm(name, update.confirm.as_deref(), || told)?;
        }
        self.change(|config| change_group(config, name, &update)).await
    }

    /// Takes an initiator group away.
    pub async fn group_delete(&self, name: &str, confirmed: Option<String>) -> Result<Done, Problem> {
        let elsewhere = self.sessions_elsewhere().await;
        let _changing = self.changes.lock().await;
        let all = self.all_sessions(elsewhere);
        let seen = self.config.with(|config| {
            let there = config.groups.iter().any(|group| group.name == name);
            there
                .then(|| config.luns.iter().filter(|lun| lun.map.iter().any(|map| map.group == name)).count())
        });
        let seen = seen.ok_or_else(|| missing("initiator group", name, "holdfast initiator-group list"))?;
        let take = |config: &mut Config| {
            config.groups.retain(|group| group.name != name);
            config.luns.iter_mut().for_each(|lun| lun.map.retain(|map| map.group != name));
        };
        let before = self.config.get();
        let mut after = before.clone();
        take(&mut after);
        // What cannot be done anyway nobody is asked about.
        chap::refuse_bound(&before, name)?;
        after.check()?;
        let told = self.losing(&before, &after, &all, |lun| lun.map.iter().any(|map| map.group == name));
        confirm(name, confirmed.as_deref(), || {
            let goes = format!(
                "Initiator group {name} disappears: its initiators no longer see what they were shown ({}). All data stays.",
                many(seen as u64, "LUN")
            );
            [goes].into_iter().chain(told).collect()
        })?;
        self.change(|config| {
            take(config);
            Ok(())
        })
        .await?;
        Ok(Done::new(format!("Initiator group {name} is gone.")))
    }

    /// Portals, those in trouble first.
    pub async fn portal_list(&self) -> Result<Vec<PortalInfo>, Problem> {
        let listening = self.backends.iscsi.portals();
        let mut portals: Vec<PortalInfo> = self.config.with(|config| {
            config
                .portals
                .iter()
                .map(|portal| {
                    let there = listening.iter().find(|there| there.address == portal.address).cloned();
                    there.unwrap_or_else(|| PortalInfo {
                        address: portal.address.clone(),
                        listening: None,
                        group: portal.group,
                        problem: self.why_unserved(&format!("portal {}", portal.address)),
                    })
                })
                .collect()
        });
        portals.sort_by(|a, b| (a.problem.is_none(), &a.address).cmp(&(b.problem.is_none(), &b.address)));
        Ok(portals)
    }

    /// Listens on an address.
    pub async fn portal_create(&self, portal: PortalConfig) -> Result<PortalInfo, Problem> {
        let _changing = self.changes.lock().await;
        let address = portal.address.clone();
        self.change(|config| {
            if config.portals.iter().any(|there| there.address == portal.address) {
                return Err(taken("portal", &portal.address));
            }
            config.portals.push(portal.clone());
            Ok(())
        })
        .await?;
        let made = self.portal_list().await?.into_iter().find(|portal| portal.address == address);
        match made {
            Some(PortalInfo { listening: None, problem, .. }) => {
                // A portal that can't be had now is not kept: whoever asked is there to choose another.
                self.change(|config| {
                    config.portals.retain(|portal| portal.address != address);
                    Ok(())
                })
                .await?;
                let why = problem.unwrap_or_else(|| "it does not listen".into());
                Err(Problem::new(Code::Io, format!("portal {address}: {why}"))
                    .todo("Choose an address of this machine and a port that is free."))
            }
            Some(portal) => Ok(portal),
            None => Err(missing("portal", &address, "holdfast portal list")),
        }
    }

    /// Stops listening on an address.
    pub async fn portal_delete(&self, address: &str, confirmed: Option<String>) -> Result<Done, Problem> {
        let _changing = self.changes.lock().await;
        if !self.config.with(|config| config.portals.iter().any(|portal| portal.address == address)) {
            return Err(missing("portal", address, "holdfast portal list"));
        }
        confirm(address, confirmed.as_deref(), || {
            vec![format!("Nothing is served on {address} any more; sessions over it end.")]
        })?;
        self.change(|config| {
            config.portals.retain(|portal| portal.address != address);
            Ok(())
        })
        .await?;
        Ok(Done::new(format!("Nothing is served on {address} any more.")))
    }
}

/// Carries out what an update says about an initiator group.
fn change_group(config: &mut Config, name: &str, update: &GroupUpdate) -> Result<GroupConfig, Problem> {
    let group = config.groups.iter_mut().find(|group| group.name == name);
    let group = group.ok_or_else(|| missing("initiator group", name, "holdfast initiator-group list"))?;
    group.initiators.retain(|initiator| !update.remove.contains(initiator));
    for initiator in &update.add {
        if !group.initiators.contains(initiator) {
            group.initiators.push(initiator.clone());
        }
    }
    group.any = update.any.unwrap_or(group.any);
    Ok(group.clone())
}
