//! `holdfast open …`: what clients of shares have open.

use clap::Subcommand;
use control_api::{Confirm, Done, OnNode, SmbOpen, numbered};

use crate::context::Context;
use crate::error::CliResult;
use crate::table::Table;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List what clients have open: who, from where, which file, what they may cache, what outlives a connection.
    List,
    /// Close what a client has open; what the client has not written is lost.
    Close {
        /// Its number; of another node, as `NODE:NUMBER`.
        #[arg(value_parser = crate::units::numbered)]
        open: String,
    },
}

pub(crate) async fn run(command: Command, context: &Context) -> CliResult {
    match command {
        Command::List => context.show_list("/opens", print).await,
        Command::Close { open } => {
            let path = format!("/opens/{open}");
            let done: Done = context
                .confirmed(async |confirm| context.client.delete(&path, &Confirm { confirm }).await)
                .await?;
            context.show(&done, |done| outln!("{}", done.message))
        }
    }
}

fn print(opens: &[OnNode<SmbOpen>]) {
    let headings = [">ID", "USER", "ADDRESS", "SHARE", "PATH", "ACCESS", "CACHING", "LASTING"];
    let mut table = Table::of(&headings, "Nothing is open.", opens);
    for open in opens {
        let away = open.session.is_none();
        table.row_of(
            open,
            [
                numbered(open.node.as_deref(), open.id),
                open.user.clone(),
                if away { "(away)".into() } else { open.address.clone() },
                open.share.clone(),
                if open.directory { format!("{}\\", open.path) } else { open.path.clone() },
                open.rights.clone(),
                open.caching.clone(),
                open.lasting.clone(),
            ],
        );
    }
    table.print();
}
