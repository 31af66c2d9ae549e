//! `holdfast qos …`: what LUNs and files are promised and allowed, and what initiators and clients get.

mod show;

use clap::Subcommand;
use control_api::{
    ClusterPlace, Done, PolicyKind, QosAssign, QosFlow, QosPolicy, QosPolicyCreate, QosPolicyDetail,
    QosPolicyRemove, QosPolicyUpdate, QosUpdate, QosVolume,
};
use control_client::segment;
use uuid::Uuid;

use crate::context::Context;
use crate::error::{CliError, CliResult};
use crate::units::parse_bytes;
use show::{print_detail, print_flows, print_policies, print_settings, print_volumes};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Policies: minimum and maximum IOPS, maximum bandwidth.
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// What initiators do with LUNs and clients with files of shares, those in trouble first.
    #[command(subcommand)]
    Flow(FlowCommand),
    /// What volumes can do, and what is promised of that.
    #[command(subcommand)]
    Volume(VolumeCommand),
    /// Give a LUN, file, folder, share or volume its policy, in place of the one that it has.
    Assign {
        /// The policy's name or GUID.
        policy: String,
        #[command(flatten)]
        subject: Subject,
    },
    /// Take its policy from a LUN, file, folder, share or volume.
    Unassign {
        /// The policy's name or GUID; without it, whichever it has.
        policy: Option<String>,
        #[command(flatten)]
        subject: Subject,
    },
    /// Show what holds for all disks.
    Show,
    /// Change what holds for all disks.
    Set {
        /// Bytes that count as one normalised I/O, 1K to 4M.
        #[arg(long, value_parser = unit, value_name = "BYTES")]
        unit_bytes: Option<u64>,
        /// Requests at a volume at once, 1 to 65536; others wait where minimums and shares count.
        #[arg(long, value_name = "REQUESTS", value_parser = clap::value_parser!(u32).range(1..))]
        volume_depth: Option<u32>,
        /// How long a volume may take for a request, as 5ms or 400us, while a minimum would suffer by its being longer: fewer requests
        /// are let to it then. `auto`: twice as long as when it is quiet, which is learnt.
        #[arg(long, value_parser = latency, value_name = "TIME")]
        latency_target: Option<u32>,
    },
}

/// What has a policy.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Subject {
    /// A LUN.
    #[arg(long)]
    lun: Option<String>,
    /// A file of a volume.
    #[arg(long, value_name = "VOLUME:/PATH")]
    file: Option<String>,
    /// A folder of a volume: each file below it is a disk.
    #[arg(long, value_name = "VOLUME:/PATH")]
    folder: Option<String>,
    /// A share: the folder that it serves.
    #[arg(long)]
    share: Option<String>,
    /// A volume: each file in it is a disk.
    #[arg(long)]
    volume: Option<String>,
}

impl Subject {
    fn query(&self) -> String {
        let Self { lun, file, folder, share, volume } = self;
        let named = [("lun", lun), ("file", file), ("folder", folder), ("share", share), ("volume", volume)];
        let said = named.into_iter().find_map(|(word, name)| Some((word, name.as_deref()?)));
        said.map(|(word, name)| format!("{word}={}", segment(name))).unwrap_or_default()
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum FlowCommand {
    /// List them, with rates of the last seconds.
    List,
}

#[derive(Debug, Subcommand)]
pub(crate) enum VolumeCommand {
    /// List them, those whose flows are in trouble first.
    List,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Make a policy.
    Create {
        /// Its name.
        name: String,
        /// dedicated: for each disk by itself; aggregated: its disks share. (MultiInstance, SingleInstance)
        #[arg(long = "type", alias = "PolicyType", default_value_t = PolicyKind::Dedicated)]
        kind: PolicyKind,
        /// Normalised I/Os per second that are promised; `none`, as when absent, for none.
        #[arg(long, alias = "MinimumIops", value_parser = number_or_none, value_name = "IOPS")]
        min_iops: Option<u64>,
        /// Normalised I/Os per second that are allowed; `none`, as when absent, for no limit.
        #[arg(long, alias = "MaximumIops", value_parser = number_or_none, value_name = "IOPS")]
        max_iops: Option<u64>,
        /// Bytes per second that are allowed, as 100M; `none`, as when absent, for no limit.
        #[arg(long, alias = "MaximumIOBandwidth", value_parser = bytes_or_none, value_name = "BYTES")]
        max_bandwidth: Option<u64>,
        /// Its identity; without it, a new one.
        #[arg(long, alias = "PolicyId")]
        guid: Option<Uuid>,
    },
    /// Change a policy, also for what waits; the type and the GUID stay.
    Set {
        /// The policy's name or GUID.
        policy: String,
        /// Its new name.
        #[arg(long)]
        name: Option<String>,
        /// Normalised I/Os per second that are promised, or `none`.
        #[arg(long, alias = "MinimumIops", value_parser = number_or_none, value_name = "IOPS")]
        min_iops: Option<u64>,
        /// Normalised I/Os per second that are allowed, or `none`.
        #[arg(long, alias = "MaximumIops", value_parser = number_or_none, value_name = "IOPS")]
        max_iops: Option<u64>,
        /// Bytes per second that are allowed, as 100M, or `none`.
        #[arg(long, alias = "MaximumIOBandwidth", value_parser = bytes_or_none, value_name = "BYTES")]
        max_bandwidth: Option<u64>,
    },
    /// Take a policy away.
    #[command(visible_alias = "delete")]
    Remove {
        /// The policy's name or GUID.
        policy: String,
        /// Also if LUNs have it: they are without limits then.
        #[arg(long)]
        force: bool,
    },
    /// List policies.
    List,
    /// Show a policy: its terms, what it is given to, and who uses it now, those in trouble first.
    Show {
        /// The policy's name or GUID.
        policy: String,
    },
}

fn number_or_none(text: &str) -> Result<u64, String> {
    match text {
        "none" => Ok(0),
        // The API takes 0 for "none", which who writes 0 need not mean.
        _ => match text.parse() {
            Ok(0) => Err("0 would be nothing at all; use `none` for none".into()),
            Ok(number) => Ok(number),
            Err(_) => Err(format!("{text:?} is not a number of I/Os per second, nor `none`")),
        },
    }
}

fn bytes_or_none(text: &str) -> Result<u64, String> {
    match text {
        "none" => Ok(0),
        _ => match parse_bytes(text)? {
            0 => Err("0 would be nothing at all; use `none` for none".into()),
            bytes => Ok(bytes),
        },
    }
}

/// Bytes of which there are some.
fn unit(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        0 => Err("0 bytes are no unit".into()),
        bytes => Ok(bytes),
    }
}

/// What cannot be meant whatever there is on the node: a minimum above the maximum beside it. `none` and what is not said are no bound.
fn refuse_nonsense(min_iops: Option<u64>, max_iops: Option<u64>) -> CliResult {
    let bound = |given: Option<u64>| given.filter(|number| *number > 0);
    match (bound(min_iops), bound(max_iops)) {
        (Some(min), Some(max)) if min > max => Err(CliError::Usage(format!(
            "a minimum of {min} IOPS is above its maximum of {max}; lower the minimum or raise the maximum"
        ))),
        _ => Ok(()),
    }
}

/// A time in microseconds, 0 for `auto`.
fn latency(text: &str) -> Result<u32, String> {
    if text == "auto" {
        return Ok(0);
    }
    let scales = [("us", 1), ("ms", 1000), ("s", 1_000_000)];
    let number = scales.into_iter().find_map(|(unit, scale)| {
        let number: u32 = text.strip_suffix(unit)?.parse().ok()?;
        number.checked_mul(scale).filter(|micros| *micros > 0)
    });
    number.ok_or_else(|| format!("{text:?} is not a time as 400us, 5ms or 1s, nor `auto`"))
}

/// Whether there may be several nodes, of which one says which it is.
async fn has_nodes(context: &Context) -> CliResult<bool> {
    if context.json {
        return Ok(false);
    }
    let place: ClusterPlace = context.client.get("/cluster/place").await?;
    Ok(place.cluster.is_some())
}

pub(crate) async fn run(command: Command, context: &Context) -> CliResult {
    match command {
        Command::Policy(command) => policy(command, context).await,
        Command::Flow(FlowCommand::List) => {
            let nodes = has_nodes(context).await?;
            context.show_list("/qos/flows", |flows: &[QosFlow]| print_flows(flows, nodes)).await?;
            if context.json {
                return Ok(());
            }
            outln!();
            context.show_list("/qos/volumes", |volumes: &[QosVolume]| print_volumes(volumes, nodes)).await
        }
        Command::Volume(VolumeCommand::List) => {
            let nodes = has_nodes(context).await?;
            context.show_list("/qos/volumes", |volumes: &[QosVolume]| print_volumes(volumes, nodes)).await
        }
        Command::Assign { policy, subject: Subject { lun, file, folder, share, volume } } => {
            let assign = QosAssign { policy, lun, file, folder, share, volume };
            let policy: QosPolicy = context.client.post("/qos/assignments", &assign).await?;
            context.show(&policy, |policy| print_policies(std::slice::from_ref(policy)))
        }
        Command::Unassign { policy, subject } => {
            let policy = policy.map(|policy| format!("&policy={}", segment(&policy))).unwrap_or_default();
            let path = format!("/qos/assignments?{}{policy}", subject.query());
            let done: Done = context.client.delete(&path, &()).await?;
            context.show(&done, |done| outln!("{}", done.message))
        }
        Command::Show => print_settings(&context.client.get("/qos").await?, context),
        Command::Set { unit_bytes, volume_depth, latency_target: latency_target_us } => {
            // What does not fit is refused by the node, with its bounds.
            let unit_bytes = unit_bytes.map(|unit| u32::try_from(unit).unwrap_or(u32::MAX));
            let update = QosUpdate { unit_bytes, volume_depth, latency_target_us };
            let settings = context.client.patch("/qos", &update).await?;
            print_settings(&settings, context)
        }
    }
}

async fn policy(command: PolicyCommand, context: &Context) -> CliResult {
    match command {
        PolicyCommand::List => context.show_list("/qos/policies", print_policies).await,
        PolicyCommand::Show { policy } => {
            let nodes = has_nodes(context).await?;
            let policy: QosPolicyDetail =
                context.client.get(&format!("/qos/policies/{}", segment(&policy))).await?;
            for silent in policy.unanswered.iter().filter(|_| !context.json) {
                eprintln!("node {}: {}", silent.node, silent.detail);
            }
            context.show(&policy, |policy| print_detail(policy, nodes))
        }
        PolicyCommand::Create { name, kind, min_iops, max_iops, max_bandwidth, guid } => {
            refuse_nonsense(min_iops, max_iops)?;
            // A new policy has nothing that `none` could take away.
            let [min_iops, max_iops, max_bandwidth] =
                [min_iops, max_iops, max_bandwidth].map(|given| given.filter(|number| *number > 0));
            let create = QosPolicyCreate { name, guid, kind, min_iops, max_iops, max_bandwidth };
            let policy: QosPolicy = context.client.post("/qos/policies", &create).await?;
            context.show(&policy, |policy| print_policies(std::slice::from_ref(policy)))
        }
        PolicyCommand::Set { policy, name, min_iops, max_iops, max_bandwidth } => {
            refuse_nonsense(min_iops, max_iops)?;
            let update = QosPolicyUpdate { name, min_iops, max_iops, max_bandwidth };
            let path = format!("/qos/policies/{}", segment(&policy));
            let policy: QosPolicy = context.client.patch(&path, &update).await?;
            context.show(&policy, |policy| print_policies(std::slice::from_ref(policy)))
        }
        PolicyCommand::Remove { policy, force } => {
            let path = format!("/qos/policies/{}", segment(&policy));
            let done: Done = context
                .confirmed(async |confirm| {
                    context.client.delete(&path, &QosPolicyRemove { confirm, force }).await
                })
                .await?;
            context.show(&done, |done| outln!("{}", done.message))
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(subcommand)]
        command: PolicyCommand,
    }

    #[test]
    fn a_latency_has_a_unit() {
        assert_eq!(
            (latency("auto"), latency("400us"), latency("5ms"), latency("1s")),
            (Ok(0), Ok(400), Ok(5000), Ok(1_000_000))
        );
        for wrong in ["", "5", "0ms", "-1ms", "5m", "1.5ms", "5000s", "ms"] {
            assert!(latency(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn none_is_a_limit_of_a_new_policy_too() {
        for verb in ["create", "set"] {
            let line =
                ["qos", verb, "gold", "--min-iops", "none", "--max-iops", "none", "--max-bandwidth", "none"];
            assert!(Line::try_parse_from(line).is_ok(), "{verb}");
            let error = Line::try_parse_from(["qos", verb, "gold", "--max-iops", "0"]).expect_err("refused");
            assert!(error.to_string().contains("use `none`"), "{error}");
        }
    }
}
