//! `holdfast session …`.

use clap::Subcommand;
use control_api::{Confirm, Done, Session};

use crate::context::Context;
use crate::error::CliResult;
use crate::table::Table;
use crate::units::bytes;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List sessions of initiators.
    List,
    /// End a session; the initiator may log in again.
    End {
        /// Its number.
        session: u64,
    },
}

pub(crate) async fn run(command: Command, context: &Context) -> CliResult {
    match command {
        Command::List => context.show_list("/sessions", print).await,
        Command::End { session } => {
            let path = format!("/sessions/{session}");
            let done: Done = context
                .confirmed(async |confirm| context.client.delete(&path, &Confirm { confirm }).await)
                .await?;
            context.show(&done, |done| outln!("{}", done.message))
        }
    }
}

fn print(sessions: &[Session]) {
    let headings =
        [">ID", "INITIATOR", "ADDRESS", "TARGET", ">CONNECTIONS", ">COMMANDS", ">READ", ">WRITTEN"];
    let mut table = Table::new(&headings, "There are no sessions.");
    for session in sessions {
        table.row([
            session.id.to_string(),
            session.initiator.clone(),
            session.address.clone(),
            if session.target.is_empty() { "(discovery)".into() } else { session.target.clone() },
            session.connections.to_string(),
            session.commands.to_string(),
            bytes(session.read_bytes),
            bytes(session.written_bytes),
        ]);
    }
    table.print();
}
