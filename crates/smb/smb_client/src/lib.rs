//! A client that hides nothing: it sends the messages that it is told to, signs and encrypts them, and returns answers
//! with their headers. Tests say with it what no ordinary client would; ordinary use is [`Connection::connect`],
//! [`Connection::login`], [`Connection::tree`], [`Connection::call`].
//!
//! Invariants: an answer whose signature or tag is wrong is an error, never a result; a session that must sign or encrypt
//! never sends in the clear unless the test says so ([`Connection::protection`]).

mod connection;
mod error;
mod inbox;
mod login;
mod receive;
mod types;

pub use connection::Connection;
pub use error::ClientError;
pub use receive::Buffers;
pub use types::{Options, Protection, Received, Session};
