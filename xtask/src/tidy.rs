//! `cargo xtask tidy`: runs every check and prints one line per problem, `where: what: what to do`.

use std::fmt;
use std::path::Path;
use std::process::ExitCode;

use crate::{layers, manifests, sources};

/// One thing that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    /// File (relative to the root), with a line number where there is one.
    pub(crate) place: String,
    /// What is wrong and what to do about it.
    pub(crate) what: String,
}

impl Problem {
    pub(crate) fn new(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self { place: place.into(), what: what.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

/// Runs all checks over the tree at `root`. With `bless`, first rewrites the list of long files to what they are now.
pub(crate) fn check(root: &Path, bless: bool) -> Result<Vec<Problem>, String> {
    let files = sources::list(root)?;
    if bless {
        sources::bless(root, &files)?;
    }
    let mut problems = sources::check(root, &files)?;
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
