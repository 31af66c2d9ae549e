//! What `pool show` and `pool rebalance` print of the upkeep of a pool: scrub and balance.

use std::cmp::Ordering;

use control_api::{Balance, PoolForecast, RebalanceReport, Scrub};

use crate::table::{Table, or_dash};
use crate::units::bytes;

/// How evenly the disks are used, as a line of `pool show`.
pub(super) fn print_balance(balance: &Balance) {
    let moved = bytes(balance.moved_bytes);
    if balance.bytes_left > 0 {
        outln!("Balance: under way, {} to move, {moved} moved.", bytes(balance.bytes_left));
    } else {
        let apart = balance.uneven_percent;
        outln!("Balance: {apart} percent points between the fullest disk and the emptiest; {moved} moved.");
    }
}

/// What a rebalancing moves.
pub(super) fn print_rebalance(report: &RebalanceReport) {
    let share = |used: u64, of: u64| format!("{} %", (used * 100).checked_div(of).unwrap_or(0));
    let mut table =
        Table::new(&["DISK", "ENCLOSURE", ">CAPACITY", ">USED", ">NOW", ">THEN", ">CHANGE"], "No disks.");
    for disk in &report.disks {
        let change = match disk.used_then_bytes.cmp(&disk.used_bytes) {
            Ordering::Less => format!("-{}", bytes(disk.used_bytes - disk.used_then_bytes)),
            Ordering::Equal => "-".into(),
            Ordering::Greater => format!("+{}", bytes(disk.used_then_bytes - disk.used_bytes)),
        };
        table.row([
            disk.disk.clone(),
            or_dash(disk.enclosure.as_ref()),
            bytes(disk.capacity_bytes),
            bytes(disk.used_bytes),
            share(disk.used_bytes, disk.capacity_bytes),
            share(disk.used_then_bytes, disk.capacity_bytes),
            change,
        ]);
    }
    table.print();
    match (report.bytes, report.job) {
        (0, _) => outln!("Nothing to move: the disks are as even as can be."),
        (left, None) => outln!("{} would be moved.", bytes(left)),
        (left, Some(_)) => outln!("{} to move.", bytes(left)),
    }
}

/// Says when a pool will be full, where that can be told.
pub(super) fn print_forecast(forecast: Option<&PoolForecast>) {
    let Some(forecast) = forecast else { return };
    let growth = bytes(forecast.growth_bytes_per_day.unsigned_abs());
    let word = if forecast.growth_bytes_per_day < 0 { "Empties" } else { "Grows" };
    let full = forecast.full_in_days.map(|days| format!(": it will be full in about {days} days"));
    let over = forecast.over_hours;
    outln!("{word} by {growth} a day, by the last {over} hours{}.", full.unwrap_or_default());
}

/// Where the scrub stands, as a line of `pool show`.
pub(super) fn print_scrub(scrub: &Scrub) {
    let found = format!("{} damaged blocks found, {} of them lost", scrub.damaged_blocks, scrub.lost_blocks);
    if scrub.running {
        let share = (scrub.rows_done * 100).checked_div(scrub.rows).unwrap_or(100);
        outln!("Scrub: under way, {share} %, {} read; {found}.", bytes(scrub.read_bytes));
    } else if scrub.read_bytes > 0 {
        outln!("Scrub: the last one read {}; {found}.", bytes(scrub.read_bytes));
    } else {
        outln!("Scrub: none yet; `holdfast pool scrub` begins one.");
    }
}
