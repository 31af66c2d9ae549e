//! Looking at everything without changing anything.

use std::sync::Arc;

use file_store::OpenFile;
use shard_runtime::{Entropy, SystemEntropy};
use vhdx_format::{MIB, PayloadState};

use crate::error::Result;
use crate::image::Inner;
use crate::open::{Mode, Opening, headers, region_tables};
use crate::source::Source;

/// Findings that are told; the others are counted.
const TOLD: usize = 100;

/// What a check has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What is damaged: reading some of the disk fails, or would give what is not its content. The first hundred.
    pub errors: Vec<String>,
    /// How many there are.
    pub error_count: u64,
    /// What costs nothing yet: one of two copies is damaged, or a log waits to be replayed.
    pub warnings: Vec<String>,
    /// Payload blocks of the disk.
    pub blocks: u64,
    /// Of these, those that have a place in the file.
    pub present_blocks: u64,
    /// Bytes of the file that nothing leads to.
    pub unused_bytes: u64,
}

impl Report {
    fn error(&mut self, what: impl ToString) {
        self.error_count += 1;
        if self.errors.len() < TOLD {
            self.errors.push(what.to_string());
        }
    }
}

/// Checks an image's structures. Its parent is not looked at.
///
/// # Errors
/// When the file cannot be read, or is no image at all; damage is in the report.
pub async fn check(file: &Arc<dyn OpenFile>) -> Result<Report> {
    let mut report = Report::default();
    let entropy: Arc<dyn Entropy> = Arc::new(SystemEntropy);
    let opening = match Opening::read(Arc::clone(file), Mode::Read, &entropy).await {
        Ok(opening) => opening,
        Err(error) if error.kind() == crate::ImageErrorKind::Damaged => {
            report.error(error);
            return Ok(report);
        }
        Err(error) => return Err(error),
    };
    if opening.had_log() {
        report.warnings.push(
            "the log has changes that are not in place: opening it to be written puts them there".into(),
        );
    }
    let source = Source::new(Arc::clone(file));
    for (which, header) in ["first", "second"].into_iter().zip(headers(&source).await?) {
        if let Err(error) = header {
            report.warnings.push(format!("the {which} of two copies: {error}"));
        }
    }
    // With a log, the tables are what it says, not what is in the file.
    if !opening.had_log() {
        let tables = region_tables(&source).await?;
        for (which, table) in ["first", "second"].into_iter().zip(&tables) {
            if let Err(error) = table {
                report.warnings.push(format!("the {which} of two copies: {error}"));
            }
        }
        if let [Ok(first), Ok(second)] = &tables
            && first != second
        {
            report.error("the two region tables differ");
        }
    }
    let inner = opening.build(None);
    report.blocks = inner.layout().payload_blocks();
    report.present_blocks = inner.claim_all(|error| report.error(error)).await?;
    report.unused_bytes = inner.space.free_count() * MIB;
    if inner.metadata.parameters.has_parent {
        bitmaps(&inner, &mut report).await?;
    }
    Ok(report)
}

/// Each partially present block has its bitmap.
async fn bitmaps(inner: &Inner, report: &mut Report) -> Result<()> {
    for block in 0..report.blocks {
        // What is wrong with entries has been told.
        if let Ok((PayloadState::PartiallyPresent, _)) = inner.payload(block).await
            && let Ok(None) = inner.bitmap(block).await
        {
            report.error(format!("block {block} is partially present and has no sector bitmap"));
        }
    }
    Ok(())
}
