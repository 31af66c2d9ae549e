//! What has a policy of storage QoS: LUNs, files, folders, shares and volumes.

use control_api::{
    Assignment, Code, Config, Done, Place, PlaceKind, Policies, Problem, QosAssign, QosPolicy, QosSubject,
};
use uuid::Uuid;

use super::qos::find;
use super::{Node, missing};

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
    /// A place of a volume, which must be one that the node knows if it `is_new`.
    fn qos_place(&self, volume: &str, path: &str, kind: PlaceKind, is_new: bool) -> Result<Subject, Problem> {
        let volume_guid = self.volume_guid(volume);
        if is_new && volume_guid.is_none() {
            return Err(missing("volume", volume, "holdfast volume list"));
        }
        let path = if path.len() > 1 { path.trim_end_matches('/') } else { path };
        let (volume, path) = (volume.to_owned(), path.to_owned());
        Ok(Subject::Place(Place { volume, volume_guid, path, kind, policy: Uuid::nil() }))
    }

    fn qos_subject(&self, named: QosSubject, is_new: bool) -> Result<Subject, Problem> {
        let split = |word: &str, what: &str| match word.split_once(':') {
            Some((volume, path)) if path.starts_with('/') => Ok((volume.to_owned(), path.to_owned())),
            _ => Err(usage(format!(
                "{word:?} does not name a {what}: write VOLUME:/PATH, as vm:/vms/web1.vhdx."
            ))),
        };
        match named {
            QosSubject { lun: Some(lun), file: None, folder: None, share: None, volume: None } => {
                if is_new && !self.config.with(|config| config.luns.iter().any(|there| there.name == lun)) {
                    return Err(missing("LUN", &lun, "holdfast lun list"));
                }
                Ok(Subject::Lun(lun))
            }
            QosSubject { file: Some(file), lun: None, folder: None, share: None, volume: None } => {
                let (volume, path) = split(&file, "file")?;
                self.qos_place(&volume, &path, PlaceKind::File, is_new)
            }
            QosSubject { folder: Some(folder), lun: None, file: None, share: None, volume: None } => {
                let (volume, path) = split(&folder, "folder")?;
                self.qos_place(&volume, &path, PlaceKind::Folder, is_new)
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
                self.qos_place(&volume, "/", PlaceKind::Folder, is_new)
            }
            _ => Err(usage("Exactly one LUN, file, folder, share or volume has to be named.")),
        }
    }

    /// Gives a LUN, file, folder, share or volume its policy, in place of the one that it has.
    pub async fn qos_assign(&self, request: QosAssign) -> Result<QosPolicy, Problem> {
        let _changing = self.changes.lock().await;
        let (word, named) = request.subject();
        let guid = self.config.with(|config| find(config, &word).map(|policy| policy.guid))?;
        let subject = self.qos_subject(named, true)?;
        self.change(|config| {
            subject.set_policy(config, Some(guid));
            Ok(())
        })
        .await?;
        self.qos_policy_show(guid)
    }

    /// Takes its policy from a LUN, file, folder, share or volume: `expected`, if that is said.
    pub async fn qos_unassign(&self, named: QosSubject, expected: Option<&str>) -> Result<Done, Problem> {
        let _changing = self.changes.lock().await;
        let subject = self.qos_subject(named, false)?;
        let name = subject.to_string();
        self.change(|config| {
            let none = || Problem::new(Code::NotFound, format!("{name} has no policy."));
            let has = subject.policy(config).ok_or_else(none)?;
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
            Ok(())
        })
        .await?;
        Ok(Done::new(format!("{name} has no policy.")))
    }
}
