//! The reading rule of both APIs: `null` means the zero value.

use serde::{Deserialize, Deserializer};

/// Reads a field whose `null` means its zero value; for `#[serde(deserialize_with)]`.
///
/// # Errors
/// If the value is neither `null` nor a `T`.
pub fn nullable<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}
