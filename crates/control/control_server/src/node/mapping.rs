//! Whose a mapping of a LUN is, where it goes, and who uses it.

mod lost_writes;
pub(super) mod masking;
mod reservations;

use control_api::{
    Code, Config, GroupConfig, Lun, LunConfig, LunFormat, LunMap, LunState, LunUpdate, MapConfig, Problem,
};

use super::all_sessions::AllSessions;
use super::luns::find;
use super::{Node, confirm, missing};

/// Name of the group of all initiators, where it has to be made.
const EVERYONE: &str = "everyone";

fn whose() -> Problem {
    Problem::new(Code::InvalidRequest, "Whose is the mapping: an initiator group's, or everyone's?")
        .todo("Say --group GROUP or --everyone.")
}

/// The group that a mapping is for; that of all initiators is made where there is none.
pub(super) fn group_of(groups: &mut Vec<GroupConfig>, wanted: &LunMap) -> Result<String, Problem> {
    match (&wanted.group, wanted.everyone) {
        (Some(group), false) => return Ok(group.clone()),
        (None, true) => {}
        _ => return Err(whose()),
    }
    let all = |group: &&GroupConfig| group.any;
    let named = groups.iter().filter(all).find(|group| group.name == EVERYONE);
    if let Some(group) = named.or_else(|| groups.iter().find(all)) {
        return Ok(group.name.clone());
    }
    if groups.iter().any(|group| group.name == EVERYONE) {
        return Err(Problem::new(
            Code::AlreadyExists,
            format!("The initiator group {EVERYONE} does not have every initiator in it."),
        )
        .todo("Make one that has, with `holdfast initiator-group create NAME --any`, and map to it with --group."));
    }
    groups.push(GroupConfig { name: EVERYONE.to_owned(), initiators: Vec::new(), any: true });
    Ok(EVERYONE.to_owned())
}

/// Completes a mapping of the LUN called `name`: the only target, the lowest number that is free there for this group.
///
/// # Errors
/// When there is no such target, the LUN is mapped so already, or another one has the number.
pub(super) fn place(
    config: &Config,
    name: &str,
    own: &[MapConfig],
    group: String,
    wanted: &LunMap,
) -> Result<MapConfig, Problem> {
    let target = match (&wanted.target, &*config.targets) {
        (Some(target), _) => target.clone(),
        (None, [only]) => only.name.clone(),
        (None, []) => {
            return Err(Problem::new(Code::NotFound, "There is no target yet.")
                .todo("Make one with `holdfast target create`."));
        }
        (None, targets) => {
            let names: Vec<&str> = targets.iter().map(|target| target.name.as_str()).collect();
            return Err(Problem::new(
                Code::InvalidRequest,
                format!("There are several targets: {}.", names.join(", ")),
            )
            .todo("Say which one with --target."));
        }
    };
    if let Some(there) = own.iter().find(|there| there.target == target && there.group == group) {
        let detail = format!(
            "LUN {name} is mapped to initiator group {group} by target {target} already, as number {}.",
            there.number
        );
        let todo = format!(
            "To give it another number, take that mapping away first: `holdfast lun unmap {name} --group {group} --target {target}`."
        );
        return Err(Problem::new(Code::AlreadyExists, detail).todo(todo));
    }
    let number = match wanted.number {
        Some(number) => {
            let has_it = |map: &MapConfig| map.target == target && map.group == group && map.number == number;
            let other = config.luns.iter().find(|lun| lun.name != name && lun.map.iter().any(has_it));
            if let Some(other) = other {
                let detail = format!(
                    "Number {number} of target {target} is LUN {} for initiator group {group}.",
                    other.name
                );
                return Err(Problem::new(Code::AlreadyExists, detail)
                    .todo("Choose another number, or leave it out: the lowest that is free is taken then."));
            }
            number
        }
        None => config.free_number(&target, &group, own).ok_or_else(|| {
            Problem::new(Code::NoSpace, format!("target {target} has no free number for this group."))
        })?,
    };
    Ok(MapConfig { target, number, group, read_only: wanted.read_only })
}

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

#[cfg(test)]
mod tests {
    use control_api::TargetConfig;

    use super::*;

    #[test]
    fn numbers_are_the_lowest_free_ones_for_the_group() {
        let target = |name: &str| TargetConfig {
            name: name.into(),
            alias: String::new(),
            portal_groups: vec![],
            auth: control_api::AuthConfig::default(),
        };
        let map = |number, group: &str| MapConfig {
            target: "t".into(),
            number,
            group: group.into(),
            read_only: false,
        };
        let wanted = LunMap {
            target: None,
            number: None,
            group: None,
            everyone: false,
            read_only: false,
            confirm: None,
        };
        let own: [MapConfig; 0] = [];
        let others = [map(0, "g"), map(2, "g"), map(1, "h")];
        let with = |targets: &[&str]| Config {
            targets: targets.iter().map(|name| target(name)).collect(),
            luns: vec![LunConfig { map: others.to_vec(), ..LunConfig::new("other", "v", "/other") }],
            ..Config::default()
        };
        assert_eq!(place(&with(&["t"]), "l", &own, "g".into(), &wanted).expect("placed").number, 1);
        assert_eq!(place(&with(&["t"]), "l", &own, "h".into(), &wanted).expect("placed").number, 0);
        assert!(place(&with(&[]), "l", &own, "g".into(), &wanted).is_err());
        let several = place(&with(&["t", "u"]), "l", &own, "g".into(), &wanted);
        assert_eq!(several.expect_err("which one?").detail, "There are several targets: t, u.");
        let numbered = LunMap { number: Some(2), ..wanted.clone() };
        let taken = place(&with(&["t"]), "l", &own, "g".into(), &numbered).expect_err("taken");
        assert_eq!(taken.detail, "Number 2 of target t is LUN other for initiator group g.");
        assert_eq!(place(&with(&["t"]), "l", &own, "h".into(), &numbered).expect("free").number, 2);
        let twice = place(&with(&["t"]), "l", &[map(7, "g")], "g".into(), &wanted).expect_err("there");
        assert_eq!(twice.detail, "LUN l is mapped to initiator group g by target t already, as number 7.");
    }

    #[test]
    fn everyones_group_is_the_one_of_all_initiators() {
        let map = |group: Option<&str>, everyone| LunMap {
            target: None,
            number: None,
            group: group.map(str::to_owned),
            everyone,
            read_only: false,
            confirm: None,
        };
        let group = |name: &str, any| GroupConfig { name: name.into(), initiators: vec![], any };
        let mut groups = vec![];
        assert_eq!(group_of(&mut groups, &map(None, true)).expect("made"), "everyone");
        assert_eq!(groups, [group("everyone", true)]);
        let mut groups = vec![group("some", false), group("all", true)];
        assert_eq!(group_of(&mut groups, &map(None, true)).expect("found"), "all");
        assert_eq!(group_of(&mut groups, &map(Some("some"), false)).expect("named"), "some");
        assert!(group_of(&mut groups, &map(Some("some"), true)).is_err());
        assert!(group_of(&mut groups, &map(None, false)).is_err());
        assert!(group_of(&mut vec![group("everyone", false)], &map(None, true)).is_err());
    }
}
