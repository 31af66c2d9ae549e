//! Which spaces hold volumes, which hold logs, and which log is whose.
//!
//! ```text
//!   volume     vm                      in a space with the identity 01234567-…
//!   its log    vm.01234567.write-log   in any pool
//! ```
//! Two pools may have volumes of one name: that alone does not say whose a log is.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// What the name of a log's space ends with, after the name of its volume.
pub(crate) const LOG_SUFFIX: &str = ".write-log";

/// The name of the space of the log of a volume, whose space has this identity.
pub(crate) fn log_name(volume: &str, guid: &str) -> String {
    let short = guid.split('-').next().unwrap_or_default();
    format!("{volume}.{short}{LOG_SUFFIX}")
}

/// The volume that a space of this name is the log of, if it is one.
pub(crate) fn log_of(space: &str) -> Option<&str> {
    space.strip_suffix(LOG_SUFFIX)?.rsplit_once('.').map(|(volume, _)| volume)
}

/// A space by its name and identity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "Written")]
pub struct SpaceName {
    /// Its name, unique in its pool.
    pub name: String,
    /// Its identity. Not known of spaces that an earlier release took down.
    pub guid: Option<Uuid>,
}

/// As it is written down; earlier releases wrote names.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Name(String),
    Whole { name: String, guid: Option<Uuid> },
}

impl From<Written> for SpaceName {
    fn from(written: Written) -> Self {
        match written {
            Written::Name(name) => Self { name, guid: None },
            Written::Whole { name, guid } => Self { name, guid },
        }
    }
}

impl SpaceName {
    /// The volume whose log it holds, if it holds one.
    #[must_use]
    pub fn log_of(&self) -> Option<&str> {
        log_of(&self.name)
    }

    /// Whether it holds the volume whose log is in the space `log`. Where its identity is not known, the volume's name must do.
    pub(crate) fn is_home_of(&self, log: &str) -> bool {
        self.log_of().is_none()
            && match self.guid {
                Some(guid) => log_name(&self.name, &guid.to_string()) == log,
                None => log_of(log) == Some(&self.name),
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_of_one_volume_of_several_of_its_name() {
        let [first, second] = [1u128, 2].map(|number| {
            let guid = Uuid::from_u128(number << 96);
            (SpaceName { name: "vm".into(), guid: Some(guid) }, log_name("vm", &guid.to_string()))
        });
        assert!(first.0.is_home_of(&first.1) && second.0.is_home_of(&second.1));
        assert!(!first.0.is_home_of(&second.1) && !second.0.is_home_of(&first.1));
        let unknown = SpaceName { guid: None, ..first.0.clone() };
        assert!(unknown.is_home_of(&first.1) && unknown.is_home_of(&second.1));
        let log = SpaceName { name: first.1.clone(), guid: None };
        assert!(!log.is_home_of(&log_name(&log.name, "1-")) && log.log_of() == Some("vm"));
    }

    #[test]
    fn names_of_earlier_releases_are_read() {
        let read: Vec<SpaceName> =
            serde_json::from_str(r#"["vm", {"name": "b", "guid": null}]"#).expect("read");
        assert_eq!(
            read.iter().map(|space| (space.name.as_str(), space.guid)).collect::<Vec<_>>(),
            [("vm", None), ("b", None)]
        );
        let whole = SpaceName { name: "vm".into(), guid: Some(Uuid::from_u128(5)) };
        let text = serde_json::to_string(&whole).expect("written");
        assert_eq!(serde_json::from_str::<SpaceName>(&text).expect("read"), whole);
    }
}
