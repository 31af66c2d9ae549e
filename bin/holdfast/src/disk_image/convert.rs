//! `holdfast disk-image convert`: several pieces are on their way at once; zeros are not written.

use std::sync::Arc;

use aligned_buffer::{IoBuf, SharedBuf, is_zeros};
use block_device::{BlockDevice, BlockError, Durability};
use file_store::OpenFile;
use indicatif::ProgressBar;
use shard_runtime::{Entropy, SystemEntropy};
use vhdx::{Image, Mode, Opening};

use super::format::Format;
use super::{ConvertArgs, Kind, done, files, format};
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
    /// And its size in bytes when it was opened, or that it shall have.
    Raw(Arc<dyn OpenFile>, u64),
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
            Self::Raw(_, size) => size.next_multiple_of(SECTOR),
            Self::Image(image) => image.size(),
        }
    }

    /// What is read and written is whole sectors of so many bytes.
    fn sector(&self) -> u64 {
        match self {
            Self::Raw(..) => SECTOR,
            Self::Image(image) => u64::from(image.geometry().block_size),
        }
    }

    /// Where, from `offset` on, there may be something else than zeros next.
    async fn next_data(&self, offset: u64) -> Result<Option<u64>, String> {
        match self {
            Self::Image(image) => image.next_data(offset, u64::MAX).await.map_err(|error| error.to_string()),
            Self::Raw(file, size) => {
                let data = file.allocated_ranges(offset, size.saturating_sub(offset), 1).await;
                let data = data.map_err(|error| error.to_string())?;
                Ok(data.first().map(|range| range.offset))
            }
        }
    }

    async fn read(&self, offset: u64, len: u64) -> Result<IoBuf, String> {
        match self {
            Self::Image(image) => {
                image.read(offset, IoBuf::new(len as usize)).await.map_err(|error| told(&error))
            }
            Self::Raw(file, size) => {
                // The last sector of a file that has no whole number of them is filled up with zeros.
                let there = len.min(size.saturating_sub(offset));
                let read = file.read(offset, IoBuf::new(there as usize)).await;
                let read = read.map_err(|error| error.to_string())?;
                if (read.len() as u64) < there {
                    return Err(format!("it ends before {}: it was cut while it was read", offset + there));
                }
                Ok(filled_up(read, len))
            }
        }
    }

    async fn write(&self, offset: u64, data: SharedBuf) -> Result<(), String> {
        match self {
            Self::Raw(file, _) => {
                file.write(offset, data, Durability::Volatile).await.map_err(|error| error.to_string())
            }
            Self::Image(image) => {
                image.write(offset, data, Durability::Volatile).await.map_err(|error| told(&error))
            }
        }
    }

    async fn close(self) -> Result<(), String> {
        match self {
            Self::Raw(file, _) => file.flush().await.map_err(|error| error.to_string()),
            Self::Image(image) => image.close().await.map_err(|error| error.to_string()),
        }
    }
}

/// A buffer of `len` bytes with zeros behind what there is.
fn filled_up(buf: IoBuf, len: u64) -> IoBuf {
    if buf.len() as u64 == len {
        return buf;
    }
    let mut whole = IoBuf::zeroed(len as usize);
    whole[..buf.len()].copy_from_slice(&buf);
    whole
}

/// Copies what is not zeros.
async fn copy(from: &Disk, to: &Disk, bar: &ProgressBar) -> Result<(), String> {
    let (size, sector) = (from.size(), to.sector());
    // Where nobody has looked yet.
    let next = tokio::sync::Mutex::new(0);
    let worker = async || -> Result<(), String> {
        loop {
            let at = {
                let mut next = next.lock().await;
                let Some(found) = from.next_data(*next).await? else {
                    *next = size;
                    return Ok(());
                };
                let at = found / PIECE * PIECE;
                *next = at + PIECE;
                at
            };
            let len = PIECE.min(size - at);
            // The last piece ends where the larger of two sectors does.
            let piece = filled_up(from.read(at, len).await?, len.next_multiple_of(sector)).freeze();
            for (start, end) in data_in(&piece) {
                to.write(at + start as u64, piece.slice(start..end)).await?;
            }
            bar.set_position(bar.position().max(at + len));
        }
    };
    // The first that fails ends all.
    tokio::try_join!(worker(), worker(), worker(), worker()).map(drop)
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

/// Does it.
///
/// # Errors
/// When one cannot be read, or the other not be made.
pub(super) async fn run(args: ConvertArgs, json: bool) -> CliResult {
    let said = args.from_format;
    let format = format::target(&args.to, args.format)?;
    let from = match said.unwrap_or_else(|| format::format_of(&args.from)) {
        Format::Raw => {
            let file = files::raw(&args.from, said.is_some()).await?;
            let size = file.size();
            Disk::Raw(file, size)
        }
        Format::Vhdx => Disk::Image(files::open(&args.from, Mode::Read, args.parents).await?),
    };
    if args.kind == Kind::Differencing {
        return Err(CliError::Usage("a conversion makes a fixed or a dynamic image: --type".into()));
    }
    if !args.replace && args.to.symlink_metadata().is_ok() {
        return Err(CliError::here(format!("{}: it is there; --replace if it may go.", args.to.display())));
    }
    let writing = |told: String| CliError::here(format!("{}: {told}", args.to.display()));
    if files::canonical(&args.from) == files::canonical(&args.to) {
        return Err(writing("it is the image that is read: give the new one another name.".into()));
    }
    let (part, file) = files::new_file(&args.to, args.replace)?;
    let size = from.size();
    let to = match format {
        Format::Raw => {
            file.set_size(size).await.map_err(|error| writing(error.to_string()))?;
            Disk::Raw(file, size)
        }
        Format::Vhdx => {
            let kind = if args.kind == Kind::Fixed { vhdx::Kind::Fixed } else { vhdx::Kind::Dynamic };
            // A disk in an image keeps its sectors, if nothing else is asked for.
            let sector = match &from {
                Disk::Image(image) => args.shape.logical_sector.or(Some(image.geometry().block_size)),
                Disk::Raw(..) => args.shape.logical_sector,
            };
            let shape = super::Shape { logical_sector: sector, ..args.shape };
            let size = size.next_multiple_of(u64::from(sector.unwrap_or(512)));
            let options = shape.options(size, kind, None)?;
            let failed = |error: vhdx::ImageError| writing(error.to_string());
            vhdx::create(&file, &options, &SystemEntropy).await.map_err(failed)?;
            let entropy: Arc<dyn Entropy> = Arc::new(SystemEntropy);
            let opening = Opening::read(file, Mode::Write, &entropy).await.map_err(failed)?;
            Disk::Image(opening.finish(None).await.map_err(failed)?)
        }
    };
    let bar = progress::bar(size, &args.from.display().to_string(), json);
    let copied = copy(&from, &to, &bar).await;
    bar.finish_and_clear();
    copied.map_err(|told| {
        CliError::here(format!("{} to {}: {told}", args.from.display(), args.to.display()))
    })?;
    to.close().await.map_err(writing)?;
    files::keep(part, &args.to)?;
    done(json, format!("{}: a disk of {}", args.to.display(), bytes(size)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Zeros come behind the end that a file had when it was opened, and nowhere else.
    #[test]
    fn a_source_that_is_cut_is_not_filled_up_with_zeros() {
        let folder = tempfile::tempdir().expect("temp dir");
        let path = folder.path().join("raw");
        std::fs::write(&path, [1; 1000]).expect("made");
        let shards = shard_runtime::Shards::start(1).expect("a shard");
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let read = runtime.block_on(shards.next().run(move || async move {
            let open = || files::file(&path, local_file::Purpose::Read).expect("opened");
            let whole = Disk::Raw(open(), 1000);
            assert_eq!(whole.size(), 1024);
            let last = whole.read(512, 512).await.expect("read");
            let cut = Disk::Raw(open(), 1400);
            assert_eq!(cut.size(), 1536);
            (last.to_vec(), cut.read(512, 512).await.is_err(), cut.read(0, 512).await.is_ok())
        }));
        shards.stop();
        let (last, refused, good) = read.expect("done");
        assert!(refused && good);
        assert!(last[..488].iter().all(|byte| *byte == 1) && last[488..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn zeros_are_found() {
        let mut piece = vec![0; 5 * GRAIN + 512];
        assert_eq!(data_in(&piece), []);
        (piece[0], piece[GRAIN], piece[3 * GRAIN - 1]) = (1, 1, 1);
        *piece.last_mut().expect("a byte") = 1;
        assert_eq!(data_in(&piece), [(0, 3 * GRAIN), (5 * GRAIN, 5 * GRAIN + 512)]);
    }
}
