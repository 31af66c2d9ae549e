//! There and back, and what is refused.

use proptest::prelude::*;

use super::*;
use crate::fuzz;

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
