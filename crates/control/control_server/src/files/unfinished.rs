//! What a `put` writes before it has its name, and what is of use to this process only: listed in the volume's durable state, so that what a
//! process left behind that ended meanwhile is removed when the volume is opened.

use file_store::{FileId, FileStore, StateChange, StoreError, StoreErrorKind};

/// The table of durable state: directory (big-endian) and name there of each file that is being put.
const TABLE: &str = "put";

fn key(directory: FileId, name: &str) -> Vec<u8> {
    [&directory.0.to_be_bytes(), name.as_bytes()].concat()
}

fn row(key: Vec<u8>, value: Option<Vec<u8>>) -> Vec<StateChange> {
    vec![StateChange { table: TABLE.into(), key, value }]
}

/// The name in a directory of what becomes `name` there.
pub(crate) fn aside(directory: FileId, name: &str) -> String {
    let aside = format!(".put-{}-{name}", directory.0);
    aside.chars().take(200).collect()
}

/// Lists a file, before it is made.
pub(crate) async fn begin(store: &dyn FileStore, directory: FileId, name: &str) -> Result<(), StoreError> {
    store.state_write(row(key(directory, name), Some(Vec::new()))).await
}

/// Takes a file off the list once it has its name, or is gone.
pub(crate) async fn end(store: &dyn FileStore, directory: FileId, name: &str) {
    if let Err(error) = store.state_write(row(key(directory, name), None)).await {
        // Nothing has this name any more, so the next opening finds nothing to remove.
        tracing::warn!(name, %error, "a file that was put stays in the list of unfinished ones");
    }
}

/// Removes what is on the list. For a volume that was just opened and that nobody uses yet: who makes a file of such a
/// name later keeps it.
pub(crate) async fn remove_all(store: &dyn FileStore) -> Result<(), StoreError> {
    for listed in store.state_scan(TABLE, &[]).await? {
        let place = listed.key.split_first_chunk().and_then(|(directory, name)| {
            Some((FileId(u64::from_be_bytes(*directory)), std::str::from_utf8(name).ok()?))
        });
        if let Some((directory, name)) = place {
            match store.remove(directory, name).await {
                Ok(()) => tracing::info!(name, "what an unfinished put left behind is removed"),
                // It had its name already, or was never made; or its directory is gone.
                Err(error)
                    if matches!(error.kind(), StoreErrorKind::NotFound | StoreErrorKind::NotADirectory) => {}
                Err(error) => return Err(error),
            }
        }
        store.state_write(row(listed.key, None)).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use file_store::{Attributes, FileKind, MemoryStore, NewFile};

    use super::super::{PutMode, put};
    use super::*;

    #[test]
    fn what_a_killed_put_left_is_removed_at_the_next_opening() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runtime");
        runtime.block_on(async {
            let store = MemoryStore::new(1 << 30);
            let root = store.root();
            let names = async || -> Vec<String> {
                let page = store.read_directory(root, Default::default(), 100).await.expect("list");
                page.entries.into_iter().map(|entry| entry.name).collect()
            };
            // A process that ends in the middle goes no further than this.
            {
                let mut cut = Box::pin(put(&store, "/disk", 0, PutMode::New, std::future::pending));
                assert!(futures_util::poll!(&mut cut).is_pending());
            }
            let left = names().await;
            assert_eq!(left.len(), 1, "{left:?}");
            assert!(left[0].starts_with(".put-"), "{left:?}");
            let others =
                NewFile { kind: FileKind::File, attributes: Attributes::default(), security: Vec::new() };
            store.create(root, ".put-7-somebody's", others.clone()).await.expect("create");
            remove_all(&store).await.expect("remove");
            assert_eq!(names().await, [".put-7-somebody's"]);
            // Neither what has come to its end nor what was made since is on the list.
            put(&store, "/disk", 0, PutMode::New, || std::future::ready(None)).await.expect("put");
            store.create(root, &left[0], others).await.expect("create");
            remove_all(&store).await.expect("remove");
            let mut now = names().await;
            now.sort();
            let mut expected = vec![left[0].clone(), ".put-7-somebody's".to_owned(), "disk".to_owned()];
            expected.sort();
            assert_eq!(now, expected);
        });
    }
}
