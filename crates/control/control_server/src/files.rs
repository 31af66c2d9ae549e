//! Files of a volume as the API sees them: paths instead of ids. Runs on the shard of the volume.

use std::future::Future;
use std::sync::Arc;

use aligned_buffer::IoBuf;
use block_device::Durability;
use control_api::{Code, FileClone, FileCreate, FileEntry, FileKind, FileRename, Problem};
use file_store::{
    Access, Attributes, DirectoryCursor, FileId, FileKind as StoreKind, FileStore, NewFile, OpenFile,
    OpenOptions, Share, StoreError, StoreErrorKind,
};
use smb_protocol::security::SecurityDescriptor;
use smb_security::{NewObject, Token};

pub(crate) mod reserved;
pub(crate) mod snapshots;
pub(crate) mod unfinished;

/// Deepest path that is resolved: more names than any sane tree, few enough to be quick.
const MAX_DEPTH: usize = 64;

/// Entries read from a directory at a time.
pub(crate) const PAGE: usize = 512;

/// Most entries of a directory in one answer.
const MAX_ENTRIES: usize = 100_000;

/// Bytes read or written at a time.
pub(crate) const CHUNK: usize = 1 << 20;

/// An error of a file store as a problem.
pub(crate) fn problem(error: &StoreError) -> Problem {
    let code = match error.kind() {
        StoreErrorKind::NotFound => Code::NotFound,
        StoreErrorKind::AlreadyExists => Code::AlreadyExists,
        StoreErrorKind::InvalidName
        | StoreErrorKind::InvalidArgument
        | StoreErrorKind::NotADirectory
        | StoreErrorKind::IsADirectory => Code::InvalidRequest,
        StoreErrorKind::NotEmpty | StoreErrorKind::ReadOnly | StoreErrorKind::Stopped => Code::WrongState,
        StoreErrorKind::SharingViolation | StoreErrorKind::AccessDenied => Code::InUse,
        StoreErrorKind::NoSpace | StoreErrorKind::QuotaExceeded => Code::NoSpace,
        StoreErrorKind::Corrupt => Code::Damaged,
        _ => Code::Io,
    };
    let mut detail = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(below) = cause {
        detail.push_str(&format!(": {below}"));
        cause = below.source();
    }
    let problem = Problem::new(code, detail);
    match code {
        Code::NoSpace if error.kind() == StoreErrorKind::QuotaExceeded => {
            problem.todo("Remove some of them, or give their owner more (`holdfast volume quota set`).")
        }
        Code::NoSpace => problem
            .todo("Remove files, grow the volume (`holdfast volume resize`), or add disks to the pool."),
        Code::Damaged => problem.todo("Run `holdfast volume check` on the volume."),
        _ => problem,
    }
}

pub(crate) fn at(path: &str) -> impl Fn(StoreError) -> Problem + '_ {
    move |error| {
        let mut problem = problem(&error);
        problem.detail = format!("{path}: {}", problem.detail);
        problem
    }
}

/// The names of a path.
///
/// # Errors
/// When it is not absolute, or too deep.
pub(crate) fn split(path: &str) -> Result<Vec<&str>, Problem> {
    let Some(rest) = path.strip_prefix('/') else {
        return Err(Problem::new(Code::InvalidRequest, format!("{path:?} is not a path in a volume."))
            .todo("Paths start with '/', those in a snapshot with '@' and its name."));
    };
    let names: Vec<&str> = rest.split('/').filter(|name| !name.is_empty()).collect();
    if names.len() > MAX_DEPTH {
        return Err(Problem::new(Code::InvalidRequest, format!("the path has more than {MAX_DEPTH} names.")));
    }
    Ok(names)
}

/// A path in a snapshot, `@NAME` or `@NAME/DIR/FILE`, as the snapshot's name and the path in it.
fn in_snapshot(path: &str) -> Option<(&str, &str)> {
    let rest = path.strip_prefix('@')?;
    Some(rest.find('/').map_or((rest, "/"), |at| rest.split_at(at)))
}

/// Where a path leads. That is durable: the caller's configuration may refer to it from now on.
pub(crate) async fn resolve(store: &dyn FileStore, path: &str) -> Result<(FileId, StoreKind), Problem> {
    let (mut here, rest) = match in_snapshot(path) {
        Some((name, rest)) => {
            let found = snapshots::find_snapshot(store, name).await?;
            if found.kind == StoreKind::File && !split(rest)?.is_empty() {
                let detail = format!("{path}: snapshot {name} is of the file {} alone.", found.path);
                return Err(
                    Problem::new(Code::NotFound, detail).todo(format!("The file in it is `@{name}`."))
                );
            }
            ((found.root, found.kind), rest)
        }
        None => ((store.root(), StoreKind::Directory), path),
    };
    for name in split(rest)? {
        let entry = store.lookup(here.0, name).await.map_err(at(path))?;
        here = (entry.file, entry.kind);
    }
    store.sync().await.map_err(at(path))?;
    Ok(here)
}

/// The directory that a path lies in, and the path's last name. Makes the directories when told.
pub(crate) async fn parent<'a>(
    store: &dyn FileStore,
    path: &'a str,
    make: bool,
) -> Result<(FileId, &'a str), Problem> {
    if in_snapshot(path).is_some() {
        let detail = format!("{path} is in a snapshot, which never changes.");
        return Err(Problem::new(Code::WrongState, detail)
            .todo("Clone it (`holdfast snapshot clone`) and change the clone."));
    }
    let mut names = split(path)?;
    let Some(last) = names.pop() else {
        return Err(Problem::new(Code::InvalidRequest, "The root directory is always there and stays."));
    };
    let mut here = store.root();
    for name in names {
        here = match store.lookup(here, name).await {
            Ok(entry) => entry.file,
            Err(error) if make && error.kind() == StoreErrorKind::NotFound => {
                let made = new(store, here, StoreKind::Directory).await.map_err(at(path))?;
                store.create(here, name, made).await.map_err(at(path))?
            }
            Err(error) => return Err(at(path)(error)),
        };
    }
    Ok((here, last))
}

/// A new file or directory, with what its directory's descriptor hands down: whoever may use what clients make there may use
/// this, too. Where the directory has none, as a volume's root, it has none either.
pub(crate) async fn new(
    store: &dyn FileStore,
    directory: FileId,
    kind: StoreKind,
) -> Result<NewFile, StoreError> {
    let above = store.security(directory).await?;
    let mut security = Vec::new();
    if !above.is_empty() {
        let parent = SecurityDescriptor::decode(&above).map_err(|error| {
            StoreError::new(
                StoreErrorKind::Corrupt,
                "the security descriptor of the directory cannot be read",
            )
            .because(error)
        })?;
        let (container, token) = (kind == StoreKind::Directory, Token::system());
        let new = NewObject { parent: Some(&parent), creator: None, container, token: &token };
        security = smb_security::new_object(&new).encode();
    }
    Ok(NewFile { kind, attributes: Attributes::default(), security })
}

async fn entry(store: &dyn FileStore, path: &str, name: &str, file: FileId) -> Result<FileEntry, Problem> {
    let info = store.info(file).await.map_err(at(path))?;
    Ok(FileEntry {
        name: name.into(),
        path: path.into(),
        kind: match info.kind {
            StoreKind::File => FileKind::File,
            StoreKind::Directory => FileKind::Directory,
        },
        size_bytes: info.size,
        allocated_bytes: info.allocated,
        created: info.times.created / 1_000_000_000,
        written: info.times.written / 1_000_000_000,
        file_id: info.file.0,
        names: info.names,
    })
}

/// A file or directory.
pub(crate) async fn stat(store: &dyn FileStore, path: &str) -> Result<FileEntry, Problem> {
    let (file, _) = resolve(store, path).await?;
    let names = split(in_snapshot(path).map_or(path, |(_, rest)| rest))?;
    entry(store, path, names.last().copied().unwrap_or("/"), file).await
}

/// Entries of a directory, by name; of a file, the file.
pub(crate) async fn list(store: &dyn FileStore, path: &str) -> Result<Vec<FileEntry>, Problem> {
    let (file, kind) = resolve(store, path).await?;
    if kind == StoreKind::File {
        return Ok(vec![stat(store, path).await?]);
    }
    let base = path.trim_end_matches('/');
    let mut entries = Vec::new();
    let mut cursor = Some(DirectoryCursor::default());
    while let Some(from) = cursor {
        let page = store.read_directory(file, from, PAGE).await.map_err(at(path))?;
        for found in page.entries {
            if entries.len() == MAX_ENTRIES {
                return Err(Problem::new(
                    Code::Unsupported,
                    format!(
                        "{path}: the directory has more than {MAX_ENTRIES} entries, too many for one answer."
                    ),
                ));
            }
            match entry(store, &format!("{base}/{}", found.name), &found.name, found.file).await {
                Ok(entry) => entries.push(entry),
                // Removed since its name was read.
                Err(problem) if problem.code == Code::NotFound => {}
                Err(problem) => return Err(problem),
            }
        }
        cursor = page.next;
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

/// Makes a file or directory.
pub(crate) async fn create(store: &dyn FileStore, request: &FileCreate) -> Result<FileEntry, Problem> {
    let path = request.path.as_str();
    let (directory, name) = parent(store, path, request.parents).await?;
    let kind = match request.kind {
        FileKind::File => StoreKind::File,
        FileKind::Directory => StoreKind::Directory,
    };
    let made = new(store, directory, kind).await.map_err(at(path))?;
    if kind == StoreKind::File && request.reserve && request.size_bytes > 0 {
        let file = reserved::make(store, (directory, name), made, request).await?;
        return entry(store, path, name, file).await;
    }
    let file = store.create(directory, name, made).await.map_err(at(path))?;
    if kind == StoreKind::File && request.size_bytes > 0 {
        let sized = async {
            let open = store.open(file, OpenOptions::shared(Access::READ_WRITE)).await?;
            open.set_size(request.size_bytes).await
        };
        if let Err(error) = sized.await {
            // A file without what was asked for is of no use; the first error is the one to tell.
            let _ = store.remove(directory, name).await;
            return Err(at(path)(error));
        }
    }
    entry(store, path, name, file).await
}

/// Removes a file or an empty directory.
pub(crate) async fn remove(store: &dyn FileStore, path: &str) -> Result<(), Problem> {
    let (directory, name) = parent(store, path, false).await?;
    store.remove(directory, name).await.map_err(at(path))
}

/// Moves a name.
pub(crate) async fn rename(store: &dyn FileStore, request: &FileRename) -> Result<FileEntry, Problem> {
    let from = parent(store, &request.from, false).await?;
    let to = parent(store, &request.to, false).await?;
    store.rename(from, to, request.replace).await.map_err(at(&request.from))?;
    stat(store, &request.to).await
}

/// Makes a file that shares another one's storage.
pub(crate) async fn clone(store: &dyn FileStore, request: &FileClone) -> Result<FileEntry, Problem> {
    let (source, kind) = resolve(store, &request.from).await?;
    if let Some(snapshots) = store.snapshot_store() {
        let (directory, name) = parent(store, &request.to, false).await?;
        snapshots.clone_tree(source, directory, name).await.map_err(at(&request.to))?;
        return stat(store, &request.to).await;
    }
    if kind == StoreKind::Directory {
        return Err(Problem::new(
            Code::InvalidRequest,
            format!("{}: this kind of volume clones files only.", request.from),
        ));
    }
    let size = store.info(source).await.map_err(at(&request.from))?.size;
    let (directory, name) = parent(store, &request.to, false).await?;
    let made = new(store, directory, StoreKind::File).await.map_err(at(&request.to))?;
    let file = store.create(directory, name, made).await.map_err(at(&request.to))?;
    if size > 0
        && let Err(error) = store.clone_range((source, 0), (file, 0), size).await
    {
        let _ = store.remove(directory, name).await;
        return Err(at(&request.to)(error));
    }
    entry(store, &request.to, name, file).await
}

/// What is shared of a file that is served as a LUN: others may read and write it (backups, `file put`), but not remove it, change
/// its size, or move a directory above it.
pub(crate) const KEPT: Share = Share { read: true, write: true, delete: false };

/// Opens a file.
pub(crate) async fn open(
    store: &dyn FileStore,
    path: &str,
    access: Access,
) -> Result<Arc<dyn OpenFile>, Problem> {
    open_shared(store, path, access, Share::ALL).await
}

/// Opens a file and says what others may do with it meanwhile.
pub(crate) async fn open_shared(
    store: &dyn FileStore,
    path: &str,
    access: Access,
    share: Share,
) -> Result<Arc<dyn OpenFile>, Problem> {
    let (file, kind) = resolve(store, path).await?;
    if kind == StoreKind::Directory {
        return Err(Problem::new(Code::InvalidRequest, format!("{path} is a directory.")));
    }
    store.open(file, OpenOptions { share, ..OpenOptions::shared(access) }).await.map_err(at(path))
}

/// Reads `len` bytes at `offset` piece by piece into `sink`, which says whether to go on.
pub(crate) async fn read<F: Future<Output = bool>>(
    file: &dyn OpenFile,
    mut offset: u64,
    len: u64,
    mut sink: impl FnMut(IoBuf) -> F,
) -> Result<(), Problem> {
    let end = offset.saturating_add(len).min(file.size());
    while offset < end {
        let piece = (end - offset).min(CHUNK as u64) as usize;
        let buf = file.read(offset, IoBuf::new(piece)).await.map_err(|error| problem(&error))?;
        let got = buf.len() as u64;
        // Nothing before the known end: the file was cut meanwhile.
        if got == 0 || !sink(buf).await {
            break;
        }
        offset += got;
    }
    Ok(())
}

/// How the bytes of a `put` meet what is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
pub enum PutMode {
    /// There must be no such file.
    #[serde(rename = "new")]
    New,
    /// The file that is there is replaced, as a whole and at once.
    #[serde(rename = "true")]
    Replace,
    /// The bytes go into the file that is there, or a new one.
    #[default]
    #[serde(rename = "keep")]
    Keep,
}

/// Writes what `source` gives to a file, durably. A file that is made or replaced appears under its name only
/// when all of it is durable.
pub(crate) async fn put<F: Future<Output = Option<Result<Vec<u8>, Problem>>>>(
    store: &dyn FileStore,
    path: &str,
    mut offset: u64,
    mode: PutMode,
    mut source: impl FnMut() -> F,
) -> Result<FileEntry, Problem> {
    let (directory, name) = parent(store, path, false).await?;
    let there = match store.lookup(directory, name).await {
        Ok(entry) => Some(entry),
        Err(error) if error.kind() == StoreErrorKind::NotFound => None,
        Err(error) => return Err(at(path)(error)),
    };
    if there.as_ref().is_some_and(|entry| entry.kind == StoreKind::Directory) {
        return Err(Problem::new(Code::InvalidRequest, format!("{path} is a directory.")));
    }
    if there.is_some() && mode == PutMode::New {
        return Err(Problem::new(Code::AlreadyExists, format!("{path} is there already."))
            .todo("Replace it with --replace, or choose another name."));
    }
    let in_place = there.is_some() && mode == PutMode::Keep;
    let aside = unfinished::aside(directory, name);
    let file = match &there {
        Some(entry) if in_place => entry.file,
        _ => {
            // What an earlier put that broke off may have left.
            let _ = store.remove(directory, &aside).await;
            unfinished::begin(store, directory, &aside).await.map_err(at(path))?;
            let mut made = new(store, directory, StoreKind::File).await.map_err(at(path))?;
            if let Some(replaced) = &there {
                // Who may use it stays as it is.
                made.security = store.security(replaced.file).await.map_err(at(path))?;
            }
            store.create(directory, &aside, made).await.map_err(at(path))?
        }
    };
    let write = async {
        let open = store.open(file, OpenOptions::shared(Access::READ_WRITE)).await.map_err(at(path))?;
        while let Some(piece) = source().await {
            let piece = piece?;
            let len = piece.len() as u64;
            let data = IoBuf::copy_from(&piece).freeze();
            open.write(offset, data, Durability::Volatile).await.map_err(at(path))?;
            offset += len;
        }
        open.flush().await.map_err(at(path))
    };
    let mut done = write.await;
    if done.is_ok() && !in_place {
        let replace = mode == PutMode::Replace;
        done = store.rename((directory, &aside), (directory, name), replace).await.map_err(at(path));
    }
    if done.is_err() && !in_place {
        let _ = store.remove(directory, &aside).await;
    }
    if !in_place {
        unfinished::end(store, directory, &aside).await;
    }
    done?;
    entry(store, path, name, file).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        assert_eq!(split("/").expect("root"), Vec::<&str>::new());
        assert_eq!(split("/a//b/").expect("path"), ["a", "b"]);
        assert_eq!(in_snapshot("/@a"), None);
        assert_eq!(in_snapshot("@a"), Some(("a", "/")));
        assert_eq!(in_snapshot("@a/b/c"), Some(("a", "/b/c")));
        assert!(split("a").is_err());
        assert!(split(&"/a".repeat(65)).is_err());
    }

    #[test]
    fn what_is_made_in_a_folder_of_a_share_is_for_its_users() {
        use smb_security::{Level, Permission};
        let user: smb_protocol::security::Sid = "S-1-5-21-1-2-3-1001".parse().expect("sid");
        let token = Token::new(user, user, &[], false);
        let may_write = |bytes: &[u8]| {
            let descriptor = SecurityDescriptor::decode(bytes).expect("descriptor");
            smb_security::maximal(&descriptor, &token).contains(Level::Change.rights())
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runtime");
        runtime.block_on(async {
            let store = file_store::MemoryStore::new(1 << 30);
            let create = async |path: &str, kind| {
                let request =
                    FileCreate { path: path.into(), kind, size_bytes: 0, reserve: false, parents: true };
                create(&store, &request).await.expect("create");
                let (file, _) = resolve(&store, path).await.expect("it is there");
                (file, store.security(file).await.expect("security"))
            };
            let (folder, none) = create("/share", FileKind::Directory).await;
            assert!(none.is_empty(), "nothing is handed down by the root");
            let permissions = [Permission { sid: user, level: Level::Change }];
            store.set_security(folder, smb_security::folder(&permissions).encode()).await.expect("set");
            let (_, below) = create("/share/a/b/disk.vhdx", FileKind::File).await;
            assert!(may_write(&below));
            let (directory, _) = resolve(&store, "/share/a").await.expect("made on the way");
            assert!(may_write(&store.security(directory).await.expect("security")));
            let (_, outside) = create("/other", FileKind::File).await;
            assert!(outside.is_empty());

            let put = async |path: &str, mode| {
                put(&store, path, 0, mode, || std::future::ready(None)).await.expect("put");
                let (file, _) = resolve(&store, path).await.expect("it is there");
                (file, store.security(file).await.expect("security"))
            };
            let (file, put_there) = put("/share/a/put", PutMode::New).await;
            assert!(may_write(&put_there));
            // What somebody has set stays with the name.
            let own = smb_security::folder(&[]).encode();
            store.set_security(file, own.clone()).await.expect("set");
            let (replaced, kept) = put("/share/a/put", PutMode::Replace).await;
            assert!(replaced != file && kept == own && !may_write(&kept));
        });
    }
}
