//! The names of a gate's disks, and what holds for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use qos_policy::Places;
use qos_scheduler::Terms;
use uuid::Uuid;

/// What holds for a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rule {
    /// Nothing: it has its share.
    #[default]
    Free,
    /// These terms, for it alone.
    Alone(Terms),
    /// These terms, together with all disks that have the rule of this name.
    Together(Uuid, Terms),
}

impl Rule {
    /// Its terms.
    #[must_use]
    pub fn terms(&self) -> Terms {
        match self {
            Self::Free => Terms::default(),
            Self::Alone(terms) | Self::Together(_, terms) => *terms,
        }
    }
}

/// Which disk of a gate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiskName {
    /// A LUN, by its name.
    Lun(String),
    /// A file, by its path in the volume.
    File(String),
    /// A flow that its client has given an identity, to a file.
    Flow(Uuid, String),
}

impl From<&str> for DiskName {
    /// A LUN.
    fn from(name: &str) -> Self {
        Self::Lun(name.to_owned())
    }
}

/// What the client of a disk asks for. It counts where nothing was said of the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Asked {
    /// Nothing.
    #[default]
    Nothing,
    /// This policy.
    Policy(Uuid),
    /// These terms.
    Terms(Terms),
}

/// What holds for the disks of a gate, whether they are there or not.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// For LUNs, by their names.
    pub luns: BTreeMap<String, Rule>,
    /// For files, by where they are.
    pub places: Places<Rule>,
    /// For disks whose clients ask for policies, by these: one table for all gates, as there may be very many of both.
    pub policies: Arc<BTreeMap<Uuid, Rule>>,
    /// This gate's part of shared rules that several gates have, by their names.
    parts: BTreeMap<Uuid, Terms>,
}

impl From<BTreeMap<String, Rule>> for Rules {
    /// For LUNs.
    fn from(luns: BTreeMap<String, Rule>) -> Self {
        Self { luns, ..Self::default() }
    }
}

impl Rules {
    pub(crate) fn of(&self, disk: &DiskName, asked: Asked) -> Rule {
        let said = match disk {
            DiskName::Lun(name) => self.luns.get(name),
            DiskName::File(path) | DiskName::Flow(_, path) => self.places.find(path),
        };
        match (said, asked) {
            (Some(rule), _) => *rule,
            (None, Asked::Nothing) => Rule::Free,
            (None, Asked::Policy(policy)) => self.of_policy(policy).unwrap_or_default(),
            (None, Asked::Terms(terms)) => Rule::Alone(terms),
        }
    }

    /// Whether a policy that is asked for would count, and is not there.
    pub(crate) fn misses(&self, disk: &DiskName, asked: Asked) -> bool {
        let (DiskName::Flow(_, path), Asked::Policy(policy)) = (disk, asked) else { return false };
        !self.policies.contains_key(&policy) && self.places.find(path).is_none()
    }

    /// The rule of a policy here.
    fn of_policy(&self, policy: Uuid) -> Option<Rule> {
        let rule = *self.policies.get(&policy)?;
        Some(match rule {
            Rule::Together(name, terms) => {
                Rule::Together(name, self.parts.get(&name).copied().unwrap_or(terms))
            }
            Rule::Free | Rule::Alone(_) => rule,
        })
    }

    /// Has these terms for shared rules in place of what all gates have together. Looks at each disk once, however many parts there are.
    pub fn divide(&mut self, parts: BTreeMap<Uuid, Terms>) {
        for rule in self.luns.values_mut().chain(self.places.values_mut()) {
            if let Rule::Together(name, terms) = rule
                && let Some(part) = parts.get(name)
            {
                *terms = *part;
            }
        }
        self.parts = parts;
    }

    /// The terms here of each of these shared rules that is there; policies that none of them has are not looked at.
    pub(crate) fn shared_terms<'a>(&self, names: impl Iterator<Item = &'a Uuid>) -> BTreeMap<Uuid, Terms> {
        let together = |rule: Rule| match rule {
            Rule::Together(name, terms) => Some((name, terms)),
            Rule::Free | Rule::Alone(_) => None,
        };
        let own = self.luns.values().chain(self.places.values()).copied();
        let mut terms: BTreeMap<Uuid, Terms> = own.filter_map(together).collect();
        for name in names {
            if !terms.contains_key(name) {
                terms.extend(self.of_policy(*name).and_then(together));
            }
        }
        terms
    }
}
