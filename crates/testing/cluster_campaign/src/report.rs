//! The result as a table, as JSON, and as a page of the documents.

use std::fmt::Write as _;

use cluster_campaign::{Case, Sabotage, Stats};
use serde_json::{Value, json};

/// What the run found.
#[derive(Default)]
pub(crate) struct Total {
    pub(crate) seeds: u64,
    pub(crate) stats: Stats,
    pub(crate) broken: Vec<(Case, String)>,
}

/// How a broken build was noticed.
pub(crate) struct Proof {
    pub(crate) sabotage: Sabotage,
    /// How many seeds were run until one noticed, and as what.
    pub(crate) caught: Option<(u64, String)>,
    pub(crate) of: u64,
}

fn rows(stats: &Stats) -> [(&'static str, u64); 14] {
    [
        ("events", stats.events),
        ("reads answered", stats.reads),
        ("writes answered", stats.writes),
        ("changes of owner", stats.takeovers),
        ("of them planned", stats.moves),
        ("lives ended by others", stats.evictions),
        ("answers given on promises", stats.on_promises),
        ("nodes stood still", stats.pauses),
        ("crashes", stats.crashes),
        ("ways cut", stats.cuts),
        ("stalls of the store", stats.stalls),
        ("orders that failed", stats.failures),
        ("of them fenced", stats.fenced),
        ("slowest recovery, ms", stats.slowest_ms),
    ]
}

/// For people, on a terminal.
pub(crate) fn table(total: &Total) -> String {
    let mut text = String::new();
    let (seeds, broken) = (total.seeds, total.broken.len() as u64);
    for (name, number) in
        [("seeds", seeds)].into_iter().chain(rows(&total.stats)).chain([("broken promises", broken)])
    {
        let _ = writeln!(text, "{name:<28}{number:>14}");
    }
    text
}

/// For programs.
pub(crate) fn json(total: &Total, proofs: &[Proof]) -> Value {
    let stats: serde_json::Map<String, Value> = rows(&total.stats)
        .into_iter()
        .map(|(name, number)| (name.replace([' ', ','], "_"), number.into()))
        .collect();
    let broken: Vec<Value> = total
        .broken
        .iter()
        .map(|(case, what)| json!({ "seed": case.seed, "what": what, "again": case.again() }))
        .collect();
    let proofs: Vec<Value> = proofs
        .iter()
        .map(|proof| json!({ "sabotage": proof.sabotage.to_string(), "seeds_until_caught": proof.caught.as_ref().map(|caught| caught.0), "of": proof.of }))
        .collect();
    json!({ "seeds": total.seeds, "stats": stats, "broken": broken, "sabotage": proofs })
}

/// What follows this line of the page is written by hand, and kept.
const BY_HAND: &str = "<!-- what follows is written by hand and kept -->";

/// For the documents; `before` is the page as it was.
pub(crate) fn document(total: &Total, proofs: &[Proof], head: &str, before: &str) -> String {
    let mut text = format!(
        "# The cluster campaign\n\n{head}\n\n| what | number |\n|---|--:|\n| seeds | {} |\n",
        total.seeds
    );
    for (name, number) in rows(&total.stats) {
        let _ = writeln!(text, "| {name} | {number} |");
    }
    let _ = writeln!(text, "| broken promises | {} |", total.broken.len());
    for (case, what) in &total.broken {
        let _ = writeln!(text, "\nBroken: {what} (`{}`)", case.again());
    }
    if !proofs.is_empty() {
        text.push_str("\nBroken on purpose:\n\n| broken build | seeds until caught | as |\n|---|--:|---|\n");
    }
    for proof in proofs {
        let (seeds, what) = match &proof.caught {
            Some((seeds, what)) => (seeds.to_string(), what.replace('|', "/").chars().take(110).collect()),
            None => (format!("not in {}", proof.of), String::new()),
        };
        let _ = writeln!(text, "| {} | {seeds} | {what} |", proof.sabotage);
    }
    let kept = before.split_once(BY_HAND).map_or("\n", |(_, kept)| kept);
    let _ = write!(text, "\n{BY_HAND}{kept}");
    text
}
