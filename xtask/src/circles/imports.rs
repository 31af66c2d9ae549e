//! Which file takes something from which: paths are followed through the names of modules, imports and re-exports to the file that
//! defines what they name.

use std::collections::BTreeSet;

use super::graph::Imports;
use super::modules::{Crate, Mention};

/// Re-exports of re-exports that are followed at most: more is a name that stands for itself.
const MAX_STEPS: usize = 64;

/// What a path names.
enum Target {
    /// A module itself. Nothing is taken from it yet.
    Module(usize),
    /// Something that is defined in this module.
    Item(usize),
}

/// The imports between all files of a crate.
pub(super) fn of(tree: &Crate) -> Imports {
    let mut imports = Imports::default();
    for file in &tree.files {
        imports.add_file(file.name.clone(), file.parent);
    }
    for (number, module) in tree.modules.iter().enumerate() {
        let mut takes = |mention: &Mention, line: usize| {
            if let Some(Target::Item(from)) = resolve(tree, number, &mention.path, MAX_STEPS)
                && let Some(from) = tree.modules.get(from)
            {
                imports.add(module.file, from.file, line);
            }
        };
        for mention in module.aliases.values().flatten().chain(&module.mentions) {
            takes(mention, mention.line);
        }
        for glob in &module.globs {
            match resolve(tree, number, &glob.path, MAX_STEPS) {
                // Each name of that module that this one has in its mouth, and not of its own.
                Some(Target::Module(other)) => {
                    for name in module.words.iter().filter(|name| !module.knows(name)) {
                        if tree.modules.get(other).is_some_and(|other| other.knows(name))
                            || through_globs(tree, other, name, &mut BTreeSet::from([number])).is_some()
                        {
                            let path = glob.path.iter().chain([name]).cloned().collect();
                            takes(&Mention { path, line: glob.line }, glob.line);
                        }
                    }
                }
                Some(Target::Item(_)) => takes(glob, glob.line),
                None => {}
            }
        }
    }
    imports
}

/// What a path names that is written in this module; none if it is something of another crate.
fn resolve(tree: &Crate, module: usize, path: &[String], steps: usize) -> Option<Target> {
    let (first, mut rest) = path.split_first()?;
    let mut at = match first.as_str() {
        "crate" => 0,
        "self" => module,
        "super" => tree.modules.get(module)?.parent?,
        _ => return member(tree, module, path, steps.checked_sub(1)?, false),
    };
    while let Some((first, after)) = rest.split_first().filter(|(first, _)| *first == "super") {
        debug_assert_eq!(first, "super");
        (at, rest) = (tree.modules.get(at)?.parent?, after);
    }
    if rest.is_empty() {
        return Some(Target::Module(at));
    }
    member(tree, at, rest, steps.checked_sub(1)?, true)
}

/// What a path names whose first name is one of this module. A name that is not known is taken to be defined there if it `must` be of
/// the module: a macro may have made it.
fn member(tree: &Crate, at: usize, path: &[String], steps: usize, must: bool) -> Option<Target> {
    let module = tree.modules.get(at)?;
    let (name, rest) = path.split_first()?;
    let child = module.children.get(name).copied();
    if let (Some(child), false) = (child, rest.is_empty()) {
        return member(tree, child, rest, steps, true);
    }
    if let Some(alias) = module.aliases.get(name).and_then(|aliases| aliases.first()) {
        let onward: Vec<String> = alias.path.iter().chain(rest).cloned().collect();
        // A name of another crate that is handed on here is taken from here.
        return resolve(tree, at, &onward, steps.checked_sub(1)?).or(must.then_some(Target::Item(at)));
    }
    if let Some(child) = child {
        return Some(Target::Module(child));
    }
    if module.defined.contains(name) {
        return Some(Target::Item(at));
    }
    if let Some(other) = through_globs(tree, at, name, &mut BTreeSet::from([at])) {
        return member(tree, other, path, steps.checked_sub(1)?, true);
    }
    must.then_some(Target::Item(at))
}

/// The module whose own name this is that all names are imported of, straight or through others; `seen` are those that were looked at.
fn through_globs(tree: &Crate, module: usize, name: &str, seen: &mut BTreeSet<usize>) -> Option<usize> {
    tree.modules.get(module)?.globs.iter().find_map(|glob| {
        let other = named_module(tree, module, &glob.path)?;
        if !seen.insert(other) {
            return None;
        }
        let knows = tree.modules.get(other)?.knows(name);
        if knows { Some(other) } else { through_globs(tree, other, name, seen) }
    })
}

/// The module of this path, as far as no alias is in it: modules whose names are all imported are named straight.
fn named_module(tree: &Crate, module: usize, path: &[String]) -> Option<usize> {
    path.iter().try_fold(module, |at, name| match name.as_str() {
        "crate" => Some(0),
        "self" => Some(at),
        "super" => tree.modules.get(at)?.parent,
        name => tree.modules.get(at)?.children.get(name).copied(),
    })
}
