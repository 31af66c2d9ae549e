//! Samples as typeperf and Get-Counter write them: a column for each counter, a line for each sample.

use std::collections::{BTreeMap, BTreeSet};

use control_api::{CounterKind, Counters};

use super::names;
use super::rates::{Rates, TOTAL};
use crate::units;

/// The columns: they stay, whatever comes and goes.
pub(super) struct Columns {
    node: String,
    objects: Vec<(CounterKind, String)>,
}

/// A field in quotes.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

/// `11/22/2026 03:50:01.125`, UTC.
fn time(wall_ns: u64) -> String {
    let text = units::time(wall_ns / 1_000_000_000);
    let (date, clock) = text.split_once(' ').unwrap_or((&text, ""));
    let (year, day) = date.split_once('-').unwrap_or((date, ""));
    format!("{}/{year} {clock}.{:03}", day.replace('-', "/"), wall_ns / 1_000_000 % 1000)
}

impl Columns {
    /// Those of what is there now and of its sums, where `wants` the name.
    pub(super) fn of(counters: &Counters, wants: impl Fn(&str) -> bool) -> Self {
        let objects: Vec<_> =
            counters.items.iter().map(|object| (object.kind, object.name.clone())).collect();
        Self::new(&counters.node, &objects, wants)
    }

    /// Those of these things and of their sums, where `wants` the name.
    pub(super) fn new<'a>(
        node: &str,
        things: impl IntoIterator<Item = &'a (CounterKind, String)>,
        wants: impl Fn(&str) -> bool,
    ) -> Self {
        let mut objects: Vec<(CounterKind, String)> = things.into_iter().cloned().collect();
        let kinds: BTreeSet<CounterKind> = objects.iter().map(|(kind, _)| *kind).collect();
        objects.extend(kinds.into_iter().map(|kind| (kind, TOTAL.to_owned())));
        objects.retain(|(_, name)| wants(name));
        Self { node: node.to_owned(), objects }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// `"(PDH-CSV 4.0) (UTC)(0)","\\NODE\SET(NAME)\COUNTER",…`
    pub(super) fn header(&self) -> String {
        let mut fields = vec![quoted("(PDH-CSV 4.0) (UTC)(0)")];
        for (kind, name) in &self.objects {
            for (counter, _) in names::counters(*kind) {
                fields.push(quoted(&format!(r"\\{}\{}({name})\{counter}", self.node, names::set(*kind))));
            }
        }
        fields.join(",")
    }

    /// A sample; what has no value in it is blank.
    pub(super) fn row(&self, wall_ns: u64, rates: &[Rates]) -> String {
        let there: BTreeMap<_, _> = rates.iter().map(|rates| ((rates.kind, &rates.name), rates)).collect();
        let mut fields = vec![quoted(&time(wall_ns))];
        for (kind, name) in &self.objects {
            let rates = there.get(&(*kind, name));
            for (_, value) in names::counters(*kind) {
                fields
                    .push(rates.map_or_else(|| quoted(" "), |rates| quoted(&format!("{:.6}", value(rates)))));
            }
        }
        fields.join(",")
    }
}

#[cfg(test)]
mod tests {
    use control_api::ObjectCounters;

    use super::*;
    use crate::perf::rates::OperationRates;

    #[test]
    fn header_and_rows_are_those_of_typeperf() {
        let counters = Counters {
            node: "fs1".into(),
            items: vec![
                ObjectCounters::new(CounterKind::Volume, "vm"),
                ObjectCounters::new(CounterKind::SmbSession, "a\"b"),
            ],
            ..Counters::default()
        };
        let columns = Columns::of(&counters, |name| name != TOTAL);
        let header = columns.header();
        assert!(
            header.starts_with(r#""(PDH-CSV 4.0) (UTC)(0)","\\fs1\Cluster CSV File System(vm)\reads/sec","#),
            "{header}"
        );
        assert!(header.ends_with(r#","\\fs1\SMB Server Sessions(a""b)\Errors/sec""#), "{header}");
        let read = OperationRates { per_second: 2.5, queue: 0.005, ..OperationRates::default() };
        let rates = Rates { kind: CounterKind::Volume, name: "vm".into(), read, ..Rates::default() };
        let row = columns.row(951_827_696_125_000_000, &[rates]);
        assert!(row.starts_with(r#""02/29/2000 12:34:56.125","2.500000","0.000000","0.002000","#), "{row}");
        let blank = names::counters(CounterKind::SmbSession).len();
        assert!(row.ends_with(&format!("\"0.000000\"{}", ",\" \"".repeat(blank))), "{row}");
        assert_eq!(row.matches("\",\"").count(), header.matches("\",\"").count());
        let sums = Columns::of(&counters, |name| name == TOTAL).header();
        assert!(sums.contains(r"\\fs1\SMB Server Sessions(_Total)\Requests/sec"), "{sums}");
        assert!(sums.contains(r"\\fs1\Cluster CSV File System(_Total)\reads/sec"), "{sums}");
    }
}
