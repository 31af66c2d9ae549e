//! The tests that every [`crate::FileStore`] must pass.
