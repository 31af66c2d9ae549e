//! The state machine against a small store without delays: each rule alone.

mod cluster;
mod rules;
mod settings;
mod sight;
