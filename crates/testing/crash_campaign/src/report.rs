//! The result as a table, as JSON, and as a page of the documents.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crash_campaign::{Case, Layout, Sabotage, Stats, Subject};
use serde_json::{Value, json};

/// A seed that broke a promise.
pub(crate) struct Broken {
    pub(crate) case: Case,
    pub(crate) what: String,
}

/// What came of all seeds of a subject and layout.
#[derive(Default)]
pub(crate) struct Total {
    pub(crate) seeds: u64,
    pub(crate) stats: Stats,
    pub(crate) broken: Vec<Broken>,
}

/// After how many seeds a sabotage was noticed, if at all.
#[derive(Clone)]
pub(crate) struct Proof {
    pub(crate) sabotage: Sabotage,
    pub(crate) subject: Subject,
    pub(crate) seeds: Option<u64>,
    pub(crate) what: String,
}

type Totals = BTreeMap<(Subject, Layout), Total>;

const HEAD: [&str; 11] = [
    "subject",
    "layout",
    "seeds",
    "power cuts",
    "of them at opening",
    "during repair",
    "kills",
    "disk losses",
    "operations",
    "sectors compared",
    "broken promises",
];

fn row(subject: &str, layout: &str, total: &Total) -> [String; 11] {
    let stats = &total.stats;
    let numbers = [
        total.seeds,
        stats.cuts,
        stats.cuts_at_opening,
        stats.cuts_at_repair,
        stats.kills,
        stats.losses,
        stats.operations,
        stats.sectors,
        total.broken.len() as u64,
    ];
    let mut cells = [const { String::new() }; 11];
    cells[0] = subject.to_owned();
    cells[1] = layout.to_owned();
    for (cell, number) in cells[2..].iter_mut().zip(numbers) {
        *cell = grouped(number);
    }
    cells
}

/// 1234567 as 1 234 567.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

fn rows(totals: &Totals) -> Vec<[String; 11]> {
    let mut rows = vec![HEAD.map(str::to_owned)];
    let mut all = Total::default();
    for ((subject, layout), total) in totals {
        rows.push(row(&subject.to_string(), &layout.to_string(), total));
        all.seeds += total.seeds;
        all.stats += total.stats;
    }
    let mut sum = row("all", "", &all);
    sum[10] = grouped(totals.values().map(|total| total.broken.len() as u64).sum());
    rows.push(sum);
    rows
}

/// For people, on a terminal.
pub(crate) fn table(totals: &Totals) -> String {
    let rows = rows(totals);
    let mut text = String::new();
    for row in &rows {
        for (column, cell) in row.iter().enumerate() {
            let width = rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
            let _ =
                if column < 2 { write!(text, "{cell:<width$}  ") } else { write!(text, "{cell:>width$}  ") };
        }
        text.push('\n');
    }
    text
}

/// For programs.
pub(crate) fn json(totals: &Totals, proofs: &[Proof]) -> Value {
    let results: Vec<Value> = totals
        .iter()
        .map(|((subject, layout), total)| {
            let stats = &total.stats;
            let broken: Vec<Value> = total
                .broken
                .iter()
                .map(|broken| json!({ "seed": broken.case.seed, "what": broken.what, "arguments": broken.case.to_string() }))
                .collect();
            json!({
                "subject": subject.to_string(), "layout": layout.to_string(), "seeds": total.seeds,
                "boots": stats.boots, "cuts": stats.cuts, "cuts_at_opening": stats.cuts_at_opening,
                "cuts_at_repair": stats.cuts_at_repair, "kills": stats.kills, "losses": stats.losses,
                "returns": stats.returns, "replacements": stats.replacements, "operations": stats.operations,
                "sectors": stats.sectors, "events": stats.events, "broken": broken,
            })
        })
        .collect();
    let proofs: Vec<Value> = proofs
        .iter()
        .map(|proof| {
            json!({ "sabotage": proof.sabotage.to_string(), "subject": proof.subject.to_string(), "seeds": proof.seeds })
        })
        .collect();
    json!({ "results": results, "sabotage": proofs })
}

/// For the documents.
pub(crate) fn document(totals: &Totals, proofs: &[Proof], commit: &str, date: &str) -> String {
    let mut text = format!(
        "# Crash campaign\n\nCommit {commit}, {date}. Written by `make soak`; the crate `crash_campaign` says what is done and \
         checked.\n\nEach seed is several boots of one pool or volume on simulated disks. Each boot ends with a power cut that \
         tears, loses and reorders what was not durable, sector by sector, with a killed process, or with a cut after closing; \
         disks are lost, fail, come back and are replaced meanwhile, within what the layout promises to stand. After each boot \
         everything is compared with what was promised.\n\n"
    );
    for (index, row) in rows(totals).iter().enumerate() {
        let _ = writeln!(text, "| {} |", row.join(" | "));
        if index == 0 {
            let _ = writeln!(text, "|---|---|{}", "--:|".repeat(row.len() - 2));
        }
    }
    if !proofs.is_empty() {
        text.push_str(
            "\n## Would it be noticed?\n\nThe same campaign on a two-way mirror with something broken on purpose:\n\n\
             | sabotage | subject | noticed at seed | as |\n|---|---|--:|---|\n",
        );
        for proof in proofs {
            let seeds = proof.seeds.map_or_else(|| "**not noticed**".into(), |seeds| seeds.to_string());
            let what: String = proof.what.replace('|', "/").chars().take(140).collect();
            let _ = writeln!(text, "| {} | {} | {seeds} | {what} |", proof.sabotage, proof.subject);
        }
    }
    for broken in totals.values().flat_map(|total| &total.broken) {
        let _ = writeln!(
            text,
            "\nBroken: {} (`cargo run --release -p crash_campaign -- {}`)",
            broken.what, broken.case
        );
    }
    text
}
