//! The metadata log of a closed volume: what it has and the database lacks belongs to what is examined.

use block_device::Device;
use file_store::{StoreError, StoreErrorKind};
use redb::WriteTransaction;
use volume_format::Superblock;

use crate::finding::{Finding, Severity};
use crate::metadata_log::{Mark, Newer};
use crate::replay;

/// The structure that findings name.
pub(super) const LOG: &str = "metadata log";

/// What a look at the log came to. All of it that is sound is in the transaction.
pub(super) struct Replayed {
    /// What the database said of it, if there is a log.
    pub(super) mark: Option<Mark>,
    /// The last batch that is in the transaction.
    pub(super) sequence: u64,
    /// Changes that were acknowledged are lost.
    pub(super) damaged: bool,
    unusable: bool,
    pub(super) findings: Vec<Finding>,
}

impl Replayed {
    /// Brings what the log has into the transaction.
    ///
    /// # Errors
    /// When the log or the database cannot be read.
    pub(super) fn of(
        txn: &WriteTransaction,
        device: &Device,
        superblock: &Superblock,
    ) -> Result<Self, StoreError> {
        let mut replayed =
            Self { mark: None, sequence: 0, damaged: false, unusable: false, findings: Vec::new() };
        if superblock.metadata_log().is_none() {
            return Ok(replayed);
        }
        let Some(mark) = replay::read_mark(txn)? else {
            replayed.mark = Some(Mark { epoch: 0, nonce: 0, sequence: 0, closed: false });
            let repair = "the log begins anew; what was changed in the last second before a crash is lost, and free clusters are zeroed";
            replayed.damage(
                superblock,
                "the database does not say which part of it it has".into(),
                Some(repair),
            );
            return Ok(replayed);
        };
        (replayed.mark, replayed.sequence) = (Some(mark), mark.sequence);
        let newer = match Newer::read(device, superblock, mark) {
            Ok(newer) => newer,
            Err(error) => return replayed.give_up(superblock, error),
        };
        replayed.sequence = newer.sequence;
        if let Err(error) = replay::apply(txn, &newer) {
            return replayed.give_up(superblock, error);
        }
        if let Some(damage) = &newer.damage {
            let repair =
                "what lies before it counts; what was changed later is lost, and free clusters are zeroed";
            replayed.damage(superblock, replay::explain(damage), Some(repair));
        }
        Ok(replayed)
    }

    /// Whether nothing is known of the tables, since they are not without the log.
    pub(super) fn is_unusable(&self) -> bool {
        self.unusable
    }

    fn give_up(mut self, superblock: &Superblock, error: StoreError) -> Result<Self, StoreError> {
        if error.kind() != StoreErrorKind::Corrupt {
            return Err(error);
        }
        self.unusable = true;
        self.damage(superblock, error.to_string(), None);
        Ok(self)
    }

    fn damage(&mut self, superblock: &Superblock, detail: String, repair: Option<&str>) {
        let (start, size) = superblock.metadata_log().unwrap_or_default();
        self.damaged = true;
        self.findings.push(Finding {
            severity: Severity::Critical,
            structure: LOG,
            place: format!("bytes {start}..{}", start.saturating_add(size)),
            detail,
            repair: repair.map(str::to_owned),
        });
    }
}
