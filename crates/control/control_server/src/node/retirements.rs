//! Why disks have been retired without being told to: kept over restarts, as what a disk shows of itself is counted anew
//! after each.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::PathBuf;

use control_api::{DiskState, PoolMember};
use parking_lot::Mutex;
use uuid::Uuid;

use crate::data_dir::replace_file;

/// Bytes that are read of the file at most; a line of it takes some 200.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// What a disk had shown when it was retired, by the disk's identity.
pub(super) struct Retirements {
    path: PathBuf,
    evidence: Mutex<BTreeMap<Uuid, String>>,
}

impl Retirements {
    /// What is known so far. A file that cannot be read costs explanations, not a start.
    pub(super) fn open(path: PathBuf) -> Self {
        let evidence = read(&path).unwrap_or_else(|error| {
            tracing::warn!("why disks were retired is not known any more: {}: {error}", path.display());
            BTreeMap::new()
        });
        Self { path, evidence: Mutex::new(evidence) }
    }

    /// Remembers why a disk is retired. Blocks on the data directory's disk.
    pub(super) fn note(&self, disk: Uuid, evidence: &str) {
        let mut known = self.evidence.lock();
        known.insert(disk, evidence.to_owned());
        self.save(&known);
    }

    /// Forgets disks that are no members any more. Blocks on the data directory's disk when there are such.
    pub(super) fn forget_unless(&self, is_member: impl Fn(Uuid) -> bool) {
        let mut known = self.evidence.lock();
        let before = known.len();
        known.retain(|disk, _| is_member(*disk));
        if known.len() < before {
            self.save(&known);
        }
    }

    /// Adds to what is said of a member why it was retired.
    pub(super) fn explain(&self, member: &mut PoolMember) {
        let what = match member.state {
            DiskState::Retiring => "it is being emptied",
            DiskState::Failed => "it was given up; what it held is restored elsewhere",
            _ => return,
        };
        if let Some(evidence) = self.evidence.lock().get(&member.guid) {
            member.reason = Some(format!("{what}; {evidence}"));
        }
    }

    fn save(&self, known: &BTreeMap<Uuid, String>) {
        let text = serde_json::to_vec_pretty(known).map_err(io::Error::other);
        if let Err(error) = text.and_then(|text| replace_file(&self.path, &text)) {
            tracing::warn!(
                "why a disk is retired will not be known after a restart: {}: {error}",
                self.path.display()
            );
        }
    }
}

fn read(path: &PathBuf) -> io::Result<BTreeMap<Uuid, String>> {
    match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(error),
        Ok(meta) if meta.len() > MAX_FILE_BYTES => {
            return Err(io::Error::other(format!("it has {} bytes", meta.len())));
        }
        Ok(_) => {}
    }
    serde_json::from_slice(&fs::read(path)?).map_err(io::Error::other)
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
            allocated_bytes: 0,
            io_errors: 0,
            checksum_errors: 0,
            healed_blocks: 0,
            slow_seconds: 0,
            media: MediaType::Unspecified,
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
        again.forget_unless(|disk| disk == other);
        assert_eq!(told(&Retirements::open(path), one, DiskState::Retiring), "as the pool says");
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
