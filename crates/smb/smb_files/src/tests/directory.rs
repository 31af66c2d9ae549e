//! Listing and watching directories.

use smb_protocol::directory::{CompletionFilter, QueryDirectoryFlags};
use smb_protocol::fscc::listing::listing;
use smb_protocol::fscc::notify::{NotifyAction, changes};
use smb_protocol::security::{Ace, AceFlags, Acl, Control, SecurityDescriptor};

use super::*;
use crate::DirectoryQuery;

async fn list(
    open: &Open,
    pattern: &str,
    flags: QueryDirectoryFlags,
    limit: usize,
) -> std::result::Result<Vec<String>, NtStatus> {
    let pattern = utf16(pattern);
    let query = DirectoryQuery {
        class: FileClass::ID_BOTH_DIRECTORY,
        flags,
        file_index: 0,
        pattern: Utf16::new(&pattern).unwrap(),
        limit,
    };
    let mut out = Vec::new();
    open.query_directory(query, &mut out).await.map_err(|error| error.status)?;
    Ok(listing(query.class, &out).map(|entry| entry.unwrap().name.to_string().unwrap()).collect())
}

/// All names that match.
pub(super) async fn names(open: &Open, pattern: &str) -> Vec<String> {
    let mut all = list(open, pattern, QueryDirectoryFlags::RESTART_SCANS, 65536).await.unwrap_or_default();
    while let Ok(more) = list(open, pattern, QueryDirectoryFlags::NONE, 65536).await {
        all.extend(more);
    }
    all
}

#[test]
fn entries_come_once_in_order_and_again_after_a_restart() {
    run(|f| async move {
        f.directory("d").await;
        for i in 0..700 {
            f.open(&format!("d\\f{i:03}"), &Ask::default()).await.close(false).await.unwrap();
        }
        let d = f.open("d", &Ask::open()).await;
        let all = names(&d, "*").await;
        assert_eq!(
            (all.len(), all[0].as_str(), all[2].as_str(), all[701].as_str()),
            (702, ".", "f000", "f699")
        );
        assert_eq!(names(&d, "F69?").await.len(), 10);
        assert_eq!(names(&d, "f123").await, ["f123"]);
        let none = QueryDirectoryFlags::NONE;
        let restart = QueryDirectoryFlags::RESTART_SCANS;
        let single = QueryDirectoryFlags::RETURN_SINGLE_ENTRY;
        assert_eq!(list(&d, "x*", restart, 65536).await, Err(NtStatus::NO_SUCH_FILE));
        assert_eq!(list(&d, "x*", none, 65536).await, Err(NtStatus::NO_MORE_FILES));
        assert_eq!(list(&d, "f00*", restart | single, 65536).await.unwrap(), ["f000"]);
        assert_eq!(list(&d, "ignored", single, 65536).await.unwrap(), ["f001"], "the first pattern holds");
        assert_eq!(list(&d, "*", none, 50).await, Err(NtStatus::INFO_LENGTH_MISMATCH));
        assert_eq!(list(&d, "*", none, 250).await.unwrap(), ["f002", "f003"]);
        assert_eq!(list(&d, "a\\b", restart, 65536).await, Err(NtStatus::OBJECT_NAME_INVALID));
        d.close(false).await.unwrap();
        let file = f.open("d\\f000", &Ask::open()).await;
        assert_eq!(list(&file, "*", none, 65536).await, Err(NtStatus::INVALID_PARAMETER));
        file.close(false).await.unwrap();
        let blind = f.open("d", &Ask::open().access(AccessMask::READ_ATTRIBUTES)).await;
        assert_eq!(list(&blind, "*", none, 65536).await, Err(NtStatus::ACCESS_DENIED));
        blind.close(false).await.unwrap();
    });
}

async fn next(open: &Open, tree: bool, limit: usize) -> (NtStatus, Vec<(NotifyAction, String)>) {
    let mut out = Vec::new();
    match open.notify(CompletionFilter(0xfff), tree, limit, &mut out).await {
        Ok(status) => (
            status,
            changes(&out).map(|c| c.unwrap()).map(|(a, name)| (a, name.to_string().unwrap())).collect(),
        ),
        Err(error) => (error.status, vec![]),
    }
}

#[test]
fn changes_are_told_where_they_are_watched() {
    run(|f| async move {
        f.directory("d").await;
        f.directory("d\\e").await;
        let flat = f.open("d", &Ask::open().access(AccessMask::READ_DATA)).await;
        let tree = f.open("", &Ask::open().access(AccessMask::READ_DATA)).await;
        let watching = async {
            let first = next(&flat, false, 4096).await;
            let second = next(&flat, false, 4096).await;
            (first, second)
        };
        let acting = async {
            let _ = tokio::time::timeout(std::time::Duration::from_secs(1), next(&tree, true, 4096)).await;
            f.file("d\\e\\deep", b"").await;
            f.open("d\\new", &Ask::default()).await.close(false).await.unwrap();
            let open = f.open("d\\new", &Ask::open()).await;
            shard_runtime::yield_now().await;
            assert_eq!(super::rename::rename(&open, "d\\newer", false).await, NtStatus::SUCCESS);
            open.close(false).await.unwrap();
        };
        let ((first, second), ()) = tokio::join!(watching, acting);
        assert_eq!(first, (NtStatus::SUCCESS, vec![(NotifyAction::ADDED, "new".into())]));
        let renamed = vec![
            (NotifyAction::RENAMED_OLD_NAME, "new".into()),
            (NotifyAction::RENAMED_NEW_NAME, "newer".into()),
        ];
        assert_eq!(second, (NtStatus::SUCCESS, renamed));
        let all = next(&tree, true, 4096).await.1;
        assert_eq!(all[0], (NotifyAction::ADDED, "d\\e\\deep".into()));
        assert_eq!(all.last().unwrap(), &(NotifyAction::RENAMED_NEW_NAME, "d\\newer".to_string()));
        tree.close(false).await.unwrap();
        flat.close(false).await.unwrap();
        assert!(!f.fs.core.watches.any());
    });
}

#[test]
fn what_ends_a_watch() {
    run(|f| async move {
        f.directory("d").await;
        let read = Ask::open().access(AccessMask::READ_DATA);
        let (a, b, small) = (f.open("d", &read).await, f.open("d", &read).await, f.open("d", &read).await);
        assert!(
            tokio::time::timeout(std::time::Duration::from_secs(1), next(&small, false, 16)).await.is_err()
        );
        f.file("d\\a name that does not fit", b"").await;
        assert_eq!(next(&small, false, 16).await.0, NtStatus::NOTIFY_ENUM_DIR);
        let file =
            f.open("d\\a name that does not fit", &Ask::open().options(CreateOptions::DELETE_ON_CLOSE)).await;
        file.close(false).await.unwrap();
        let (closed, ()) = tokio::join!(next(&a, false, 4096), async {
            shard_runtime::yield_now().await;
            a.close(false).await.unwrap();
        });
        assert_eq!(closed.0, NtStatus::NOTIFY_CLEANUP);
        let deleter = Ask::open().access(AccessMask::DELETE).options(CreateOptions::DELETE_ON_CLOSE);
        let (pending, ()) = tokio::join!(next(&b, false, 4096), async {
            shard_runtime::yield_now().await;
            f.open("d", &deleter).await.close(false).await.unwrap();
        });
        assert_eq!(pending.0, NtStatus::DELETE_PENDING);
        b.close(false).await.unwrap();
        small.close(false).await.unwrap();
        f.assert_clean();
    });
}

/// Opens a folder to watch it.
async fn watched(f: &Fixture, caller: &Caller, name: &str) -> Arc<Open> {
    let ask = Ask::open().access(AccessMask::READ_DATA);
    f.create_as(caller, name, &ask).await.unwrap_or_else(|error| panic!("{name}: {error}")).open
}

/// A folder that a user may list, or not.
async fn folder_for(f: &Fixture, name: &str, user: Option<u32>) {
    let mut aces = vec![Ace::allow(Sid::ADMINISTRATORS, AccessMask::FILE_ALL, AceFlags::NONE)];
    aces.extend(user.map(|rid| Ace::allow(sid(rid), AccessMask::FILE_READ, AceFlags::NONE)));
    let descriptor = SecurityDescriptor {
        control: Control::DACL_PRESENT,
        dacl: Some(Acl { aces }),
        ..SecurityDescriptor::default()
    };
    let ask = Ask { security: Some(descriptor.encode()), ..Ask::directory() };
    f.open(name, &ask).await.close(false).await.unwrap();
}

/// What has happened since, as names; nothing for a request that would wait.
async fn heard(watch: &Open) -> Vec<String> {
    match tokio::time::timeout(std::time::Duration::from_secs(1), next(watch, true, 65_536)).await {
        Ok((NtStatus::SUCCESS, changes)) => {
            changes.into_iter().map(|(action, name)| format!("{} {name}", action.0)).collect()
        }
        Ok((status, _)) => vec![status.to_string()],
        Err(_) => Vec::new(),
    }
}

#[test]
fn who_watches_a_tree_hears_of_folders_that_it_may_list() {
    run(|f| async move {
        folder_for(&f, "w", Some(2000)).await;
        folder_for(&f, "w\\open", Some(2000)).await;
        folder_for(&f, "w\\secret", None).await;
        folder_for(&f, "w\\secret\\inner", Some(2000)).await;
        let (user, admin) = (watched(&f, &f.plain(2000), "w").await, watched(&f, &f.user, "w").await);
        assert!(heard(&user).await.is_empty() && heard(&admin).await.is_empty());

        f.file("w\\secret\\name", b"x").await;
        f.file("w\\secret\\inner\\name", b"x").await;
        assert!(heard(&user).await.is_empty(), "names of a folder that the user may not list");
        let all = heard(&admin).await;
        assert!(all.contains(&"1 secret\\name".to_owned()), "{all:?}");
        assert!(all.contains(&"1 secret\\inner\\name".to_owned()), "{all:?}");

        // What is told and what is not, mixed.
        f.file("w\\secret\\more", b"").await;
        f.file("w\\open\\name", b"").await;
        f.file("w\\direct", b"").await;
        let told = heard(&user).await;
        assert!(
            told.contains(&"1 open\\name".to_owned()) && told.contains(&"1 direct".to_owned()),
            "{told:?}"
        );
        assert!(!told.iter().any(|change| change.contains("secret\\")), "{told:?}");

        // What moves between such folders comes, or goes.
        let moved = f.open("w\\secret\\name", &Ask::open()).await;
        assert_eq!(super::rename::rename(&moved, "w\\open\\moved", false).await, NtStatus::SUCCESS);
        let told = heard(&user).await;
        assert!(told.contains(&"1 open\\moved".to_owned()), "{told:?}");
        assert!(!told.iter().any(|change| change.contains("secret\\")), "{told:?}");
        assert_eq!(super::rename::rename(&moved, "w\\secret\\back", false).await, NtStatus::SUCCESS);
        let told = heard(&user).await;
        assert!(told.contains(&"2 open\\moved".to_owned()), "{told:?}");
        assert!(!told.iter().any(|change| change.contains("secret\\")), "{told:?}");
        moved.close(false).await.unwrap();

        user.close(false).await.unwrap();
        admin.close(false).await.unwrap();
        f.assert_clean();
    });
}

#[test]
fn a_request_that_is_dropped_while_it_looks_who_may_list_loses_nothing() {
    let slowly = |store| test_layers::slow(store as Arc<dyn FileStore>, test_layers::OnDrop::Stops);
    run_on(slowly, |f| async move {
        f.directory("d").await;
        let watch = watched(&f, &f.user, "").await;
        assert!(heard(&watch).await.is_empty());
        f.file("d\\f", b"").await;
        let mut waits = 0;
        loop {
            let mut out = Vec::new();
            let asked = std::pin::pin!(watch.notify(CompletionFilter(0xfff), true, 65_536, &mut out));
            match test_layers::until_wait(waits, asked).await {
                test_layers::Left::Ended(_) => break,
                test_layers::Left::Waiting => waits += 1,
                test_layers::Left::ForEver => panic!("the change is lost after {waits} waits"),
            }
        }
        assert!(waits > 0, "it waits for the store");
        watch.close(false).await.unwrap();
    });
}
