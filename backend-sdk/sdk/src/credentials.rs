//! Credentials from the configuration, or from the variables that the host hands over.
//!
//! A backend does not look at the environment: its process may be another one than the server's, and the administrator may
//! have forbidden it (`DSTACK_DEFAULT_CREDS_DISABLED`). It asks the host for the variables named in its manifest.

use dstack_backend_types::{BackendError, Secret};

use crate::host;

/// A credential: the configuration's if it has one, else the variable's. Empty is none.
///
/// ```
/// use dstack_backend_sdk::{BackendError, Secret, credentials};
/// struct Creds { api_key: Option<Secret<String>> }
/// fn api_key(creds: &Creds) -> Result<Secret<String>, BackendError> {
///     credentials::find("creds.api_key", creds.api_key.as_ref(), "ACME_API_KEY")
/// }
/// # let _ = api_key;
/// ```
///
/// # Errors
/// `auth` that names the field and the variable: `get_offers` that passes it on leaves this backend out, with that reason,
/// and harms no other.
pub fn find(
    field: &str,
    configured: Option<&Secret<String>>,
    variable: &str,
) -> Result<Secret<String>, BackendError> {
    if let Some(secret) = configured.filter(|secret| !secret.expose().trim().is_empty()) {
        return Ok(secret.clone());
    }
    let why = match host::environment(&[variable]) {
        Ok(values) => match values.into_iter().find(|(name, _)| name == variable) {
            Some((_, value)) if !value.expose().trim().is_empty() => return Ok(value),
            _ => "which is not set".to_owned(),
        },
        Err(error) => format!("which cannot be asked for: {error}"),
    };
    Err(BackendError::auth(
        format!("no credentials: set {field}, or on the server the variable {variable}, {why}"),
        [field],
    ))
}

#[cfg(test)]
mod tests {
    use super::find;
    use crate::testing::{Host, Reply};
    use dstack_backend_types::{ErrorKind, Secret, services::ENVIRONMENT};
    use serde_json::json;

    #[test]
    fn the_configuration_comes_before_the_environment() {
        let host = Host::new(|_| Reply::cut());
        host.answer(
            ENVIRONMENT,
            &json!({"values": {"ACME_KEY": "from-env", "EMPTY": ""}}),
        );
        let written = Secret::new("written".to_owned());
        let blank = Secret::new(" ".to_owned());
        for (configured, expected) in [
            (Some(&written), "written"),
            (Some(&blank), "from-env"),
            (None, "from-env"),
        ] {
            let found = find("creds.key", configured, "ACME_KEY").unwrap();
            assert_eq!(found.expose(), expected);
        }
        for variable in ["EMPTY", "ABSENT"] {
            let error = find("creds.key", None, variable).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Auth);
            assert!(error.message.contains("set creds.key") && error.message.contains(variable));
            assert_eq!(error.details["fields"], json!(["creds.key"]));
        }
    }

    #[test]
    fn a_host_that_hands_nothing_over_says_so() {
        let error = find("creds.key", None, "ACME_KEY").unwrap_err();
        assert_eq!(error.kind, ErrorKind::Auth);
        assert!(error.message.contains("cannot be asked for"), "{error}");
    }
}
