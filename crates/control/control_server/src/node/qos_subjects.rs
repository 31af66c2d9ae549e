//! What has a policy of storage QoS: LUNs, files, folders, shares and volumes.

use control_api::{
    Assignment, Code, Config, Done, Place, PlaceKind, Policies, Problem, QosAssign, QosPolicy, QosSubject,
    ShareConfig,
};
use file_store::{FileKind, FileStore, StoreErrorKind};
use qos_policy::check_places;
use uuid::Uuid;

use super::elsewhere::Thing;
use super::qos::find;
use super::{Node, missing};
use crate::files;

/// What was named, as the configuration has it.
enum Subject {
    Lun(String),
    Place(Place),
}

impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Lun(name) => write!(f, "LUN {name}"),
            Self::Place(place) => write!(f, "{place}"),
        }
    }
}

/// Whether two rows are about the same.
fn same(a: &Place, b: &Place) -> bool {
    let volume = match (a.volume_guid, b.volume_guid) {
        (Some(a), Some(b)) => a == b,
        _ => a.volume == b.volume,
    };
    volume && a.kind == b.kind && upcase::upper(&a.path) == upcase::upper(&b.path)
}

fn usage(detail: impl Into<String>) -> Problem {
    Problem::new(Code::InvalidRequest, detail)
}

impl Subject {
    /// The policy that it has.
    fn policy(&self, config: &Config) -> Option<Uuid> {
        match self {
            Self::Lun(name) => {
                config.qos_assignments.iter().find(|row| row.lun == *name).map(|row| row.policy)
            }
            Self::Place(place) => config.qos_places.iter().find(|row| same(row, place)).map(|row| row.policy),
        }
    }

    /// The same as the configuration says it: which volume of its name it is on, a node may not know that does not have it.
    fn as_known(&self, config: &Config) -> Self {
        match self {
            Self::Lun(name) => Self::Lun(name.clone()),
            Self::Place(place) => {
                let row = config.qos_places.iter().find(|row| same(row, place));
                Self::Place(row.unwrap_or(place).clone())
            }
        }
    }

    /// Gives it a policy in place of the one that it has, or none.
    fn set_policy(&self, config: &mut Config, policy: Option<Uuid>) {
        match self {
            Self::Lun(lun) => {
                config.qos_assignments.retain(|row| row.lun != *lun);
                config.qos_assignments.extend(policy.map(|policy| Assignment { lun: lun.clone(), policy }));
            }
            Self::Place(place) => {
                config.qos_places.retain(|row| !same(row, place));
                config.qos_places.extend(policy.map(|policy| Place { policy, ..place.clone() }));
            }
        }
    }
}

impl Node {
    /// A place of a volume; with the identity of that, where it is here.
    fn qos_place(&self, volume: &str, path: &str, kind: PlaceKind) -> Subject {
        let volume_guid = self.volume_guid(volume);
        let path = if path.len() > 1 { path.trim_end_matches('/') } else { path };
        let (volume, path) = (volume.to_owned(), path.to_owned());
        Subject::Place(Place { volume, volume_guid, path, kind, policy: Uuid::nil() })
    }

    /// Refuses a volume that another node has, naming that node, so that the request is passed on to it: it knows which volume is meant, and
    /// what is on it. Refuses one that is nowhere, too.
    async fn qos_volume_is_here(&self, volume: &str) -> Result<(), Problem> {
        if self.place().is_some() {
            if let Some(peer) = self.whose(Thing::Volume(volume, None)).await? {
                let detail = format!("Node {} has volume {volume}.", peer.name);
                return Err(Problem { node: Some(peer.name), ..Problem::new(Code::OtherNode, detail) });
            }
            // Its pool may be nobody's now, and the shared state away.
            if self.volume_guid(volume).is_none() && !self.has_no_volume(volume).await {
                return Err(self.no_volume(volume));
            }
        }
        match self.volume_guid(volume) {
            Some(_) => Ok(()),
            None => Err(missing("volume", volume, "holdfast volume list")),
        }
    }

    /// Refuses what is not there: a LUN, a volume, and a file or folder of one that is open.
    async fn qos_is_there(&self, subject: &Subject) -> Result<(), Problem> {
        let place = match subject {
            Subject::Lun(lun) => {
                let there = self.config.with(|config| config.luns.iter().any(|known| known.name == *lun));
                return if there { Ok(()) } else { Err(missing("LUN", lun, "holdfast lun list")) };
            }
            Subject::Place(place) => place,
        };
        check_places(std::slice::from_ref(place)).map_err(|error| usage(format!("{error}.")))?;
        self.qos_volume_is_here(&place.volume).await?;
        if place.path == "/" {
            return Ok(());
        }
        self.refuse_stranger(place)?;
        let (path, volume) = (place.path.clone(), &place.volume);
        let found = self.with_store(volume, async move |store| kind_at(&*store, &path).await).await?;
        let (is, other) = match place.kind {
            PlaceKind::File => ("file", "folder"),
            PlaceKind::Folder => ("folder", "file"),
        };
        match found {
            Some(kind) if kind == place.kind => Ok(()),
            Some(_) => Err(usage(format!("{volume}:{} is a {other} and no {is}.", place.path))
                .todo(format!("Write --{other} in place of --{is}."))),
            None => {
                let detail = format!("There is no {is} {volume}:{}.", place.path);
                Err(Problem::new(Code::NotFound, detail).todo(format!(
                    "`holdfast file ls {volume}:/` shows what there is. What is made later has the policy of the folder that it is made in."
                )))
            }
        }
    }

    /// What is named, whether it is there or not.
    fn qos_subject(&self, named: QosSubject) -> Result<Subject, Problem> {
        let split = |word: &str, what: &str| match word.split_once(':') {
            Some((volume, path)) if path.starts_with('/') => Ok((volume.to_owned(), path.to_owned())),
            _ => Err(usage(format!(
                "{word:?} does not name a {what}: write VOLUME:/PATH, as vm:/vms/web1.vhdx."
            ))),
        };
        match named {
            QosSubject { lun: Some(lun), file: None, folder: None, share: None, volume: None } => {
                Ok(Subject::Lun(lun))
            }
            QosSubject { file: Some(file), lun: None, folder: None, share: None, volume: None } => {
                let (volume, path) = split(&file, "file")?;
                Ok(self.qos_place(&volume, &path, PlaceKind::File))
            }
            QosSubject { folder: Some(folder), lun: None, file: None, share: None, volume: None } => {
                let (volume, path) = split(&folder, "folder")?;
                Ok(self.qos_place(&volume, &path, PlaceKind::Folder))
            }
            QosSubject { share: Some(share), lun: None, file: None, folder: None, volume: None } => {
                let wanted = upcase::upper(&share);
                let found = self.config.with(|config| {
                    let mut shares = config.shares.iter();
                    shares.find(|there| upcase::upper(&there.name) == wanted).cloned()
                });
                let found = found.ok_or_else(|| missing("share", &share, "holdfast share list"))?;
                let folder = format!("/{}", found.folder.trim_matches('/'));
                Ok(Subject::Place(Place {
                    volume: found.volume,
                    volume_guid: found.volume_guid,
                    path: folder,
                    kind: PlaceKind::Folder,
                    policy: Uuid::nil(),
                }))
            }
            QosSubject { volume: Some(volume), lun: None, file: None, folder: None, share: None } => {
                Ok(self.qos_place(&volume, "/", PlaceKind::Folder))
            }
            _ => Err(usage("Exactly one LUN, file, folder, share or volume has to be named.")),
        }
    }

    /// Gives a LUN, file, folder, share or volume its policy, in place of the one that it has.
    pub async fn qos_assign(&self, request: QosAssign) -> Result<QosPolicy, Problem> {
        let (word, named) = request.subject();
        // Who has the volume knows best what is on it; a policy that is not there is told of by whoever is asked.
        self.config.with(|config| find(config, &word))?;
        let is_share = named.share.is_some();
        let subject = self.qos_subject(named)?;
        if !is_share {
            self.qos_is_there(&subject).await?;
        }
        let _changing = self.changes.lock().await;
        let guid = self
            .change(|config| {
                let guid = find(config, &word)?.guid;
                subject.set_policy(config, Some(guid));
                Ok(guid)
            })
            .await?;
        self.qos_policy_show(guid)
    }

    /// Takes its policy from a LUN, file, folder, share or volume: `expected`, if that is said. What is not there any more may have one still.
    pub async fn qos_unassign(&self, named: QosSubject, expected: Option<&str>) -> Result<Done, Problem> {
        let subject = self.qos_subject(named)?;
        if self.config.with(|config| subject.policy(config)).is_none() {
            self.qos_is_there(&subject).await?;
        }
        let _changing = self.changes.lock().await;
        let name = subject.to_string();
        let subject = self
            .change(|config| {
                let subject = subject.as_known(config);
                let has = subject.policy(config).ok_or_else(|| has_none(config, &subject))?;
                if let Some(word) = expected {
                    // One that is not there any more can be named by its GUID.
                    let meant = Policies::find(&config.qos_policies, word).map(|policy| policy.guid);
                    if meant.or_else(|| word.parse().ok()) != Some(has) {
                        return Err(Problem::new(
                            Code::WrongState,
                            format!("{name} does not have policy {word}."),
                        )
                        .todo("`holdfast qos policy list` shows what each policy is given to."));
                    }
                }
                subject.set_policy(config, None);
                Ok(subject)
            })
            .await?;
        let from = self.config.with(|config| told_inherited(config, &subject));
        Ok(Done::new(match from {
            Some((policy, place)) => {
                format!(
                    "{name} has no policy of its own any more. {policy}, that of {place}, holds for it now."
                )
            }
            None => format!("{name} has no policy."),
        }))
    }
}

/// What is at this path; none where nothing is.
async fn kind_at(store: &dyn FileStore, path: &str) -> Result<Option<PlaceKind>, Problem> {
    let mut here = (store.root(), FileKind::Directory);
    for name in files::split(path)? {
        if here.1 != FileKind::Directory {
            return Ok(None);
        }
        match store.lookup(here.0, name).await {
            Ok(entry) => here = (entry.file, entry.kind),
            Err(error) if error.kind() == StoreErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(files::at(path)(error)),
        }
    }
    // The configuration may refer to it from now on.
    store.sync().await.map_err(files::at(path))?;
    Ok(Some(match here.1 {
        FileKind::File => PlaceKind::File,
        FileKind::Directory => PlaceKind::Folder,
    }))
}

/// That something has no policy of its own, and whose holds for it.
fn has_none(config: &Config, subject: &Subject) -> Problem {
    match told_inherited(config, subject) {
        Some((policy, place)) => {
            let detail =
                format!("{subject} has no policy of its own. {policy}, that of {place}, holds for it.");
            Problem::new(Code::NotFound, detail)
                .todo("`holdfast qos unassign` takes it from there, and from all else that has it by that.")
        }
        None => Problem::new(Code::NotFound, format!("{subject} has no policy.")),
    }
}

/// The policy that something has by where it is, in words, and the place whose that is.
fn told_inherited(config: &Config, subject: &Subject) -> Option<(String, String)> {
    let place = inherited(config, subject)?;
    let policy = config.qos_policies.iter().find(|policy| policy.guid == place.policy);
    let policy = match policy {
        Some(policy) => format!("Policy {}", policy.name),
        None => format!("Policy {}, which is not there", place.policy),
    };
    let serves = |share: &&ShareConfig| {
        place.is_folder()
            && volume_key(share.volume_guid, &share.volume) == volume_key(place.volume_guid, &place.volume)
            && upcase::upper(share.folder.trim_matches('/')) == upcase::upper(place.path.trim_matches('/'))
    };
    let share = config.shares.iter().find(serves);
    let share = share.map(|share| format!(" (share {})", share.name)).unwrap_or_default();
    Some((policy, format!("{place}{share}")))
}

/// A volume as policies are looked up by it: by its identity, or by its name where a row does not say more.
fn volume_key(guid: Option<Uuid>, name: &str) -> (Option<Uuid>, &str) {
    (guid, if guid.is_some() { "" } else { name })
}

/// The place from which something has a policy that has none of its own: the nearest one, as [`Policies::of_file`] finds it.
fn inherited<'a>(config: &'a Config, subject: &Subject) -> Option<&'a Place> {
    let (volume, path, is_lun) = match subject {
        Subject::Lun(lun) => {
            let lun = config.luns.iter().find(|known| known.name == *lun)?;
            (volume_key(lun.volume_guid, &lun.volume), lun.path.as_str(), true)
        }
        Subject::Place(place) => (volume_key(place.volume_guid, &place.volume), place.path.as_str(), false),
    };
    let fold = |path: &str| upcase::upper(path.trim_end_matches('/'));
    let path = fold(path);
    let on = |place: &&Place| volume_key(place.volume_guid, &place.volume) == volume;
    // What a LUN has by the policy of its file is not its own.
    let own = |place: &&Place| is_lun && !place.is_folder() && fold(&place.path) == path;
    if let Some(file) = config.qos_places.iter().filter(on).find(own) {
        return Some(file);
    }
    let is_above = |place: &&Place| {
        let folder = fold(&place.path);
        place.is_folder() && path.strip_prefix(folder.as_str()).is_some_and(|rest| rest.starts_with('/'))
    };
    config.qos_places.iter().filter(on).filter(is_above).max_by_key(|place| fold(&place.path).len())
}

#[cfg(test)]
mod tests {
    use control_api::{LunConfig, Policy, PolicyKind};
    use qos_policy::Effective;

    use super::*;

    fn place(path: &str, kind: PlaceKind, policy: u128) -> Place {
        let policy = Uuid::from_u128(policy);
        Place { volume: "v".into(), volume_guid: None, path: path.into(), kind, policy }
    }

    #[test]
    fn what_is_inherited_is_what_holds() {
        use PlaceKind::{File, Folder};
        let all = [
            place("/", Folder, 1),
            place("/vms", Folder, 2),
            place("/VMS/a", Folder, 3),
            place("/vms/a/disk", File, 4),
            place("/vmsx", Folder, 5),
        ];
        let policy = |number| Policy {
            guid: Uuid::from_u128(number),
            name: format!("p{number}"),
            kind: PolicyKind::Dedicated,
            min_iops: None,
            max_iops: Some(100),
            max_bandwidth: None,
        };
        let paths = ["/x", "/vms/x", "/vms/A/x", "/vms/a/DISK", "/vmsx/x", "/vm/x", "/vms/a/disk/x"];
        // Each set of places, and a file by each path.
        for set in 0..1_usize << all.len() {
            let places = all.iter().enumerate().filter(|(at, _)| set & 1 << at != 0);
            let mut config = Config {
                qos_policies: (1..=5).map(policy).collect(),
                qos_places: places.map(|(_, place)| place.clone()).collect(),
                ..Config::default()
            };
            for path in paths {
                let lun =
                    serde_json::json!({ "name": "l", "volume": "v", "path": path, "guid": Uuid::nil() });
                config.luns = vec![serde_json::from_value::<LunConfig>(lun).expect("a LUN")];
                let found = inherited(&config, &Subject::Lun("l".into())).map(|place| place.policy);
                let holds = match config.policies().of_file((None, "v"), path) {
                    Effective::None => None,
                    Effective::Policy(policy) => Some(policy.guid),
                    Effective::Unknown(guid) => Some(guid),
                };
                assert_eq!(found, holds, "{path} of {:?}", config.qos_places);
            }
        }
    }
}
