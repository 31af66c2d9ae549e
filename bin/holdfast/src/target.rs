//! `holdfast target …`.

use std::path::PathBuf;

use clap::Subcommand;
use control_api::{AuthConfig, ChapUser, Confirm, Done, Target, TargetConfig, TargetUpdate};
use control_client::segment;

use crate::context::Context;
use crate::error::{CliError, CliResult};
use crate::pool::usage;
use crate::table::Table;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List targets.
    List,
    /// Make a target.
    Create {
        /// Its iSCSI name, as iqn.2026-01.com.example:storage1.
        name: String,
        /// A name for people.
        #[arg(long, default_value = "")]
        alias: String,
        /// Portal group it is served on; may be given several times; all when absent.
        #[arg(long = "portal-group", value_name = "TAG")]
        portal_groups: Vec<u16>,
        #[command(flatten)]
        auth: Auth,
    },
    /// Change a target.
    Set {
        /// The target.
        name: String,
        /// A name for people.
        #[arg(long)]
        alias: Option<String>,
        /// Portal group it is served on; may be given several times.
        #[arg(long = "portal-group", value_name = "TAG")]
        portal_groups: Vec<u16>,
        /// Initiators may log in without CHAP from now on.
        #[arg(long, conflicts_with = "chap_user")]
        no_chap: bool,
        #[command(flatten)]
        auth: Auth,
    },
    /// Take a target away; its sessions end.
    Delete {
        /// The target.
        name: String,
    },
}

/// Secrets come from files, so that they are not in the list of processes or the shell's history.
#[derive(Debug, clap::Args)]
pub(crate) struct Auth {
    /// Initiators must prove to be this CHAP user.
    #[arg(long, requires = "chap_secret_file", value_name = "NAME")]
    chap_user: Option<String>,
    /// File with the user's secret, 12 to 255 bytes; `-` for standard input.
    #[arg(long, requires = "chap_user", value_name = "FILE")]
    chap_secret_file: Option<PathBuf>,
    /// The target proves to be this user to initiators that ask.
    #[arg(long, requires = "mutual_secret_file", requires = "chap_user", value_name = "NAME")]
    mutual_user: Option<String>,
    /// File with the target's own secret.
    #[arg(long, requires = "mutual_user", value_name = "FILE")]
    mutual_secret_file: Option<PathBuf>,
}

impl Auth {
    fn read(self) -> CliResult<Option<AuthConfig>> {
        let pair = |user: Option<String>, file: Option<PathBuf>| -> CliResult<Option<ChapUser>> {
            let (Some(user), Some(file)) = (user, file) else { return Ok(None) };
            let text = if file.as_os_str() == "-" {
                std::io::read_to_string(std::io::stdin())
            } else {
                std::fs::read_to_string(&file)
            };
            let text = text.map_err(|error| CliError::here(format!("{}: {error}", file.display())))?;
            Ok(Some(ChapUser { user, secret: text.trim_end_matches(['\r', '\n']).to_owned() }))
        };
        let Some(user) = pair(self.chap_user, self.chap_secret_file)? else { return Ok(None) };
        Ok(Some(AuthConfig { chap: vec![user], mutual: pair(self.mutual_user, self.mutual_secret_file)? }))
    }
}

pub(crate) async fn run(command: Command, context: &Context) -> CliResult {
    let client = &context.client;
    let one = |target: &Target| print(std::slice::from_ref(target));
    match command {
        Command::List => context.show_list("/targets", print).await,
        Command::Create { name, alias, portal_groups, auth } => {
            let auth = auth.read()?.unwrap_or_default();
            let target: Target =
                client.post("/targets", &TargetConfig { name, alias, portal_groups, auth }).await?;
            context.show(&target, one)
        }
        Command::Set { name, alias, portal_groups, no_chap, auth } => {
            let auth = if no_chap { Some(AuthConfig::default()) } else { auth.read()? };
            let portal_groups = (!portal_groups.is_empty()).then_some(portal_groups);
            if alias.is_none() && portal_groups.is_none() && auth.is_none() {
                return usage("say what to change: --alias, --portal-group, --chap-user or --no-chap.");
            }
            let path = format!("/targets/{}", segment(&name));
            let target: Target = client.patch(&path, &TargetUpdate { alias, portal_groups, auth }).await?;
            context.show(&target, one)
        }
        Command::Delete { name } => {
            let path = format!("/targets/{}", segment(&name));
            let done: Done =
                context.confirmed(async |confirm| client.delete(&path, &Confirm { confirm }).await).await?;
            context.show(&done, |done| outln!("{}", done.message))
        }
    }
}

fn print(targets: &[Target]) {
    let headings = ["TARGET", "ALIAS", ">LUNS", ">SESSIONS", "PORTAL GROUPS", "CHAP"];
    let mut table = Table::new(&headings, "There are no targets. Make one with `holdfast target create`.");
    for target in targets {
        let groups: Vec<String> = target.portal_groups.iter().map(u16::to_string).collect();
        let chap = match (target.chap_users.is_empty(), target.mutual_chap) {
            (true, _) => "none".to_owned(),
            (false, false) => target.chap_users.join(", "),
            (false, true) => format!("{} (mutual)", target.chap_users.join(", ")),
        };
        table.row([
            target.name.clone(),
            target.alias.clone(),
            target.luns.to_string(),
            target.sessions.to_string(),
            if groups.is_empty() { "all".into() } else { groups.join(", ") },
            chap,
        ]);
    }
    table.print();
}
