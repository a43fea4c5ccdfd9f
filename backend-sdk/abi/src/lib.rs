//! The frozen border between the host and a backend plugin.
