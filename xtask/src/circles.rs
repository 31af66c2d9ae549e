//! No circle of imports between the files of a crate, a module and its own children excepted.
//!
//! A file that is part of a circle can be understood, tested and changed only together with all the others of it. A module may
//! use its children and they may use it: they are one thing in several files. So a circle is allowed when one file of it is an
//! ancestor of all its other files, and every other circle is named.
//!
//! ```text
//!   modules: the tree of a crate's modules, and what each file declares, imports and mentions
//!   imports: which file takes something from which, re-exports followed to where the thing is defined
//!   graph:   what hangs together, and the shortest circle in it
//! ```
//! Crates that have circles still are listed in [`RATCHET`] with the number of files that hang together in each. The list may only
//! shrink.

mod graph;
mod imports;
mod modules;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use graph::Imports;
use modules::Crate;

use crate::problem::Problem;

/// The list of crates with circles. It may shrink; `--bless` rewrites it and the review sees what grew.
const RATCHET: &str = "xtask/circles.txt";
/// The first lines of that list.
const RATCHET_HEAD: &str = "# Crates whose files import each other in circles: how many files hang together in each, largest first.\n\
                            # Only ever fewer. `cargo xtask circles CRATE` names the imports that make them.\n";

/// Files that hang together, and the imports between the files of their crate.
struct Knot<'a> {
    imports: &'a Imports,
    files: BTreeSet<usize>,
}

/// Imports of every root file of the tree, under the folder of its crate.
fn read(root: &Path, files: &[PathBuf]) -> Result<Vec<(String, Imports)>, String> {
    let mut found = Vec::new();
    for file in files {
        let Some(folder) = crate_folder(file) else { continue };
        found.push((folder, imports::of(&Crate::read(root, file)?)));
    }
    Ok(found)
}

/// The crate that this file is the root of: `a/b` for a/b/src/lib.rs, a/b/src/main.rs and a/b/src/bin/c.rs.
fn crate_folder(file: &Path) -> Option<String> {
    let folder = file.parent()?;
    let source = match file.file_name()?.to_str()? {
        "lib.rs" | "main.rs" => folder,
        name if name.ends_with(".rs") && folder.ends_with("src/bin") => folder.parent()?,
        _ => return None,
    };
    source.ends_with("src").then(|| source.parent().map(|folder| folder.display().to_string()))?
}

/// What hangs together in each crate, largest first.
fn knots(crates: &[(String, Imports)]) -> BTreeMap<&str, Vec<Knot<'_>>> {
    let mut found: BTreeMap<&str, Vec<Knot<'_>>> = BTreeMap::new();
    for (folder, imports) in crates {
        let knots = graph::knots(imports).into_iter().map(|files| Knot { imports, files });
        found.entry(folder).or_default().extend(knots);
    }
    found.retain(|_, knots| !knots.is_empty());
    found.values_mut().for_each(|knots| knots.sort_by_key(|knot| std::cmp::Reverse(knot.files.len())));
    found
}

/// Numbers of files that hang together, largest first, as the list has them.
fn sizes(knots: &[Knot<'_>]) -> Vec<usize> {
    knots.iter().map(|knot| knot.files.len()).collect()
}

/// Whether what was allowed has not grown: a circle that was split may have become several smaller ones.
fn within(now: &[usize], allowed: &[usize]) -> bool {
    now.first() <= allowed.first() && now.iter().sum::<usize>() <= allowed.iter().sum()
}

fn ratchet(root: &Path) -> BTreeMap<String, Vec<usize>> {
    let text = std::fs::read_to_string(root.join(RATCHET)).unwrap_or_default();
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(name, sizes)| {
            Some((name.into(), sizes.split(' ').map(|size| size.parse().ok()).collect::<Option<_>>()?))
        })
        .collect()
}

/// Rewrites the list of crates with circles to what they have at present.
pub(crate) fn bless(root: &Path, files: &[PathBuf]) -> Result<(), String> {
    let crates = read(root, files)?;
    let mut text = RATCHET_HEAD.to_string();
    for (folder, knots) in knots(&crates) {
        let sizes: Vec<String> = sizes(&knots).iter().map(ToString::to_string).collect();
        let _ = writeln!(text, "{folder} {}", sizes.join(" "));
    }
    std::fs::write(root.join(RATCHET), text).map_err(|e| format!("{RATCHET}: {e}"))
}

pub(crate) fn check(root: &Path, files: &[PathBuf]) -> Result<Vec<Problem>, String> {
    let crates = read(root, files)?;
    let allowed = ratchet(root);
    let found = knots(&crates);
    let mut problems = Vec::new();
    for (folder, knots) in &found {
        let listed = allowed.get(*folder).map(Vec::as_slice).unwrap_or_default();
        let now = sizes(knots);
        if now == listed {
            continue;
        }
        if within(&now, listed) {
            let what = format!(
                "{folder} has fewer files in circles, {now:?} instead of {listed:?}: `cargo xtask tidy --bless`"
            );
            problems.push(Problem::new(RATCHET, what));
            continue;
        }
        let more = match listed {
            [] => "move what both need into a file below them, or what knows both into one above".into(),
            _ => format!("{now:?} files hang together so, {listed:?} were allowed"),
        };
        let mut circles: Vec<_> = knots
            .iter()
            .filter_map(|knot| Some((knot, graph::shortest(knot.imports, &knot.files)?)))
            .collect();
        circles.sort_by_key(|(_, circle)| circle.len());
        for (knot, circle) in circles {
            let (place, path) = told(knot.imports, &circle);
            problems.push(Problem::new(place, format!("imports in a circle: {path}: {more}")));
        }
    }
    for folder in allowed.keys().filter(|folder| !found.contains_key(folder.as_str())) {
        problems
            .push(Problem::new(RATCHET, format!("{folder} has no circle any more: take it off the list")));
    }
    Ok(problems)
}

/// Where a circle begins, and its way: `a.rs:3 -> b.rs:7 -> a.rs`, each with the line at which it takes something from the next.
fn told(imports: &Imports, circle: &[usize]) -> (String, String) {
    let mut path = String::new();
    let mut place = String::new();
    for (at, file) in circle.iter().enumerate() {
        let next = circle.get(at + 1).or(circle.first());
        let line = next.and_then(|next| imports.line(*file, *next)).unwrap_or_default();
        if at == 0 {
            place = format!("{}:{line}", imports.name(*file));
        }
        let _ = write!(path, "{}:{line} -> ", imports.short(*file));
    }
    if let Some(first) = circle.first() {
        path.push_str(imports.short(*first));
    }
    (place, path)
}

/// Tells all imports inside what hangs together in the crates whose folder ends with `name`, for whoever breaks circles.
pub(crate) fn tell(root: &Path, files: &[PathBuf], name: &str) -> Result<String, String> {
    let crates = read(root, files)?;
    let mut text = String::new();
    for (folder, knots) in knots(&crates).iter().filter(|(folder, _)| folder.ends_with(name)) {
        for knot in knots {
            let _ = writeln!(text, "{folder}: {} files hang together", knot.files.len());
            if let Some(circle) = graph::shortest(knot.imports, &knot.files) {
                let _ = writeln!(text, "  the shortest circle: {}", told(knot.imports, &circle).1);
            }
            for file in &knot.files {
                let to = knot.files.iter().filter_map(|next| Some((next, knot.imports.line(*file, *next)?)));
                for (next, line) in to {
                    let (from, next) = (knot.imports.short(*file), knot.imports.short(*next));
                    let _ = writeln!(text, "  {from}:{line} -> {next}");
                }
            }
        }
    }
    if text.is_empty() {
        let _ = writeln!(text, "no circles");
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
