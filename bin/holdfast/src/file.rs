//! `holdfast file …`: files of volumes, named `VOLUME:/DIR/FILE`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Subcommand;
use control_api::{
    Confirm, Done, FileClone, FileCreate, FileEntry, FileKind, FileProvision, FileRename, Provisioned,
};
use control_client::{Query, segment};

use crate::context::Context;
use crate::error::{CliError, CliResult};
use crate::output_file;
use crate::pool::usage;
use crate::progress;
use crate::table::{Table, word};
use crate::units::{bytes, parse_bytes, time};

/// A file of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    volume: String,
    path: String,
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some((volume, "")) if !volume.is_empty() => Ok(Self { volume: volume.into(), path: "/".into() }),
            Some((volume, path)) if !volume.is_empty() && path.starts_with(['/', '@']) => {
                Ok(Self { volume: volume.into(), path: path.into() })
            }
            _ => Err(format!(
                "{text:?} is not a file of a volume: write VOLUME:/DIR/FILE, or VOLUME:@SNAPSHOT/DIR/FILE"
            )),
        }
    }
}

impl Place {
    pub(crate) fn volume(&self) -> &str {
        &self.volume
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn route(&self, verb: &str) -> String {
        format!("/volumes/{}/{verb}", segment(&self.volume))
    }

    pub(crate) fn query(&self, verb: &str) -> Query {
        Query::new(self.route(verb)).with("path", &self.path)
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List a directory.
    Ls {
        /// VOLUME:/DIR
        place: Place,
    },
    /// Show a file or directory.
    Stat {
        /// VOLUME:/FILE
        place: Place,
    },
    /// Make a file that reads as zeros.
    Create {
        /// VOLUME:/FILE
        place: Place,
        /// Its size.
        #[arg(long, value_parser = parse_bytes, default_value = "0")]
        size: u64,
        /// Reserve the space now, in the volume and in its pool.
        #[arg(long)]
        reserve: bool,
    },
    /// Make a directory and those above it.
    Mkdir {
        /// VOLUME:/DIR
        place: Place,
    },
    /// Copy a local file into a volume.
    Put {
        /// The local file; `-` for standard input.
        from: PathBuf,
        /// VOLUME:/FILE
        to: Place,
        /// Replace the file that is there.
        #[arg(long)]
        replace: bool,
    },
    /// Copy a file of a volume here.
    Get {
        /// VOLUME:/FILE
        from: Place,
        /// The local file; `-` for standard output.
        to: PathBuf,
        /// First byte.
        #[arg(long, value_parser = parse_bytes, default_value = "0")]
        offset: u64,
        /// How many bytes; to the end when absent.
        #[arg(long, value_parser = parse_bytes)]
        len: Option<u64>,
    },
    /// Remove a file or an empty directory.
    Rm {
        /// VOLUME:/FILE
        place: Place,
    },
    /// Move a name within its volume.
    Mv {
        /// VOLUME:/FILE
        from: Place,
        /// VOLUME:/FILE
        to: Place,
        /// Replace the file that is there.
        #[arg(long)]
        replace: bool,
    },
    /// Make a file or tree that shares another one's storage.
    Clone {
        /// VOLUME:/FILE
        from: Place,
        /// VOLUME:/FILE
        to: Place,
    },
    /// Make many VHDX images from one, each a disk of its own; all of them or none.
    ///
    /// Clones share the storage of the image until they are written. Each has its own disk id, and its own ids of file and data.
    Provision {
        /// The image, VOLUME:/FILE, which nobody writes to meanwhile.
        #[arg(long, value_name = "IMAGE")]
        from: Place,
        /// Their names, with a part that counts: 'desk-{001..100}.vhdx', or 'desk-{001..}.vhdx' with --count.
        #[arg(long)]
        name: String,
        /// How many; needed where the name does not say it.
        #[arg(long)]
        count: Option<u32>,
        /// The folder that they are made in; the image's own when absent.
        #[arg(long, value_name = "DIR")]
        into: Option<String>,
        /// Make children, which have the image for their parent. It may not change from then on.
        #[arg(long)]
        differencing: bool,
    },
}

pub(crate) async fn run(command: Command, context: &Context) -> CliResult {
    let client = &context.client;
    let one = |entry: &FileEntry| print(std::slice::from_ref(entry));
    match command {
        Command::Ls { place } => context.show_list(place.query("files").as_str(), print).await,
        Command::Stat { place } => {
            let entry: FileEntry = client.get(place.query("stat").as_str()).await?;
            context.show(&entry, one)
        }
        Command::Create { place, size, reserve } => {
            let request = FileCreate {
                path: place.path.clone(),
                kind: FileKind::File,
                size_bytes: size,
                reserve,
                parents: false,
            };
            let entry: FileEntry = client.post(&place.route("files"), &request).await?;
            context.show(&entry, one)
        }
        Command::Mkdir { place } => {
            let request = FileCreate {
                path: place.path.clone(),
                kind: FileKind::Directory,
                size_bytes: 0,
                reserve: false,
                parents: true,
            };
            let entry: FileEntry = client.post(&place.route("files"), &request).await?;
            context.show(&entry, one)
        }
        Command::Put { from, to, replace } => put(from, &to, replace, context).await,
        Command::Get { from, to, offset, len } => get(&from, to, offset, len, context).await,
        Command::Rm { place } => {
            let query = place.query("files");
            let done: Done = context
                .confirmed(async |confirm| client.delete(query.as_str(), &Confirm { confirm }).await)
                .await?;
            context.show(&done, |done| outln!("{}", done.message))
        }
        Command::Mv { from, to, replace } => {
            same_volume(&from, &to)?;
            let entry: FileEntry = context
                .confirmed(async |confirm| {
                    let request =
                        FileRename { from: from.path.clone(), to: to.path.clone(), replace, confirm };
                    client.post(&from.route("rename"), &request).await
                })
                .await?;
            context.show(&entry, one)
        }
        Command::Clone { from, to } => {
            same_volume(&from, &to)?;
            let request = FileClone { from: from.path.clone(), to: to.path };
            let entry: FileEntry = client.post(&from.route("clone"), &request).await?;
            context.show(&entry, one)
        }
        Command::Provision { from, name, count, into, differencing } => {
            let request = FileProvision { from: from.path.clone(), name, count, into, differencing };
            let made: Provisioned = client.post(&from.route("provision"), &request).await?;
            context.show(&made, |made| {
                made.paths.iter().for_each(|path| outln!("{}:{path}", from.volume));
                let elsewhere = if made.parents_elsewhere {
                    "; their parent lies outside of their folder: a LUN of one needs --parents-anywhere"
                } else {
                    ""
                };
                outln!("{} images, each a disk of {}{elsewhere}", made.paths.len(), bytes(made.disk_bytes));
            })
        }
    }
}

pub(crate) fn same_volume(from: &Place, to: &Place) -> CliResult {
    if from.volume == to.volume {
        Ok(())
    } else {
        usage("both files must be of the same volume; use `file get` and `file put` to copy between volumes.")
    }
}

async fn put(from: PathBuf, to: &Place, replace: bool, context: &Context) -> CliResult {
    let query = to.query("content").with("truncate", if replace { "true" } else { "new" });
    let reading = |error: std::io::Error| CliError::here(format!("{}: {error}", from.display()));
    let entry: FileEntry = if from.as_os_str() == "-" {
        context.client.upload(query.as_str(), tokio::io::stdin(), |_| {}).await?
    } else {
        let file = tokio::fs::File::open(&from).await.map_err(reading)?;
        let total = file.metadata().await.map_err(reading)?.len();
        let bar = progress::bar(total, &to.path, context.json);
        let entry = context.client.upload(query.as_str(), file, |done| bar.set_position(done)).await;
        bar.finish_and_clear();
        entry?
    };
    context.show(&entry, |entry| print(std::slice::from_ref(entry)))
}

async fn get(from: &Place, to: PathBuf, offset: u64, len: Option<u64>, context: &Context) -> CliResult {
    let mut query = from.query("content").with("offset", &offset.to_string());
    if let Some(len) = len {
        query = query.with("len", &len.to_string());
    }
    if to.as_os_str() == "-" {
        context.client.download(query.as_str(), &mut tokio::io::stdout(), |_| {}).await?;
        return Ok(());
    }
    let entry: FileEntry = context.client.get(from.query("stat").as_str()).await?;
    let total = len.unwrap_or(u64::MAX).min(entry.size_bytes.saturating_sub(offset));
    let done = output_file::download(context, query.as_str(), &to, (&from.path, Some(total))).await?;
    context.show(&Done::new(format!("{}: {}", to.display(), bytes(done))), |done| outln!("{}", done.message))
}

pub(crate) fn print(entries: &[FileEntry]) {
    let mut table = Table::new(
        &["NAME", "KIND", ">SIZE", ">ALLOCATED", "WRITTEN (UTC)", ">NAMES"],
        "The directory is empty.",
    );
    for entry in entries {
        table.row([
            entry.name.clone(),
            word(&entry.kind),
            bytes(entry.size_bytes),
            bytes(entry.allocated_bytes),
            time(entry.written),
            // The root has none, and a directory no other one.
            entry.names.max(1).to_string(),
        ]);
    }
    table.print();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places() {
        let place = |volume: &str, path: &str| Ok(Place { volume: volume.into(), path: path.into() });
        assert_eq!("v:/a/b:c".parse(), place("v", "/a/b:c"));
        assert_eq!("v:".parse(), place("v", "/"));
        assert_eq!("v:@s/a".parse(), place("v", "@s/a"));
        for text in ["", "v", ":/a", "v:a", "/a"] {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
    }
}
