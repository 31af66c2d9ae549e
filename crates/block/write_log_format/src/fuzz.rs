//! Entries for fuzzing: every decoder over hostile bytes.

use byte_codec::Checksum;

use crate::{Batch, Label, Side};

/// A label of either side.
pub fn label(bytes: &[u8]) {
    for side in [Side::Front, Side::Back] {
        if let Ok(label) = Label::decode(side, bytes) {
            assert_eq!(Label::decode(side, &label.encode(side)), Ok(label));
        }
    }
}

/// A batch.
pub fn batch(bytes: &[u8]) {
    for checksum in [Checksum::Crc32c, Checksum::Xxh3] {
        if let Ok(batch) = Batch::decode(checksum, bytes) {
            assert!(batch.head.batch_len() <= crate::MAX_BATCH);
            let mut again = bytes.to_vec();
            batch.clone().seal(checksum, &mut again);
            assert!(Batch::decode(checksum, &again).is_ok());
        }
    }
}
