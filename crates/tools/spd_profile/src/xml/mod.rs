//! Profiles as XML, with DiskSpd's element names.

mod lines;
mod read;
mod tree;
mod write;

pub use lines::Lines;
pub use read::read;
pub use tree::escape;
pub use write::write;
