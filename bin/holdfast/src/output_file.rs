//! A file that a command writes what it downloads to.
//!
//! What was there under its name stays until all of the new content is: a refused or broken download costs nobody the last one.

use std::io;
use std::path::{Path, PathBuf};

use tokio::fs::{File, OpenOptions};
use tokio::io::AsyncWriteExt;
use tokio::signal::unix::{SignalKind, signal};

use crate::context::Context;
use crate::error::{CliError, CliResult};
use crate::progress;

/// Downloads to a file, with a bar under the name of what comes. `expected` is how many bytes that must be, where it is known.
/// The number of bytes.
///
/// # Errors
/// When the node or the file fails, or fewer bytes come. The file is then what it was before, also after an interruption.
pub(crate) async fn download(
    context: &Context,
    query: &str,
    to: &Path,
    (name, expected): (&str, Option<u64>),
) -> CliResult<u64> {
    let writing = |error: io::Error| CliError::here(format!("{}: {error}", to.display()));
    let mut terminate = signal(SignalKind::terminate()).map_err(writing)?;
    let mut output = OutputFile::create(to).await.map_err(writing)?;
    let bar = progress::bar(expected.unwrap_or(0), name, context.json);
    let done = tokio::select! {
        done = context.client.download(query, &mut output.file, |done| bar.set_position(done)) => Some(done),
        _ = tokio::signal::ctrl_c() => None,
        _ = terminate.recv() => None,
    };
    bar.finish_and_clear();
    let Some(done) = done else {
        return Err(CliError::here(format!("{}: interrupted; the file here is as it was.", to.display())));
    };
    let done = done?;
    if let Some(expected) = expected.filter(|expected| *expected != done) {
        return Err(CliError::here(format!(
            "{}: {done} of {expected} bytes came; the rest could not be read. The file here is as it was; --offset and --len get the parts that can be read.",
            to.display()
        )));
    }
    output.keep().await.map_err(writing)?;
    Ok(done)
}

/// A file that becomes `to` when it is complete.
struct OutputFile {
    to: PathBuf,
    /// Beside it, until it has its name; none of what is no file (a pipe, a device): that is written as it is.
    part: Option<PathBuf>,
    file: File,
}

impl OutputFile {
    /// Begins one.
    ///
    /// # Errors
    /// When none can be made there.
    async fn create(to: &Path) -> io::Result<Self> {
        let there = tokio::fs::metadata(to).await;
        if let Ok(there) = &there
            && !there.is_file()
        {
            let file = OpenOptions::new().write(true).open(to).await?;
            return Ok(Self { to: to.to_owned(), part: None, file });
        }
        // Through a link, so that the link stays.
        let to = if there.is_ok() { tokio::fs::canonicalize(to).await? } else { to.to_owned() };
        let name = to.file_name().ok_or_else(|| io::Error::other("it has no name"))?;
        let part = to.with_file_name(format!(".{}.part{}", name.to_string_lossy(), std::process::id()));
        let file = File::create(&part).await?;
        let output = Self { to, part: Some(part.clone()), file };
        if let Ok(there) = there {
            tokio::fs::set_permissions(&part, there.permissions()).await?;
        }
        Ok(output)
    }

    /// Gives it its name, durably.
    ///
    /// # Errors
    /// When it cannot be written.
    async fn keep(mut self) -> io::Result<()> {
        // Here an error of the last write is told, of whatever kind of file.
        self.file.flush().await?;
        match self.file.sync_all().await {
            // A pipe keeps nothing.
            Err(error) if self.part.is_none() && error.kind() == io::ErrorKind::InvalidInput => {}
            synced => synced?,
        }
        if let Some(part) = &self.part {
            tokio::fs::rename(part, &self.to).await?;
            self.part = None;
        }
        Ok(())
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if let Some(part) = &self.part {
            let _ = std::fs::remove_file(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_there_stays_until_all_of_the_new_is() {
        let dir = tempfile::tempdir().expect("temp dir");
        let to = dir.path().join("stream");
        for (content, kept) in [("one", true), ("two", false), ("three", true)] {
            let before = std::fs::read_to_string(&to).unwrap_or_default();
            let mut output = OutputFile::create(&to).await.expect("made");
            output.file.write_all(content.as_bytes()).await.expect("written");
            output.file.flush().await.expect("flushed");
            assert_eq!(std::fs::read_to_string(&to).unwrap_or_default(), before);
            if kept {
                output.keep().await.expect("kept");
            } else {
                drop(output);
            }
            let now = std::fs::read_to_string(&to).expect("there");
            assert_eq!(now, if kept { content } else { &before });
            assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 1);
        }
        let mut device = OutputFile::create(Path::new("/dev/null")).await.expect("opened");
        device.file.write_all(b"x").await.expect("written");
        device.keep().await.expect("kept");
    }
}
