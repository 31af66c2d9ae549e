//! Entry for fuzzing: what lies behind the seal, which the fuzzer would not get through by chance.

use smb_auth::NtHash;
use smb_protocol::security::sid::Sid;

use crate::directory::{Directory, User};
use crate::format::{self, SealingKey};
use crate::token::Token;

/// The content of a database, a key file, or a sealed database.
pub fn database(bytes: &[u8]) {
    if let Ok(directory) = format::decode(bytes) {
        assert_eq!(format::decode(&format::encode(&directory)).as_ref(), Ok(&directory));
        for user in directory.users().take(16) {
            assert_eq!(Token::of_user(&directory, user.sid).user, user.sid);
            assert!(
                directory.user(&user.name).is_some_and(|found| found == user),
                "a user is found by its name"
            );
        }
    }
    if let Ok(key) = SealingKey::decode(bytes) {
        assert_eq!(&key.encode()[..], bytes);
    }
    assert!(format::open(bytes, &SealingKey::new([1; 8], [2; 32])).is_err(), "a seal of somebody else");
}

/// A user, a group and a member, as a seed.
#[must_use]
pub fn sample() -> Vec<u8> {
    let mut directory = Directory::new([1, 2, 3]);
    let user = User {
        sid: Sid::ANONYMOUS,
        name: "bob".into(),
        full_name: "Robert".into(),
        comment: String::new(),
        disabled: true,
        password_set: 7,
        nt_hash: NtHash::new([9; 16]),
    };
    let sid = directory.add_user(user).map_or(Sid::ANONYMOUS, |user| user.sid);
    let _ = directory.add_group("staff", "who works here");
    let _ = directory.add_member("staff", sid);
    let _ = directory.add_member("Administrators", sid);
    format::encode(&directory)
}
