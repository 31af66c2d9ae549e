//! What this crate promises: cuts of the power, values that nobody wrote.

mod cuts;
mod values;
