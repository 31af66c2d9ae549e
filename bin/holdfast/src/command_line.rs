//! Command lines that clap refuses with words that do not say what is wrong: it is said here.

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{Command, CommandFactory as _, Error, Parser as _};

use crate::cli::Cli;

/// The command line that these words are.
pub(crate) fn parse(words: &[OsString]) -> Result<Cli, Error> {
    Cli::try_parse_from(words).map_err(|error| {
        let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        match why(&words, error.kind()) {
            Some(why) => Cli::command().error(error.kind(), why),
            None => error,
        }
    })
}

/// What is wrong, where it is known better.
fn why(words: &[String], kind: ErrorKind) -> Option<String> {
    negative(words, kind).or_else(|| verb_for_volume(words, kind))
}

/// A number below zero, which clap takes for an option that there is not.
fn negative(words: &[String], kind: ErrorKind) -> Option<String> {
    if kind != ErrorKind::UnknownArgument {
        return None;
    }
    let is_negative = |word: &String| {
        word.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit() || c == '.'))
    };
    let at = words.iter().position(is_negative)?;
    let (number, before) = (words.get(at)?, words.get(at.checked_sub(1)?)?);
    let option = before.strip_prefix("--").filter(|name| takes_a_value(&Cli::command(), name));
    let of = option.map(|name| format!(" for '--{name}'")).unwrap_or_default();
    Some(format!("invalid value '{number}'{of}: it is below zero"))
}

fn takes_a_value(command: &Command, option: &str) -> bool {
    let is_it =
        |argument: &clap::Arg| argument.get_long() == Some(option) && argument.get_action().takes_values();
    command.get_arguments().any(is_it) || command.get_subcommands().any(|verb| takes_a_value(verb, option))
}

/// `volume quota` takes a volume or a verb: a volume that is called like a verb is taken for the verb.
fn verb_for_volume(words: &[String], kind: ErrorKind) -> Option<String> {
    if !matches!(kind, ErrorKind::UnknownArgument | ErrorKind::MissingRequiredArgument) {
        return None;
    }
    let at = words.windows(2).position(|pair| pair == ["volume", "quota"])?;
    let name = words.get(at + 2..)?.iter().find(|word| !word.starts_with('-'))?;
    let command = Cli::command();
    let quota = command.find_subcommand("volume")?.find_subcommand("quota")?;
    quota.get_subcommands().find(|verb| verb.get_name() == name)?;
    Some(format!(
        "'{name}' is a verb here, and that is not how it is used (`holdfast volume quota {name} --help`); a volume that is called so comes last, after `--`: `holdfast volume quota --mode track -- {name}`"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(line: &str) -> String {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        match parse(&words) {
            Ok(_) => String::new(),
            Err(error) => {
                assert_eq!(error.exit_code(), 2, "{line}");
                error.to_string()
            }
        }
    }

    #[test]
    fn a_number_below_zero_names_its_option() {
        for (line, wrong) in [
            ("holdfast volume quota set v u --limit -5G", "'-5G' for '--limit': it is below zero"),
            (
                "holdfast volume quota --default-warning -1 v",
                "'-1' for '--default-warning': it is below zero",
            ),
            ("holdfast volume create v --size -.5T", "'-.5T' for '--size': it is below zero"),
            ("holdfast lun resize l -5G", "invalid value '-5G': it is below zero"),
            ("holdfast volume create v --size 1G --fixed -5", "invalid value '-5': it is below zero"),
        ] {
            let said = said(line);
            assert!(said.contains(wrong), "{line}: {said}");
        }
        assert!(
            said("holdfast volume create v --size 1G -x").contains("'-x'"),
            "others are as clap says them"
        );
    }

    #[test]
    fn a_volume_that_is_called_like_a_verb_is_addressed_or_told_of() {
        for line in [
            "holdfast volume quota --mode track -- list",
            "holdfast volume quota --default-limit 5G -- set",
            "holdfast volume quota list list",
            "holdfast volume quota set set u --limit 1G",
            "holdfast volume show list",
        ] {
            assert_eq!(said(line), "", "{line}");
        }
        for (line, hint) in [
            ("holdfast volume quota list --mode track", "`holdfast volume quota --mode track -- list`"),
            ("holdfast volume quota set --mode track", "`holdfast volume quota --mode track -- set`"),
            ("holdfast volume quota list", "`holdfast volume quota --mode track -- list`"),
        ] {
            let said = said(line);
            assert!(said.contains(hint), "{line}: {said}");
        }
        assert!(!said("holdfast volume quota v --mod track").contains("is a verb"), "another mistake");
    }

    /// Each place where a name may stand instead of a verb is known to [`verb_for_volume`], or has no names of things.
    #[test]
    fn verbs_stand_beside_names_in_one_place_only() {
        fn find(command: &Command, path: &str, found: &mut Vec<String>) {
            if command.has_subcommands() && command.get_positionals().next().is_some() {
                found.push(path.to_owned());
            }
            for verb in command.get_subcommands() {
                find(verb, format!("{path} {}", verb.get_name()).trim(), found);
            }
        }
        let mut found = Vec::new();
        find(&Cli::command(), "", &mut found);
        assert_eq!(found, ["volume quota"]);
    }
}
