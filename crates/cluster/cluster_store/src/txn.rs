//! What is asked of a store and what it answers.

use crate::error::StoreError;
use crate::revision::Revision;

/// The longest key, in bytes.
pub const MAX_KEY: usize = 512;
/// The longest value, in bytes: what is longer is cut into chunks.
pub const MAX_VALUE: usize = 1 << 20;
/// The most conditions of one transaction, and the most steps and reads together: etcd's default limit, which counts them so.
pub const MAX_STEPS: usize = 128;
/// The most bytes of one transaction: below etcd's limit of 1.5 MiB, with room for its framing.
pub const MAX_REQUEST: usize = 1_400_000;

/// A key with what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The key.
    pub key: String,
    /// Its value.
    pub value: Vec<u8>,
    /// The revision that made the key.
    pub created: Revision,
    /// The revision that changed it last.
    pub modified: Revision,
}

/// Which keys are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Range {
    /// One.
    Key(String),
    /// All that begin so.
    Prefix(String),
}

/// What was there at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The store's revision at that moment: a watch after it misses nothing.
    pub revision: Revision,
    /// In the order of the keys.
    pub found: Vec<Found>,
}

/// What has to hold for a transaction to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The key was last changed by this revision; 0: there is no such key.
    Modified(String, Revision),
    /// The key was made by this revision and not removed since; 0: there is no such key.
    Created(String, Revision),
    /// The key exists and holds this.
    Value(String, Vec<u8>),
    /// There is no such key.
    Absent(String),
    /// There is such a key.
    Present(String),
}

impl Condition {
    /// The key that is compared.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Self::Modified(key, _)
            | Self::Created(key, _)
            | Self::Value(key, _)
            | Self::Absent(key)
            | Self::Present(key) => key,
        }
    }

    /// Whether it holds for what is there under its key.
    #[must_use]
    pub fn holds(&self, found: Option<&Found>) -> bool {
        match self {
            Self::Modified(_, revision) => found.map_or(Revision(0), |found| found.modified) == *revision,
            Self::Created(_, revision) => found.map_or(Revision(0), |found| found.created) == *revision,
            Self::Value(_, value) => found.is_some_and(|found| found.value == *value),
            Self::Absent(_) => found.is_none(),
            Self::Present(_) => found.is_some(),
        }
    }
}

/// One change that a transaction makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The key holds this afterwards.
    Put(String, Vec<u8>),
    /// The key is gone afterwards, whether it was there or not.
    Delete(String),
}

impl Step {
    /// The key that is changed.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Self::Put(key, _) | Self::Delete(key) => key,
        }
    }
}

/// Conditions, and what is done as one when all of them hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// All have to hold.
    pub conditions: Vec<Condition>,
    /// Each key at most once.
    pub steps: Vec<Step>,
    /// Keys that are read at the same moment: after the steps if they were made, as things are if not.
    pub reads: Vec<String>,
}

impl Transaction {
    /// Refuses what no store takes.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] with what is wrong.
    pub fn check(&self) -> Result<(), StoreError> {
        let wrong = |what: String| Err(StoreError::Invalid(what));
        for (what, count) in
            [("conditions", self.conditions.len()), ("steps and reads", self.steps.len() + self.reads.len())]
        {
            if count > MAX_STEPS {
                return wrong(format!("{count} {what} in one transaction, {MAX_STEPS} are allowed"));
            }
        }
        let mut bytes = 0;
        let keys = self.conditions.iter().map(Condition::key).chain(self.steps.iter().map(Step::key));
        for key in keys.chain(self.reads.iter().map(String::as_str)) {
            check_key(key)?;
            bytes += key.len();
        }
        let put = self
            .steps
            .iter()
            .filter_map(|step| if let Step::Put(key, value) = step { Some((key, value)) } else { None });
        let compared = self.conditions.iter().filter_map(|condition| {
            if let Condition::Value(key, value) = condition { Some((key, value)) } else { None }
        });
        for (key, value) in put.chain(compared) {
            if value.len() > MAX_VALUE {
                return wrong(format!("{key}: a value of {} bytes, {MAX_VALUE} are allowed", value.len()));
            }
            bytes += value.len();
        }
        if bytes > MAX_REQUEST {
            return wrong(format!("a transaction of {bytes} bytes, {MAX_REQUEST} are allowed"));
        }
        let mut changed: Vec<&str> = self.steps.iter().map(Step::key).collect();
        changed.sort_unstable();
        match changed.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => wrong(format!("{} is changed twice in one transaction", pair[0])),
            None => Ok(()),
        }
    }
}

/// Refuses what is no key: a key begins with `/` and has no control characters.
pub(crate) fn check_key(key: &str) -> Result<(), StoreError> {
    if key.len() > MAX_KEY {
        return Err(StoreError::Invalid(format!("a key of {} bytes, {MAX_KEY} are allowed", key.len())));
    }
    if !key.starts_with('/') || key.chars().any(char::is_control) {
        return Err(StoreError::Invalid(format!(
            "{key:?} is no key: one begins with / and has no control characters"
        )));
    }
    Ok(())
}

/// What came of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The conditions held, and the steps were made.
    pub done: bool,
    /// The store's revision then: that of the transaction's changes if it was done and had steps.
    pub revision: Revision,
    /// What was read, in the order of [`Transaction::reads`].
    pub reads: Vec<Option<Found>>,
}

/// One change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The transaction that made it.
    pub revision: Revision,
    /// The key.
    pub key: String,
    /// What it holds since; `None` when it is gone.
    pub now: Option<Found>,
}

impl Change {
    /// Bytes that keeping it takes.
    pub(crate) fn cost(&self) -> usize {
        self.key.len() + self.now.as_ref().map_or(0, |found| found.value.len() + found.key.len()) + 96
    }
}
