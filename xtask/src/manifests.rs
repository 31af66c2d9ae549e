//! Rules for the Cargo.toml files: every third-party crate has its reason, members inherit versions and lints.

use std::path::{Path, PathBuf};

use crate::problem::Problem;

pub(crate) fn check(root: &Path) -> Result<Vec<Problem>, String> {
    let mut problems = Vec::new();
    let text = read(&root.join("Cargo.toml"))?;
    problems.extend(reasons(&text));
    for manifest in members(root)? {
        let name = manifest.strip_prefix(root).unwrap_or(&manifest).display().to_string();
        problems.extend(member(&name, &read(&manifest)?));
    }
    Ok(problems)
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}

/// Manifests of members: crates/*/*, bin/*, and the tools beside them.
fn members(root: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    let mut folders = vec![root.join("crates"), root.join("bin")];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries {
            let path = entry.map_err(|e| format!("{}: {e}", folder.display()))?.path();
            let manifest = path.join("Cargo.toml");
            if manifest.is_file() {
                found.push(manifest);
            } else if path.is_dir() {
                folders.push(path);
            }
        }
    }
    found.extend(
        ["xtask", "tests", "bench"].iter().map(|d| root.join(d).join("Cargo.toml")).filter(|p| p.is_file()),
    );
    found.sort();
    Ok(found)
}

/// Each entry of `[workspace.dependencies]` that is not a path of ours stands under a comment that says why it is
/// there; entries that follow each other without a gap may share one.
fn reasons(text: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut inside = false;
    let mut reason = false;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.starts_with('[') {
            inside = line == "[workspace.dependencies]";
            reason = false;
        } else if !inside {
        } else if line.is_empty() || line.starts_with("# ---") {
            reason = false;
        } else if line.starts_with('#') {
            reason = true;
        } else if let Some((name, value)) = line.split_once('=')
            && !value.contains("path =")
            && !reason
        {
            problems.push(Problem::new(
                format!("Cargo.toml:{}", number + 1),
                format!("`{}` has no reason: say in a comment above it what it is for", name.trim()),
            ));
        }
    }
    problems
}

/// A member takes every dependency from the workspace and obeys the workspace's lints.
fn member(name: &str, text: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut section = String::new();
    let mut lints = false;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.starts_with('[') {
            section = line.trim_matches(['[', ']']).to_string();
            // A crate with its own lint tables says why beside them (only the three crates with `unsafe` do).
            lints |= section.starts_with("lints");
        } else if section.ends_with("dependencies")
            && !line.starts_with('#')
            && let Some((key, value)) = line.split_once('=')
            && !key.trim().ends_with(".workspace")
            && !value.contains("workspace = true")
        {
            problems.push(Problem::new(
                format!("{name}:{}", number + 1),
                format!("`{}` is not taken from [workspace.dependencies]", key.trim()),
            ));
        }
    }
    if !lints {
        problems.push(Problem::new(name, "has no [lints] workspace = true"));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn third_party_crates_need_a_reason() {
        let text = "[workspace.dependencies]\n# --- ours ---\npool = { path = \"crates/pool\" }\n# --- third party ---\n\
                    bare = \"1\"\n# Why.\nfine = \"1\"\nfine-util = \"1\"\n\nbare2 = \"2\"\n[profile.dev]\nx = 1\n";
        let found: Vec<String> = reasons(text).iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("Cargo.toml:5") && found[0].contains("`bare`"), "{found:?}");
        assert!(found[1].contains("`bare2`"), "{found:?}");
    }

    #[test]
    fn members_inherit_versions_and_lints() {
        let good = "[dependencies]\na.workspace = true\nb = { workspace = true, features = [] }\n[lints]\nworkspace = true\n";
        assert_eq!(member("m", good), vec![]);
        let bad = "[dev-dependencies]\na = \"1\"\n";
        let found = member("m", bad);
        assert_eq!(found.len(), 2, "{found:?}");
    }
}
