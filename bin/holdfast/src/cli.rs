//! The command line as a whole.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

use crate::context::{Context, print_json};
use crate::error::{CliError, CliResult};
use crate::{
    api, audit, cache, cluster, config, demo, disk, disk_image, file, group, health, job, lun, manual, net,
    node, notify, open, perf, pool, portal, qos, serve, session, share, smb, snapshot, spd, status, target,
    user, user_group, volume,
};

/// Continuously available shared storage for virtual machines.
#[derive(Debug, Parser)]
#[command(name = "holdfast", version, max_term_width = 110, after_help = AFTER)]
pub(crate) struct Cli {
    /// Socket or data directory of the node.
    ///
    /// Without it: HOLDFAST_SOCKET, then /run/holdfast/holdfast.sock, /var/lib/holdfast, ./holdfast-demo.
    #[arg(long, global = true, value_name = "PATH")]
    node: Option<PathBuf>,
    /// Print JSON; lists are {"items": [...]}, errors on standard error have a code and a detail.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Answer yes when asked whether to destroy something.
    #[arg(long, global = true)]
    yes: bool,
    #[command(subcommand)]
    verb: Verb,
}

const AFTER: &str = "A first tour: `holdfast demo`, then in another terminal `holdfast status`.\n\
                     Exit codes: 0 done, 1 it could not be done, 2 the command line makes no sense.";

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run a node.
    Serve(serve::Args),
    /// Run a node that makes its own disks, to try Holdfast out.
    Demo(demo::Args),
    /// Is all data as redundant as promised? What is wrong, and what to do.
    Status(status::Args),
    /// A report of everything, with a minute of performance; as a file for others, too.
    Health(health::Args),
    /// Who is told of what the node finds.
    #[command(subcommand)]
    Notify(notify::Command),
    /// The network of this machine, what about it could be better, and ways to other machines.
    Net(net::Args),
    /// The cluster that the node belongs to.
    #[command(subcommand)]
    Cluster(cluster::Command),
    /// Nodes of the cluster. (The option --node says which one is asked.)
    #[command(subcommand)]
    Node(node::Command),
    /// Disks of the machine and of pools.
    #[command(subcommand)]
    Disk(disk::Command),
    /// Pools: disks that volumes take their space from.
    #[command(subcommand)]
    Pool(pool::Command),
    /// Volumes: file stores with a promise of redundancy.
    #[command(subcommand)]
    Volume(volume::Command),
    /// The node's read cache, which volumes share.
    #[command(subcommand)]
    Cache(cache::Command),
    /// Files of volumes; paths are VOLUME:/DIR/FILE.
    #[command(subcommand)]
    File(file::Command),
    /// Virtual disks in VHDX files of this machine.
    #[command(subcommand)]
    DiskImage(disk_image::Command),
    /// Snapshots: what a volume, a directory or a file was at one moment.
    #[command(subcommand)]
    Snapshot(snapshot::Command),
    /// iSCSI targets.
    #[command(subcommand)]
    Target(target::Command),
    /// LUNs: files of volumes that initiators use as disks.
    #[command(subcommand)]
    Lun(lun::Command),
    /// Initiator groups: who sees which LUNs.
    #[command(subcommand)]
    InitiatorGroup(group::Command),
    /// Addresses that targets are served on.
    #[command(subcommand)]
    Portal(portal::Command),
    /// Storage QoS: what LUNs are promised and allowed, and what initiators get.
    #[command(subcommand)]
    Qos(qos::Command),
    /// Shares: folders of volumes that SMB clients use.
    #[command(subcommand)]
    Share(share::Command),
    /// Users of shares.
    #[command(subcommand)]
    User(user::Command),
    /// Groups of users. Those of initiators are `initiator-group`.
    #[command(subcommand)]
    Group(user_group::Command),
    /// The SMB server as a whole.
    #[command(subcommand)]
    Smb(smb::Command),
    /// Sessions of iSCSI and SMB.
    #[command(subcommand)]
    Session(session::Command),
    /// What clients of shares have open.
    #[command(subcommand)]
    Open(open::Command),
    /// The API and the pages over the network, and tokens for programs.
    #[command(subcommand)]
    Api(api::Command),
    /// Who has changed what.
    Audit(audit::Args),
    /// The node's configuration, declaratively.
    #[command(subcommand)]
    Config(config::Command),
    /// Work that takes long.
    #[command(subcommand)]
    Job(job::Command),
    /// Generate load and measure it, with DiskSpd's options and report.
    #[command(disable_help_flag = true)]
    Spd(spd::Args),
    /// Generate load and measure it, with SQLIO's options and report.
    #[command(disable_help_flag = true)]
    Sqlio(spd::Args),
    /// Live counters: operations, bytes, latency and queues of disks, spaces, volumes, LUNs, shares and sessions.
    Perf(perf::Args),
    /// The live state of everything, for diagnosis.
    Inspect,
    /// Print a script that completes commands in a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Write the manual pages of all commands.
    ManPages {
        /// A folder that exists; pages of the same names are replaced.
        folder: PathBuf,
    },
}

impl Cli {
    /// Does what was asked.
    pub(crate) fn run(self) -> CliResult<ExitCode> {
        match self.verb {
            Verb::Serve(args) => return serve::run(args),
            Verb::Demo(args) => return demo::run(args, self.json).map(|()| ExitCode::SUCCESS),
            Verb::Spd(args) => return Ok(spd::run(args, self.json, self.yes)),
            Verb::DiskImage(command) => return disk_image::run(command, self.json, self.yes),
            Verb::Sqlio(args) => return Ok(spd::run_sqlio(args, self.json, self.yes)),
            Verb::Completions { shell } => {
                clap_complete::generate(shell, &mut Self::command(), "holdfast", &mut std::io::stdout());
                return Ok(ExitCode::SUCCESS);
            }
            Verb::ManPages { folder } => {
                return manual::write(Self::command(), &folder).map(|()| ExitCode::SUCCESS);
            }
            _ => {}
        }
        let context = Context::new(self.node.as_deref(), self.json, self.yes);
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CliError::here)?;
        runtime.block_on(ask(self.verb, &context))
    }
}

async fn ask(verb: Verb, context: &Context) -> CliResult<ExitCode> {
    match verb {
        Verb::Status(args) => status::run(args, context).await?,
        Verb::Health(args) => health::run(args, context).await?,
        Verb::Notify(command) => notify::run(command, context).await?,
        Verb::Net(args) => return net::run(args, context).await,
        Verb::Cluster(command) => cluster::run(command, context).await?,
        Verb::Node(command) => node::run(command, context).await?,
        Verb::Disk(command) => disk::run(command, context).await?,
        Verb::Pool(command) => return pool::run(command, context).await,
        Verb::Volume(command) => return volume::run(command, context).await,
        Verb::Cache(command) => cache::run(command, context).await?,
        Verb::File(command) => file::run(command, context).await?,
        Verb::Snapshot(command) => snapshot::run(command, context).await?,
        Verb::Target(command) => target::run(command, context).await?,
        Verb::Lun(command) => lun::run(command, context).await?,
        Verb::InitiatorGroup(command) => group::run(command, context).await?,
        Verb::Portal(command) => portal::run(command, context).await?,
        Verb::Qos(command) => qos::run(command, context).await?,
        Verb::Share(command) => share::run(command, context).await?,
        Verb::User(command) => user::run(command, context).await?,
        Verb::Group(command) => user_group::run(command, context).await?,
        Verb::Smb(command) => smb::run(command, context).await?,
        Verb::Session(command) => session::run(command, context).await?,
        Verb::Open(command) => open::run(command, context).await?,
        Verb::Api(command) => api::run(command, context).await?,
        Verb::Audit(args) => audit::run(args, context).await?,
        Verb::Config(command) => config::run(command, context).await?,
        Verb::Job(command) => job::run(command, context).await?,
        Verb::Perf(args) => perf::run(args, context).await?,
        Verb::Inspect => print_json(&context.client.get::<serde_json::Value>("/inspect").await?)?,
        // Handled before a node is looked for.
        Verb::Serve(_)
        | Verb::Demo(_)
        | Verb::DiskImage(_)
        | Verb::Spd(_)
        | Verb::Sqlio(_)
        | Verb::Completions { .. }
        | Verb::ManPages { .. } => {}
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definition_is_sound() {
        Cli::command().debug_assert();
    }

    /// A dry run is refused whatever the command would refuse. `control_server` has a table of that for each of these
    /// (`tests/dry_runs.rs`): a verb that joins them has its row there.
    #[test]
    fn the_verbs_with_a_dry_run_are_known() {
        fn with_dry_run(command: &clap::Command, path: &str, found: &mut Vec<String>) {
            if command.get_arguments().any(|argument| argument.get_long() == Some("dry-run")) {
                found.push(path.to_owned());
            }
            for verb in command.get_subcommands() {
                with_dry_run(verb, format!("{path} {}", verb.get_name()).trim(), found);
            }
        }
        let mut found = Vec::new();
        with_dry_run(&Cli::command(), "", &mut found);
        found.sort();
        // `cluster rebalance` plans by a request of its own, which the same command without it carries out step by step.
        let others = ["config apply", "pool add-disk", "pool create", "pool rebalance"];
        assert_eq!(found, [&["cluster rebalance"][..], &others].concat());
    }

    #[test]
    fn command_lines_parse() {
        for line in [
            "serve --data-dir /d --socket /s",
            "demo --dir d --iscsi 127.0.0.1:0 --json",
            "status",
            "status --json",
            "health --samples 5 --bundle b.zip --html h.html --expect-disks 4",
            "health --from a.zip b.zip --json",
            "cluster status --json",
            "cluster init --name store1",
            "cluster init --name s --address 10.0.0.1:7400 --node-name a --etcd https://e1:2379,https://e2:2379 --etcd-ca a --etcd-cert b --etcd-key c",
            "cluster token",
            "cluster join hfjoin1_00 --address 10.0.0.2 --node-name b",
            "cluster leave --json",
            "node remove beta --yes",
            "node list",
            "node pause alpha --drain",
            "node resume 2",
            "pool move p beta",
            "disk list",
            "disk list --select media=nvme --select state=online,size>=1T",
            "disk rescan",
            "disk set d1 --media ssd --enclosure e --slot 4 --model m --serial s",
            "disk fault d1 vanish",
            "disk fault d1 delay --operation read --delay-ms 5 --count 3",
            "pool create p d1 d2 d3 --spare d4 --slab 64M --overwrite-foreign --yes",
            "pool create p --select media=hdd,per-enclosure=16 --select media=ssd,per-enclosure=4 --dry-run",
            "pool create p d1 --select all",
            "pool list --json",
            "pool show p",
            "pool add-disk p d5 --spare",
            "pool add-disk p --select serial=a|b --spare",
            "pool remove-disk p d5",
            "pool replace p d5 --with d6",
            "pool retire p d5",
            "pool keep-disk p d5",
            "pool repair p",
            "pool check p --deep",
            "pool check --offline --disk a --disk b",
            "pool import p",
            "pool export p",
            "pool delete p",
            "volume create v --resiliency mirror2 --size 1T --thin --columns 2 --interleave 256k",
            "volume create v --size 1T --fixed --pool p",
            "volume resize v 2T",
            "volume rename v w --pool p",
            "lun set l --volume w --file /luns/l --keep-identity",
            "lun set l --path /luns/l2",
            "share set s --volume w --folder /f",
            "volume check v",
            "volume check v --offline --disk a",
            "file ls v:/",
            "file create v:/a --size 1G",
            "file put local v:/a",
            "file get v:/a local",
            "file rm v:/a",
            "file mv v:/a v:/b",
            "file mkdir v:/d",
            "file stat v:/a",
            "file clone v:/a v:/b",
            "file get v:@monday/a local",
            "disk-image create a.vhdx --size 10G --type fixed --block-size 32M --logical-sector 4096",
            "disk-image create b.vhdx --parent a.vhdx --json",
            "disk-image info a.vhdx --chain",
            "disk-image check a.vhdx",
            "disk-image convert a.vhdx b.raw --from-format vhdx --format raw --replace",
            "disk-image resize a.vhdx 5G --shrink --yes",
            "disk-image compact a.vhdx",
            "snapshot create v: monday",
            "snapshot create v:/a --quiesce",
            "snapshot list v",
            "snapshot show v monday",
            "snapshot delete v monday --yes",
            "snapshot diff v:@monday v:@tuesday --output f",
            "snapshot apply f --onto v:/a --to v:/b",
            "snapshot clone v:@monday/a v:/b",
            "snapshot space v:/",
            "snapshot schedule set v: s --hourly 24 --daily 7 --weekly 4 --monthly 12",
            "snapshot schedule list v",
            "snapshot schedule delete v s",
            "target create iqn.2026-01.io.holdfast:a --chap-user u --chap-secret-file f",
            "target list",
            "lun create l --volume v --size 20G --target iqn.2026-01.io.holdfast:a --group g --number 3",
            "lun map l --group g",
            "lun unmap l --group g",
            "lun resize l 30G",
            "lun offline l --reason why",
            "lun online l",
            "lun read-only l --reason why",
            "lun list",
            "lun delete l --keep-file",
            "initiator-group create g --any",
            "initiator-group create g iqn.2026-01.io.x:1",
            "initiator-group add g iqn.2026-01.io.x:1",
            "portal create 127.0.0.1:3260 --group 2",
            "qos policy create gold --type MultiInstance --MinimumIops 250 --MaximumIops 500 --MaximumIOBandwidth 100M",
            "qos policy create all --type aggregated --max-iops 5000 --guid 11111111-2222-3333-4444-555555555555",
            "qos policy set gold --min-iops none --max-bandwidth 1G --name silver",
            "qos policy remove gold --force --yes",
            "qos policy list",
            "qos policy show gold --json",
            "qos assign gold --lun l",
            "qos unassign gold --lun l",
            "qos unassign --lun l",
            "qos flow list --json",
            "qos volume list",
            "qos set --unit-bytes 8k --volume-depth 64 --latency-target 5ms",
            "qos show",
            "share create s --volume v --folder /a --full hosts --change u --read Everyone --kind clustered --encrypt --caching none",
            "share set s --kind plain --encrypt off --hidden on --full u --revoke w --preset-folder",
            "share show s",
            "share list",
            "share delete s --yes",
            "user create u --full-name n --group g --password-stdin",
            "user set u --disable",
            "user rename u v",
            "group rename g h",
            "user passwd u --password-stdin",
            "user passwd u --end-sessions",
            "user unlock u",
            "user delete u",
            "group create g a b",
            "group add g c",
            "group remove g c",
            "group list",
            "smb status",
            "smb set --listen 0.0.0.0:445 --listen [::]:445 --encryption required --min-dialect 3.0 --interface eth0",
            "open list",
            "open close 18446744073709551615",
            "session list",
            "session end 3",
            "session close 3",
            "demo --smb 127.0.0.1:0",
            "serve --http 0.0.0.0:8443",
            "demo --http 127.0.0.1:0",
            "api status",
            "api set --listen 0.0.0.0:8443 --listen [::]:8443 --name storage1 --operators staff --viewers all",
            "api set --no-listen --own-certificate",
            "api set --certificate c.pem --key k.pem",
            "api token create --role viewer --expires 30d --name prometheus",
            "api token list --json",
            "api token revoke 0123",
            "audit --limit 5",
            "config show --redact",
            "config apply f --dry-run",
            "job list",
            "completions bash",
            "man-pages d",
            "inspect",
            "perf",
            "perf --kind share --kind disk --object vm* --interval 0.5 --samples 3 --csv",
            "perf --top 5 --json",
            "status --node /s",
            "spd -h -L -V -b8K -? x",
            "spd -c1G -d10 -r -w0 -t8 -o8 -b8K -h -L --rate=5 X:\\a",
            "sqlio -s10 -kR -frandom -b8 -t8 -o16 -LS -BN x",
        ] {
            let words = std::iter::once("holdfast").chain(line.split(' '));
            if let Err(error) = Cli::try_parse_from(words) {
                panic!("{line}: {error}");
            }
        }
    }

    #[test]
    fn wrong_command_lines_do_not_parse() {
        for line in [
            "",
            "disk",
            "health --from",
            "health --samples 3601",
            "health --from a.zip --bundle b.zip",
            "volume create v",
            "volume create v --size 1T --thin --fixed",
            "volume create v --size big",
            "volume create v --size 1T --resiliency raid5",
            "pool create p",
            "pool create p d1 --slab 128G",
            "pool create p d1 --slab 128K",
            "pool create p d1 --slab 96M",
            "pool create p --dry-run",
            "pool create p --select",
            "pool create p --select media=tape",
            "pool create p --select state=online",
            "pool add-disk p",
            "pool add-disk p d1 d2",
            "disk list --select count=0",
            "disk-image create a.vhdx --size big",
            "disk-image create a.vhdx --size 1G --type thick",
            "disk-image resize a.vhdx",
            "lun offline l",
            "pool check p --disk a",
            "initiator-group create g",
            "share set s --kind maybe",
            "share create s --full u --kind clustered --no-ca",
            "share create",
            "user create u secret",
            "user set u --disable --enable",
            "audit --limit 0",
            "audit --limit 100001",
            "user rename u",
            "group add g",
            "smb set --min-dialect 1.0",
            "smb set --listen 0.0.0.0:445 --no-listen",
            "demo --smb here",
            "demo --http here",
            "api token create",
            "api token create --role root",
            "api token create --role viewer --expires soon",
            "api set --certificate c.pem",
            "perf --interval 0",
            "perf --samples 0",
            "perf --kind tape",
            "perf --csv --json",
        ] {
            let words = std::iter::once("holdfast").chain(line.split_terminator(' '));
            assert!(Cli::try_parse_from(words).is_err(), "{line}");
        }
    }

    #[test]
    fn a_slab_that_is_too_large_is_refused_with_the_largest() {
        let words = "holdfast pool create p d1 --slab 128G".split(' ');
        let error = Cli::try_parse_from(words).expect_err("refused");
        assert_eq!(error.exit_code(), 2);
        assert!(
            error.to_string().contains("128 GiB is too large for a slab: the largest has 64.0 GiB"),
            "{error}"
        );
    }
}
