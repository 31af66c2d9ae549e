//! There and back, and what is refused.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use proptest::prelude::*;
use shard_runtime::{SystemClock, SystemEntropy};

use super::*;
use crate::{Files, Policy, Users, fuzz};

fn key() -> SealingKey {
    SealingKey::new([3; 8], [4; 32])
}

#[test]
fn sealed_there_and_back_and_nothing_else() {
    let directory = decode(&fuzz::sample()).unwrap();
    assert_eq!(directory.user("BOB").unwrap().full_name, "Robert");
    let sealed = seal(&directory, &key(), [5; 12]).unwrap();
    assert_eq!(open(&sealed, &key()), Ok(directory));
    assert!(!sealed.windows(16).any(|bytes| bytes == [9; 16]), "no hash in the clear");
    for at in 0..sealed.len() {
        let mut damaged = sealed.clone();
        damaged[at] ^= 1;
        assert!(open(&damaged, &key()).is_err(), "byte {at}");
        assert!(open(&sealed[..at], &key()).is_err(), "cut to {at}");
    }
    assert!(open(&[sealed.as_slice(), &[0]].concat(), &key()).is_err());
    assert_eq!(open(&sealed, &SealingKey::new([3; 8], [5; 32])), Err(DecodeError::WrongChecksum));
    assert!(matches!(open(&sealed, &SealingKey::new([4; 8], [4; 32])), Err(DecodeError::Invalid(_))));
    let mut newer = sealed;
    newer[4] = 2;
    assert_eq!(open(&newer, &key()), Err(DecodeError::Unsupported(2)));
}

#[test]
fn keys_there_and_back_and_never_shown() {
    let bytes = key().encode();
    assert_eq!(bytes.len(), KEY_FILE_BYTES);
    assert_eq!(SealingKey::decode(&bytes).unwrap().encode(), bytes);
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        assert!(SealingKey::decode(&damaged).is_err());
        assert!(SealingKey::decode(&bytes[..at]).is_err());
    }
    assert_eq!(format!("{:?}", key()), "SealingKey(redacted)");
}

/// Everything that the format knows.
fn everything() -> Directory {
    let mut directory = Directory::new([0x1122_3344, 0x5566_7788, 0x99aa_bbcc]);
    for (index, name) in ["alice", "Jürgen", "gone"].into_iter().enumerate() {
        let user = User {
            sid: Sid::ANONYMOUS,
            name: name.into(),
            full_name: format!("{name} of the image"),
            comment: if index == 0 { String::new() } else { "for whom".into() },
            disabled: index == 1,
            password_set: 1_700_000_000_000_000_000 + index as u64,
            nt_hash: NtHash::of_password(name),
        };
        directory.add_user(user).unwrap();
    }
    // Its number is never given again.
    directory.remove_user("gone").unwrap();
    directory.add_group("hosts", "who run machines").unwrap();
    let alice = directory.user("alice").unwrap().sid;
    let member = directory.user("Jürgen").unwrap().sid;
    directory.add_member("hosts", member).unwrap();
    directory.add_member("hosts", Sid::new(5, &[21, 7, 8, 9, 1105]).unwrap()).unwrap();
    directory.add_member("Administrators", alice).unwrap();
    directory
}

/// What earlier releases wrote: `docs/formats/README.md`.
#[test]
fn files_of_an_earlier_release_are_read() {
    let now =
        [("users.key", key().encode().to_vec()), ("users.db", seal(&everything(), &key(), [5; 12]).unwrap())];
    let image = format_images::kept("users", VERSION, &now).unwrap();
    let (key_file, database) = (image.bytes("users.key"), image.bytes("users.db"));
    let found = SealingKey::decode(key_file).unwrap();
    assert_eq!(&found.encode()[..], key_file);
    assert_eq!(open(database, &found), Ok(everything()));
    assert_eq!(
        seal(&everything(), &found, [5; 12]).unwrap(),
        database,
        "what is written now is another version"
    );
    // And as a node does it, with a change after that.
    let dir = tempfile::tempdir().unwrap();
    let files = Files::in_directory(dir.path());
    for (path, bytes) in [(&files.key, key_file), (&files.database, database)] {
        std::fs::write(path, bytes).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    let open_users = || {
        let (clock, entropy) = (Arc::new(SystemClock::new()), Arc::new(SystemEntropy));
        Users::open(files.clone(), Policy::default(), clock, entropy).unwrap()
    };
    let users = open_users();
    assert_eq!(*users.snapshot(), everything());
    users.change(|all| all.add_group("later", "").map(drop)).unwrap();
    let now = open_users().snapshot();
    assert_eq!(now.user("alice"), everything().user("alice"));
    assert!(now.group("later").is_some_and(|group| group.sid.rid() >= Some(everything().next_rid())));
}

proptest! {
    #[test]
    fn rubbish_and_damage_do_no_harm(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        hits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        fuzz::database(&bytes);
        let mut sample = fuzz::sample();
        for (at, value) in hits {
            let at = at.index(sample.len());
            sample[at] = value;
        }
        fuzz::database(&sample);
    }
}
