//! Our own options: two dashes, `--name=value` or `--name value`.

use crate::error::{ProfileError, refuse};
use crate::mix;
use crate::model::{Arrival, Profile, TimeSpan};
use crate::trace::Replay;
use crate::windows_path::Drives;

/// Seconds that a copy may take when no duration is given.
const LONGEST_COPY: u32 = 86_400;

/// Options that are not DiskSpd's.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// Write over what is there, without a question (`--yes`).
    pub yes: bool,
    /// The result as JSON (`--json`).
    pub json: bool,
    /// No progress (`--quiet`).
    pub quiet: bool,
    /// `-c` makes a file without writing its content (`--sparse`).
    pub sparse: bool,
    /// Content carries its place and is checked (`--verify`).
    pub verify: bool,
    /// The layout of DiskSpd 2.0, as in reports of its time (`--layout=2.0`).
    pub old_layout: bool,
    /// Where drives of Windows paths are (`--drive=X=/directory`).
    pub drives: Drives,
    /// Who logs in to a server (`--user`).
    pub user: Option<String>,
    /// The file that the password is in (`--password-file`).
    pub password_file: Option<String>,
    /// Who logs in to the server of a copy's destination, where that is somebody else (`--to-user`).
    pub to_user: Option<String>,
    /// The file that this one's password is in (`--to-password-file`).
    pub to_password_file: Option<String>,
    /// The data directory of the node that `holdfast://` targets are volumes of (`--data`).
    pub data: Option<String>,
    /// The machines that generate the load, by address (`--agents`); this one when empty.
    pub agents: Vec<String>,
    /// The file that the agents' secret is in (`--secret-file`).
    pub secret_file: Option<String>,
    /// A file copy (`--copy`).
    copy: bool,
    /// The trace (`--replay`), whose operations (`--replay-name`), whether at its times (`--replay-timing`).
    replay: Option<String>,
    replay_name: Option<String>,
    replay_fast: Option<bool>,
    /// Block sizes with their percents (`--mix`).
    mix: Vec<mix::Given>,
    /// Operations in a second (`--rate`).
    rate: Option<f64>,
    /// How they are spread (`--arrival`).
    arrival: Option<Arrival>,
}

/// Which of DiskSpd's options were given, for those of ours that change their defaults.
#[derive(Clone, Copy, Debug)]
pub(super) struct Given {
    pub(super) block: bool,
    pub(super) requests: bool,
    pub(super) alignment: bool,
    pub(super) duration: bool,
    pub(super) warm_up: bool,
}

/// Makes a span a copy: eight pieces of a MiB at once, as Windows' copy has them, unless other numbers were given.
fn copy(span: &mut TimeSpan, given: Given) -> Result<(), ProfileError> {
    span.copy = true;
    if !given.warm_up {
        span.warm_up = 0;
    }
    if !given.duration {
        span.duration = LONGEST_COPY;
    }
    if span.targets.iter().any(|target| target.write_percent > 0) {
        return refuse("--copy reads the first target and writes the second: leave out -w");
    }
    for target in &mut span.targets {
        if !given.block {
            target.block = 1 << 20;
        }
        if !given.alignment {
            target.alignment = None;
        }
        if !given.requests {
            target.requests = 8;
        }
    }
    if let Some(to) = span.targets.get_mut(1) {
        to.write_percent = 100;
    }
    Ok(())
}

/// Takes our options out of `words`; returns them and the others.
pub(super) fn take(words: &[String]) -> Result<(Run, Vec<String>), ProfileError> {
    let mut run = Run::default();
    let mut rest = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let Some(option) = word.strip_prefix("--") else {
            rest.push(word.clone());
            continue;
        };
        let (name, inline) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        match name {
            "yes" | "json" | "quiet" | "sparse" | "verify" | "copy" => {
                if inline.is_some() {
                    return refuse(format!("--{name} takes no value"));
                }
                match name {
                    "yes" => run.yes = true,
                    "json" => run.json = true,
                    "quiet" => run.quiet = true,
                    "sparse" => run.sparse = true,
                    "copy" => run.copy = true,
                    _ => run.verify = true,
                }
            }
            "layout" | "drive" | "data" | "user" | "password-file" | "to-user" | "to-password-file"
            | "agents" | "secret-file" | "mix" | "rate" | "replay" | "replay-name" | "replay-timing"
            | "arrival" => {
                let value = match inline {
                    Some(value) => value,
                    None => match words.next() {
                        Some(value) => value.as_str(),
                        None => return refuse(format!("--{name} needs a value: --{name}=...")),
                    },
                };
                run.value(name, value)?;
            }
            _ => return refuse(format!("invalid option: '{word}'")),
        }
    }
    if run.arrival.is_some() && run.rate.is_none() {
        return refuse("--arrival says how operations of an open loop are spread: give --rate too");
    }
    if run.replay.is_none() && (run.replay_name.is_some() || run.replay_fast.is_some()) {
        return refuse("--replay-name and --replay-timing say how a trace is replayed: give --replay too");
    }
    if !run.copy && (run.to_user.is_some() || run.to_password_file.is_some()) {
        return refuse("--to-user and --to-password-file are for the destination of a copy: give --copy too");
    }
    if run.agents.is_empty() {
        if run.secret_file.is_some() {
            return refuse("--secret-file has the secret of agents: give --agents too");
        }
    } else if run.password_file.is_some()
        || run.to_user.is_some()
        || run.to_password_file.is_some()
        || !run.drives.is_empty()
        || run.data.is_some()
    {
        return refuse(
            "with --agents, --password-file, --to-user, --to-password-file, --drive and --data are options of each `holdfast spd agent`",
        );
    }
    Ok((run, rest))
}

impl Run {
    fn value(&mut self, name: &str, value: &str) -> Result<(), ProfileError> {
        match name {
            "layout" => match value {
                "2.0" => self.old_layout = true,
                "2.2" => self.old_layout = false,
                _ => return refuse(format!("--layout is 2.0 or 2.2, not '{value}'")),
            },
            "drive" => self.drives.add(value)?,
            "data" => self.data = Some(value.to_owned()),
            "user" => self.user = Some(value.to_owned()),
            "to-user" => self.to_user = Some(value.to_owned()),
            "to-password-file" => self.to_password_file = Some(value.to_owned()),
            "agents" => {
                self.agents = value.split(',').map(|name| name.trim().to_owned()).collect();
                if self.agents.iter().any(String::is_empty) {
                    return refuse(format!(
                        "--agents is a list of addresses, host or host:port, not '{value}'"
                    ));
                }
            }
            "replay" => self.replay = Some(value.to_owned()),
            "replay-name" => self.replay_name = Some(value.to_owned()),
            "replay-timing" => match value {
                "kept" => self.replay_fast = Some(false),
                "fast" => self.replay_fast = Some(true),
                _ => return refuse(format!("--replay-timing is kept or fast, not '{value}'")),
            },
            "mix" => self.mix = mix::parse(value)?,
            "secret-file" => self.secret_file = Some(value.to_owned()),
            "password-file" => self.password_file = Some(value.to_owned()),
            "rate" => match value.parse::<f64>() {
                Ok(rate) if rate.is_finite() && rate > 0.0 => self.rate = Some(rate),
                _ => {
                    return refuse(format!(
                        "--rate is a number of operations per second above 0, not '{value}'"
                    ));
                }
            },
            _ => match value {
                "even" => self.arrival = Some(Arrival::Even),
                "poisson" => self.arrival = Some(Arrival::Poisson),
                _ => return refuse(format!("--arrival is even or poisson, not '{value}'")),
            },
        }
        Ok(())
    }

    /// Writes what belongs into the profile into it.
    pub(super) fn apply(&self, profile: &mut Profile, given: Given) -> Result<(), ProfileError> {
        if let Some(path) = &self.replay {
            let mut targets = profile.spans.iter().flat_map(|span| &span.targets);
            if given.block || targets.any(|target| target.write_percent > 0 || target.random_percent > 0) {
                return refuse(
                    "--replay takes sizes, places and kinds of operations from the trace: leave out -b, -r and -w",
                );
            }
            for span in &mut profile.spans {
                span.replay = Some(Replay {
                    path: path.clone(),
                    name: self.replay_name.clone(),
                    fast: self.replay_fast.unwrap_or(false),
                    whole: !given.duration,
                });
                if !given.warm_up {
                    span.warm_up = 0;
                }
            }
        }
        if self.copy {
            for span in &mut profile.spans {
                copy(span, given)?;
            }
        }
        if !self.mix.is_empty() {
            if given.block {
                return refuse("--mix says what the block sizes are: leave out -b");
            }
            let targets = profile.spans.iter_mut().flat_map(|span| &mut span.targets);
            for target in targets {
                if !given.alignment {
                    target.alignment = None;
                }
                mix::apply(&self.mix, target);
            }
        }
        if let Some(rate) = self.rate {
            for span in &mut profile.spans {
                span.rate = Some((rate, self.arrival.unwrap_or_default()));
            }
        }
        Ok(())
    }
}
