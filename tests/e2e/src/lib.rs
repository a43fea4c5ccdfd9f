//! End-to-end tests with the real binaries.
