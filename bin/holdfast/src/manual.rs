//! `holdfast man-pages`: the manual, page by page, from the definition of the command line, so that it is never behind it. Packages install them.

use std::path::Path;

use clap::Command;

use crate::error::{CliError, CliResult};

/// Writes `holdfast.1` and a page for each command beneath it into a folder.
///
/// # Errors
///
/// A usage error when the folder is none; otherwise whatever keeps a page from being written.
pub(crate) fn write(command: Command, folder: &Path) -> CliResult<()> {
    if !folder.is_dir() {
        return Err(CliError::Usage(format!("{}: there is no such folder; make it first", folder.display())));
    }
    clap_mangen::generate_to(command, folder)
        .map_err(|error| CliError::here(format!("{}: {error}", folder.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory as _, Parser as _};

    #[test]
    fn each_command_has_its_page() {
        let folder = tempfile::tempdir().unwrap();
        write(crate::cli::Cli::command(), folder.path()).unwrap();
        for page in ["holdfast.1", "holdfast-serve.1", "holdfast-pool-create.1"] {
            let text = std::fs::read_to_string(folder.path().join(page)).unwrap();
            assert!(text.contains(".TH"), "{page}");
        }
    }

    #[test]
    fn a_folder_that_is_not_there_is_a_wrong_command_line() {
        let cli = crate::cli::Cli::parse_from(["holdfast", "man-pages", "/nowhere/at/all"]);
        let error = cli.run().unwrap_err();
        assert_eq!(error.exit_code(), 2);
    }
}
