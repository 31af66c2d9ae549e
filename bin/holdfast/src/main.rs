//! The Holdfast node and its command line.
fn main() {}
