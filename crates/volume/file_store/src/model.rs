//! A file store in memory: the oracle of tests.
