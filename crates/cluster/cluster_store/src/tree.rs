//! The rules of revisions, conditions and changes over memory: what a store is, without where it is kept.

use std::collections::{BTreeMap, VecDeque};

use crate::StoreError;
use crate::revision::Revision;
use crate::txn::{Change, Condition, Found, Outcome, Range, Snapshot, Step, Transaction};

/// Changes that are remembered for watches, in bytes; older ones are forgotten.
const HISTORY_BYTES: usize = 4 << 20;

/// Keys and values with their revisions, and the latest changes.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    revision: Revision,
    entries: BTreeMap<String, Found>,
    history: VecDeque<Change>,
    history_bytes: usize,
    /// Changes after this revision are all in the history.
    oldest: Revision,
}

impl Tree {
    /// A tree that was kept elsewhere: it knows no changes before `revision`.
    #[must_use]
    pub fn restored(revision: Revision, entries: impl IntoIterator<Item = Found>) -> Self {
        let entries = entries.into_iter().map(|found| (found.key.clone(), found)).collect();
        Self { revision, entries, oldest: revision, ..Self::default() }
    }

    /// The number of the last transaction that changed something.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Everything, in the order of the keys.
    pub fn all(&self) -> impl ExactSizeIterator<Item = &Found> {
        self.entries.values()
    }

    /// What is under a key.
    #[must_use]
    pub fn find(&self, key: &str) -> Option<&Found> {
        self.entries.get(key)
    }

    /// What is there now.
    #[must_use]
    pub fn get(&self, range: &Range) -> Snapshot {
        let found = match range {
            Range::Key(key) => self.entries.get(key).cloned().into_iter().collect(),
            Range::Prefix(prefix) => {
                let from = self.entries.range(prefix.clone()..);
                from.take_while(|(key, _)| key.starts_with(prefix.as_str()))
                    .map(|(_, found)| found.clone())
                    .collect()
            }
        };
        Snapshot { revision: self.revision, found }
    }

    /// Whether all conditions of a transaction hold.
    #[must_use]
    pub fn holds(&self, conditions: &[Condition]) -> bool {
        conditions.iter().all(|condition| condition.holds(self.entries.get(condition.key())))
    }

    /// Makes a transaction, or only reads when its conditions do not hold.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] when it is none.
    pub fn apply(&mut self, transaction: &Transaction) -> Result<Outcome, StoreError> {
        transaction.check()?;
        let done = self.holds(&transaction.conditions);
        if done {
            self.change(&transaction.steps);
        }
        let reads = transaction.reads.iter().map(|key| self.entries.get(key).cloned()).collect();
        Ok(Outcome { done, revision: self.revision, reads })
    }

    fn change(&mut self, steps: &[Step]) {
        let next = Revision(self.revision.0 + 1);
        let mut changed = false;
        for step in steps {
            let now = match step {
                Step::Put(key, value) => {
                    let created = self.entries.get(key).map_or(next, |found| found.created);
                    let found = Found { key: key.clone(), value: value.clone(), created, modified: next };
                    self.entries.insert(key.clone(), found.clone());
                    Some(found)
                }
                Step::Delete(key) => {
                    if self.entries.remove(key).is_none() {
                        continue;
                    }
                    None
                }
            };
            changed = true;
            let change = Change { revision: next, key: step.key().to_owned(), now };
            self.history_bytes += change.cost();
            self.history.push_back(change);
        }
        if changed {
            self.revision = next;
            self.forget();
        }
    }

    /// Forgets the oldest changes beyond what is kept, whole revisions, and never those of the last one.
    fn forget(&mut self) {
        while self.history_bytes > HISTORY_BYTES
            && let Some(first) = self.history.front().map(|change| change.revision)
            && first < self.revision
        {
            self.compact(first);
        }
    }

    /// Forgets the changes up to and with a revision.
    pub fn compact(&mut self, through: Revision) {
        let through = through.min(self.revision);
        while let Some(change) = self.history.front()
            && change.revision <= through
        {
            self.history_bytes -= change.cost();
            self.history.pop_front();
        }
        self.oldest = self.oldest.max(through);
    }

    /// The changes under a prefix after a revision.
    ///
    /// # Errors
    /// [`StoreError::Compacted`] when some of them are forgotten.
    pub fn changes(&self, prefix: &str, after: Revision) -> Result<Vec<Change>, StoreError> {
        if after < self.oldest {
            return Err(StoreError::Compacted { oldest: self.oldest });
        }
        let start = self.history.partition_point(|change| change.revision <= after);
        Ok(self.history.range(start..).filter(|change| change.key.starts_with(prefix)).cloned().collect())
    }
}
