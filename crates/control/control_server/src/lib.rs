//! The node behind the API: pools, volumes, LUNs, configuration
