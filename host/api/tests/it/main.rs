//! Recorded exchanges of the reference system, read into our types and written again.

mod wire;
