//! Quotas in memory: what holds, and what each owner has.
//!
//! ```text
//!  files in the order of their numbers     1 2 3 …  | …       | … ∞
//!                                          counted  ▲ not yet ▲ made since
//!                    `counted`: the next file that the count looks at  `end`: the first that was not there when it began
//! ```
//! What a file that was counted gets or gives up is charged as it happens, and so is what one does that was made since the count began,
//! as it had nothing; of the others nothing is, until the count comes to them. A new file has a number behind all others, so
//! the count meets each file that was there once, and nobody keeps it from its end by making more. All of it happens on the metadata thread, so no
//! charge falls between.
//!
//! Rows of the table `state`, whose table is [`TABLE`]. Numbers are little-endian; [`NO_LIMIT`] is none:
//! ```text
//!  key             value
//!  (empty)         | version 1 | mode 0 off, 1 track, 2 enforce | warning (8) | limit (8) |
//!  SID of an owner | version 1 | warning (8) | limit (8) | when that was set (8) |
//! ```

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, Ordering};

use file_store::{
    NO_LIMIT, Owner, QUOTAS_MAX, QuotaEntry, QuotaEvent, QuotaLevel, QuotaLimits, QuotaMode, QuotaReport,
    QuotaSettings,
};
use volume_format::CLUSTER;

/// The table of rows of state that is the quotas'.
pub(crate) const TABLE: &str = "volume/quota";
/// Of a row. A row of another version is a newer release's.
const VERSION: u8 = 1;
/// Files whose owner is known without a look: those that are written to.
const KNOWN_MAX: usize = 16_384;
/// Events that wait for somebody to ask.
const EVENTS_MAX: usize = 256;
/// An owner is told of once more after it has had less than its warning or limit by a part like this.
const CLEARLY_LESS: u64 = 16;

/// The mode, for those who only want to know whether quotas are on.
#[derive(Debug, Default)]
pub(crate) struct ModeSeen(AtomicU8);

impl ModeSeen {
    pub(crate) fn show(&self, mode: QuotaMode) {
        self.0.store(mode as u8, Ordering::Release);
    }

    pub(crate) fn get(&self) -> QuotaMode {
        match self.0.load(Ordering::Acquire) {
            mode if mode == QuotaMode::Track as u8 => QuotaMode::Track,
            mode if mode == QuotaMode::Enforce as u8 => QuotaMode::Enforce,
            _ => QuotaMode::Off,
        }
    }
}

/// Limits that an owner has of its own, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnLimits {
    pub(crate) limits: QuotaLimits,
    pub(crate) changed: u64,
}

/// Quotas of a volume.
#[derive(Debug, Default)]
pub(crate) struct Quotas {
    pub(crate) settings: QuotaSettings,
    own: BTreeMap<Owner, OwnLimits>,
    /// A row is a newer release's, or damaged: nothing is enforced by what is left, nor changed.
    pub(crate) unreadable: bool,
    /// While they are on.
    pub(crate) tally: Option<Box<Tally>>,
}

/// What owners have.
#[derive(Debug)]
pub(crate) struct Tally {
    /// Clusters of each.
    used: BTreeMap<Owner, u64>,
    /// Files below this number have been counted; `u64::MAX` at the end.
    pub(crate) counted: u64,
    /// Files from this number on were made since the count began; `u64::MAX` before that.
    pub(crate) end: u64,
    /// Whose files are that were looked at lately; `None` for nobody's.
    known: BTreeMap<u64, Option<Owner>>,
    /// Whose the files were that have no record any more, and still have clusters.
    leaving: BTreeMap<u64, Owner>,
    /// Of what each owner was told, and has not had clearly less since.
    told: BTreeMap<Owner, QuotaLevel>,
    pub(crate) events: Vec<QuotaEvent>,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            used: BTreeMap::new(),
            counted: 0,
            end: u64::MAX,
            known: BTreeMap::new(),
            leaving: BTreeMap::new(),
            told: BTreeMap::new(),
            events: Vec::new(),
        }
    }
}

impl Tally {
    /// Whether what a file has is charged already.
    pub(crate) fn has(&self, file: u64) -> bool {
        file < self.counted || file >= self.end
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.counted == u64::MAX
    }

    /// Whose a file is, where that is known; of one that nobody owns, `Some(None)`.
    pub(crate) fn known(&self, file: u64) -> Option<Option<Owner>> {
        self.leaving.get(&file).map(|owner| Some(*owner)).or_else(|| self.known.get(&file).copied())
    }

    pub(crate) fn know(&mut self, file: u64, owner: Option<Owner>) {
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        self.known.insert(file, owner);
    }

    /// The record of a file goes before its clusters do.
    pub(crate) fn leave(&mut self, file: u64, owner: Option<Owner>) {
        self.known.remove(&file);
        if let Some(owner) = owner.filter(|_| self.has(file)) {
            self.leaving.insert(file, owner);
        }
    }
}

impl Quotas {
    /// As rows say, for an opening.
    pub(crate) fn take_row(&mut self, key: &[u8], value: &[u8]) {
        let taken = match key {
            [] => decode_settings(value).map(|settings| self.settings = settings),
            _ => Owner::from_bytes(key)
                .zip(decode_own(value))
                .filter(|_| self.own.len() < QUOTAS_MAX)
                .map(|(owner, own)| self.set_own(owner, Some(own))),
        };
        self.unreadable |= taken.is_none();
    }

    /// All rows were taken.
    pub(crate) fn begin(&mut self) {
        if self.unreadable {
            self.settings = QuotaSettings::default();
        }
        self.set(self.settings);
    }

    /// From now on this holds. What was counted stays, unless nothing is any more.
    pub(crate) fn set(&mut self, settings: QuotaSettings) {
        self.settings = settings;
        match settings.mode {
            QuotaMode::Off => self.tally = None,
            QuotaMode::Track | QuotaMode::Enforce => drop(self.tally.get_or_insert_default()),
        }
    }

    pub(crate) fn set_own(&mut self, owner: Owner, own: Option<OwnLimits>) {
        match own {
            Some(own) => self.own.insert(owner, own),
            None => self.own.remove(&owner),
        };
    }

    /// Whether there is a place for limits of this owner.
    pub(crate) fn has_place(&self, owner: &Owner) -> bool {
        self.own.len() < QUOTAS_MAX || self.own.contains_key(owner)
    }

    pub(crate) fn limits(&self, owner: &Owner) -> QuotaLimits {
        if owner.can_be_limited() {
            self.own.get(owner).map_or(self.settings.default, |own| own.limits)
        } else {
            QuotaLimits::NONE
        }
    }

    /// The limit that is enforced now; [`NO_LIMIT`] while not all has been counted.
    pub(crate) fn enforced(&self, owner: &Owner) -> u64 {
        let enforced = self.settings.mode == QuotaMode::Enforce
            && self.tally.as_ref().is_some_and(|tally| tally.is_complete());
        if enforced { self.limits(owner).limit } else { NO_LIMIT }
    }

    pub(crate) fn entry(&self, owner: Owner) -> QuotaEntry {
        let own = self.own.get(&owner);
        QuotaEntry {
            owner,
            used: self.used(&owner),
            limits: self.limits(&owner),
            own: own.is_some(),
            changed: own.map_or(0, |own| own.changed),
        }
    }

    /// Bytes.
    pub(crate) fn used(&self, owner: &Owner) -> u64 {
        let clusters = self.tally.as_ref().and_then(|tally| tally.used.get(owner).copied());
        clusters.unwrap_or(0).saturating_mul(CLUSTER)
    }

    /// A file without a record has lost the last of its clusters.
    pub(crate) fn has_left(&mut self, file: u64) {
        self.tally.as_mut().and_then(|tally| tally.leaving.remove(&file));
    }

    /// Clusters that the owner may still take.
    pub(crate) fn left(&self, owner: &Owner) -> u64 {
        match self.enforced(owner) {
            NO_LIMIT => u64::MAX,
            limit => limit.saturating_sub(self.used(owner)) / CLUSTER,
        }
    }

    /// What is known of all, or of one.
    pub(crate) fn report(&self, of: Option<Owner>) -> QuotaReport {
        let owners = match of {
            Some(owner) => vec![owner],
            None => {
                let used = self.tally.iter().flat_map(|tally| tally.used.keys());
                let mut owners: Vec<Owner> = self.own.keys().chain(used).copied().collect();
                owners.sort_unstable();
                owners.dedup();
                owners
            }
        };
        QuotaReport {
            settings: self.settings,
            counting: self.tally.as_ref().is_some_and(|tally| !tally.is_complete()),
            owners: owners.into_iter().map(|owner| self.entry(owner)).collect(),
        }
    }

    /// An owner has so many clusters more or fewer.
    pub(crate) fn charge(&mut self, owner: Owner, count: u64, more: bool) {
        let Some(tally) = &mut self.tally else { return };
        let used = tally.used.entry(owner).or_default();
        debug_assert!(more || *used >= count, "{owner} gives up {count} clusters of {used}");
        *used = if more { used.saturating_add(count) } else { used.saturating_sub(count) };
        if *used == 0 {
            tally.used.remove(&owner);
        }
        if more {
            if self.used(&owner) >= self.limits(&owner).warning {
                self.tell(owner, QuotaLevel::Warning);
            }
        } else {
            self.be_less(owner);
        }
    }

    /// Tells once that an owner has come so far.
    pub(crate) fn tell(&mut self, owner: Owner, level: QuotaLevel) {
        let entry = self.entry(owner);
        // While they are counted the figures mean nothing yet.
        let Some(tally) = self.tally.as_mut().filter(|tally| tally.is_complete()) else { return };
        if tally.told.get(&owner).is_some_and(|told| *told >= level) {
            return;
        }
        tally.told.insert(owner, level);
        if tally.events.len() >= EVENTS_MAX {
            tally.events.remove(0);
        }
        tally.events.push(QuotaEvent { entry, level });
    }

    /// At the end of the count, and when limits have changed: who has come to its warning, and who has clearly less.
    pub(crate) fn tell_all(&mut self) {
        let told: Vec<Owner> = self.tally.iter().flat_map(|tally| tally.told.keys()).copied().collect();
        told.into_iter().for_each(|owner| self.be_less(owner));
        let due = |entry: &QuotaEntry| entry.used >= entry.limits.warning;
        let due: Vec<QuotaEntry> = self.report(None).owners.into_iter().filter(due).collect();
        due.into_iter().for_each(|entry| self.tell(entry.owner, QuotaLevel::Warning));
    }

    /// What an owner was told is not so any more where it has clearly less, or may have more.
    pub(crate) fn be_less(&mut self, owner: Owner) {
        let told = self.tally.as_ref().and_then(|tally| tally.told.get(&owner).copied());
        let Some(told) = told else { return };
        let (limits, used) = (self.limits(&owner), self.used(&owner));
        let is_less = |bytes: u64| used < bytes - bytes / CLEARLY_LESS;
        let now = match told {
            _ if is_less(limits.warning.min(limits.limit)) => None,
            QuotaLevel::Limit if is_less(limits.limit) => Some(QuotaLevel::Warning),
            told => Some(told),
        };
        let Some(tally) = &mut self.tally else { return };
        match now {
            Some(level) => tally.told.insert(owner, level),
            None => tally.told.remove(&owner),
        };
    }
}

pub(crate) fn encode_settings(settings: &QuotaSettings) -> Vec<u8> {
    let mode = match settings.mode {
        QuotaMode::Off => 0,
        QuotaMode::Track => 1,
        QuotaMode::Enforce => 2,
    };
    let mut row = vec![VERSION, mode];
    row.extend(settings.default.warning.to_le_bytes());
    row.extend(settings.default.limit.to_le_bytes());
    row
}

pub(crate) fn encode_own(own: &OwnLimits) -> Vec<u8> {
    let mut row = vec![VERSION];
    row.extend(own.limits.warning.to_le_bytes());
    row.extend(own.limits.limit.to_le_bytes());
    row.extend(own.changed.to_le_bytes());
    row
}

fn numbers<const N: usize>(bytes: &[u8]) -> Option<[u64; N]> {
    let (numbers, []) = bytes.as_chunks::<8>() else { return None };
    let numbers: [[u8; 8]; N] = numbers.try_into().ok()?;
    Some(numbers.map(u64::from_le_bytes))
}

fn decode_settings(value: &[u8]) -> Option<QuotaSettings> {
    let [VERSION, mode, rest @ ..] = value else { return None };
    let mode = match mode {
        0 => QuotaMode::Off,
        1 => QuotaMode::Track,
        2 => QuotaMode::Enforce,
        _ => return None,
    };
    let [warning, limit] = numbers(rest)?;
    Some(QuotaSettings { mode, default: QuotaLimits { warning, limit } })
}

fn decode_own(value: &[u8]) -> Option<OwnLimits> {
    let [VERSION, rest @ ..] = value else { return None };
    let [warning, limit, changed] = numbers(rest)?;
    Some(OwnLimits { limits: QuotaLimits { warning, limit }, changed })
}
