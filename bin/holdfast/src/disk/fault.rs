//! `holdfast disk fault`: faults for trials and tests.

use clap::ValueEnum;
use control_api::{Disk, FaultKind, FaultOperation, FaultRequest, FaultRule};
use control_client::Query;

use super::print;
use crate::absolute_path::here_one;
use crate::context::Context;
use crate::error::CliResult;
use crate::units::parse_bytes;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Id or path of the disk.
    disk: String,
    /// What happens; `return` and `none` switch all faults off.
    kind: Kind,
    /// To which operations.
    #[arg(long, default_value = "any")]
    operation: Operation,
    /// First byte of the range it concerns.
    #[arg(long, default_value = "0", value_parser = parse_bytes)]
    offset: u64,
    /// Length of the range.
    #[arg(long, value_parser = parse_bytes)]
    len: Option<u64>,
    /// How often, before it ends.
    #[arg(long)]
    count: Option<u64>,
    /// Milliseconds, for delay.
    #[arg(long, default_value = "0")]
    delay_ms: u64,
    /// Microseconds, for serial.
    #[arg(long)]
    delay_us: Option<u64>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    /// Requests fail.
    Error,
    /// Requests take --delay-ms longer.
    Delay,
    /// Requests are done one after another, and take --delay-us each.
    Serial,
    /// Writes are done in part.
    Torn,
    /// Writes are acknowledged and not done.
    Lost,
    /// Writes go elsewhere.
    Misdirected,
    /// What is read differs in a bit from what was written.
    BitRot,
    /// The disk is gone.
    Vanish,
    /// It is there again, without faults.
    Return,
    /// The same.
    None,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Operation {
    Any,
    Read,
    Write,
    Flush,
}

pub(super) async fn run(args: Args, context: &Context) -> CliResult {
    let kind = match args.kind {
        Kind::Error => Some(FaultKind::Error),
        Kind::Delay => Some(FaultKind::Delay),
        Kind::Serial => Some(FaultKind::Serial),
        Kind::Torn => Some(FaultKind::Torn),
        Kind::Lost => Some(FaultKind::Lost),
        Kind::Misdirected => Some(FaultKind::Misdirected),
        Kind::BitRot => Some(FaultKind::BitRot),
        Kind::Vanish => Some(FaultKind::Vanish),
        Kind::Return | Kind::None => None,
    };
    let operation = match args.operation {
        Operation::Any => FaultOperation::Any,
        Operation::Read => FaultOperation::Read,
        Operation::Write => FaultOperation::Write,
        Operation::Flush => FaultOperation::Flush,
    };
    let rule = |kind| FaultRule {
        kind,
        operation,
        offset: args.offset,
        len: args.len,
        count: args.count,
        delay_ms: args.delay_ms,
        delay_us: args.delay_us,
    };
    let request = FaultRequest { rules: kind.map(rule).into_iter().collect() };
    let path = Query::new("/disks/faults").with("disk", &here_one(args.disk));
    let disk: Disk = context.client.put(path.as_str(), &request).await?;
    context.show(&disk, |disk| print(std::slice::from_ref(disk)))
}
