//! What is remembered of members over restarts, as what a disk shows of itself is counted anew after each: why one has been
//! retired without being told to, what one is suspected of, and where one was last.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::PathBuf;

use control_api::{DiskState, PoolMember};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::data_dir::replace_file;

/// Bytes that are read of the file at most; a disk takes some 500.
const MAX_FILE_BYTES: u64 = 4 << 20;
/// How long a suspicion is kept that nothing new is added to.
const SUSPECT_FOR: u64 = 30 * 24 * 3600;
/// How often a suspicion that grows is written down: the counts in it change with each error.
const NOTE_EVERY: u64 = 600;

/// What is remembered of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Note {
    /// What it had shown when it was retired.
    retired: Option<String>,
    /// What it has shown while it served, and when that was noted, in seconds since 1970.
    suspect: Option<(String, u64)>,
    /// Where it was last: its name, and its path if that differs.
    place: Option<String>,
}

/// A note, or what releases wrote that remembered only why a disk was retired.
#[derive(Deserialize)]
#[serde(untagged)]
enum Stored {
    Retired(String),
    Note(Note),
}

/// What is remembered of members, by their identity.
pub(super) struct Retirements {
    path: PathBuf,
    notes: Mutex<BTreeMap<Uuid, Note>>,
    /// What disks had shown that somebody has kept all the same: errors, and seconds of being slow. Both are counted anew
    /// after a restart.
    forgiven: Mutex<BTreeMap<Uuid, (u64, u64)>>,
}

impl Retirements {
    /// What is known so far. A file that cannot be read costs explanations, not a start.
    pub(super) fn open(path: PathBuf) -> Self {
        let notes = read(&path).unwrap_or_else(|error| {
            tracing::warn!("what was known of disks is not known any more: {}: {error}", path.display());
            BTreeMap::new()
        });
        Self { path, notes: Mutex::new(notes), forgiven: Mutex::default() }
    }

    /// Remembers why a disk is retired. Blocks on the data directory's disk.
    pub(super) fn note(&self, disk: Uuid, evidence: &str) {
        self.change(disk, |note| note.retired = Some(evidence.to_owned()));
    }

    /// Somebody keeps a disk with what it has shown so far. Blocks on the data directory's disk.
    pub(super) fn forgive(&self, member: &PoolMember) {
        self.forgiven.lock().insert(member.guid, (errors(member), member.slow_seconds));
        self.change(member.guid, |note| (note.retired, note.suspect) = (None, None));
    }

    /// What a member has shown since somebody has kept it: errors, and seconds of being slow.
    pub(super) fn shown(&self, member: &PoolMember) -> (u64, u64) {
        let (before, slow) = self.forgiven.lock().get(&member.guid).copied().unwrap_or_default();
        // One that is fast again begins anew.
        let slow = if member.slow_seconds < slow { 0 } else { slow };
        (errors(member).saturating_sub(before), member.slow_seconds - slow)
    }

    /// Remembers what a disk that serves has shown. Blocks on the data directory's disk when that is new.
    pub(super) fn suspect(&self, disk: Uuid, evidence: &str, now: u64) {
        self.change(disk, |note| {
            let same = |(what, noted): &(String, u64)| {
                (what == evidence && now.saturating_sub(*noted) < SUSPECT_FOR / 2)
                    || now.saturating_sub(*noted) < NOTE_EVERY
            };
            if !note.suspect.as_ref().is_some_and(same) {
                note.suspect = Some((evidence.to_owned(), now));
            }
        });
    }

    /// Remembers where a disk is. Blocks on the data directory's disk when it was elsewhere.
    pub(super) fn is_at(&self, disk: Uuid, place: &str) {
        self.change(disk, |note| {
            if note.place.as_deref() != Some(place) {
                note.place = Some(place.to_owned());
            }
        });
    }

    /// Where a disk was last.
    pub(super) fn place(&self, disk: Uuid) -> Option<String> {
        self.notes.lock().get(&disk)?.place.clone()
    }

    /// Changes what is remembered of a disk, on the data directory's disk too when that differs then.
    fn change(&self, disk: Uuid, change: impl FnOnce(&mut Note)) {
        let mut notes = self.notes.lock();
        let note = notes.entry(disk).or_default();
        let before = note.clone();
        change(note);
        if *note != before {
            self.save(&notes);
        }
    }

    /// Forgets disks that are no members any more, and suspicions that nothing was added to for long. Blocks on the data
    /// directory's disk when there are such.
    pub(super) fn forget_unless(&self, now: u64, is_member: impl Fn(Uuid) -> bool) {
        let mut notes = self.notes.lock();
        let before = notes.clone();
        notes.retain(|disk, _| is_member(*disk));
        for note in notes.values_mut() {
            note.suspect.take_if(|(_, noted)| now.saturating_sub(*noted) >= SUSPECT_FOR);
        }
        if *notes != before {
            self.save(&notes);
        }
    }

    /// Adds to what is said of a member why it was retired, or what it has shown before the node started.
    pub(super) fn explain(&self, member: &mut PoolMember) {
        if member.state == DiskState::Online && member.reason.is_none() {
            let notes = self.notes.lock();
            let suspect = notes.get(&member.guid).and_then(|note| note.suspect.as_ref());
            member.reason = suspect.map(|(what, _)| format!("{what} (before the node was started)"));
            return;
        }
        let what = match member.state {
            DiskState::Retiring => "it is being emptied",
            DiskState::Failed => "it was given up; what it held is restored elsewhere",
            _ => return,
        };
        if let Some(evidence) = self.notes.lock().get(&member.guid).and_then(|note| note.retired.as_ref()) {
            member.reason = Some(format!("{what}; {evidence}"));
        }
    }

    fn save(&self, notes: &BTreeMap<Uuid, Note>) {
        let text = serde_json::to_vec_pretty(notes).map_err(io::Error::other);
        if let Err(error) = text.and_then(|text| replace_file(&self.path, &text)) {
            tracing::warn!(
                "what disks have shown will not be known after a restart: {}: {error}",
                self.path.display()
            );
        }
    }
}

/// Each restored block counts once; one that cannot be restored would count at every read.
fn errors(member: &PoolMember) -> u64 {
    member.io_errors + member.healed_blocks
}

fn read(path: &PathBuf) -> io::Result<BTreeMap<Uuid, Note>> {
    match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(error),
        Ok(meta) if meta.len() > MAX_FILE_BYTES => {
            return Err(io::Error::other(format!("it has {} bytes", meta.len())));
        }
        Ok(_) => {}
    }
    let stored: BTreeMap<Uuid, Stored> =
        serde_json::from_slice(&fs::read(path)?).map_err(io::Error::other)?;
    let note = |stored| match stored {
        Stored::Retired(evidence) => Note { retired: Some(evidence), ..Note::default() },
        Stored::Note(note) => note,
    };
    Ok(stored.into_iter().map(|(disk, stored)| (disk, note(stored))).collect())
}

#[cfg(test)]
mod tests {
    use control_api::MediaType;

    use super::*;

    fn member(guid: Uuid, state: DiskState) -> PoolMember {
        PoolMember {
            guid,
            disk: None,
            state,
            reason: Some("as the pool says".into()),
            size_bytes: 0,
            usable_bytes: 0,
            allocated_bytes: 0,
            io_errors: 0,
            checksum_errors: 0,
            healed_blocks: 0,
            slow_seconds: 0,
            full_seconds: 0,
            media: MediaType::Unspecified,
            node: None,
            enclosure: None,
            slot: None,
        }
    }

    #[test]
    fn the_reason_outlives_the_node_and_ends_with_the_membership() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("retirements.json");
        let (one, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let told = |retirements: &Retirements, disk, state| {
            let mut member = member(disk, state);
            retirements.explain(&mut member);
            member.reason.unwrap_or_default()
        };
        Retirements::open(path.clone()).note(one, "suspect: 70 blocks were not what was written");
        let again = Retirements::open(path.clone());
        assert!(told(&again, one, DiskState::Retiring).contains("it is being emptied; suspect: 70 blocks"));
        assert!(
            told(&again, one, DiskState::Failed)
                .contains("given up; what it held is restored elsewhere; suspect")
        );
        assert_eq!(told(&again, one, DiskState::Missing), "as the pool says");
        assert_eq!(told(&again, other, DiskState::Retiring), "as the pool says");
        again.forget_unless(0, |disk| disk == other);
        assert_eq!(told(&Retirements::open(path), one, DiskState::Retiring), "as the pool says");
    }

    #[test]
    fn a_disk_that_is_kept_is_judged_by_what_it_shows_from_then_on() {
        let dir = tempfile::tempdir().expect("temp dir");
        let retirements = Retirements::open(dir.path().join("retirements.json"));
        let mut disk = member(Uuid::from_u128(1), DiskState::Retiring);
        (disk.io_errors, disk.healed_blocks, disk.slow_seconds) = (60, 10, 400);
        retirements.note(disk.guid, "suspect");
        assert_eq!(retirements.shown(&disk), (70, 400));
        retirements.forgive(&disk);
        assert_eq!(retirements.shown(&disk), (0, 0));
        retirements.explain(&mut disk);
        assert_eq!(
            disk.reason.as_deref(),
            Some("as the pool says"),
            "why it was retired is no matter any more"
        );
        (disk.io_errors, disk.slow_seconds) = (65, 300);
        assert_eq!(retirements.shown(&disk), (5, 300));
    }

    #[test]
    fn a_suspicion_outlives_the_node_and_ends_when_nothing_is_added() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("retirements.json");
        let disk = Uuid::from_u128(1);
        let told = |retirements: &Retirements| {
            let mut member = PoolMember { reason: None, ..member(disk, DiskState::Online) };
            retirements.explain(&mut member);
            member.reason.unwrap_or_default()
        };
        let first = Retirements::open(path.clone());
        first.suspect(disk, "suspect: 70 blocks", 1000);
        first.suspect(disk, "suspect: 71 blocks", 1001);
        first.is_at(disk, "/dev/sdx");
        let again = Retirements::open(path.clone());
        assert!(told(&again).contains("70 blocks"), "each error is not a write of the file");
        again.suspect(disk, "suspect: 90 blocks", 1000 + NOTE_EVERY);
        again.forget_unless(1000 + SUSPECT_FOR, |_| true);
        assert!(told(&again).contains("90 blocks"));
        again.forget_unless(1000 + NOTE_EVERY + SUSPECT_FOR, |_| true);
        let last = Retirements::open(path);
        assert_eq!(told(&last), "");
        assert_eq!(last.place(disk).as_deref(), Some("/dev/sdx"));
    }

    #[test]
    fn what_earlier_releases_wrote_is_read() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("retirements.json");
        let disk = Uuid::from_u128(1);
        fs::write(&path, format!("{{\"{disk}\": \"suspect: slow\"}}")).expect("written");
        let mut member = member(disk, DiskState::Retiring);
        Retirements::open(path).explain(&mut member);
        assert_eq!(member.reason.as_deref(), Some("it is being emptied; suspect: slow"));
    }

    #[test]
    fn a_damaged_file_costs_explanations_only() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("retirements.json");
        fs::write(&path, "{\"").expect("written");
        let retirements = Retirements::open(path.clone());
        retirements.note(Uuid::from_u128(1), "slow");
        assert_eq!(read(&path).expect("whole again").len(), 1);
    }
}
