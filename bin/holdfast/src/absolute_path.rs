//! Paths of disks and files that are given here, made absolute: the node runs elsewhere in the file system.

use control_api::Selector;

/// A path here is another one for the node, which may run elsewhere in the file system: makes it absolute. What is no path here
/// is a name that the node knows; a lost disk has a path at which nothing is. The last part stays: a link may be the disk's name.
pub(crate) fn here_one(disk: String) -> String {
    if control_api::is_unit(&disk) {
        return disk;
    }
    match std::path::absolute(&disk) {
        Ok(path) if path.exists() || disk.contains('/') => {
            let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
            let whole = folder.zip(path.file_name()).map(|(folder, name)| folder.join(name));
            whole.unwrap_or(path).to_string_lossy().into_owned()
        }
        _ => disk,
    }
}

/// The same for selectors, whose paths may have wildcards.
pub(crate) fn here_selected(select: Vec<Selector>) -> Vec<Selector> {
    let here = |pattern: String| {
        // Without a directory, `*` may be meant to stand for one.
        if pattern.starts_with('*') { pattern } else { here_one(pattern) }
    };
    select.into_iter().map(|selector| selector.with_disks(here)).collect()
}

/// The same for several.
pub(crate) fn here(disks: Vec<String>) -> Vec<String> {
    disks.into_iter().map(here_one).collect()
}
