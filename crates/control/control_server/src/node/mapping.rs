//! Mapping LUNs to initiators and taking that back, and who uses them.

mod lost_writes;
pub(super) mod masking;
mod reservations;

use control_api::{Code, Config, Lun, LunConfig, LunFormat, LunMap, LunState, LunUpdate, MapConfig, Problem};

use super::all_sessions::AllSessions;
use super::luns::find;
use super::placing::{group_of, place, whose};
use super::{Node, confirm, missing};

impl Node {
    /// Shows a LUN to an initiator group.
    pub async fn lun_map(&self, name: &str, request: LunMap) -> Result<Lun, Problem> {
        let changing = self.changes.lock().await;
        self.config.change(|config| {
            let own = find(&mut config.luns, name)?.map.clone();
            let group = group_of(&mut config.groups, &request)?;
            let map = place(config, name, &own, group, &request)?;
            find(&mut config.luns, name)?.map.push(map);
            Ok(())
        })?;
        drop(changing);
        self.serve_lun(&self.lun_config(name)?).await;
        self.lun_show(name).await
    }

    /// Hides a LUN from an initiator group.
    pub async fn lun_unmap(&self, name: &str, request: LunMap) -> Result<Lun, Problem> {
        let elsewhere = self.sessions_elsewhere().await;
        let changing = self.changes.lock().await;
        let all = self.all_sessions(elsewhere);
        let before = self.config.get();
        let mut after = before.clone();
        unmap(&mut after, name, &request)?;
        let told = self.losing(&before, &after, &all, |lun| lun.name == name);
        if !told.is_empty() {
            confirm(name, request.confirm.as_deref(), || told)?;
        }
        self.config.change(|config| unmap(config, name, &request))?;
        drop(changing);
        self.serve_lun(&self.lun_config(name)?).await;
        self.lun_show(name).await
    }

    /// Refuses a change of a LUN that it does not allow, or that its hosts would notice and nobody has confirmed.
    pub(super) fn refuse_change(
        &self,
        lun: &LunConfig,
        request: &LunUpdate,
        all: &AllSessions,
    ) -> Result<(), Problem> {
        if request.reserve && lun.format == LunFormat::Vhdx {
            return Err(super::lun_images::cannot_reserve());
        }
        refuse_of_cached(lun, request)?;
        let does = match request.state.filter(|state| *state != lun.state) {
            Some(LunState::Offline) => "is not served any more: requests of its hosts fail",
            Some(LunState::ReadOnly) if lun.state == LunState::Online => {
                "is served for reading only: writes of its hosts fail"
            }
            _ => return Ok(()),
        };
        let users = self.users_of(lun, all);
        if users.is_empty() {
            return Ok(());
        }
        confirm(&lun.name, request.confirm.as_deref(), || {
            [format!("LUN {} {does}.", lun.name)].into_iter().chain(users).collect()
        })
    }
}

/// Refuses what a LUN cannot have whose writes never reach its file.
fn refuse_of_cached(lun: &LunConfig, request: &LunUpdate) -> Result<(), Problem> {
    if lun.write_cache_in.is_none() {
        return Ok(());
    }
    let wrong = |what: &str| {
        Problem::new(
            Code::InvalidRequest,
            format!("LUN {} is read from its file and never written there: {what}.", lun.name),
        )
        .todo("`holdfast lun delete --keep-file`, and make it anew.")
    };
    if request.size_bytes.is_some() || request.reserve {
        return Err(wrong("its size is that of the file"));
    }
    if request.write_cache.is_some() || request.initiator_write_cache.is_some() {
        return Err(wrong("its writes are cached until they are given up"));
    }
    Ok(())
}

/// Takes a mapping of a LUN away.
fn unmap(config: &mut Config, name: &str, request: &LunMap) -> Result<(), Problem> {
    let lun = find(&mut config.luns, name)?;
    let groups: Vec<&str> = match (&request.group, request.everyone) {
        (Some(group), false) => vec![group.as_str()],
        (None, true) => {
            config.groups.iter().filter(|group| group.any).map(|group| group.name.as_str()).collect()
        }
        _ => return Err(whose()),
    };
    let meant = |map: &MapConfig| {
        groups.contains(&map.group.as_str())
            && request.target.as_ref().is_none_or(|target| *target == map.target)
            && request.number.is_none_or(|number| number == map.number)
    };
    match lun.map.iter().filter(|map| meant(map)).count() {
        1 => {
            lun.map.retain(|map| !meant(map));
            Ok(())
        }
        0 => Err(missing("such mapping of LUN", name, "holdfast lun list")),
        _ => Err(Problem::new(
            Code::InvalidRequest,
            format!("LUN {name} is mapped several times for this group."),
        )
        .todo("Say which one with --target and --number.")),
    }
}
