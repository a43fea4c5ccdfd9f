//! The simulator: the pure engine at 10,000 machines.
