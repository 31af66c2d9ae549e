//! Tables for people.

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table as Inner, presets};
use control_api::{Listener, OnNode};

/// Prints the addresses that something is served on; `none` in their place where there are none.
pub(crate) fn print_listeners(listeners: &[Listener], none: &'static str) {
    let mut table = Table::new(&["ADDRESS", "LISTENING", "PROBLEM"], none);
    for listener in listeners {
        table.row([
            listener.address.clone(),
            or_dash(listener.listening.as_ref()),
            or_dash(listener.problem.as_ref()),
        ]);
    }
    table.print();
}

/// A table whose columns are as wide as needed.
pub(crate) struct Table {
    inner: Inner,
    right: Vec<bool>,
    rows: usize,
    empty: &'static str,
    has_nodes: bool,
}

impl Table {
    /// A table with these headings; those that start with `>` are columns of numbers, set to the right.
    /// `empty` is said in place of a table without rows.
    pub(crate) fn new(headings: &[&str], empty: &'static str) -> Self {
        let mut inner = Inner::new();
        inner.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        let right: Vec<bool> = headings.iter().map(|heading| heading.starts_with('>')).collect();
        inner.set_header(
            headings.iter().zip(&right).map(|(heading, right)| cell(heading.trim_start_matches('>'), *right)),
        );
        Self { inner, right, rows: 0, empty, has_nodes: false }
    }

    /// The same of things that nodes have: where they name them, the second column says which.
    pub(crate) fn of<T>(headings: &[&str], empty: &'static str, things: &[OnNode<T>]) -> Self {
        if things.iter().all(|thing| thing.node.is_none()) {
            return Self::new(headings, empty);
        }
        let mut with_node = headings.to_vec();
        with_node.insert(1.min(with_node.len()), "NODE");
        Self { has_nodes: true, ..Self::new(&with_node, empty) }
    }

    /// Adds a row for a thing.
    pub(crate) fn row_of<T, const N: usize>(&mut self, thing: &OnNode<T>, cells: [String; N]) {
        let mut cells = cells.to_vec();
        if self.has_nodes {
            cells.insert(1.min(cells.len()), or_dash(thing.node.as_ref()));
        }
        self.cells(cells.into_iter());
    }

    /// Adds a row.
    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.cells(cells.into_iter());
    }

    /// Adds a row of as many cells as there are headings.
    pub(crate) fn cells(&mut self, cells: impl Iterator<Item = String>) {
        self.rows += 1;
        let right = self.right.iter().copied().chain(std::iter::repeat(false));
        self.inner.add_row(cells.zip(right).map(|(text, right)| cell(&text, right)).collect::<Vec<_>>());
    }

    /// Prints it.
    pub(crate) fn print(&self) {
        if self.rows == 0 {
            outln!("{}", self.empty);
            return;
        }
        for line in self.inner.lines() {
            // The preset pads every column; the first one starts at the margin.
            outln!("{}", line.strip_prefix(' ').unwrap_or(&line).trim_end());
        }
    }
}

fn cell(text: &str, right: bool) -> Cell {
    let text = if text.is_empty() { "-" } else { text };
    Cell::new(harmless(text)).set_alignment(if right { CellAlignment::Right } else { CellAlignment::Left })
}

/// Names and comments may come from anybody: none of them controls the terminal of who reads the table.
fn harmless(text: &str) -> String {
    text.replace(|c: char| c.is_control() && c != '\n', "\u{fffd}")
}

/// An optional text for a cell.
pub(crate) fn or_dash(text: Option<&String>) -> String {
    text.cloned().unwrap_or_default()
}

/// A value of the API as it is written in JSON ("read-only"), for a cell.
pub(crate) fn word(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(text)) => text,
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cell_controls_the_terminal() {
        assert_eq!(harmless("a\u{1b}]0;x\u{7}\u{9b}"), "a\u{fffd}]0;x\u{fffd}\u{fffd}");
        assert_eq!(harmless("Überschrift\nzwei"), "Überschrift\nzwei");
    }
}
