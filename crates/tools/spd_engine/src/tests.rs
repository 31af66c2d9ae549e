//! Runs on real files and on a lane in memory that fails as it is told.
