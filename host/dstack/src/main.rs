//! The dstack binary: server and client.

fn main() {}
