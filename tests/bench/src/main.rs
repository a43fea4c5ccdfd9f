//! Load and latency, printed as ratios.

fn main() {}
