//! A whole backend in 200 lines.
