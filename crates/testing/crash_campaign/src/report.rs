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

/// How many seeds notice a sabotage, and as what the first of them does.
#[derive(Clone)]
pub(crate) struct Proof {
    pub(crate) sabotage: Sabotage,
    pub(crate) subject: Subject,
    pub(crate) layout: Layout,
    pub(crate) caught: u64,
    pub(crate) of: u64,
    pub(crate) what: String,
}

type Totals = BTreeMap<(Subject, Layout), Total>;

const COLUMNS: usize = 20;
const HEAD: [&str; COLUMNS] = [
    "subject",
    "layout",
    "seeds",
    "power cuts",
    "of them while opening",
    "while repairing",
    "while scrubbing",
    "processes killed",
    "disks lost",
    "returned",
    "replaced",
    "emptied",
    "blocks gone bad",
    "rolled back",
    "losing pairs of writes",
    "full",
    "away together",
    "sizes differ by 100",
    "operations",
    "broken promises",
];

fn row(subject: &str, layout: &str, total: &Total) -> [String; COLUMNS] {
    let stats = &total.stats;
    let numbers = [
        total.seeds,
        stats.cuts,
        stats.cuts_at_opening,
        stats.cuts_at_repair,
        stats.cuts_at_scrub,
        stats.kills,
        stats.losses,
        stats.returns,
        stats.replacements,
        stats.drained,
        stats.spoiled,
        stats.rolled_back,
        stats.lost_pairs,
        stats.filled,
        stats.scattered,
        stats.sizes,
        stats.operations,
        total.broken.len() as u64,
    ];
    let mut cells = [const { String::new() }; COLUMNS];
    cells[0] = subject.to_owned();
    cells[1] = layout.to_owned();
    for (cell, number) in cells[2..].iter_mut().zip(numbers) {
        *cell = number.to_string();
    }
    cells
}

fn rows(totals: &Totals) -> Vec<[String; COLUMNS]> {
    let mut rows = vec![HEAD.map(str::to_owned)];
    let mut all = Total::default();
    for ((subject, layout), total) in totals {
        rows.push(row(&subject.to_string(), &layout.to_string(), total));
        all.seeds += total.seeds;
        all.stats += total.stats;
    }
    let mut sum = row("all", "", &all);
    let broken: usize = totals.values().map(|total| total.broken.len()).sum();
    sum[COLUMNS - 1] = broken.to_string();
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
                "returns": stats.returns, "replacements": stats.replacements, "drained": stats.drained,
                "spoiled": stats.spoiled, "rolled_back": stats.rolled_back, "lost_pairs": stats.lost_pairs,
                "filled": stats.filled, "scattered": stats.scattered, "sizes": stats.sizes, "scrubs": stats.scrubs, "cuts_at_scrub": stats.cuts_at_scrub,
                "emptied": stats.emptied, "taken_back": stats.taken_back, "operations": stats.operations,
                "sectors": stats.sectors, "events": stats.events, "broken": broken,
            })
        })
        .collect();
    let proofs: Vec<Value> = proofs
        .iter()
        .map(|proof| {
            json!({ "sabotage": proof.sabotage.to_string(), "subject": proof.subject.to_string(), "layout": proof.layout.to_string(), "caught": proof.caught, "of": proof.of })
        })
        .collect();
    json!({ "results": results, "sabotage": proofs })
}

/// What follows this line of the page is written by hand, and kept.
const BY_HAND: &str = "<!-- what follows is written by hand and kept -->";

/// What the page says of the run.
pub(crate) struct About<'a> {
    pub(crate) command: &'a str,
    pub(crate) commit: &'a str,
    pub(crate) date: &'a str,
    pub(crate) minutes: u64,
    /// The page as it was.
    pub(crate) before: &'a str,
}

/// For the documents.
pub(crate) fn document(totals: &Totals, proofs: &[Proof], about: &About<'_>) -> String {
    let About { command, commit, date, minutes, before } = about;
    let build = if cfg!(debug_assertions) { "unoptimised" } else { "optimised" };
    let mut text = format!(
        "# The crash campaign\n\n{date}, commit {commit} ({build} build, {minutes} minutes):\n\n    {command}\n\n"
    );
    for (index, row) in rows(totals).iter().enumerate() {
        let _ = writeln!(text, "| {} |", row.join(" | "));
        if index == 0 {
            let _ = writeln!(text, "|---|---|{}", "--:|".repeat(row.len() - 2));
        }
    }
    for broken in totals.values().flat_map(|total| &total.broken) {
        let _ = writeln!(text, "\nBroken: {} (`{}`)", broken.what, broken.case.again());
    }
    if let Some(proof) = proofs.first() {
        let _ = write!(
            text,
            "\nBroken on purpose (seeds 0 to {}):\n\n| what | subject | layout | caught by | the first time as |\n\
             |---|---|---|--:|---|\n",
            proof.of.saturating_sub(1)
        );
    }
    for proof in proofs {
        let what: String = proof.what.replace('|', "/").chars().take(120).collect();
        let Proof { sabotage, subject, layout, caught, of, .. } = proof;
        let _ = writeln!(text, "| {sabotage} | {subject} | {layout} | {caught} of {of} | {what} |");
    }
    let kept = before.split_once(BY_HAND).map_or("\n", |(_, kept)| kept);
    let _ = write!(text, "\n{BY_HAND}{kept}");
    text
}
