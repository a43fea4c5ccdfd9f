//! HTTP server, logging, stop signal: what the agents share.
