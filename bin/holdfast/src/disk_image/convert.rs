//! `holdfast disk-image convert`: several pieces are on their way at once; zeros are not written.

use std::cell::Cell;
use std::sync::Arc;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{BlockDevice, BlockError, Durability};
use file_store::OpenFile;
use indicatif::ProgressBar;
use shard_runtime::{Entropy, SystemEntropy};
use vhdx::{Image, Mode, Opening};

use super::files::{self, NewFile};
use super::{ConvertArgs, Format, Kind, done};
use crate::error::{CliError, CliResult};
use crate::progress;
use crate::units::bytes;

/// Bytes of a piece.
const PIECE: u64 = 2 << 20;
/// Zeros are looked for in parts of so many bytes.
const GRAIN: usize = 64 << 10;
/// What sizes of disks are multiples of, in bytes.
const SECTOR: u64 = 512;

/// A disk in a file.
enum Disk {
    Raw(Arc<dyn OpenFile>),
    Image(Image),
}

fn told(error: &BlockError) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

impl Disk {
    fn size(&self) -> u64 {
        match self {
            Self::Raw(file) => file.size().next_multiple_of(SECTOR),
            Self::Image(image) => image.size(),
        }
    }

    /// `None` where it is known to be zeros.
    async fn read(&self, offset: u64, len: u64) -> Result<Option<IoBuf>, String> {
        match self {
            Self::Image(image) => {
                image.read(offset, IoBuf::new(len as usize)).await.map(Some).map_err(|error| told(&error))
            }
            Self::Raw(file) => {
                let data = file.allocated_ranges(offset, len, 1).await.map_err(|error| error.to_string())?;
                if data.is_empty() {
                    return Ok(None);
                }
                let read =
                    file.read(offset, IoBuf::new(len as usize)).await.map_err(|error| error.to_string())?;
                if read.len() as u64 == len {
                    return Ok(Some(read));
                }
                // The last sector of a file that has no whole number of them.
                let mut whole = IoBuf::zeroed(len as usize);
                whole[..read.len()].copy_from_slice(&read);
                Ok(Some(whole))
            }
        }
    }

    async fn write(&self, offset: u64, data: SharedBuf) -> Result<(), String> {
        match self {
            Self::Raw(file) => {
                file.write(offset, data, Durability::Volatile).await.map_err(|error| error.to_string())
            }
            Self::Image(image) => {
                image.write(offset, data, Durability::Volatile).await.map_err(|error| told(&error))
            }
        }
    }

    async fn close(self) -> Result<(), String> {
        match self {
            Self::Raw(file) => file.flush().await.map_err(|error| error.to_string()),
            Self::Image(image) => image.close().await.map_err(|error| error.to_string()),
        }
    }
}

/// Copies what is not zeros.
async fn copy(from: &Disk, to: &Disk, bar: &ProgressBar) -> Result<(), String> {
    let size = from.size();
    let (next, done) = (Cell::new(0), Cell::new(0));
    let worker = async || -> Result<(), String> {
        loop {
            let at = next.get();
            if at >= size {
                return Ok(());
            }
            let len = PIECE.min(size - at);
            next.set(at + len);
            if let Some(piece) = from.read(at, len).await? {
                let piece = piece.freeze();
                for (start, end) in data_in(&piece) {
                    to.write(at + start as u64, piece.slice(start..end)).await?;
                }
            }
            done.set(done.get() + len);
            bar.set_position(done.get());
        }
    };
    let ended: [Result<(), String>; 4] = tokio::join!(worker(), worker(), worker(), worker()).into();
    ended.into_iter().collect()
}

/// Where a piece is not zeros, in whole grains.
fn data_in(piece: &[u8]) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for (number, grain) in piece.chunks(GRAIN).enumerate() {
        let start = number * GRAIN;
        if is_zeros(grain) {
            continue;
        }
        match runs.last_mut() {
            Some((_, end)) if *end == start => *end = start + grain.len(),
            _ => runs.push((start, start + grain.len())),
        }
    }
    runs
}

fn is_zeros(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<64>();
    words.iter().all(|word| *word == [0; 64]) && rest.iter().all(|byte| *byte == 0)
}

/// Does it.
///
/// # Errors
/// When one cannot be read, or the other not be made.
pub(super) async fn run(args: ConvertArgs, json: bool) -> CliResult {
    let said = args.from_format;
    let from = match said.unwrap_or_else(|| files::format_of(&args.from)) {
        Format::Raw => Disk::Raw(files::raw(&args.from, said.is_some()).await?),
        Format::Vhdx => Disk::Image(files::open(&args.from, Mode::Read).await?),
    };
    if args.kind == Kind::Differencing {
        return Err(CliError::Usage("a conversion makes a fixed or a dynamic image: --type".into()));
    }
    if !args.replace && args.to.symlink_metadata().is_ok() {
        return Err(CliError::here(format!("{}: it is there; --replace if it may go.", args.to.display())));
    }
    let writing = |told: String| CliError::here(format!("{}: {told}", args.to.display()));
    let name = args.to.file_name().ok_or_else(|| writing("it has no name".into()))?;
    let part = args.to.with_file_name(format!(".{}.part{}", name.to_string_lossy(), std::process::id()));
    let (new, file) = NewFile::create(&part)?;
    let size = from.size();
    let to = match args.format.unwrap_or_else(|| files::format_of(&args.to)) {
        Format::Raw => {
            file.set_size(size).await.map_err(|error| writing(error.to_string()))?;
            Disk::Raw(file)
        }
        Format::Vhdx => {
            let kind = if args.kind == Kind::Fixed { vhdx::Kind::Fixed } else { vhdx::Kind::Dynamic };
            // A disk in an image keeps its sectors, if nothing else is asked for.
            let sector = match &from {
                Disk::Image(image) => args.shape.logical_sector.or(Some(image.geometry().block_size)),
                Disk::Raw(_) => args.shape.logical_sector,
            };
            let shape = super::Shape { logical_sector: sector, ..args.shape };
            let size = size.next_multiple_of(u64::from(sector.unwrap_or(512)));
            let options = shape.options(size, kind, None)?;
            let failed = |error: vhdx::ImageError| writing(error.to_string());
            vhdx::create(&file, &options, &SystemEntropy).await.map_err(failed)?;
            let entropy: Arc<dyn Entropy> = Arc::new(SystemEntropy);
            let opening = Opening::read(file, Mode::Write).await.map_err(failed)?;
            Disk::Image(opening.finish(None, entropy).await.map_err(failed)?)
        }
    };
    let bar = progress::bar(size, &args.from.display().to_string(), json);
    let copied = copy(&from, &to, &bar).await;
    bar.finish_and_clear();
    copied.map_err(|told| {
        CliError::here(format!("{} to {}: {told}", args.from.display(), args.to.display()))
    })?;
    to.close().await.map_err(writing)?;
    new.rename(&args.to, args.replace)?;
    done(json, format!("{}: a disk of {}", args.to.display(), bytes(size)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_found() {
        let mut piece = vec![0; 5 * GRAIN + 512];
        assert_eq!(data_in(&piece), []);
        (piece[0], piece[GRAIN], piece[3 * GRAIN - 1]) = (1, 1, 1);
        *piece.last_mut().expect("a byte") = 1;
        assert_eq!(data_in(&piece), [(0, 3 * GRAIN), (5 * GRAIN, 5 * GRAIN + 512)]);
    }
}
