//! Rules for source files: a header that says what the file is for, a size one can read, no leftovers, `unsafe` only
//! where it is allowed, a reason for every exception from a lint, no tests in documentation, a page for every on-disk format.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::problem::Problem;

/// Files longer than this are listed in [`RATCHET`] with the length they may not exceed.
const SOFT_LINES: usize = 500;
/// No file is longer than this: split it by concept.
const HARD_LINES: usize = 800;
/// The list of long files. It may shrink; `--bless` rewrites it and the review sees what grew.
const RATCHET: &str = "xtask/long_files.txt";
/// The only crates with `unsafe`: memory and system calls of the I/O engine, and functions of C.
const UNSAFE_CRATES: &[&str] =
    &["crates/base/aligned_buffer/", "crates/base/io_engine/", "crates/base/librbd/"];
/// Marks of unfinished work. Put together here so that this file does not contain them.
const LEFTOVERS: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
/// Folders that are not ours to check.
const SKIPPED: &[&str] = &["target", ".git", "node_modules", "corpus", "artifacts"];

/// All files that are checked, relative to `root`, sorted.
pub(crate) fn list(root: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        for entry in entries {
            let path = entry.map_err(|e| format!("{}: {e}", folder.display()))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_symlink() || SKIPPED.contains(&name.as_str()) {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if ["rs", "sh", "py", "c", "toml", "md"]
                .iter()
                .any(|e| path.extension().is_some_and(|x| x == *e))
                || name == "Makefile"
            {
                found.push(path.strip_prefix(root).unwrap_or(&path).to_path_buf());
            }
        }
    }
    found.sort();
    Ok(found)
}

fn read(root: &Path, file: &Path) -> Result<String, String> {
    std::fs::read_to_string(root.join(file)).map_err(|e| format!("{}: {e}", file.display()))
}

fn is_rust(file: &Path) -> bool {
    file.extension().is_some_and(|e| e == "rs")
}

/// Rewrites the list of long files to their present lengths.
pub(crate) fn bless(root: &Path, files: &[PathBuf]) -> Result<(), String> {
    let mut text =
        format!("# Files over {SOFT_LINES} lines and the length they may not exceed. Only ever shorter.\n");
    for file in files.iter().filter(|f| is_rust(f)) {
        let lines = read(root, file)?.lines().count();
        if lines > SOFT_LINES {
            let _ = writeln!(text, "{lines} {}", file.display());
        }
    }
    std::fs::write(root.join(RATCHET), text).map_err(|e| format!("{RATCHET}: {e}"))
}

fn ratchet(root: &Path) -> BTreeMap<PathBuf, usize> {
    let text = std::fs::read_to_string(root.join(RATCHET)).unwrap_or_default();
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(count, name)| Some((PathBuf::from(name), count.parse().ok()?)))
        .collect()
}

pub(crate) fn check(root: &Path, files: &[PathBuf]) -> Result<Vec<Problem>, String> {
    let mut problems = Vec::new();
    let allowed = ratchet(root);
    for file in files {
        let text = read(root, file)?;
        let name = file.display().to_string();
        problems.extend(leftovers(&name, &text));
        if is_rust(file) {
            problems.extend(size(&name, text.lines().count(), allowed.get(file).copied()));
            problems.extend(header(&name, &text));
            problems.extend(unsafe_code(&name, &text));
            problems.extend(exceptions(&name, &text));
            problems.extend(tests_in_documentation(&name, &text));
        } else if name.ends_with(".sh") {
            let second = text.lines().nth(1).unwrap_or_default();
            let sourced = text.starts_with("# shellcheck shell=");
            if !(text.starts_with("#!") || sourced) || !second.starts_with("# ") {
                problems
                    .push(Problem::new(&name, "starts with a #! line and a comment that says what it does"));
            }
        }
    }
    for (file, _) in allowed.iter().filter(|(file, _)| !root.join(file).is_file()) {
        problems.push(Problem::new(RATCHET, format!("{} is gone: take it off the list", file.display())));
    }
    problems.extend(format_pages(root, files)?);
    Ok(problems)
}

fn size(name: &str, lines: usize, allowed: Option<usize>) -> Option<Problem> {
    if lines > HARD_LINES {
        Some(Problem::new(name, format!("{lines} lines: no file is over {HARD_LINES}; split it by concept")))
    } else if lines > allowed.unwrap_or(SOFT_LINES) {
        let limit = allowed.unwrap_or(SOFT_LINES);
        Some(Problem::new(
            name,
            format!(
                "{lines} lines, {limit} allowed; split it, or `cargo xtask tidy --bless` if it is one concept"
            ),
        ))
    } else {
        None
    }
}

/// The first line of a Rust file is its `//!` header (generated code and includes have none and are not kept here).
fn header(name: &str, text: &str) -> Option<Problem> {
    let first = text.lines().next().unwrap_or_default();
    let ok = first.strip_prefix("//!").is_some_and(|rest| rest.trim().len() > 5);
    (!ok).then(|| Problem::new(name, "does not start with a `//!` line that says what the file is for"))
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !(c.is_alphanumeric() || c == '_'))
}

fn leftovers(name: &str, text: &str) -> Vec<Problem> {
    // The rule itself is described there.
    if name == "CONTRIBUTING.md" {
        return Vec::new();
    }
    let mut problems = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if let Some(mark) = words(line).find(|w| LEFTOVERS.contains(w)) {
            problems.push(Problem::new(
                format!("{name}:{}", number + 1),
                format!("left-over {mark}: do it, or open an issue and say here how things are"),
            ));
        }
    }
    problems
}

fn unsafe_code(name: &str, text: &str) -> Vec<Problem> {
    if UNSAFE_CRATES.iter().any(|c| name.starts_with(c)) {
        return Vec::new();
    }
    let mut problems = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let code = line.split("//").next().unwrap_or_default().trim();
        let mut follows = code.split("unsafe").skip(1);
        let used = code.contains("unsafe")
            && follows.any(|rest| {
                let rest = rest.trim_start();
                ["{", "fn ", "impl ", "extern ", "trait "].iter().any(|k| rest.starts_with(k))
            });
        let lifted =
            (code.contains("allow(") || code.contains("expect(")) && words(code).any(|w| w == "unsafe_code");
        // Strings of this very check are not code.
        if (used || lifted) && !name.starts_with("xtask/") {
            problems.push(Problem::new(
                format!("{name}:{}", number + 1),
                "`unsafe` lives in aligned_buffer, io_engine and librbd only: give them the operation you need",
            ));
        }
    }
    problems
}

/// `#[allow(clippy::...)]` and `#[expect(clippy::...)]` say why, in `reason = "..."` or a comment line above.
fn exceptions(name: &str, text: &str) -> Vec<Problem> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let mut problems = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let lifts = ["#[allow(", "#![allow(", "#[expect(", "#![expect("].iter().any(|a| line.starts_with(a));
        if !lifts {
            continue;
        }
        let above = number
            .checked_sub(1)
            .and_then(|n| lines.get(n))
            .is_some_and(|l| l.starts_with("//") && !l.starts_with("//!"));
        let end = lines.iter().skip(number).position(|l| l.contains(")]")).unwrap_or(0);
        let inside = lines.iter().skip(number).take(end + 1).any(|l| l.contains("reason"));
        let behind = line.contains("//");
        if !(above || inside || behind) {
            problems.push(Problem::new(
                format!("{name}:{}", number + 1),
                "an exception from a lint without its reason: add `reason = \"...\"`",
            ));
        }
    }
    problems
}

/// A block of code in documentation would be a test that nobody runs: `make test` leaves out rustdoc, which would go through
/// every crate once more.
fn tests_in_documentation(name: &str, text: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut inside = false;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let Some(rest) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) else { continue };
        let Some(language) = rest.trim_start().strip_prefix("```") else { continue };
        if !inside && language.trim() != "text" {
            problems.push(Problem::new(
                format!("{name}:{}", number + 1),
                "an example in documentation is not run: mark it as ```text, or write a test",
            ));
        }
        inside = !inside;
    }
    problems
}

/// Every crate `*_format` with code in it has a page in docs/formats that names it.
fn format_pages(root: &Path, files: &[PathBuf]) -> Result<Vec<Problem>, String> {
    let mut pages = String::new();
    for file in files.iter().filter(|f| f.starts_with("docs/formats")) {
        pages.push_str(&read(root, file)?);
    }
    let mut problems = Vec::new();
    for file in files.iter().filter(|f| f.ends_with("src/lib.rs")) {
        let Some(name) = file.iter().rev().nth(2).map(|n| n.to_string_lossy().into_owned()) else { continue };
        let has_code = read(root, file)?.lines().count() > 5;
        if name.ends_with("_format") && has_code && !words(&pages).any(|w| w == name) {
            problems.push(Problem::new(
                file.display().to_string(),
                format!("no page in docs/formats names `{name}`: ruler diagram, fields, invariants, crash argument"),
            ));
        }
    }
    Ok(problems)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;

    fn complaints(tree: &Tree) -> Vec<String> {
        let files = list(tree.root()).expect("list");
        check(tree.root(), &files).expect("check").iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_clean_tree_passes() {
        let tree = Tree::new();
        tree.file("crates/a/b/src/lib.rs", "//! What it is.\npub fn f() {}\n");
        tree.file("run.sh", "#!/bin/sh\n# Says what it does.\nmktemp -d /tmp/a.XXXXXX\n");
        tree.file("target/debug/x.rs", "no header\n");
        assert_eq!(complaints(&tree), Vec::<String>::new());
    }

    #[test]
    fn each_rule_is_noticed() {
        let tree = Tree::new();
        tree.file("crates/a/b/src/no_header.rs", "pub fn f() {}\n");
        tree.file("crates/a/b/src/left.rs", concat!("//! Header.\n// TO", "DO later\n"));
        tree.file("crates/a/b/src/raw.rs", "//! Header.\nfn f() { unsafe { g() } }\n");
        tree.file("crates/a/b/src/lifted.rs", "//! Header.\n#[allow(clippy::panic)]\nfn f() {}\n");
        tree.file("crates/base/io_engine/src/ok.rs", "//! Header.\nfn f() { unsafe { g() } }\n");
        tree.file("bare.sh", "#!/bin/sh\nls\n");
        tree.file(
            "crates/a/b/src/doc.rs",
            "//! Header.\n//! ```text\n//! a\n//! ```\n/// ```\n/// f();\n/// ```\n",
        );
        let found = complaints(&tree);
        assert_eq!(found.len(), 6, "{found:#?}");
        for part in ["no_header.rs", "left.rs:2", "raw.rs:2", "lifted.rs:2", "bare.sh", "doc.rs:5"] {
            assert!(found.iter().any(|l| l.contains(part)), "{part}: {found:#?}");
        }
    }

    #[test]
    fn long_files_are_listed_and_only_shrink() {
        let tree = Tree::new();
        let long = |n: usize| format!("//! Header of a long file.\n{}", "// x\n".repeat(n - 1));
        tree.file("crates/a/b/src/long.rs", &long(501));
        assert_eq!(complaints(&tree).len(), 1);
        tree.file("xtask/keep.md", "");
        bless(tree.root(), &list(tree.root()).expect("list")).expect("bless");
        assert_eq!(complaints(&tree), Vec::<String>::new());
        tree.file("crates/a/b/src/long.rs", &long(502));
        assert_eq!(complaints(&tree).len(), 1, "grew beyond the list");
        tree.file("crates/a/b/src/long.rs", &long(801));
        bless(tree.root(), &list(tree.root()).expect("list")).expect("bless");
        assert_eq!(complaints(&tree).len(), 1, "the hard limit cannot be blessed");
    }

    #[test]
    fn a_format_needs_its_page() {
        let tree = Tree::new();
        tree.file("crates/a/x_format/src/lib.rs", "//! A format.\n\n\n\n\npub struct A;\n");
        assert_eq!(complaints(&tree).len(), 1);
        tree.file("docs/formats/x.md", "Code: `x_format`.\n");
        assert_eq!(complaints(&tree), Vec::<String>::new());
    }
}
