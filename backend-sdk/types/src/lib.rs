//! Data that crosses the border between the host and a backend plugin.
