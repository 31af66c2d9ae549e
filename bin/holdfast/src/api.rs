//! `holdfast api …`: the API over the network, and tokens for programs.

use clap::{Subcommand, ValueEnum};
use control_api::{ApiToken, ApiTokenCreate, ApiTokenCreated, Confirm, Done, HttpStatus, HttpUpdate, Role};
use control_client::segment;

use crate::context::Context;
use crate::error::{CliError, CliResult};
use crate::pool::usage;
use crate::table::{Table, or_dash, print_listeners, word};
use crate::units::time;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show where the API and the pages are served over the network, and with which certificate.
    Status,
    /// Change how they are served.
    Set(Box<Set>),
    /// Tokens: what programs show instead of a password.
    #[command(subcommand)]
    Token(Token),
}

/// Change how the API is served over the network.
#[derive(Debug, clap::Args)]
pub(crate) struct Set {
    /// Address that it is served on, as 0.0.0.0:8443 or [::]:8443; may be given several times; replaces those before.
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Vec<String>,
    /// It is not served over the network any more.
    #[arg(long, conflicts_with = "listen")]
    no_listen: bool,
    /// Name or address that the node's own certificate is also made for; may be given several times; replaces those before.
    #[arg(long = "name", value_name = "NAME")]
    names: Vec<String>,
    /// File of the node's machine with a certificate, and those between it and its authority, in PEM.
    #[arg(long, requires = "key", value_name = "FILE")]
    certificate: Option<String>,
    /// File with its private key, in PEM.
    #[arg(long, requires = "certificate", value_name = "FILE")]
    key: Option<String>,
    /// Show a certificate of the node's own again.
    #[arg(long, conflicts_with = "certificate")]
    own_certificate: bool,
    /// Group of users whose members are operators; may be given several times; replaces those before; "" for none.
    #[arg(long, value_name = "GROUP")]
    operators: Vec<String>,
    /// Group of users whose members are viewers; likewise.
    #[arg(long, value_name = "GROUP")]
    viewers: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Token {
    /// List tokens.
    List,
    /// Make a token, and show it this once.
    Create {
        /// What whoever shows it may do.
        #[arg(long, value_enum)]
        role: RoleName,
        /// What it is for.
        #[arg(long, default_value = "")]
        name: String,
        /// How long it counts, as 30d, 12h or 90m; without it until it is revoked.
        #[arg(long, value_name = "TIME", value_parser = duration)]
        expires: Option<u64>,
    },
    /// Revoke a token.
    Revoke {
        /// Its id, as `holdfast api token list` shows it.
        id: String,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum RoleName {
    /// Reads metrics, and nothing else.
    Metrics,
    /// Sees how everything is.
    Viewer,
    /// Keeps the storage running; neither reads nor destroys data, nor says who may.
    Operator,
    /// Everything.
    Administrator,
}

impl RoleName {
    fn role(self) -> Role {
        match self {
            Self::Metrics => Role::Metrics,
            Self::Viewer => Role::Viewer,
            Self::Operator => Role::Operator,
            Self::Administrator => Role::Administrator,
        }
    }
}

/// `30d`, `12h`, `90m` or `600s` in seconds.
fn duration(text: &str) -> Result<u64, String> {
    let units = [('d', 86_400), ('h', 3600), ('m', 60), ('s', 1)];
    let parsed = units.iter().find_map(|(unit, seconds)| {
        let count: u64 = text.strip_suffix(*unit)?.parse().ok()?;
        count.checked_mul(*seconds)
    });
    parsed
        .filter(|seconds| *seconds > 0)
        .ok_or_else(|| format!("{text:?} is no time: write 30d, 12h, 90m or 600s"))
}

/// A list that was given, where an empty text stands for an empty list; absent when nothing was.
fn listed(given: Vec<String>) -> Option<Vec<String>> {
    (!given.is_empty()).then(|| given.into_iter().filter(|item| !item.is_empty()).collect())
}

pub(crate) async fn run(command: Command, context: &Context) -> CliResult {
    match command {
        Command::Status => {
            let status: HttpStatus = context.client.get("/http").await?;
            context.show(&status, print)
        }
        Command::Set(set) => {
            let file = |given: Option<String>| match given {
                // The node looks for it from another directory.
                Some(path) => std::path::absolute(&path)
                    .map(|path| Some(path.to_string_lossy().into_owned()))
                    .map_err(|error| CliError::here(format!("{path}: {error}"))),
                None => Ok(set.own_certificate.then(String::new)),
            };
            let update = HttpUpdate {
                listen: if set.no_listen { Some(Vec::new()) } else { listed(set.listen) },
                names: listed(set.names),
                certificate: file(set.certificate)?,
                key: file(set.key)?,
                operators: listed(set.operators),
                viewers: listed(set.viewers),
                confirm: None,
            };
            if update == HttpUpdate::default() {
                return usage(
                    "say what to change: --listen, --name, --certificate and --key, --operators, --viewers.",
                );
            }
            let status: HttpStatus = context
                .confirmed(async |confirm| {
                    context.client.patch("/http", &HttpUpdate { confirm, ..update.clone() }).await
                })
                .await?;
            context.show(&status, print)
        }
        Command::Token(command) => token(command, context).await,
    }
}

async fn token(command: Token, context: &Context) -> CliResult {
    match command {
        Token::List => context.show_list("/tokens", print_tokens).await,
        Token::Create { role, name, expires } => {
            let request = ApiTokenCreate { name, role: role.role(), expires_seconds: expires };
            let made: ApiTokenCreated = context.client.post("/tokens", &request).await?;
            context.show(&made, |made| {
                outln!("{}", made.secret);
                eprintln!(
                    "Keep it: it is not shown again. Programs send it as `Authorization: Bearer TOKEN`."
                );
                eprintln!("`holdfast api token revoke {}` takes it back.", made.token.id);
            })
        }
        Token::Revoke { id } => {
            let path = format!("/tokens/{}", segment(&id));
            // What a token costs when it is gone is nothing that cannot be made again: it is not asked twice.
            let done: Done = context.client.delete(&path, &Confirm { confirm: Some(id) }).await?;
            context.show(&done, |done| outln!("{}", done.message))
        }
    }
}

fn print(status: &HttpStatus) {
    print_listeners(
        &status.listeners,
        "The API is not served over the network: `holdfast api set --listen 0.0.0.0:8443` serves it.",
    );
    if let Some(certificate) = &status.in_use {
        let whose = if certificate.own { "the node's own" } else { "given" };
        outln!("\nCertificate   {whose}, until {} UTC", time(certificate.not_after));
        outln!("  for         {}", certificate.names.join(", "));
        outln!("  SHA-256     {}", certificate.fingerprint);
        if let Some(fingerprint) = &certificate.ca_fingerprint {
            outln!("Authority     {}", or_dash(certificate.ca_file.as_ref()));
            outln!("  SHA-256     {fingerprint}");
        }
    }
    outln!("\nAdministrators: members of Administrators");
    outln!("Operators:      members of {}", some(&status.config.operators));
    outln!("Viewers:        members of {}", some(&status.config.viewers));
    outln!("Logged in:      {}", status.sessions);
}

fn some(groups: &[String]) -> String {
    if groups.is_empty() { "no group".to_owned() } else { groups.join(", ") }
}

fn print_tokens(tokens: &[ApiToken]) {
    let headings = ["ID", "NAME", "ROLE", "OWNER", "MADE", "ENDS", "LAST USED", "STATE"];
    let mut table = Table::new(&headings, "There are no tokens. Make one with `holdfast api token create`.");
    for token in tokens {
        table.row([
            token.id.clone(),
            token.name.clone(),
            word(&token.role),
            or_dash(token.owner.as_ref()),
            time(token.created),
            token.expires.map_or_else(|| "never".to_owned(), time),
            token.last_used.map(time).unwrap_or_default(),
            if token.valid { "counts" } else { "counts nothing" }.to_owned(),
        ]);
    }
    table.print();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        assert_eq!(duration("30d"), Ok(30 * 86_400));
        assert_eq!(duration("90m"), Ok(5400));
        for wrong in ["", "d", "30", "0d", "-1d", "30 d", "99999999999999999999d", "9999999999999999999d"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
