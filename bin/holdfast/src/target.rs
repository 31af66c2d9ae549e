//! `holdfast target …`.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use control_api::{
    AuthConfig, ChapUser, ChapUserUpdate, Confirm, Done, IscsiConfig, IscsiUpdate, Target, TargetConfig,
    TargetUpdate,
};
use control_client::segment;

use crate::context::Context;
use crate::error::{CliError, CliResult};
use crate::pool::usage;
use crate::share::Switch;
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
        /// Ask initiators for CHAP again, after --no-chap.
        #[arg(long, conflicts_with_all = ["chap_user", "no_chap"])]
        chap: bool,
        /// Let initiators in without CHAP from now on; the users are kept. Discovery asks for what `target discovery` says.
        #[arg(long, conflicts_with = "chap_user")]
        no_chap: bool,
        /// With --no-chap: forget the users and their secrets.
        #[arg(long, requires = "no_chap")]
        forget_users: bool,
        #[command(flatten)]
        auth: Auth,
    },
    /// Make a CHAP user of a target, or change its secret or groups. Sessions that would not be let in any more end.
    SetUser {
        /// The target.
        name: String,
        /// The user.
        user: String,
        /// File with its secret, 12 to 255 bytes; `-` for standard input. Needed for a new user.
        #[arg(long, value_name = "FILE")]
        secret_file: Option<PathBuf>,
        /// Initiator group that it may log in as, and nobody else; may be given several times; replaces those before.
        #[arg(long = "group", value_name = "GROUP")]
        groups: Vec<String>,
        /// It may log in as any initiator that no other user is bound to.
        #[arg(long, conflicts_with = "groups")]
        any_initiator: bool,
    },
    /// Take a CHAP user of a target away; its sessions end.
    RemoveUser {
        /// The target.
        name: String,
        /// The user.
        user: String,
    },
    /// Show or change what initiators prove before they are told which targets there are.
    Discovery {
        /// They prove to be a CHAP user of some target, and are told of the targets that would let them in.
        #[arg(long)]
        chap: Option<Switch>,
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
    /// Initiator group that the user may log in as; may be given several times; any initiator when absent.
    #[arg(long = "chap-group", requires = "chap_user", value_name = "GROUP")]
    chap_groups: Vec<String>,
    /// The target proves to be this user to initiators that ask.
    #[arg(long, requires = "mutual_secret_file", value_name = "NAME")]
    mutual_user: Option<String>,
    /// File with the target's own secret.
    #[arg(long, requires = "mutual_user", value_name = "FILE")]
    mutual_secret_file: Option<PathBuf>,
}

/// The secret in a file.
fn secret(file: &Path) -> CliResult<String> {
    let text = if file.as_os_str() == "-" {
        std::io::read_to_string(std::io::stdin())
    } else {
        std::fs::read_to_string(file)
    };
    let text = text.map_err(|error| CliError::here(format!("{}: {error}", file.display())))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

impl Auth {
    /// Who may log in, and what the target proves to be.
    fn read(self) -> CliResult<(Option<ChapUser>, Option<ChapUser>)> {
        let pair = |user: Option<String>, file: Option<PathBuf>| -> CliResult<Option<ChapUser>> {
            let (Some(user), Some(file)) = (user, file) else { return Ok(None) };
            Ok(Some(ChapUser { user, secret: secret(&file)?, groups: Vec::new() }))
        };
        let user = pair(self.chap_user, self.chap_secret_file)?;
        let user = user.map(|user| ChapUser { groups: self.chap_groups, ..user });
        Ok((user, pair(self.mutual_user, self.mutual_secret_file)?))
    }
}

pub(crate) async fn run(command: Command, context: &Context) -> CliResult {
    let client = &context.client;
    let one = |target: &Target| print(std::slice::from_ref(target));
    let change = async |name: &str, update: TargetUpdate| -> CliResult {
        let path = format!("/targets/{}", segment(name));
        let target: Target = context
            .confirmed(async |confirm| client.patch(&path, &TargetUpdate { confirm, ..update.clone() }).await)
            .await?;
        context.show(&target, one)
    };
    match command {
        Command::List => context.show_list("/targets", print).await,
        Command::Create { name, alias, portal_groups, auth } => {
            let (user, mutual) = auth.read()?;
            let auth = AuthConfig { chap: user.into_iter().collect(), mutual, chap_off: false };
            let target: Target =
                client.post("/targets", &TargetConfig { name, alias, portal_groups, auth }).await?;
            context.show(&target, one)
        }
        Command::Set { name, alias, portal_groups, chap, no_chap, forget_users, auth } => {
            let (auth, set_mutual) = match (forget_users, auth.read()?) {
                (true, _) => (Some(AuthConfig::default()), None),
                (false, (Some(user), mutual)) => {
                    (Some(AuthConfig { chap: vec![user], mutual, chap_off: false }), None)
                }
                (false, (None, mutual)) => (None, mutual),
            };
            let chap = (chap || no_chap && !forget_users).then_some(chap);
            let portal_groups = (!portal_groups.is_empty()).then_some(portal_groups);
            let update =
                TargetUpdate { alias, portal_groups, auth, chap, set_mutual, ..TargetUpdate::default() };
            if update == TargetUpdate::default() {
                return usage(
                    "say what to change: --alias, --portal-group, --chap-user, --mutual-user, --chap or --no-chap.",
                );
            }
            change(&name, update).await
        }
        Command::SetUser { name, user, secret_file, groups, any_initiator } => {
            let groups = (any_initiator || !groups.is_empty()).then_some(groups);
            if secret_file.is_none() && groups.is_none() {
                return usage("say what to change: --secret-file, --group or --any-initiator.");
            }
            let secret = secret_file.as_deref().map(secret).transpose()?;
            let set_user = Some(ChapUserUpdate { user, secret, groups });
            change(&name, TargetUpdate { set_user, ..TargetUpdate::default() }).await
        }
        Command::RemoveUser { name, user } => {
            change(&name, TargetUpdate { remove_user: Some(user), ..TargetUpdate::default() }).await
        }
        Command::Discovery { chap } => {
            let iscsi: IscsiConfig = match chap {
                Some(chap) => {
                    let discovery_chap = Some(chap.is_on());
                    context
                        .confirmed(async |confirm| {
                            client.patch("/iscsi", &IscsiUpdate { discovery_chap, confirm }).await
                        })
                        .await?
                }
                None => client.get("/iscsi").await?,
            };
            context.show(&iscsi, |iscsi| {
                outln!(
                    "{}",
                    if iscsi.discovery_chap {
                        "Discovery asks for CHAP; initiators are told of the targets that would let them in."
                    } else {
                        "Discovery asks for nothing; initiators are told of the targets with a LUN for the name that they give."
                    }
                );
            })
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
        let users: Vec<String> = target
            .chap_users
            .iter()
            .map(|user| match user.groups.is_empty() {
                true => user.user.clone(),
                false => format!("{} as {}", user.user, user.groups.join(" or ")),
            })
            .collect();
        let chap = match (users.is_empty(), target.mutual_chap) {
            (true, _) => "none".to_owned(),
            _ if target.chap_off => format!("off ({} kept)", users.join(", ")),
            (false, false) => users.join(", "),
            (false, true) => format!("{} (mutual)", users.join(", ")),
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
