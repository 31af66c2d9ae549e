//! Tests of the open pool.
