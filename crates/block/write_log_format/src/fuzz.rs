//! Entries for fuzzing: every decoder over hostile bytes.

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
    if let Ok(batch) = Batch::decode(bytes) {
        assert!(batch.head.batch_len() <= crate::MAX_BATCH);
        let mut again = bytes.to_vec();
        batch.clone().seal(&mut again);
        assert!(Batch::decode(&again).is_ok());
    }
}
