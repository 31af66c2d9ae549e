//! `holdfast user …`.

use std::io::{self, BufRead, IsTerminal};

use clap::Subcommand;
use control_api::{AccountRename, Confirm, Done, Password, PasswordChange, User, UserCreate, UserUpdate};
use control_client::segment;
use serde_json::json;

use crate::context::Context;
use crate::error::{CliError, CliResult};
use crate::pool::usage;
use crate::table::Table;
use crate::units::{seconds, time};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List users.
    List,
    /// Make a user; asks for its password.
    Create {
        /// What it is called; at most 20 characters.
        name: String,
        /// The person's name.
        #[arg(long, default_value = "")]
        full_name: String,
        /// What it is for.
        #[arg(long, default_value = "")]
        comment: String,
        /// A group that it becomes a member of; may be given several times.
        #[arg(long = "group", value_name = "GROUP")]
        groups: Vec<String>,
        /// It may not be used yet.
        #[arg(long)]
        disabled: bool,
        #[command(flatten)]
        password: Source,
    },
    /// Give a user another name; it stays who it is, with its permissions, groups and sessions.
    Rename {
        /// The user.
        name: String,
        /// The new name, by which it logs in from now on; at most 20 characters.
        new_name: String,
    },
    /// Change a user. The sessions of one that is disabled end, after a question.
    Set {
        /// The user.
        name: String,
        /// The person's name.
        #[arg(long)]
        full_name: Option<String>,
        /// What it is for.
        #[arg(long)]
        comment: Option<String>,
        /// It may not be used any more.
        #[arg(long)]
        disable: bool,
        /// It may be used again.
        #[arg(long, conflicts_with = "disable")]
        enable: bool,
    },
    /// Set a user's password; asks for it. Sessions of shares go on, unless they are to end; those with the management end.
    Passwd {
        /// The user.
        name: String,
        /// End the sessions that were opened with the old password, at once.
        #[arg(long)]
        end_sessions: bool,
        #[command(flatten)]
        password: Source,
    },
    /// Let a user in again that wrong passwords have locked out.
    Unlock {
        /// The user.
        name: String,
    },
    /// Take a user away; its sessions end.
    Delete {
        /// The user.
        name: String,
    },
}

/// Where a password comes from: never from the command line, which others see.
#[derive(Debug, clap::Args)]
pub(crate) struct Source {
    /// Take the password from standard input, to the end of the line.
    #[arg(long)]
    password_stdin: bool,
}

impl Source {
    fn read(&self) -> CliResult<Password> {
        if self.password_stdin {
            let mut line = String::new();
            io::stdin().lock().read_line(&mut line).map_err(CliError::here)?;
            return Ok(Password(line.trim_end_matches(['\r', '\n']).to_owned()));
        }
        if !io::stdin().is_terminal() {
            return Err(CliError::here(
                "there is no terminal to ask for the password on: give it with --password-stdin.",
            ));
        }
        let first = rpassword::prompt_password("Password: ").map_err(CliError::here)?;
        let second = rpassword::prompt_password("Once more: ").map_err(CliError::here)?;
        if first == second {
            Ok(Password(first))
        } else {
            Err(CliError::here("the two differ; nothing was done."))
        }
    }
}

fn path(name: &str) -> String {
    format!("/users/{}", segment(name))
}

pub(crate) async fn run(command: Command, context: &Context) -> CliResult {
    let client = &context.client;
    let show = |user: User| context.show(&user, |user| print(std::slice::from_ref(user)));
    match command {
        Command::List => context.show_list("/users", print).await,
        Command::Create { name, full_name, comment, groups, disabled, password } => {
            let password = password.read()?;
            let request = UserCreate { name, full_name, comment, disabled, groups, password };
            show(client.post("/users", &request).await?)
        }
        Command::Rename { name, new_name } => {
            show(client.put(&format!("{}/name", path(&name)), &AccountRename { name: new_name }).await?)
        }
        Command::Set { name, full_name, comment, disable, enable } => {
            let disabled = (disable || enable).then_some(disable);
            let update = UserUpdate { full_name, comment, disabled, confirm: None };
            if update == UserUpdate::default() {
                return usage("say what to change: --full-name, --comment, --disable or --enable.");
            }
            let changed = context
                .confirmed(async |confirm| {
                    client.patch(&path(&name), &UserUpdate { confirm, ..update.clone() }).await
                })
                .await?;
            show(changed)
        }
        Command::Passwd { name, end_sessions, password } => {
            let change = PasswordChange { password: password.read()?, end_sessions };
            show(client.post(&format!("{}/password", path(&name)), &change).await?)
        }
        Command::Unlock { name } => show(client.post(&format!("{}/unlock", path(&name)), &json!({})).await?),
        Command::Delete { name } => {
            let done: Done = context
                .confirmed(async |confirm| client.delete(&path(&name), &Confirm { confirm }).await)
                .await?;
            context.show(&done, |done| outln!("{}", done.message))
        }
    }
}

fn print(users: &[User]) {
    let headings = ["USER", "STATE", "FULL NAME", "GROUPS", ">SESSIONS", "PASSWORD SET", "COMMENT"];
    let mut table = Table::new(&headings, "There are no users. Make one with `holdfast user create`.");
    for user in users {
        let state = match (user.disabled, user.locked_seconds) {
            (true, _) => "disabled".to_owned(),
            (false, Some(left)) => format!("locked out for {}", seconds(left)),
            (false, None) => "active".to_owned(),
        };
        table.row([
            user.name.clone(),
            state,
            user.full_name.clone(),
            user.groups.join(", "),
            user.sessions.to_string(),
            time(user.password_set),
            user.comment.clone(),
        ]);
    }
    table.print();
}
