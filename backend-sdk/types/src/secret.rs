//! Values that are never printed.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

/// A credential. `Debug` prints `***`; on the wire it is the value itself, since a backend needs it.
///
/// In a configuration's JSON schema it carries `writeOnly: true`, from which the views of the configuration with and
/// without credentials are derived.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret<T>(T);

impl<T> Secret<T> {
    /// Wraps a value.
    pub const fn new(value: T) -> Self {
        Self(value)
    }

    /// The value; the caller must not print it.
    pub const fn expose(&self) -> &T {
        &self.0
    }

    /// Unwraps the value; the caller must not print it.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> From<T> for Secret<T> {
    fn from(value: T) -> Self {
        Self(value)
    }
}

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl<T: JsonSchema> JsonSchema for Secret<T> {
    fn inline_schema() -> bool {
        // `writeOnly` belongs to the place, not to a shared definition.
        true
    }

    fn schema_name() -> Cow<'static, str> {
        Cow::Owned(format!("Secret_{}", T::schema_name()))
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = T::json_schema(generator);
        schema.insert("writeOnly".to_owned(), true.into());
        schema
    }
}
