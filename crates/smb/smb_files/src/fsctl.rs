//! File system controls.

pub(crate) mod offload;
