//! What has changed, told as it happens.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EventKind {
    /// Somebody has changed something: `subject` is the path below `/v1` that was asked.
    Changed,
    /// A job has begun, gone on or ended: `subject` is its number.
    Job,
    /// What `status` says is another thing than before: `subject` is the verdict.
    Health,
    /// A finding was first seen, got worse, or has gone: `subject` is its id.
    Finding,
}

/// Something has changed. Events say what to look at again, not how it is now: one who missed some looks at everything again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// What it is about.
    pub kind: EventKind,
    /// Which one.
    pub subject: String,
}
