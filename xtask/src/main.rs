//! Checks of the tree that clippy cannot make.
fn main() {}
