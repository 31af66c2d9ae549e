//! `holdfast initiator-group …`.

use clap::Subcommand;
use control_api::{Confirm, Done, GroupConfig, GroupUpdate};
use control_client::segment;

use crate::context::Context;
use crate::error::CliResult;
use crate::table::Table;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List initiator groups.
    List,
    /// Make an initiator group.
    Create {
        /// Its name.
        name: String,
        /// Names of initiators (iqn.…).
        #[arg(required_unless_present = "any")]
        initiators: Vec<String>,
        /// Every initiator belongs to it.
        #[arg(long)]
        any: bool,
    },
    /// Add initiators.
    Add {
        /// The group.
        name: String,
        /// Names of initiators.
        #[arg(required = true)]
        initiators: Vec<String>,
    },
    /// Take initiators out.
    Remove {
        /// The group.
        name: String,
        /// Names of initiators.
        #[arg(required = true)]
        initiators: Vec<String>,
    },
    /// Take an initiator group away.
    Delete {
        /// The group.
        name: String,
    },
}

pub(crate) async fn run(command: Command, context: &Context) -> CliResult {
    let change = async |name: &str, update: GroupUpdate| -> CliResult {
        let path = format!("/initiator-groups/{}", segment(name));
        let group: GroupConfig = context
            .confirmed(async |confirm| {
                context.client.patch(&path, &GroupUpdate { confirm, ..update.clone() }).await
            })
            .await?;
        context.show(&group, |group| print(std::slice::from_ref(group)))
    };
    match command {
        Command::List => context.show_list("/initiator-groups", print).await,
        Command::Create { name, initiators, any } => {
            let group: GroupConfig =
                context.client.post("/initiator-groups", &GroupConfig { name, initiators, any }).await?;
            context.show(&group, |group| print(std::slice::from_ref(group)))
        }
        Command::Add { name, initiators } => {
            change(&name, GroupUpdate { add: initiators, ..GroupUpdate::default() }).await
        }
        Command::Remove { name, initiators } => {
            change(&name, GroupUpdate { remove: initiators, ..GroupUpdate::default() }).await
        }
        Command::Delete { name } => {
            let path = format!("/initiator-groups/{}", segment(&name));
            let done: Done = context
                .confirmed(async |confirm| context.client.delete(&path, &Confirm { confirm }).await)
                .await?;
            context.show(&done, |done| outln!("{}", done.message))
        }
    }
}

fn print(groups: &[GroupConfig]) {
    let mut table = Table::new(&["GROUP", "INITIATORS"], "There are no initiator groups.");
    for group in groups {
        let any = group.any.then(|| "(any)".to_owned());
        let names: Vec<String> = any.into_iter().chain(group.initiators.iter().cloned()).collect();
        table.row([group.name.clone(), names.join(", ")]);
    }
    table.print();
}
