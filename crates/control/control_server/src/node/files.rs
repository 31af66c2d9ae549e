//! Files of volumes: each request runs on the shard of its volume.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Bytes;
use control_api::{Code, Done, FileClone, FileCreate, FileEntry, FileRename, Problem, human_bytes};
use file_store::{Access, FileId, FileStore};
use futures_util::{Stream, StreamExt};
use tokio::sync::mpsc;

use super::{Node, confirm};
use crate::backend::VolumeHandle;
use crate::files::{self, PutMode};

/// Pieces of a file under way between a shard and a connection: enough to overlap, little to hold.
pub(super) const PIECES: usize = 4;

/// Bytes of a file as they come from its shard.
pub struct FileBytes(mpsc::Receiver<Result<Bytes, Problem>>);

impl FileBytes {
    pub(super) fn new(pieces: mpsc::Receiver<Result<Bytes, Problem>>) -> Self {
        Self(pieces)
    }
}

impl Stream for FileBytes {
    type Item = Result<Bytes, Problem>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context)
    }
}

impl Node {
    pub(crate) async fn with_store<T, F, R>(&self, volume: &str, work: F) -> Result<T, Problem>
    where
        T: Send + 'static,
        F: FnOnce(Arc<dyn FileStore>) -> R + Send + 'static,
        R: Future<Output = Result<T, Problem>> + 'static,
    {
        let handle = self.volume(volume)?;
        let store = handle.store();
        self.on_shard(handle.shard(), move || work(store)).await
    }

    /// Refuses to change a file that a LUN is made of, or a directory above one.
    pub(crate) fn refuse_lun_file(&self, volume: &str, path: &str) -> Result<(), Problem> {
        let lun = self.config.with(|config| {
            let mut luns = config.luns.iter().filter(|lun| self.is_on(*lun, volume));
            luns.find(|lun| is_at_or_below(&lun.path, path)).map(|lun| lun.name.clone())
        });
        match lun {
            Some(lun) => Err(Problem::new(Code::InUse, format!("{path} holds the data of LUN {lun}."))
                .todo("Delete the LUN first (`holdfast lun delete --keep-file` keeps the file).")),
            None => Ok(()),
        }
    }

    /// The LUN, but for `except`, whose data a file is, whatever name leads to it; and the name that the LUN has it by.
    pub(super) async fn lun_of(
        &self,
        volume: &str,
        file: &FileEntry,
        except: Option<&str>,
    ) -> Option<(String, String)> {
        let luns = self.config.with(|config| config.luns.clone());
        for lun in luns.into_iter().filter(|lun| self.is_on(lun, volume) && except != Some(&lun.name)) {
            if let Ok(there) = self.file_stat(volume, &lun.path).await
                && there.file_id == file.file_id
            {
                return Some((lun.name, lun.path));
            }
        }
        None
    }

    /// As [`Node::refuse_lun_file`], and by the other names of the file, too.
    pub(crate) async fn refuse_lun_data(&self, volume: &str, path: &str) -> Result<(), Problem> {
        self.refuse_lun_file(volume, path)?;
        let Ok(file) = self.file_stat(volume, path).await else { return Ok(()) };
        if file.names < 2 {
            return Ok(());
        }
        match self.lun_of(volume, &file, None).await {
            Some((lun, name)) => Err(Problem::new(
                Code::InUse,
                format!("{path} is another name (hard link) of {name}, which holds the data of LUN {lun}."),
            )
            .todo("Delete the LUN first (`holdfast lun delete --keep-file` keeps the file).")),
            None => Ok(()),
        }
    }

    /// Entries of a directory.
    pub async fn file_list(&self, volume: &str, path: &str) -> Result<Vec<FileEntry>, Problem> {
        let path = path.to_owned();
        self.with_store(volume, async move |store| files::list(&*store, &path).await).await
    }

    /// A file or directory.
    pub async fn file_stat(&self, volume: &str, path: &str) -> Result<FileEntry, Problem> {
        let path = path.to_owned();
        self.with_store(volume, async move |store| files::stat(&*store, &path).await).await
    }

    /// Refuses to reserve more than the volume has, or than its pool has for it, before anything is made.
    pub(super) async fn refuse_no_room(
        &self,
        (volume, handle): (&str, &Arc<dyn VolumeHandle>),
        bytes: u64,
    ) -> Result<(), Problem> {
        let store = handle.store();
        let usage = self.on_shard(handle.shard(), move || async move {
            store.usage().await.map_err(|error| files::problem(&error))
        });
        let usage = usage.await?;
        let can_hold = handle.can_hold_behind(usage.metadata);
        let room = handle.free(&usage);
        if bytes <= room {
            return Ok(());
        }
        let (lacking, todo) = if can_hold < usage.capacity {
            ("its pool has room for", "Add disks to the pool (`holdfast pool add-disk`), or remove data.")
        } else {
            ("it has room for", "Grow the volume (`holdfast volume resize`), or remove files.")
        };
        let detail = format!(
            "{} cannot be reserved in volume {volume}: of its {}, files take {}, and {lacking} {} more.",
            human_bytes(bytes),
            human_bytes(usage.capacity),
            human_bytes(usage.used),
            human_bytes(room)
        );
        Err(Problem::new(Code::NoSpace, detail).todo(format!("{todo} Nothing was made.")))
    }

    /// Reserves what of a file is not yet. Nobody waits for it who changes the configuration.
    pub(super) async fn reserve_file(
        &self,
        (volume, handle): (&str, &Arc<dyn VolumeHandle>),
        file: &FileEntry,
    ) -> Result<(), Problem> {
        let lacking = file.size_bytes.saturating_sub(file.allocated_bytes);
        self.refuse_no_room((volume, handle), lacking).await?;
        let (store, path) = (handle.store(), file.path.clone());
        self.on_shard(handle.shard(), move || async move { files::reserved::reserve(&*store, &path).await })
            .await
    }

    /// Makes a file or directory.
    pub async fn file_create(&self, volume: &str, request: FileCreate) -> Result<FileEntry, Problem> {
        if request.reserve {
            self.refuse_no_room((volume, &self.volume(volume)?), request.size_bytes).await?;
        }
        self.with_store(volume, async move |store| files::create(&*store, &request).await).await
    }

    /// Removes a file or an empty directory.
    pub async fn file_remove(
        &self,
        volume: &str,
        path: &str,
        confirmed: Option<String>,
    ) -> Result<Done, Problem> {
        self.refuse_lun_data(volume, path).await?;
        self.refuse_parent(volume, path).await?;
        self.refuse_share_folder(volume, path)?;
        let entry = self.file_stat(volume, path).await?;
        confirm(path, confirmed.as_deref(), || {
            vec![format!(
                "{path} of volume {volume} is removed ({}, {} bytes).",
                human_bytes(entry.size_bytes),
                entry.size_bytes
            )]
        })?;
        let owned = path.to_owned();
        self.with_store(volume, async move |store| files::remove(&*store, &owned).await).await?;
        Ok(Done::new(format!("{path} is removed.")))
    }

    /// Moves a name.
    pub async fn file_rename(&self, volume: &str, request: FileRename) -> Result<FileEntry, Problem> {
        self.refuse_lun_file(volume, &request.from)?;
        self.refuse_lun_data(volume, &request.to).await?;
        self.refuse_parent(volume, &request.from).await?;
        self.refuse_parent(volume, &request.to).await?;
        self.refuse_share_folder(volume, &request.from)?;
        if request.replace
            && let Ok(there) = self.file_stat(volume, &request.to).await
        {
            confirm(&request.to, request.confirm.as_deref(), || {
                vec![format!(
                    "{} of volume {volume} is replaced; what it holds is lost ({}).",
                    there.path,
                    human_bytes(there.size_bytes)
                )]
            })?;
        }
        self.with_store(volume, async move |store| files::rename(&*store, &request).await).await
    }

    /// Makes a file that shares another one's storage.
    pub async fn file_clone(&self, volume: &str, request: FileClone) -> Result<FileEntry, Problem> {
        let parentage = self.volume(volume)?.parentage();
        self.with_store(volume, async move |store| {
            let made = files::clone(&*store, &request).await?;
            if let Some(parentage) = parentage {
                let (source, _) = files::resolve(&*store, &request.from).await?;
                let cloned = parentage.cloned(source, FileId(made.file_id)).await;
                cloned.map_err(files::at(&made.path))?;
            }
            Ok(made)
        })
        .await
    }

    /// Bytes of a file: how many will come, and the bytes.
    pub async fn file_get(
        &self,
        volume: &str,
        path: &str,
        offset: u64,
        len: Option<u64>,
    ) -> Result<(u64, FileBytes), Problem> {
        let handle = self.volume(volume)?;
        let store = handle.store();
        let path = path.to_owned();
        let (send, receive) = mpsc::channel(PIECES);
        let (opened, size) = tokio::sync::oneshot::channel();
        self.backends.shards.spawn(
            handle.shard(),
            Box::new(move || {
                Box::pin(async move {
                    let file = match files::open(&*store, &path, Access::READ).await {
                        Ok(file) => file,
                        Err(problem) => return drop(opened.send(Err(problem))),
                    };
                    let len = len.unwrap_or(u64::MAX).min(file.size().saturating_sub(offset));
                    let _ = opened.send(Ok(len));
                    let sink = |piece: aligned_buffer::IoBuf| {
                        let send = &send;
                        async move { send.send(Ok(Bytes::copy_from_slice(&piece))).await.is_ok() }
                    };
                    if let Err(problem) = files::read(&*file, offset, len, sink).await {
                        let _ = send.send(Err(problem)).await;
                    }
                })
            }),
        );
        let gone = |_| Problem::new(Code::Unavailable, "the node is stopping");
        Ok((size.await.map_err(gone)??, FileBytes(receive)))
    }

    /// Writes bytes to a file, durably.
    pub async fn file_put(
        &self,
        volume: &str,
        path: &str,
        offset: u64,
        mode: PutMode,
        mut bytes: impl Stream<Item = Result<Bytes, axum::Error>> + Unpin + Send,
    ) -> Result<FileEntry, Problem> {
        self.refuse_lun_data(volume, path).await?;
        self.refuse_parent(volume, path).await?;
        if offset > 0 && mode != PutMode::Keep {
            return Err(Problem::new(
                Code::InvalidRequest,
                "An offset makes sense only when the file that is there stays.",
            ));
        }
        let path = path.to_owned();
        let (send, mut receive) = mpsc::channel::<Result<Vec<u8>, Problem>>(PIECES);
        let writing = self.with_store(volume, async move |store| {
            // One piece at a time: the closure lends the receiver to each future it makes.
            let receive = tokio::sync::Mutex::new(&mut receive);
            files::put(&*store, &path, offset, mode, || async { receive.lock().await.recv().await }).await
        });
        let feeding = async move {
            let mut piece: Vec<u8> = Vec::with_capacity(files::CHUNK);
            while let Some(next) = bytes.next().await {
                match next {
                    Ok(next) => piece.extend_from_slice(&next),
                    Err(error) => {
                        let broken =
                            Problem::new(Code::InvalidRequest, format!("the bytes broke off: {error}"));
                        let _ = send.send(Err(broken)).await;
                        return;
                    }
                }
                if piece.len() >= files::CHUNK && send.send(Ok(std::mem::take(&mut piece))).await.is_err() {
                    // The writer has failed and says why.
                    return;
                }
            }
            if !piece.is_empty() {
                let _ = send.send(Ok(piece)).await;
            }
        };
        let (written, ()) = tokio::join!(writing, feeding);
        written
    }
}

/// Whether one path of a volume is another one, or leads to something below it; names are the same in any case.
pub(super) fn is_at_or_below(path: &str, above: &str) -> bool {
    let names = |path: &str| -> Vec<String> {
        path.split('/').filter(|name| !name.is_empty()).map(upcase::upper).collect()
    };
    names(path).starts_with(&names(above))
}
