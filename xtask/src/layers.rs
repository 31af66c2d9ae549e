//! The direction of dependencies, read from `cargo metadata`.
//!
//! ```text
//!   base <- { block, qos } <- pool <- volume <- image <- { scsi, smb } <- { control, tools } <- bin
//!   { base, block } <- cluster <- control
//! ```
//! A crate may use crates of its own folder and of folders to the left of it. Siblings (`scsi` and `smb`, `control` and
//! `tools`) do not know each other: what they share belongs below them. `cluster` stands aside: who owns a pool is decided
//! without knowing what a pool is. Pure crates (`*_format`, `*_protocol`, `*_defs`,
//! `*_layout`, `*_profile`, `*_report`, and the API's types) do no I/O, so nothing beneath them may either. Test helpers
//! (`testing`, `*_conformance`, `tests`, `xtask`, `bench`) are nobody's dependency outside `[dev-dependencies]` and each
//! other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde::Deserialize;

use crate::problem::Problem;

/// Layers from the bottom up; folders in one entry are siblings.
const LAYERS: &[&[&str]] = &[
    &["base"],
    &["block", "qos"],
    &["pool"],
    &["volume"],
    &["image"],
    &["scsi", "smb", "cluster"],
    &["control", "tools"],
    &["bin"],
];

/// Layers that know less than what lies below them, and that fewer know: the folder, what it may use, what may use it.
const ASIDE: &[(&str, &[&str], &[&str])] = &[("cluster", &["base", "block"], &["control"])];

/// Helpers for tests and measurements: may use anything, used by nothing that ships.
const HELPER_FOLDERS: &[&str] = &["testing", "tests", "xtask", "bench"];

/// What a pure crate must not reach, directly or through others: event loops, the engine, raw system calls, databases.
const IMPURE: &[&str] = &["tokio", "io_engine", "io-uring", "shard_runtime", "libc", "redb", "hyper", "axum"];

/// The part of `cargo metadata` that is needed.
#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
}

/// One member of the workspace.
#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) manifest_path: String,
    pub(crate) dependencies: Vec<Dependency>,
}

/// One line of a `[dependencies]` table. `kind` is null for normal, else "dev" or "build".
#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) kind: Option<String>,
    pub(crate) path: Option<String>,
}

/// Asks cargo about the workspace at `root`.
pub(crate) fn from_cargo(root: &Path) -> Result<Metadata, String> {
    let output = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()))
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .current_dir(root)
        .output()
        .map_err(|e| format!("cargo metadata: {e}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    serde_json::from_slice(&output.stdout).map_err(|e| format!("cargo metadata answered something else: {e}"))
}

/// `pool` for crates/pool/pool_format/Cargo.toml, `bin` for bin/holdfast/Cargo.toml, `xtask` for xtask/Cargo.toml.
fn folder(package: &Package) -> String {
    let parts: Vec<&str> = package.manifest_path.split('/').collect();
    let n = parts.len();
    let pick = |back: usize| n.checked_sub(back).and_then(|i| parts.get(i)).copied().unwrap_or("");
    // .../bin/holdfast/Cargo.toml and .../crates/pool/pool/Cargo.toml have the folder third from the end.
    if pick(3) == "bin" || pick(4) == "crates" { pick(3).to_string() } else { pick(2).to_string() }
}

fn is_helper(package: &Package) -> bool {
    HELPER_FOLDERS.contains(&folder(package).as_str()) || package.name.ends_with("_conformance")
}

fn is_pure(name: &str) -> bool {
    ["_format", "_protocol", "_defs", "_layout", "_profile", "_report"].iter().any(|end| name.ends_with(end))
        || name == "control_api"
}

fn rank(folder: &str) -> Option<usize> {
    LAYERS.iter().position(|names| names.contains(&folder))
}

pub(crate) fn check(metadata: &Metadata) -> Vec<Problem> {
    let by_name: BTreeMap<&str, &Package> = metadata.packages.iter().map(|p| (p.name.as_str(), p)).collect();
    let mut problems = Vec::new();
    for package in &metadata.packages {
        let helper = is_helper(package);
        let mine = folder(package);
        if !helper && rank(&mine).is_none() {
            problems.push(Problem::new(
                &package.name,
                format!("folder `{mine}` is in no layer: add it to LAYERS in xtask/src/layers.rs and to ARCHITECTURE.md"),
            ));
            continue;
        }
        for dependency in package.dependencies.iter().filter(|d| d.kind.as_deref() != Some("dev")) {
            let Some(target) = by_name.get(dependency.name.as_str()).filter(|_| dependency.path.is_some())
            else {
                continue;
            };
            if helper {
                continue;
            }
            if is_helper(target) {
                problems.push(Problem::new(
                    &package.name,
                    format!("uses test helper `{}` outside [dev-dependencies]", target.name),
                ));
                continue;
            }
            let theirs = folder(target);
            let aside = ASIDE.iter().all(|(folder, uses, used_by)| {
                (mine != *folder || uses.contains(&theirs.as_str()))
                    && (theirs != *folder || used_by.contains(&mine.as_str()))
            });
            let allowed = mine == theirs || (aside && rank(&theirs) < rank(&mine));
            if !allowed {
                problems.push(Problem::new(
                    &package.name,
                    format!(
                        "({mine}) may not use `{}` ({theirs}): dependencies point down only",
                        target.name
                    ),
                ));
            }
        }
        if is_pure(&package.name)
            && let Some(path) = impure_path(package, &by_name)
        {
            problems.push(Problem::new(&package.name, format!("is a pure crate but reaches I/O: {path}")));
        }
    }
    problems
}

/// How a pure crate reaches something of [`IMPURE`], as `a -> b -> tokio`.
fn impure_path(start: &Package, by_name: &BTreeMap<&str, &Package>) -> Option<String> {
    let mut seen = BTreeSet::new();
    let mut queue = vec![(start, start.name.clone())];
    while let Some((package, path)) = queue.pop() {
        for dependency in package.dependencies.iter().filter(|d| d.kind.is_none()) {
            let step = format!("{path} -> {}", dependency.name);
            if IMPURE.contains(&dependency.name.as_str()) {
                return Some(step);
            }
            if let Some(next) = by_name.get(dependency.name.as_str())
                && seen.insert(next.name.clone())
            {
                queue.push((next, step));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, folder: &str, uses: &[(&str, Option<&str>)]) -> Package {
        let middle =
            if ["bin", "xtask", "tests"].contains(&folder) { String::new() } else { "crates/".into() };
        let tail = if ["xtask", "tests"].contains(&folder) { String::new() } else { format!("{name}/") };
        Package {
            name: name.into(),
            manifest_path: format!("/w/{middle}{folder}/{tail}Cargo.toml"),
            dependencies: uses
                .iter()
                .map(|(name, kind)| Dependency {
                    name: (*name).into(),
                    kind: kind.map(Into::into),
                    path: Some("/w".into()),
                })
                .collect(),
        }
    }

    fn complaints(packages: Vec<Package>) -> Vec<String> {
        check(&Metadata { packages }).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn downward_and_sideways_in_one_folder_is_fine() {
        let found = complaints(vec![
            package("io_engine", "base", &[]),
            package("pool_format", "pool", &[]),
            package("pool", "pool", &[("pool_format", None), ("io_engine", None)]),
            package("holdfast", "bin", &[("pool", None)]),
            package("tests", "tests", &[("holdfast", None)]),
        ]);
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn upward_and_between_siblings_is_named() {
        let found = complaints(vec![
            package("io_engine", "base", &[("pool", None)]),
            package("pool", "pool", &[]),
            package("smb_server", "smb", &[("iscsi_target", None)]),
            package("iscsi_target", "scsi", &[]),
        ]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("io_engine") && found[0].contains("`pool`"), "{found:?}");
        assert!(found[1].contains("smb_server") && found[1].contains("`iscsi_target`"), "{found:?}");
    }

    #[test]
    fn a_layer_aside_is_used_by_control_only_and_uses_little() {
        let found = complaints(vec![
            package(
                "cluster_store",
                "cluster",
                &[("byte_codec", None), ("block_device", None), ("pool", None)],
            ),
            package("pool_ownership", "cluster", &[("cluster_store", None)]),
            package("byte_codec", "base", &[]),
            package("block_device", "block", &[]),
            package("pool", "pool", &[]),
            package("control_server", "control", &[("pool_ownership", None)]),
            package("spd_fleet", "tools", &[("cluster_store", None)]),
            package("holdfast", "bin", &[("cluster_store", None)]),
        ]);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].contains("cluster_store") && found[0].contains("`pool`"), "{found:?}");
        assert!(found[1].contains("spd_fleet") && found[2].contains("holdfast"), "{found:?}");
    }

    #[test]
    fn helpers_are_for_dev_dependencies_only() {
        let found = complaints(vec![
            package("sim", "testing", &[("pool", None)]),
            package("pool", "pool", &[("sim", Some("dev"))]),
            package("volume", "volume", &[("sim", None)]),
        ]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("volume"), "{found:?}");
    }

    #[test]
    fn a_pure_crate_reaches_no_io_even_through_others() {
        let found = complaints(vec![
            package("volume_format", "volume", &[("file_store", None)]),
            package("file_store", "volume", &[("tokio", None)]),
        ]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("volume_format -> file_store -> tokio"), "{found:?}");
    }

    #[test]
    fn a_new_folder_must_find_its_layer() {
        let found = complaints(vec![package("thing", "misc", &[])]);
        assert!(found[0].contains("no layer"), "{found:?}");
    }
}
