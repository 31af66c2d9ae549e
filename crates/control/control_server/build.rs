//! Embeds the web pages: what is in `web/dist` of the repository when this crate is built. Without them the node serves a page
//! that says how to build them, so that building Rust needs nothing else.

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR")?);
    let dist = root.join("../../../web/dist");
    // A folder that is not there would count as changed with each build. Where it cannot be made, that is how it is.
    let _ = fs::create_dir_all(&dist);
    println!("cargo::rerun-if-changed={}", dist.display());
    println!("cargo::rerun-if-changed=build.rs");
    let mut files = Vec::new();
    gather(&dist, &mut files)?;
    files.sort();
    let mut table = String::from("&[\n");
    for file in &files {
        let name = file.strip_prefix(&dist)?.to_string_lossy().replace('\\', "/");
        writeln!(table, "    ({:?}, include_bytes!({:?})),", format!("/{name}"), file.canonicalize()?)?;
    }
    table.push(']');
    fs::write(PathBuf::from(std::env::var("OUT_DIR")?).join("pages.rs"), table)?;
    Ok(())
}

/// All files below a folder, less hidden ones.
fn gather(dir: &Path, files: &mut Vec<PathBuf>) -> Result<(), Box<dyn Error>> {
    let Ok(entries) = fs::read_dir(dir) else { return Ok(()) };
    for entry in entries {
        let entry = entry?;
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        if entry.file_type()?.is_dir() {
            gather(&entry.path(), files)?;
        } else {
            files.push(entry.path());
        }
    }
    Ok(())
}
