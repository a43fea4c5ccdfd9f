//! Text that only the server can open.

use crate::tx::{Cell, FromCell, Value};

/// A secret as it is stored: encrypted by the server, opaque here. `Debug` shows nothing of it.
#[derive(Clone, PartialEq, Eq)]
pub struct Sealed(String);

impl Sealed {
    /// Wraps a text that the server has encrypted.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The encrypted text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Sealed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sealed(***)")
    }
}

impl FromCell for Sealed {
    fn from_cell(cell: Cell<'_>) -> Result<Self, String> {
        String::from_cell(cell).map(Self)
    }
}

impl<'a> From<&'a Sealed> for Value<'a> {
    fn from(sealed: &'a Sealed) -> Self {
        Value::from(&sealed.0)
    }
}
