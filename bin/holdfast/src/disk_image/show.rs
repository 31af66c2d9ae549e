//! `holdfast disk-image info` and `check`.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use control_api::List;
use local_file::Purpose;
use serde::Serialize;
use shard_runtime::{Entropy, SystemEntropy};
use vhdx::{CHAIN_MAX, ImageInfo, Mode, Opening, open_parent, printable};

use super::Parents;
use super::files::{self, Folders};
use crate::context::print_json;
use crate::error::{CliError, CliResult};
use crate::units::bytes;

/// An image as JSON has it.
#[derive(Debug, Serialize)]
struct Shown {
    image: String,
    format: &'static str,
    #[serde(rename = "type")]
    kind: &'static str,
    disk_bytes: u64,
    file_bytes: u64,
    block_bytes: u32,
    logical_sector_bytes: u32,
    physical_sector_bytes: u32,
    disk_id: String,
    data_write_guid: String,
    /// The log has changes that are not in place.
    log_pending: bool,
    creator: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_linkage: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parent_paths: Vec<String>,
}

impl Shown {
    fn new(image: &str, info: &ImageInfo) -> Self {
        let metadata = &info.metadata;
        let kind = match (metadata.parameters.has_parent, metadata.parameters.leave_allocated) {
            (true, _) => "differencing",
            (false, true) => "fixed",
            (false, false) => "dynamic",
        };
        let parent = metadata.parent.as_ref();
        Self {
            image: image.to_owned(),
            format: "vhdx",
            kind,
            disk_bytes: metadata.disk_size,
            file_bytes: info.file_size,
            block_bytes: metadata.parameters.block_size,
            logical_sector_bytes: metadata.logical_sector,
            physical_sector_bytes: metadata.physical_sector,
            disk_id: metadata.disk_id.to_string(),
            data_write_guid: info.header.data_write_guid.to_string(),
            log_pending: info.had_log,
            creator: info.creator.clone(),
            parent_linkage: parent.and_then(|parent| parent.get("parent_linkage")).map(str::to_owned),
            parent_paths: parent
                .map(|parent| parent.paths().map(str::to_owned).collect())
                .unwrap_or_default(),
        }
    }

    fn print(&self) {
        outln!("{}: {} VHDX", printable(&self.image), self.kind);
        outln!("  disk            {} ({} bytes)", bytes(self.disk_bytes), self.disk_bytes);
        outln!("  file            {}", bytes(self.file_bytes));
        outln!("  blocks          {}", bytes(u64::from(self.block_bytes)));
        outln!(
            "  sectors         {} logical, {} physical",
            self.logical_sector_bytes,
            self.physical_sector_bytes
        );
        outln!("  disk id         {}", self.disk_id);
        outln!("  data write id   {}", self.data_write_guid);
        outln!("  log             {}", if self.log_pending { "changes to be put in place" } else { "empty" });
        outln!("  made by         {}", if self.creator.is_empty() { "-" } else { &self.creator });
        if let Some(linkage) = &self.parent_linkage {
            // The file says it, whoever made it.
            let said = format!("{} with data write id {linkage}", self.parent_paths.join(" or "));
            outln!("  parent          {}", printable(&said));
        }
    }
}

/// Shows an image, and with `chain` its parents.
///
/// # Errors
/// When it, or one of them, cannot be used.
pub(super) async fn info(image: &Path, chain: bool, parents: Parents, json: bool) -> CliResult {
    let mut shown = Vec::new();
    let entropy: Arc<dyn Entropy> = Arc::new(SystemEntropy);
    let finder = Folders::from(parents);
    let failed = |error| files::failed(image, error);
    let file = files::file(image, Purpose::Read)?;
    let mut opening = Opening::read(file, Mode::Read, &entropy).await.map_err(failed)?;
    let mut names = vec![files::canonical(image).display().to_string()];
    shown.push(Shown::new(&image.display().to_string(), &opening.info()));
    while let Some(locator) = opening.parent_locator().filter(|_| chain && names.len() < CHAIN_MAX) {
        let (name, parent) = open_parent(&names, locator, &finder, &entropy).await.map_err(failed)?;
        shown.push(Shown::new(&name, &parent.info()));
        names.push(name);
        opening = parent;
    }
    drop(opening);
    if chain {
        // Compares all else that has to be the same.
        files::open(image, Mode::Read, parents).await?;
    }
    match (json, chain) {
        (true, true) => print_json(&List::from(shown)),
        (true, false) => print_json(&shown.first()),
        (false, _) => {
            shown.iter().for_each(Shown::print);
            Ok(())
        }
    }
}

/// What a check has found, as JSON has it.
#[derive(Debug, Serialize)]
struct Checked {
    image: String,
    sound: bool,
    errors: Vec<String>,
    error_count: u64,
    warnings: Vec<String>,
    blocks: u64,
    present_blocks: u64,
    unused_bytes: u64,
}

/// Checks an image.
///
/// # Errors
/// When it cannot be read, or is none.
pub(super) async fn check(image: &Path, parents: Parents, json: bool) -> CliResult<ExitCode> {
    let file = files::file(image, Purpose::Read)?;
    let mut report = vhdx::check(&file).await.map_err(|error| files::failed(image, error))?;
    drop(file);
    if report.error_count == 0
        && let Err(CliError::Here(told)) = files::open(image, Mode::Read, parents).await
    {
        // Its structures are sound: what is wrong is a parent.
        report.error_count += 1;
        report.errors.push(told);
    }
    let checked = Checked {
        image: image.display().to_string(),
        sound: report.error_count == 0,
        errors: report.errors,
        error_count: report.error_count,
        warnings: report.warnings,
        blocks: report.blocks,
        present_blocks: report.present_blocks,
        unused_bytes: report.unused_bytes,
    };
    if json {
        print_json(&checked)?;
    } else {
        checked.errors.iter().for_each(|error| outln!("error: {error}"));
        let more = checked.error_count - checked.errors.len() as u64;
        if more > 0 {
            outln!("error: and {more} more");
        }
        checked.warnings.iter().for_each(|warning| outln!("warning: {warning}"));
        outln!(
            "{}: {}; {} of {} blocks are in the file, {} of it unused",
            checked.image,
            if checked.sound { "sound" } else { "damaged" },
            checked.present_blocks,
            checked.blocks,
            bytes(checked.unused_bytes)
        );
    }
    Ok(if checked.sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
