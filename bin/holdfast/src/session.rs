//! `holdfast session …`.

use clap::Subcommand;
use control_api::{Confirm, Done, OnNode, Session, numbered};

use crate::context::Context;
use crate::error::CliResult;
use crate::table::Table;
use crate::units::bytes;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List sessions of iSCSI and SMB.
    List,
    /// End a session; the client may log in again.
    #[command(visible_alias = "close")]
    End {
        /// Its number; of another node, as `NODE:NUMBER`.
        #[arg(value_parser = crate::units::numbered)]
        session: String,
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

fn print(sessions: &[OnNode<Session>]) {
    let headings = [
        ">ID",
        "PROTOCOL",
        "WHO",
        "ADDRESS",
        "USES",
        ">CONNECTIONS",
        ">COMMANDS",
        ">READ",
        ">WRITTEN",
        "SECURITY",
    ];
    let mut table = Table::of(&headings, "There are no sessions.", sessions);
    for session in sessions {
        let (protocol, who, uses, security) = match &session.smb {
            Some(smb) => (
                format!("SMB {}", smb.dialect),
                smb.user.clone(),
                smb.shares.join(", "),
                match &smb.cipher {
                    Some(cipher) if smb.encrypted => cipher.clone(),
                    _ => format!("signed {}", smb.signing),
                },
            ),
            None => (
                "iSCSI".to_owned(),
                match &session.chap_user {
                    Some(user) => format!("{} ({user})", session.initiator),
                    None => session.initiator.clone(),
                },
                if session.target.is_empty() { "(discovery)".to_owned() } else { session.target.clone() },
                if session.digests.is_empty() {
                    String::new()
                } else {
                    format!("{} digest", session.digests.join(", "))
                },
            ),
        };
        table.row_of(
            session,
            [
                numbered(session.node.as_deref(), session.id),
                protocol,
                who,
                session.address.clone(),
                uses,
                session.connections.to_string(),
                session.commands.to_string(),
                bytes(session.read_bytes),
                bytes(session.written_bytes),
                security,
            ],
        );
    }
    table.print();
}
