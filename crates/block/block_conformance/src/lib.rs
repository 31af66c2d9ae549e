//! The tests that every BlockDevice must pass
