//! The access matrix: each operation of a protocol × who asks for it, with the answer that is expected.
//!
//! ```text
//!   the operations that a protocol has ──► a row for each, or the test does not compile
//!   row × column ──► one request ──► answer and effect ──► Matrix::cell ──► docs/results/access-matrix.md
//! ```
//! The tables lie beside the tests of each protocol. Here is what they share: cells that are wrong are gathered, so that one
//! run names all of them, and what is right becomes the protocol's section of the page. A table is bound to the operations
//! in one of two ways: a `match` without a wildcard over an enum of operations, or [`missing_row`] in a constant.
//!
//! With `HOLDFAST_UPDATE_DOCS=1` the page is written; otherwise a page that does not say what the tests found is an error.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Mutex;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/results/access-matrix.md");

/// Most operations that a line of the page names.
const NAMES_TOLD: usize = 32;

static WRITING: Mutex<()> = Mutex::new(());

/// Whether some value has no row, for `const _: () = assert!(…)`: a new operation without a row does not compile.
#[must_use]
pub const fn missing_row(values: &[u32], rows: &[u32]) -> bool {
    let mut value = 0;
    while value < values.len() {
        let mut row = 0;
        while row < rows.len() && rows[row] != values[value] {
            row += 1;
        }
        if row == rows.len() {
            return true;
        }
        value += 1;
    }
    false
}

/// One protocol's table while it is tried.
#[derive(Debug)]
pub struct Matrix {
    section: &'static str,
    about: &'static str,
    columns: &'static [&'static str],
    rows: Vec<(String, Vec<String>)>,
    cells: usize,
    wrong: Vec<String>,
}

impl Matrix {
    /// A table without rows. `section` is its heading, `about` a paragraph that says what columns and answers mean.
    #[must_use]
    pub fn new(section: &'static str, about: &'static str, columns: &'static [&'static str]) -> Self {
        Self { section, about, columns, rows: Vec::new(), cells: 0, wrong: Vec::new() }
    }

    /// Takes the next cell of `row`; cells come in the order of the columns. `got` says what was wrong, if anything.
    pub fn cell(&mut self, row: &str, expected: &str, got: Result<(), String>) {
        self.cells(row, expected, usize::from(!expected.is_empty()), got);
    }

    /// The same for a column that stands for `count` kinds of askers.
    pub fn cells(&mut self, row: &str, expected: &str, count: usize, got: Result<(), String>) {
        if self.rows.last().is_none_or(|(name, _)| name != row) {
            self.rows.push((row.to_owned(), Vec::new()));
        }
        if let Some((_, cells)) = self.rows.last_mut() {
            if let Err(wrong) = got {
                let column = self.columns.get(cells.len()).copied().unwrap_or("?");
                self.wrong.push(format!("{row} × {column}: expected {expected}, {wrong}"));
            }
            cells.push(expected.to_owned());
        }
        self.cells += count;
    }

    /// All rows have been tried.
    ///
    /// # Panics
    /// When a cell was wrong, a row is not whole, or the page is stale.
    #[allow(clippy::panic, reason = "this is how a test says that it failed")]
    pub fn finish(self) {
        let holes = self.rows.iter().filter(|(_, cells)| cells.len() != self.columns.len());
        let holes: Vec<String> = holes.map(|(row, _)| format!("{row}: the row is not whole")).collect();
        let wrong = [self.wrong.clone(), holes].concat();
        assert!(
            wrong.is_empty(),
            "{}: {} of {} cells are wrong\n{}",
            self.section,
            wrong.len(),
            self.cells,
            wrong.join("\n")
        );
        // The tests of a crate run at the same time, and each writes its own section.
        let _one_at_a_time = WRITING.lock();
        let page = std::fs::read_to_string(PAGE).unwrap_or_default();
        let made = self.placed(&page);
        if std::env::var_os("HOLDFAST_UPDATE_DOCS").is_some() {
            if let Err(error) = std::fs::write(Path::new(PAGE), &made) {
                panic!("docs/results/access-matrix.md: {error}");
            }
        } else {
            assert!(
                page == made,
                "docs/results/access-matrix.md is stale: run this test with HOLDFAST_UPDATE_DOCS=1"
            );
        }
    }

    /// The page with this section in its place: sections are sorted, each between two marks.
    fn placed(&self, page: &str) -> String {
        let (begin, end) =
            (format!("<!-- begin {} -->\n", self.section), format!("<!-- end {} -->\n", self.section));
        let section = format!("{begin}{}{end}", self.text());
        if let Some((before, rest)) = page.split_once(&begin)
            && let Some((_, after)) = rest.split_once(&end)
        {
            return format!("{before}{section}{after}");
        }
        let behind = |mark: &str| mark.strip_suffix(" -->").is_some_and(|name| name > self.section);
        let at = page
            .match_indices("<!-- begin ")
            .find(|(at, mark)| page[at + mark.len()..].lines().next().is_some_and(behind))
            .map_or(page.len(), |(at, _)| at);
        format!("{}{section}{}", &page[..at], &page[at..])
    }

    /// The section: rows with the same answers share a line.
    fn text(&self) -> String {
        let mut out = format!("## {}\n\n{}\n\n", self.section, self.about);
        let operations: BTreeSet<&str> = self.rows.iter().map(|(row, _)| row.as_str()).collect();
        let _ = writeln!(out, "{} rows, {} cells.\n", operations.len(), self.cells);
        let _ = writeln!(out, "| operation | {} |", self.columns.join(" | "));
        let _ = writeln!(out, "|{}", "---|".repeat(self.columns.len() + 1));
        let mut told: Vec<&[String]> = Vec::new();
        for (_, cells) in &self.rows {
            if told.contains(&cells.as_slice()) {
                continue;
            }
            told.push(cells);
            let same = self.rows.iter().filter(|(_, other)| other == cells);
            let names: Vec<&str> = same.map(|(row, _)| row.as_str()).collect();
            let (told, more) = names.split_at(names.len().min(NAMES_TOLD));
            let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
            let _ = writeln!(out, "| {}{more} | {} |", told.join(", "), cells.join(" | "));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_replaced_or_put_in_order() {
        let section = |name, answer: &str| {
            let mut matrix = Matrix::new(name, "about", &["owner", "other"]);
            for row in ["READ", "WRITE"] {
                matrix.cell(row, "good", Ok(()));
                matrix.cell(row, answer, Ok(()));
            }
            matrix
        };
        let page = section("b", "no").placed("# Head\n");
        assert_eq!(
            page,
            "# Head\n<!-- begin b -->\n## b\n\nabout\n\n2 rows, 4 cells.\n\n| operation | owner | other |\n|---|---|---|\n\
             | READ, WRITE | good | no |\n<!-- end b -->\n"
        );
        let both = section("a", "no").placed(&page);
        assert!(both.find("## a") < both.find("## b") && both.starts_with("# Head\n"));
        assert_eq!(section("a", "yes").placed(&both).matches("yes").count(), 1);
        assert!(missing_row(&[1, 2], &[2]) && !missing_row(&[1, 2], &[2, 1, 3]));
    }

    #[test]
    #[should_panic(expected = "READ × other: expected good, got bad")]
    fn wrong_cells_are_named() {
        let mut matrix = Matrix::new("c", "about", &["owner", "other"]);
        matrix.cell("READ", "good", Ok(()));
        matrix.cell("READ", "good", Err("got bad".to_owned()));
        matrix.finish();
    }
}
