//! Keys of configurations that only this implementation's server knows.

use serde_json::Value;

use crate::cx::Here;
use crate::error::CliError;

/// Paths of such keys, as in `host/docs/`. They are absent from the wire when unset.
const OWN: &[&str] = &[];

/// Refuses own keys if the server is another implementation's, which would refuse or, worse, overlook them.
///
/// The server must have answered something before, since its answers tell what it is.
pub(crate) fn check(configuration: &Value, here: &Here) -> Result<(), CliError> {
    let used = used(configuration, OWN);
    if used.is_empty() || here.client.host_version().is_some() {
        return Ok(());
    }
    Err(CliError::ForeignServer {
        fields: used.join(", "),
        url: here.client.url().to_owned(),
    })
}

fn used(configuration: &Value, own: &[&str]) -> Vec<String> {
    let is_set = |path: &str| {
        path.split('.')
            .try_fold(configuration, |value, key| value.get(key))
            .is_some_and(|v| !v.is_null())
    };
    own.iter()
        .filter(|path| is_set(path))
        .map(|path| (*path).to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_keys_are_found_at_any_depth_if_they_are_set() {
        let configuration = serde_json::json!({"resources": {"new": 1}, "a": null, "type": "task"});
        assert_eq!(
            used(&configuration, &["resources.new", "a", "b.c"]),
            ["resources.new"]
        );
    }
}
