//! Deterministic simulation: disks that lose power, a seeded world, oracles. Development only
