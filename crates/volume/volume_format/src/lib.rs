//! The volume's on-disk structures: superblock, first-write log, database schema. Pure
