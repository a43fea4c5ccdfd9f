//! Comparing secrets in a time that tells nothing about them.

use sha2::{Digest as _, Sha256};

/// Whether two texts are the same. They are compared by their hashes, so neither length nor content shows.
pub(crate) fn same(a: &str, b: &str) -> bool {
    let (a, b) = (Sha256::digest(a.as_bytes()), Sha256::digest(b.as_bytes()));
    let differing = a.iter().zip(b.iter()).fold(0, |all, (a, b)| all | (a ^ b));
    differing == 0
}
