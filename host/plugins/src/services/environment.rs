//! Host service `environment`: variables of the server's environment, for credentials that stand there.

use dstack_backend_types::{
    BackendError, ErrorKind, Manifest, Secret,
    services::{EnvironmentReply, EnvironmentRequest},
};
use std::{fmt, sync::Arc};

/// The variables that backends may be given; each sees only those that its manifest names.
pub trait Variables: Send + Sync + fmt::Debug {
    /// The value, if the variable is set.
    fn get(&self, name: &str) -> Option<String>;
}

/// Answers what a plugin may see. Without `variables` the administrator has forbidden it.
pub(super) fn answer(
    variables: Option<&Arc<dyn Variables>>,
    manifest: Option<&Manifest>,
    request: EnvironmentRequest,
) -> Result<EnvironmentReply, BackendError> {
    let refuse = |message: String| Err(BackendError::new(ErrorKind::Auth, message));
    let Some(variables) = variables else {
        return refuse(
            "this server gives no variables of its environment to backends; put the credentials into the backend's configuration"
                .to_owned(),
        );
    };
    let named = manifest.map_or(&[][..], |manifest| &manifest.environment);
    if let Some(other) = request.names.iter().find(|name| !named.contains(name)) {
        return refuse(format!(
            "the plugin's manifest does not name the variable {other}"
        ));
    }
    let values = request
        .names
        .into_iter()
        .filter_map(|name| {
            let value = variables.get(&name)?;
            Some((name, Secret::new(value)))
        })
        .collect();
    Ok(EnvironmentReply { values })
}
