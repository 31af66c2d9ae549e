//! Counters, latency histograms, logging set-up and the inspect tree
