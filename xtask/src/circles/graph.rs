//! Imports between files as a graph: what hangs together in circles, and the shortest circle of it.

use std::collections::{BTreeMap, BTreeSet};

/// Which file imports which, and at which line. Files are numbers.
#[derive(Debug, Default)]
pub(super) struct Imports {
    files: Vec<File>,
    /// From file to file, with the first line at which it takes something from there.
    lines: BTreeMap<(usize, usize), usize>,
}

#[derive(Debug)]
struct File {
    /// Path from the root of the tree.
    name: String,
    /// The file that declares this one as its module; none for the root of a crate.
    parent: Option<usize>,
}

impl Imports {
    /// Adds a file, whose parent was added before.
    pub(super) fn add_file(&mut self, name: String, parent: Option<usize>) {
        self.files.push(File { name, parent });
    }

    /// Adds an import. What a file takes from itself is none.
    pub(super) fn add(&mut self, from: usize, to: usize, line: usize) {
        if from != to {
            let first = self.lines.entry((from, to)).or_insert(line);
            *first = line.min(*first);
        }
    }

    /// The line at which `from` imports `to`, if it does.
    pub(super) fn line(&self, from: usize, to: usize) -> Option<usize> {
        self.lines.get(&(from, to)).copied()
    }

    /// The file's path from the root of the tree.
    pub(super) fn name(&self, file: usize) -> &str {
        self.files.get(file).map_or("", |file| &file.name)
    }

    /// The file's path inside its crate's src folder.
    pub(super) fn short(&self, file: usize) -> &str {
        let name = self.name(file);
        name.split_once("/src/").map_or(name, |(_, short)| short)
    }

    fn next(&self, from: usize) -> impl Iterator<Item = usize> + '_ {
        self.lines.range((from, 0)..=(from, usize::MAX)).map(|((_, to), _)| *to)
    }

    fn parent(&self, file: usize) -> Option<usize> {
        self.files.get(file).and_then(|file| file.parent)
    }

    fn is_ancestor(&self, above: usize, file: usize) -> bool {
        std::iter::successors(self.parent(file), |file| self.parent(*file)).any(|file| file == above)
    }

    /// The file among these that is an ancestor of all others, if there is one.
    fn top(&self, files: impl Iterator<Item = usize> + Clone) -> Option<usize> {
        files.clone().find(|top| files.clone().all(|file| file == *top || self.is_ancestor(*top, file)))
    }
}

/// The largest sets of files that hang together in circles which are not allowed.
///
/// Each circle that is allowed goes through the file that is the ancestor of the others. So if such a file stands above all that
/// hangs together, every circle through it is allowed: it is taken out, and what remains is looked at again. If there is none, a circle
/// is there that is not allowed: of two allowed circles that share a file, the upper of their two tops is an ancestor of both.
pub(super) fn knots(imports: &Imports) -> Vec<BTreeSet<usize>> {
    let mut found = Vec::new();
    let mut left = components(imports, &(0..imports.files.len()).collect());
    while let Some(mut files) = left.pop() {
        match imports.top(files.iter().copied()) {
            Some(top) => {
                files.remove(&top);
                left.extend(components(imports, &files));
            }
            None => found.push(files),
        }
    }
    found
}

/// Strongly connected components of more than one file among `files`.
fn components(imports: &Imports, files: &BTreeSet<usize>) -> Vec<BTreeSet<usize>> {
    // A crate has some dozens of files: what each reaches is found at once and compared.
    let reached: BTreeMap<usize, BTreeSet<usize>> =
        files.iter().map(|file| (*file, reachable(imports, files, *file))).collect();
    let reaches = |from: usize, to: usize| reached.get(&from).is_some_and(|there| there.contains(&to));
    let mut found = Vec::new();
    let mut left = files.clone();
    while let Some(first) = left.pop_first() {
        let mut component: BTreeSet<usize> =
            left.iter().copied().filter(|other| reaches(first, *other) && reaches(*other, first)).collect();
        left.retain(|file| !component.contains(file));
        if !component.is_empty() {
            component.insert(first);
            found.push(component);
        }
    }
    found
}

fn reachable(imports: &Imports, files: &BTreeSet<usize>, from: usize) -> BTreeSet<usize> {
    let mut seen = BTreeSet::new();
    let mut queue = vec![from];
    while let Some(file) = queue.pop() {
        queue.extend(imports.next(file).filter(|next| files.contains(next) && seen.insert(*next)));
    }
    seen
}

/// The shortest circle among these files that is not allowed.
pub(super) fn shortest(imports: &Imports, files: &BTreeSet<usize>) -> Option<Vec<usize>> {
    (2..=files.len()).find_map(|length| {
        files.iter().find_map(|first| {
            let mut path = vec![*first];
            circle(imports, files, &mut path, length).then_some(path)
        })
    })
}

/// Completes `path` to a circle of `length` files, its first file being the one with the lowest number. Whether there is one.
fn circle(imports: &Imports, files: &BTreeSet<usize>, path: &mut Vec<usize>, length: usize) -> bool {
    let (Some(&first), Some(&last)) = (path.first(), path.last()) else { return false };
    if path.len() == length {
        return imports.line(last, first).is_some() && imports.top(path.iter().copied()).is_none();
    }
    let next: Vec<usize> = imports.next(last).filter(|file| *file > first && files.contains(file)).collect();
    for file in next {
        if path.contains(&file) {
            continue;
        }
        path.push(file);
        if circle(imports, files, path, length) {
            return true;
        }
        path.pop();
    }
    false
}
