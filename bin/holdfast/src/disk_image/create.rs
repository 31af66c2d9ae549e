//! `holdfast disk-image create`.

use shard_runtime::SystemEntropy;
use vhdx::{CreateOptions, Mode, ParentLocator};

use super::{CreateArgs, Kind, Shape, done, files, format};
use crate::error::{CliError, CliResult};
use crate::units::bytes;

impl Shape {
    /// The options of an image like this; the sector size is the parent's where there is one.
    pub(super) fn options(
        &self,
        size: u64,
        kind: vhdx::Kind,
        parents: Option<u32>,
    ) -> CliResult<CreateOptions> {
        let block_size = self.block_size.map(u32::try_from).transpose();
        let block_size =
            block_size.map_err(|_| CliError::Usage("a block has 256 MiB at most: --block-size".into()))?;
        let logical_sector = match (self.logical_sector, parents) {
            (Some(asked), Some(has)) if asked != has => {
                return Err(CliError::Usage(format!(
                    "the parent has sectors of {has} bytes, and its children have to have the same: --logical-sector {has}"
                )));
            }
            (Some(sector), _) | (None, Some(sector)) => sector,
            (None, None) => 512,
        };
        Ok(CreateOptions {
            block_size,
            logical_sector,
            physical_sector: self.physical_sector.max(logical_sector),
            ..CreateOptions::new(size, kind)
        })
    }
}

/// Does it.
///
/// # Errors
/// When it cannot be made.
pub(super) async fn run(args: CreateArgs, json: bool) -> CliResult {
    format::new_image(&args.image)?;
    let usual = if args.parent.is_some() { Kind::Differencing } else { Kind::Dynamic };
    let options = match (args.kind.unwrap_or(usual), &args.parent) {
        (Kind::Differencing, Some(path)) => {
            let parent = files::open(path, Mode::Read, args.parents).await?;
            let info = parent.info().await;
            let locator =
                ParentLocator::new(info.header.data_write_guid, &files::relative(&args.image, path)?, None);
            let size = args.size.unwrap_or(info.metadata.disk_size);
            args.shape.options(size, vhdx::Kind::Differencing(locator), Some(info.metadata.logical_sector))?
        }
        (Kind::Differencing, None) => {
            return Err(CliError::Usage("a differencing image needs --parent".into()));
        }
        (_, Some(_)) => return Err(CliError::Usage("only a differencing image has a --parent".into())),
        (kind, None) => {
            let size = args.size.ok_or_else(|| CliError::Usage("how large? --size".into()))?;
            let kind = if kind == Kind::Fixed { vhdx::Kind::Fixed } else { vhdx::Kind::Dynamic };
            args.shape.options(size, kind, None)?
        }
    };
    let (part, file) = files::new_file(&args.image, false)?;
    vhdx::create(&file, &options, &SystemEntropy).await.map_err(|error| files::failed(&args.image, error))?;
    files::keep(part, &args.image)?;
    let elsewhere = match &options.kind {
        vhdx::Kind::Differencing(locator) if !locator.paths().all(files::stays_in_folder) => {
            "; its parent lies outside of its folder: all that uses it needs --parents-anywhere"
        }
        _ => "",
    };
    done(json, format!("{}: a disk of {}{elsewhere}", args.image.display(), bytes(options.size)))
}
