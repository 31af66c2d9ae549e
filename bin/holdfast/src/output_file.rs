//! A file that a command writes what it downloads to.
//!
//! What was there under its name stays until all of the new content is: a refused or broken download costs nobody the last one.

use std::io;
use std::path::Path;

use tokio::fs::{File, OpenOptions};
use tokio::io::AsyncWriteExt;

use crate::context::Context;
use crate::error::{CliError, CliResult};
use crate::interrupt::Interrupts;
use crate::part_file::PartFile;
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
    let mut interrupts = Interrupts::new().map_err(writing)?;
    let mut output = OutputFile::create(to).await.map_err(writing)?;
    let bar = progress::bar(expected.unwrap_or(0), name, context.json);
    let done = tokio::select! {
        done = context.client.download(query, &mut output.file, |done| bar.set_position(done)) => Some(done),
        () = interrupts.wait() => None,
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
    /// Of what is no file (a pipe, a device) there is none: that is written as it is.
    part: Option<PartFile>,
    file: File,
}

impl OutputFile {
    /// Begins one.
    ///
    /// # Errors
    /// When none can be made there.
    async fn create(to: &Path) -> io::Result<Self> {
        let is_file = tokio::fs::metadata(to).await.map_or(true, |there| there.is_file());
        let part = if is_file { Some(PartFile::beside(to, true)?) } else { None };
        let path = part.as_ref().map_or(to, PartFile::path);
        let file = OpenOptions::new().write(true).open(path).await?;
        Ok(Self { part, file })
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
        match self.part {
            Some(part) => part.keep(),
            None => Ok(()),
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
        let pipe = dir.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo runs");
        assert!(made.success());
        let path = pipe.clone();
        let reader = std::thread::spawn(move || std::fs::read(path).expect("read"));
        let mut output = OutputFile::create(&pipe).await.expect("opened");
        output.file.write_all(b"x").await.expect("written");
        output.keep().await.expect("kept");
        assert_eq!(reader.join().expect("read"), b"x");
    }
}
