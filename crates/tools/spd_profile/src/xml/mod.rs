//! Profiles as XML, with DiskSpd's element names.

mod read;
mod tree;
mod write;

pub use read::read;
pub use tree::escape;
pub use write::write;
