//! NDR 2.0, the transfer syntax of arguments and results (C706 chapter 14).
//!
//! Every value is aligned to its size, counted from the first byte of the stub. A pointer is a number, zero for none;
//! what a pointer inside a structure or array points to follows after the outermost structure, in the order of the
//! pointers ("deferred", 14.3.12.3). [`NdrOut`] keeps what is deferred in a queue; [`NdrIn`] leaves the order to
//! its callers, as only they know the types.

mod input;
mod output;

pub use input::{BadStub, MAX_ELEMENTS, MAX_STRING_UNITS, NdrIn, UnicodeHead};
pub use output::NdrOut;

/// The order of bytes that a sender has (C706 14.1): the receiver makes it right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Least significant byte first.
    #[default]
    Little,
    /// Most significant byte first.
    Big,
}

#[cfg(test)]
mod tests;
