//! `holdfast group …`: groups of users. Those of initiators are in `group`.

use clap::Subcommand;
use control_api::{AccountRename, Confirm, Done, UserGroup, UserGroupCreate, UserGroupUpdate};
use control_client::segment;

use crate::context::Context;
use crate::error::CliResult;
use crate::table::Table;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List groups of users.
    List,
    /// Make a group of users.
    Create {
        /// What it is called.
        name: String,
        /// Users and groups that belong to it.
        members: Vec<String>,
        /// What it is for.
        #[arg(long, default_value = "")]
        comment: String,
    },
    /// Add users or groups; counts from their next sessions on.
    Add {
        /// The group.
        name: String,
        /// Users and groups.
        #[arg(required = true)]
        members: Vec<String>,
    },
    /// Give a group another name; it stays what it is, with its members, permissions and roles.
    Rename {
        /// The group.
        name: String,
        /// The new name.
        new_name: String,
    },
    /// Take users or groups out; counts from their next sessions on. Sessions with the management that this ends, it asks about first.
    Remove {
        /// The group.
        name: String,
        /// Users and groups.
        #[arg(required = true)]
        members: Vec<String>,
    },
    /// Take a group away; its members stay.
    Delete {
        /// The group.
        name: String,
    },
}

pub(crate) async fn run(command: Command, context: &Context) -> CliResult {
    let client = &context.client;
    let path = |name: &str| format!("/user-groups/{}", segment(name));
    let show = |group: UserGroup| context.show(&group, |group| print(std::slice::from_ref(group)));
    let change = async |name: String, update: UserGroupUpdate| -> CliResult {
        let changed = context
            .confirmed(async |confirm| {
                client.patch(&path(&name), &UserGroupUpdate { confirm, ..update.clone() }).await
            })
            .await?;
        show(changed)
    };
    match command {
        Command::List => context.show_list("/user-groups", print).await,
        Command::Create { name, members, comment } => {
            show(client.post("/user-groups", &UserGroupCreate { name, comment, members }).await?)
        }
        Command::Rename { name, new_name } => {
            show(client.put(&format!("{}/name", path(&name)), &AccountRename { name: new_name }).await?)
        }
        Command::Add { name, members } => {
            let update = UserGroupUpdate { add: members, ..UserGroupUpdate::default() };
            change(name, update).await
        }
        Command::Remove { name, members } => {
            let update = UserGroupUpdate { remove: members, ..UserGroupUpdate::default() };
            change(name, update).await
        }
        Command::Delete { name } => {
            let done: Done = context
                .confirmed(async |confirm| client.delete(&path(&name), &Confirm { confirm }).await)
                .await?;
            context.show(&done, |done| outln!("{}", done.message))
        }
    }
}

fn print(groups: &[UserGroup]) {
    let mut table = Table::new(&["GROUP", "MEMBERS", "BUILT IN", "COMMENT"], "There are no groups.");
    for group in groups {
        table.row([
            group.name.clone(),
            group.members.join(", "),
            if group.built_in { "yes" } else { "no" }.into(),
            group.comment.clone(),
        ]);
    }
    table.print();
}
