//! `holdfast audit`: who has changed what.

use control_api::AuditEntry;

use crate::context::Context;
use crate::error::CliResult;
use crate::table::Table;
use crate::units::time;

/// Show who has changed what: the newest entries, the newest last.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many entries; at most 100,000.
    #[arg(long, default_value_t = 100, value_name = "N")]
    limit: u32,
}

pub(crate) async fn run(args: Args, context: &Context) -> CliResult {
    let path = format!("/audit?limit={}", args.limit);
    context.show_list(&path, print).await
}

fn print(entries: &[AuditEntry]) {
    let headings = ["TIME (UTC)", "WHO", "FROM", "REQUEST", "OBJECT", "RESULT"];
    let mut table = Table::new(&headings, "Nothing has been changed yet.");
    for entry in entries.iter().rev() {
        table.row([
            time(entry.time),
            entry.who.clone(),
            entry.from.clone(),
            entry.request.clone(),
            entry.object.clone(),
            entry.result.clone(),
        ]);
    }
    table.print();
}
