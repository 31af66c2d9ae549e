//! Checks of the tree that clippy cannot make, and the one test run that everything else is part of.
//!
//! ```text
//!   cargo xtask tidy [--bless]     layers, circles, file sizes, headers, leftovers, unsafe, format pages, reasons
//!   cargo xtask circles [CRATE]    which imports make the circles that are left
//!   cargo xtask lint               rustfmt, clippy, tidy, and cargo deny where it is installed
//!   cargo xtask test               lint, every test of the workspace, end-to-end cases; what took long; one closing line
//!   cargo xtask unit               every test of the workspace
//!   cargo xtask e2e [ARGUMENTS]    end-to-end cases
//! ```
//!
//! `make` is the usual way in; each verb here is what one of its targets calls. Nothing in this crate is part of the
//! product, and nothing of the product may depend on it.

mod circles;
mod layers;
mod manifests;
mod problem;
mod sources;
mod stage;
mod test_binaries;
mod test_run;
mod tidy;
#[cfg(test)]
mod tree;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let root = workspace_root();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["tidy"] => tidy::run(&root, false),
        ["tidy", "--bless"] => tidy::run(&root, true),
        ["circles"] => tidy::circles(&root, ""),
        ["circles", name] => tidy::circles(&root, name),
        ["lint"] => test_run::lint(&root),
        ["test"] => test_run::test(&root, test_run::Scope::Everything),
        ["unit"] => test_run::test(&root, test_run::Scope::Workspace),
        ["e2e", rest @ ..] => test_run::e2e(&root, rest),
        _ => {
            eprintln!(
                "usage: cargo xtask tidy [--bless] | circles [CRATE] | lint | test | unit | e2e [ARGUMENTS]"
            );
            ExitCode::from(2)
        }
    }
}

/// The folder that holds the workspace's Cargo.toml: the parent of this crate's.
fn workspace_root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}
