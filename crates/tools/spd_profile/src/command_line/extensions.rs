//! Our own options: two dashes, `--name=value` or `--name value`.

use crate::error::{ProfileError, refuse};
use crate::model::{Arrival, Profile};
use crate::windows_path::Drives;

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
    /// Who logs in to an SMB server (`--user`).
    pub user: Option<String>,
    /// The file that the password is in (`--password-file`).
    pub password_file: Option<String>,
    /// The machines that generate the load, by address (`--agents`); this one when empty.
    pub agents: Vec<String>,
    /// The file that the agents' secret is in (`--secret-file`).
    pub secret_file: Option<String>,
    /// Operations in a second (`--rate`).
    rate: Option<f64>,
    /// How they are spread (`--arrival`).
    arrival: Option<Arrival>,
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
            "yes" | "json" | "quiet" | "sparse" | "verify" => {
                if inline.is_some() {
                    return refuse(format!("--{name} takes no value"));
                }
                match name {
                    "yes" => run.yes = true,
                    "json" => run.json = true,
                    "quiet" => run.quiet = true,
                    "sparse" => run.sparse = true,
                    _ => run.verify = true,
                }
            }
            "layout" | "drive" | "user" | "password-file" | "agents" | "secret-file" | "rate" | "arrival" => {
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
    if run.agents.is_empty() {
        if run.secret_file.is_some() {
            return refuse("--secret-file has the secret of agents: give --agents too");
        }
    } else if run.password_file.is_some() || !run.drives.is_empty() {
        return refuse("with --agents, --password-file and --drive are options of each `holdfast spd agent`");
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
            "user" => self.user = Some(value.to_owned()),
            "agents" => {
                self.agents = value.split(',').map(|name| name.trim().to_owned()).collect();
                if self.agents.iter().any(String::is_empty) {
                    return refuse(format!(
                        "--agents is a list of addresses, host or host:port, not '{value}'"
                    ));
                }
            }
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
    pub(super) fn apply(&self, profile: &mut Profile) -> Result<(), ProfileError> {
        if let Some(rate) = self.rate {
            for span in &mut profile.spans {
                span.rate = Some((rate, self.arrival.unwrap_or_default()));
            }
        }
        Ok(())
    }
}
