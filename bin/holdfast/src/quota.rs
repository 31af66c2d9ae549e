//! `holdfast volume quota …`: how much of a volume each user has, and may have.

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand, ValueEnum};
use control_api::{OwnerQuota, QuotaLimits, QuotaMode, QuotaUpdate, VolumeQuotas};
use control_client::segment;

use crate::context::Context;
use crate::error::CliResult;
use crate::pool::usage;
use crate::table::{Table, word};
use crate::units::{bytes, parse_bytes};

/// What quotas do.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Mode {
    /// Nothing is counted.
    Off,
    /// What each user has is counted, and nothing is refused.
    Track,
    /// What would pass a limit is refused.
    Enforce,
}

/// A size, or none, which the API has as 0.
fn limit(text: &str) -> Result<u64, String> {
    match text {
        "none" => Ok(0),
        text => match parse_bytes(text)? {
            0 => Err("0 would let nobody write anything: say `none` for no limit".into()),
            size => Ok(size),
        },
    }
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Quota {
    #[command(subcommand)]
    command: Option<Command>,
    /// The volume.
    #[arg(required = true)]
    volume: Option<String>,
    /// Count what each user has, or refuse what passes a limit, too, or neither.
    #[arg(long)]
    mode: Option<Mode>,
    /// What users without a limit of their own may have: a size, or none.
    #[arg(long, value_name = "SIZE", value_parser = limit)]
    default_limit: Option<u64>,
    /// When they are warned: a size, or none.
    #[arg(long, value_name = "SIZE", value_parser = limit)]
    default_warning: Option<u64>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show what each user has and may have, those nearest to their limit first.
    List {
        /// The volume.
        volume: String,
    },
    /// Give a user limits of its own. What is not given stays what holds for the user now.
    Set {
        /// The volume.
        volume: String,
        /// The user who owns files: a name or a SID.
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        user: String,
        /// What it may have: a size, or none.
        #[arg(long, value_name = "SIZE", value_parser = limit)]
        limit: Option<u64>,
        /// When it is warned: a size, or none.
        #[arg(long, value_name = "SIZE", value_parser = limit)]
        warning: Option<u64>,
        /// Take its own limits away: those of everybody hold for it again.
        #[arg(long, conflicts_with_all = ["limit", "warning"])]
        default: bool,
    },
}

fn route(volume: &str) -> String {
    format!("/volumes/{}/quotas", segment(volume))
}

pub(crate) async fn run(quota: Quota, context: &Context) -> CliResult {
    let client = &context.client;
    match quota.command {
        Some(Command::List { volume }) => {
            let quotas: VolumeQuotas = client.get(&route(&volume)).await?;
            context.show(&quotas, print)
        }
        Some(Command::Set { volume, user, limit, warning, default }) => {
            if !default && limit.is_none() && warning.is_none() {
                return usage("say what holds: --limit SIZE, --warning SIZE, or --default.");
            }
            let limits = QuotaLimits { warning_bytes: warning, limit_bytes: limit, default };
            let path = format!("{}/{}", route(&volume), segment(&user));
            let set: OwnerQuota = client.put(&path, &limits).await?;
            context.show(&set, |set| print_owners(std::slice::from_ref(set), true))
        }
        None => {
            let volume = quota.volume.unwrap_or_default();
            let update = QuotaUpdate {
                mode: quota.mode.map(|mode| match mode {
                    Mode::Off => QuotaMode::Off,
                    Mode::Track => QuotaMode::Track,
                    Mode::Enforce => QuotaMode::Enforce,
                }),
                default_warning_bytes: quota.default_warning,
                default_limit_bytes: quota.default_limit,
            };
            let quotas: VolumeQuotas = if update == QuotaUpdate::default() {
                client.get(&route(&volume)).await?
            } else {
                client.patch(&route(&volume), &update).await?
            };
            context.show(&quotas, print)
        }
    }
}

fn size(bytes_or_none: Option<u64>) -> String {
    bytes_or_none.map_or_else(|| "none".into(), bytes)
}

fn print(quotas: &VolumeQuotas) {
    let everybodys = match (quotas.default_warning_bytes, quotas.default_limit_bytes) {
        (None, None) => "no limit for users without one of their own".to_owned(),
        (warning, limit) => {
            format!("users without limits of their own: warning {}, limit {}", size(warning), size(limit))
        }
    };
    outln!("Quotas of {}: {}; {everybodys}.", quotas.volume, word(&quotas.mode));
    if quotas.counting {
        outln!(
            "What was there is still being counted: until that has ended the figures are too low, and nothing is refused."
        );
    }
    print_owners(&quotas.owners, quotas.mode != QuotaMode::Off);
}

/// `counted`: what they have is known.
fn print_owners(owners: &[OwnerQuota], counted: bool) {
    let headings = ["OWNER", ">USED", ">OF LIMIT", ">WARNING", ">LIMIT", "LIMITS"];
    let mut table = Table::new(&headings, "Nobody has limits of its own, nor any files that count.");
    for owner in owners {
        let share = match owner.per_mille().filter(|_| counted) {
            Some(_) if owner.limit_bytes == Some(0) => "over".into(),
            Some(part) => format!("{}.{} %", part / 10, part % 10),
            None => "-".into(),
        };
        table.row([
            owner.owner.clone(),
            if counted { bytes(owner.used_bytes) } else { "-".into() },
            share,
            size(owner.warning_bytes),
            size(owner.limit_bytes),
            if owner.own_limits { "its own" } else { "everybody's" }.into(),
        ]);
    }
    table.print();
}
