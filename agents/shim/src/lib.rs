//! The agent on the machine: runs containers or processes for the server.
