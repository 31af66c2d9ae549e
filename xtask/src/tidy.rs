//! `cargo xtask tidy`: runs every check and prints one line per problem, `where: what: what to do`.

use std::path::Path;
use std::process::ExitCode;

use crate::problem::Problem;
use crate::{circles, layers, manifests, sources};

/// Runs all checks over the tree at `root`. With `bless`, first rewrites the lists of long files and of circles to what they
/// are now.
pub(crate) fn check(root: &Path, bless: bool) -> Result<Vec<Problem>, String> {
    let files = sources::list(root)?;
    if bless {
        sources::bless(root, &files)?;
        circles::bless(root, &files)?;
    }
    let mut problems = sources::check(root, &files)?;
    problems.extend(circles::check(root, &files)?);
    problems.extend(manifests::check(root)?);
    problems.extend(layers::check(&layers::from_cargo(root)?));
    problems.sort_by(|a, b| a.place.cmp(&b.place));
    Ok(problems)
}

pub(crate) fn run(root: &Path, bless: bool) -> ExitCode {
    match check(root, bless) {
        Ok(problems) if problems.is_empty() => {
            println!("tidy: nothing to complain about");
            ExitCode::SUCCESS
        }
        Ok(problems) => {
            for problem in &problems {
                eprintln!("tidy: {problem}");
            }
            eprintln!("tidy: {} problem(s); CONTRIBUTING.md says why each rule is there", problems.len());
            ExitCode::FAILURE
        }
        Err(message) => {
            eprintln!("tidy: cannot check: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Prints the circles of the crates whose folder ends with `name`.
pub(crate) fn circles(root: &Path, name: &str) -> ExitCode {
    match sources::list(root).and_then(|files| circles::tell(root, &files, name)) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("circles: {message}");
            ExitCode::FAILURE
        }
    }
}
