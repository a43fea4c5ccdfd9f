//! Clients to shim and runner over SSH and over local sockets.
