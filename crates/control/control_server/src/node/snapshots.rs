//! Snapshots of volumes: each request runs on the shard of its volume.

use std::sync::Arc;

use axum::body::Bytes;
use control_api::{
    Code, Done, FileClone, FileEntry, FileKind, Problem, Snapshot, SnapshotCreate, SpaceUse, human_bytes,
};
use diff_format::{Parser, Record};
use file_store::{FileId, FileKind as StoreKind, FileStore, NewSnapshot};
use futures_util::{Stream, StreamExt};
use tokio::sync::mpsc;

use super::calendar::stamp;
use super::files::{FileBytes, PIECES};
use super::{Node, confirm};
use crate::differences::{Applying, Sink, Telling, remove_tree};
use crate::files::snapshots::{find_snapshot as find, with_snapshots};
use crate::files::{self, at, problem};

const NANOS: u64 = 1_000_000_000;

fn shown(volume: &str, snapshot: file_store::Snapshot, space: Option<SpaceUse>) -> Snapshot {
    Snapshot {
        view: format!("@{}", snapshot.name),
        name: snapshot.name,
        volume: volume.to_owned(),
        path: snapshot.path,
        kind: match snapshot.kind {
            StoreKind::File => FileKind::File,
            StoreKind::Directory => FileKind::Directory,
        },
        created: snapshot.created / NANOS,
        quiesced: snapshot.quiesced,
        schedule: (!snapshot.maker.is_empty()).then_some(snapshot.maker),
        space,
    }
}

async fn space_of(store: &dyn FileStore, root: FileId) -> Result<SpaceUse, Problem> {
    let found = with_snapshots(store)?.space(root).await.map_err(|error| problem(&error))?;
    Ok(SpaceUse {
        files: found.files,
        logical_bytes: found.logical,
        allocated_bytes: found.allocated,
        shared_bytes: found.shared,
        unique_bytes: found.unique,
    })
}

/// Takes a snapshot of what is at a path.
pub(super) async fn take(
    store: &dyn FileStore,
    name: String,
    path: &str,
    quiesce: bool,
    maker: &str,
) -> Result<file_store::Snapshot, Problem> {
    let (source, _) = files::resolve(store, path).await?;
    let new = NewSnapshot { name, source, quiesce, maker: maker.to_owned(), path: path.to_owned() };
    with_snapshots(store)?.take_snapshot(new).await.map_err(at(path))
}

struct Out(mpsc::Sender<Result<Bytes, Problem>>);

impl Sink for Out {
    async fn take(&mut self, bytes: Vec<u8>) -> bool {
        self.0.send(Ok(bytes.into())).await.is_ok()
    }
}

/// What one side of a comparison is called, and when it was taken.
async fn side(store: &dyn FileStore, path: &str) -> Result<(FileId, StoreKind, u64), Problem> {
    let (file, kind) = files::resolve(store, path).await?;
    let taken = match path.strip_prefix('@') {
        Some(rest) => find(store, rest.split('/').next().unwrap_or(rest)).await?.created,
        None => 0,
    };
    Ok((file, kind, taken))
}

impl Node {
    /// Snapshots of a volume, the oldest first; what each takes where that is asked for.
    pub async fn snapshot_list(&self, volume: &str, space: bool) -> Result<Vec<Snapshot>, Problem> {
        let name = volume.to_owned();
        self.with_store(volume, async move |store| {
            let all = with_snapshots(&*store)?.snapshots().await.map_err(|error| problem(&error))?;
            let mut listed = Vec::new();
            for snapshot in all {
                let space = if space { space_of(&*store, snapshot.root).await.ok() } else { None };
                listed.push(shown(&name, snapshot, space));
            }
            Ok(listed)
        })
        .await
    }

    /// A snapshot with what it takes.
    pub async fn snapshot_show(&self, volume: &str, snapshot: &str) -> Result<Snapshot, Problem> {
        let (name, snapshot) = (volume.to_owned(), snapshot.to_owned());
        self.with_store(volume, async move |store| {
            let found = find(&*store, &snapshot).await?;
            let space = space_of(&*store, found.root).await?;
            Ok(shown(&name, found, Some(space)))
        })
        .await
    }

    /// Takes a snapshot.
    pub async fn snapshot_create(&self, volume: &str, request: SnapshotCreate) -> Result<Snapshot, Problem> {
        let (volume_name, (_, now)) = (volume.to_owned(), self.times());
        let name = request.name.unwrap_or_else(|| format!("at-{}", stamp(now)));
        let held = if request.quiesce { self.hold_images(volume, &request.path).await? } else { Vec::new() };
        self.with_store(volume, async move |store| {
            let taken = take(&*store, name, &request.path, request.quiesce, "").await?;
            drop(held);
            Ok(shown(&volume_name, taken, None))
        })
        .await
    }

    /// Deletes a snapshot.
    pub async fn snapshot_delete(
        &self,
        volume: &str,
        snapshot: &str,
        confirmed: Option<String>,
    ) -> Result<Done, Problem> {
        let found = self.snapshot_show(volume, snapshot).await?;
        confirm(&found.name, confirmed.as_deref(), || {
            let unique = human_bytes(found.space.map_or(0, |space| space.unique_bytes));
            vec![format!(
                "Snapshot {} of {} of volume {volume} is deleted; {unique} are in no other file.",
                found.name, found.path
            )]
        })?;
        let name = found.name.clone();
        self.with_store(volume, async move |store| {
            let id = find(&*store, &name).await?.id;
            with_snapshots(&*store)?.delete_snapshot(id).await.map_err(|error| problem(&error))
        })
        .await?;
        Ok(Done::new(format!("Snapshot {} is deleted; its space comes back in the background.", found.name)))
    }

    /// Makes a file or tree that shares another's storage.
    pub async fn tree_clone(&self, volume: &str, request: FileClone) -> Result<FileEntry, Problem> {
        self.with_store(volume, async move |store| {
            let (source, _) = files::resolve(&*store, &request.from).await?;
            let (directory, name) = files::parent(&*store, &request.to, false).await?;
            with_snapshots(&*store)?.clone_tree(source, directory, name).await.map_err(at(&request.to))?;
            files::stat(&*store, &request.to).await
        })
        .await
    }

    /// What a file or tree takes.
    pub async fn file_space(&self, volume: &str, path: &str) -> Result<SpaceUse, Problem> {
        let path = path.to_owned();
        self.with_store(volume, async move |store| {
            let (file, _) = files::resolve(&*store, &path).await?;
            space_of(&*store, file).await
        })
        .await
    }

    /// What differs between two files or trees of a volume, as a stream.
    pub async fn snapshot_diff(&self, volume: &str, base: &str, target: &str) -> Result<FileBytes, Problem> {
        let handle = self.volume(volume)?;
        let store = handle.store();
        let (base, target) = (base.to_owned(), target.to_owned());
        let (send, receive) = mpsc::channel(PIECES);
        let (found, checked) = tokio::sync::oneshot::channel();
        let work = async move |store: Arc<dyn FileStore>| -> Result<(), Problem> {
            let sides = async {
                let (old, new) = (side(&*store, &base).await?, side(&*store, &target).await?);
                if old.1 != new.1 {
                    let detail = format!("{base} and {target} are not both files or both directories.");
                    return Err(Problem::new(Code::InvalidRequest, detail));
                }
                Ok((old, new))
            };
            let (old, new) = match sides.await {
                Ok(sides) => sides,
                Err(problem) => {
                    let _ = found.send(Err(problem));
                    return Ok(());
                }
            };
            let _ = found.send(Ok(()));
            let directory = new.1 == StoreKind::Directory;
            let (base_time, target_time) = (old.2, new.2);
            let begin = Record::Begin {
                volume: with_snapshots(&*store)?.identity(),
                base,
                base_time,
                target,
                target_time,
                directory,
            };
            let told = Telling::new(&*store, Out(send.clone()))?.tell(begin, old.0, new.0).await;
            if let Err(problem) = told {
                // The stream breaks off, so nobody takes what there is for all of it.
                let _ = send.send(Err(problem)).await;
            }
            Ok(())
        };
        self.backends.shards.spawn(
            handle.shard(),
            Box::new(move || {
                Box::pin(async move {
                    // Its problems go to whoever asked.
                    let _ = work(store).await;
                })
            }),
        );
        let gone = |_| Problem::new(Code::Unavailable, "the node is stopping");
        checked.await.map_err(gone)??;
        Ok(FileBytes::new(receive))
    }

    /// Makes `to`, a copy of `onto` with what a stream says done to it.
    pub async fn snapshot_apply(
        &self,
        volume: &str,
        onto: &str,
        to: &str,
        mut bytes: impl Stream<Item = Result<Bytes, axum::Error>> + Unpin + Send,
    ) -> Result<FileEntry, Problem> {
        let (onto, to) = (onto.to_owned(), to.to_owned());
        let (send, mut receive) = mpsc::channel::<Result<Bytes, Problem>>(PIECES);
        let applying = self.with_store(volume, async move |store| {
            let (source, _) = files::resolve(&*store, &onto).await?;
            let (directory, name) = files::parent(&*store, &to, false).await?;
            if store.lookup(directory, name).await.is_ok() {
                return Err(Problem::new(Code::AlreadyExists, format!("{to} is there already.")).todo(
                    "Choose another name; it can take the other one's place afterwards (`holdfast file mv`).",
                ));
            }
            let aside: String = format!(".apply-{}-{name}", directory.0).chars().take(200).collect();
            if let Ok(left) = store.lookup(directory, &aside).await {
                // What one that broke off has left.
                remove_tree(&*store, directory, &left).await.map_err(at(&to))?;
            }
            let root =
                with_snapshots(&*store)?.clone_tree(source, directory, &aside).await.map_err(at(&onto))?;
            let mut applied = apply(&*store, root, &mut receive).await;
            if applied.is_ok() {
                applied = store.rename((directory, &aside), (directory, name), false).await.map_err(at(&to));
            }
            if applied.is_err()
                && let Ok(left) = store.lookup(directory, &aside).await
            {
                // The first problem is the one to tell.
                let _ = remove_tree(&*store, directory, &left).await;
            }
            applied?;
            files::stat(&*store, &to).await
        });
        let feeding = async move {
            while let Some(next) = bytes.next().await {
                let next = next.map_err(|error| {
                    Problem::new(Code::InvalidRequest, format!("the bytes broke off: {error}"))
                });
                if send.send(next).await.is_err() {
                    // Whoever applies has failed and says why.
                    return;
                }
            }
        };
        let (applied, ()) = tokio::join!(applying, feeding);
        applied
    }
}

async fn apply(
    store: &dyn FileStore,
    root: FileId,
    bytes: &mut mpsc::Receiver<Result<Bytes, Problem>>,
) -> Result<(), Problem> {
    let refused = |error: diff_format::DiffError| {
        Problem::new(Code::InvalidRequest, format!("{error}."))
            .todo("Nothing was changed. Make the stream again.")
    };
    let (mut parser, mut applying) = (Parser::default(), Applying::new(store, root));
    while let Some(piece) = bytes.recv().await {
        for piece in piece?.chunks(Parser::PIECE) {
            parser.push(piece);
            while let Some(record) = parser.next_record().map_err(refused)? {
                applying.apply(record).await?;
            }
        }
    }
    parser.finish().map_err(refused)
}
