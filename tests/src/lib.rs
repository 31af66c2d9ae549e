//! End-to-end tests with real clients
