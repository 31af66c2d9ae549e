//! A part of the report, as it is shown and as programs read it.

use serde::Serialize;
use serde_json::Value;

/// A part of the report.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Section {
    /// A word for programs (`disks`).
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// The state of all of them, in a sentence.
    pub(super) summary: String,
    /// How many there are; absent where nothing is counted or it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) count: Option<u64>,
    /// How many of them are as they should be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) healthy: Option<u64>,
    /// Headings of the table.
    pub(super) columns: Vec<&'static str>,
    /// Its rows, those that are not as they should be first.
    pub(super) rows: Vec<Vec<Value>>,
}
