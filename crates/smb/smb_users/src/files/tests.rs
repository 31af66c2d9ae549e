//! What is on disk, and who may see it.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use shard_runtime::SeededEntropy;

use super::*;

#[test]
fn files_are_private_and_replaced_as_a_whole() {
    let dir = tempfile::tempdir().unwrap();
    let files = Files::in_directory(&dir.path().join("state"));
    assert!(files.load().unwrap().is_none());
    let key = files.key(&SeededEntropy::new(1)).unwrap();
    assert!(files.load().unwrap().is_none(), "a key alone is no database");
    assert_eq!(
        files.key(&SeededEntropy::new(2)).unwrap().encode(),
        key.encode(),
        "a key that is there is used"
    );
    // What a crash may leave beside it does no harm.
    fs::write(dir.path().join("state/users.db.new"), b"half").unwrap();
    let directory = Directory::new([1, 2, 3]);
    let sealed = format::seal(&directory, &key, [7; 12]).unwrap();
    assert!(files.store(&sealed).is_ok());
    assert_eq!(files.load().unwrap().unwrap().0, directory);
    for file in [&files.database, &files.key] {
        assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, FILE_MODE);
    }
    assert_eq!(fs::read_dir(dir.path().join("state")).unwrap().count(), 2, "nothing is left aside");
}

#[test]
fn what_is_not_right_is_refused_and_stays() {
    let dir = tempfile::tempdir().unwrap();
    let files = Files::in_directory(dir.path());
    let key = files.key(&SeededEntropy::new(1)).unwrap();
    let sealed = format::seal(&Directory::new([1, 2, 3]), &key, [7; 12]).unwrap();
    assert!(files.store(&sealed).is_ok());

    fs::set_permissions(&files.key, Permissions::from_mode(0o640)).unwrap();
    let open_key = files.load().map(|_| ()).unwrap_err();
    assert!(open_key.to_string().contains("chmod 600"), "{open_key}");
    fs::set_permissions(&files.key, Permissions::from_mode(FILE_MODE)).unwrap();

    let good = fs::read(&files.key).unwrap();
    fs::write(&files.key, [good.as_slice(), b"more"].concat()).unwrap();
    assert!(matches!(files.load().map(|_| ()), Err(UsersError::Key { .. })));
    fs::remove_file(&files.key).unwrap();
    assert!(matches!(files.load().map(|_| ()), Err(UsersError::Key { .. })), "a database without its key");
    files.key(&SeededEntropy::new(2)).unwrap();
    assert!(matches!(files.load().map(|_| ()), Err(UsersError::Damaged { .. })), "another key");
    fs::write(&files.key, &good).unwrap();
    fs::write(&files.database, &sealed[..40]).unwrap();
    let damaged = files.load().map(|_| ()).unwrap_err();
    assert!(damaged.to_string().contains("backup"), "{damaged}");
}
