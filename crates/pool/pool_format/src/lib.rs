//! The pool's on-disk structures: superblock, checkpoint, log records. Pure
