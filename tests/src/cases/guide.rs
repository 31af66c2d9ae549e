//! The verbs and options that the guide names are there: each `holdfast` command of a page, also one in its text, is parsed.
//!
//! Nothing is carried out: `--help` behind a command makes the program say how it is used, or what of it is wrong. The load generator
//! reads its command lines itself, and does so before it looks for help; its pages are run, by the cases beside this one.

use std::path::Path;
use std::time::Duration;

use super::Context;
use crate::guest::home;
use crate::process::{command, need, run as run_program, tail};
use crate::{Outcome, Result, ensure};

/// All commands of a page.
const PAGE: Duration = Duration::from_secs(120);
/// Pages whose commands are carried out by a case of their own, some of them with mistakes in them.
const RUN_ELSEWHERE: [&str; 1] = ["choosing-disks.md"];
/// What a reader replaces, and what it may be.
const PLACEHOLDERS: [(&str, &str); 3] = [(" ID", " 1"), ("--disk …", "--disk x"), (" …", "")];
/// Commands that do not know `--help` behind them.
const WITHOUT_HELP: [&str; 3] = ["holdfast help", "holdfast spd", "holdfast sqlio"];
/// So many there are at the least: fewer, and they are written in a way that is not found.
const LEAST: usize = 80;

pub(super) fn run(context: &Context) -> Result {
    need("bash", "bash")?;
    let binary = std::env::var_os("HOLDFAST_BIN")
        .ok_or_else(|| Outcome::Skip("HOLDFAST_BIN does not say where the binary is".into()))?;
    let binary = Path::new(&binary).canonicalize()?;
    std::fs::create_dir_all(&context.folder)?;
    let (mut found, mut wrong) = (0, String::new());
    for entry in std::fs::read_dir(home().join("../docs/guide"))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !name.ends_with(".md") || RUN_ELSEWHERE.contains(&name.as_str()) {
            continue;
        }
        let commands = commands(&std::fs::read_to_string(&path)?);
        found += commands.len();
        // Each in a shell of its own: the first mistake does not hide the others.
        let mut script =
            format!("holdfast() {{ {:?} \"$@\" --help; }}\nfailed=0\n", binary.to_string_lossy());
        for command in &commands {
            script.push_str(&format!(
                "said=$( (set -o pipefail\n{command}\n) 2>&1 ) || {{ failed=1; echo {:?}\"$said\"; }}\n",
                format!("{}: ", command.replace(['`', '$', '\\'], "_"))
            ));
        }
        script.push_str("exit $failed\n");
        let mut shell = command("bash");
        shell.arg("-c").arg(script).current_dir(&context.folder);
        let finished = run_program(PAGE, &shell)?;
        if !finished.status.success() {
            wrong.push_str(&format!("docs/guide/{name}:\n{}\n", tail(&finished.output, 25)));
        }
    }
    ensure(wrong.is_empty(), || wrong)?;
    ensure(found >= LEAST, || format!("only {found} commands are in the guide"))
}

/// The commands of a page: lines of its blocks, and spans of its text.
fn commands(page: &str) -> Vec<String> {
    let (mut commands, mut text) = (Vec::new(), String::new());
    let mut fence: Option<&str> = None;
    for line in page.lines() {
        match (fence, line.strip_prefix("```")) {
            (None, Some(kind)) => fence = Some(kind),
            (Some(_), Some(_)) => fence = None,
            (Some("sh"), None) => commands.push(line.trim()),
            (Some(_), None) => {}
            (None, None) if line.starts_with("    ") => commands.push(line.trim()),
            (None, None) => {
                text.push_str(line);
                text.push(' ');
            }
        }
    }
    // Every second piece stands between two marks.
    commands.extend(text.split('`').skip(1).step_by(2));
    let ours = commands.into_iter().filter(|command| {
        command.starts_with("holdfast ") && !WITHOUT_HELP.iter().any(|other| command.starts_with(other))
    });
    ours.flat_map(alternatives).collect()
}

/// One command for each of `this|that`, with something in place of what the reader replaces.
fn alternatives(command: &str) -> Vec<String> {
    let mut plain = command.to_owned();
    for (placeholder, value) in PLACEHOLDERS {
        plain = plain.replace(placeholder, value);
    }
    let choice = plain.split(' ').find(|word| word.len() > 1 && word.contains('|')).map(str::to_owned);
    match choice {
        Some(choice) => choice.split('|').map(|one| plain.replace(&choice, one)).collect(),
        None => vec![plain],
    }
}

#[cfg(test)]
mod tests {
    use super::commands;

    #[test]
    fn commands_are_found_in_blocks_and_text() {
        let page = "See `holdfast status` and `holdfast\npool a|b ID`.\n```text\nholdfast said\n```\n```sh\nholdfast c | tail\nls\n```\n\n    holdfast d …   # e\n";
        let found = commands(page);
        assert_eq!(
            found,
            [
                "holdfast c | tail",
                "holdfast d   # e",
                "holdfast status",
                "holdfast pool a 1",
                "holdfast pool b 1"
            ]
        );
        assert!(commands("`holdfast spd -d1` `ls`").is_empty());
    }
}
