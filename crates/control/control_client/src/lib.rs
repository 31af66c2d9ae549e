//! Typed client of the management API over its Unix socket
