//! The inspect tree: every stateful thing can describe itself live.

use serde_json::Value;

/// Describes the present state of something, for the API's inspect tree.
pub trait Inspect {
    /// The state as a JSON tree; member names carry their unit (`queued_bytes`, `idle_ms`).
    fn inspect(&self) -> Value;
}
