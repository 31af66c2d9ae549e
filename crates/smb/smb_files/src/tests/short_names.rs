//! Short names of files.

use smb_protocol::info::QueryInfoFlags;

use super::directory::names;
use super::rename::rename;
use super::*;

/// What FileAlternateNameInformation says.
async fn short(open: &Open) -> String {
    let mut out = Vec::new();
    open.query_info(FileClass::ALTERNATE_NAME, &[], 0, QueryInfoFlags::NONE, 4096, &mut out).await.unwrap();
    Utf16::new(&out[4..]).unwrap().to_string().unwrap()
}

#[test]
fn files_are_found_by_their_short_names() {
    run(|f| async move {
        f.directory("a long directory").await;
        f.file("a long directory\\some page.html", b"x").await;
        let directory = f.open("a long directory", &Ask::open()).await;
        let file = f.open("a long directory\\some page.html", &Ask::open()).await;
        let (above, name) = (short(&directory).await, short(&file).await);
        let path = format!("{above}\\{}", name.to_lowercase());
        let again = f.open(&path, &Ask::open()).await;
        assert_eq!(again.file(), file.file());
        assert_eq!(again.path(), "a long directory\\some page.html", "opens know the long name");
        assert_eq!(names(&directory, &name).await, ["some page.html"]);
        assert!(names(&directory, "*~*").await.is_empty(), "wildcards are for long names");
        let make = Ask::default().disposition(CreateDisposition::CREATE);
        assert_eq!(f.status(&path, &make).await, NtStatus::OBJECT_NAME_COLLISION);
        for open in [directory, file, again] {
            open.close(false).await.unwrap();
        }
        f.file("plain.txt", b"").await;
        let plain = f.open("plain.txt", &Ask::open()).await;
        assert_eq!(short(&plain).await, "plain.txt");
        plain.close(false).await.unwrap();
        f.assert_clean();
    });
}

#[test]
fn a_file_made_anew_under_its_short_name_gets_the_long_one_back() {
    run(|f| async move {
        let long = "letter to nobody.text";
        f.file(long, b"x").await;
        let open = f.open(long, &Ask::open()).await;
        let short = short(&open).await;
        open.close(false).await.unwrap();
        f.status(long, &Ask::open().options(CreateOptions::DELETE_ON_CLOSE)).await;
        f.file(&short, b"y").await;
        assert_eq!(f.status(long, &Ask::open()).await, NtStatus::SUCCESS);
        assert_eq!(f.status(&short, &Ask::open()).await, NtStatus::SUCCESS);
        // Saved in the other way: renamed, and made anew.
        let open = f.open(long, &Ask::open()).await;
        assert_eq!(rename(&open, "backup", false).await, NtStatus::SUCCESS);
        open.close(false).await.unwrap();
        f.file(&short, b"z").await;
        assert_eq!(f.status(long, &Ask::open()).await, NtStatus::SUCCESS);
        // Later it is a name as any other.
        f.status(long, &Ask::open().options(CreateOptions::DELETE_ON_CLOSE)).await;
        shard_runtime::sleep(std::time::Duration::from_secs(16)).await;
        f.file(&short, b"").await;
        assert_eq!(f.status(long, &Ask::open()).await, NtStatus::OBJECT_NAME_NOT_FOUND);
    });
}

#[test]
fn a_long_name_wins_over_a_short_one() {
    run(|f| async move {
        f.file("long enough for two", b"other").await;
        f.file("b", b"mine").await;
        let other = f.open("long enough for two", &Ask::open()).await;
        let short = short(&other).await;
        other.close(false).await.unwrap();
        let mine = f.open("b", &Ask::open()).await;
        assert_eq!(rename(&mine, &short, true).await, NtStatus::SUCCESS, "nothing is replaced");
        mine.close(false).await.unwrap();
        let found = f.open(&short, &Ask::open()).await;
        assert_eq!(read(&found, 0, 9).await.unwrap(), b"mine");
        found.close(false).await.unwrap();
        assert_eq!(f.status("long enough for two", &Ask::open()).await, NtStatus::SUCCESS);
    });
}
