//! The report on a terminal.

use serde_json::Value;

use super::report::Report;
use super::section::Section;
use crate::finding::Finding;
use crate::table::Table;
use crate::units::{many, time};

/// Rows of a section at most; the archive and `--json` have them all.
const ROWS: usize = 25;

pub(super) fn print(report: &Report) {
    let node = if report.node.is_empty() { String::new() } else { format!("node {}, ", report.node) };
    outln!(
        "Health of {} ({node}{} UTC, Holdfast {})\n",
        report.source,
        time(report.made_unix),
        report.version
    );
    outln!("{}", report.summary);
    report.findings.iter().for_each(Finding::print);
    for section in &report.sections {
        print_section(section);
    }
    print_performance(report);
    if !report.missing.is_empty() {
        outln!("\nNot looked at:");
        report.missing.iter().for_each(|(what, why)| outln!("  {what}: {why}"));
    }
}

/// A value of a table for people.
pub(super) fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn print_section(section: &Section) {
    outln!("\n== {}: {}", section.title, section.summary);
    if section.rows.is_empty() {
        return;
    }
    let mut table = Table::new(&section.columns, "");
    for row in section.rows.iter().take(ROWS) {
        table.cells(row.iter().map(cell));
    }
    table.print();
    if section.rows.len() > ROWS {
        outln!(
            "… and {}; --json and --bundle have them",
            many((section.rows.len() - ROWS) as u64, "more line")
        );
    }
}

fn print_performance(report: &Report) {
    if report.performance.is_empty() {
        outln!("\n== Performance: not measured");
        return;
    }
    outln!("\n== Performance: {} of one second, the highest latency first", many(report.samples, "sample"));
    let headings = [
        "POOL",
        "VOLUME",
        "SERVED AS",
        ">READ IOPS",
        ">WRITE IOPS",
        ">TOTAL IOPS",
        ">READ ms",
        ">WRITE ms",
        ">TOTAL ms",
    ];
    let mut table = Table::new(&headings, "");
    for line in &report.performance {
        table.row([
            line.pool.clone(),
            line.volume.clone(),
            line.served_as.clone(),
            format!("{:.0}", line.read.iops),
            format!("{:.0}", line.write.iops),
            format!("{:.0}", line.total.iops),
            format!("{:.3}", line.read.latency_ms),
            format!("{:.3}", line.write.latency_ms),
            format!("{:.3}", line.total.latency_ms),
        ]);
    }
    table.print();
}
