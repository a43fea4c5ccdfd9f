//! Looking until something is so.

use std::time::Duration;

use dstack_backend_types::{BackendError, ErrorKind};

use crate::host;

/// Looks at once and then every `pause` until `look` finds something, for at most `limit`, by the host's clock.
///
/// Mostly not needed: methods return at once and the host calls again (`update_provisioning_data`, `not_yet_terminated`).
/// It is for the steps between, e.g. an action that must end before the next begins.
///
/// ```
/// use std::time::Duration;
/// use dstack_backend_sdk::rest::{Rest, wait_until};
/// use dstack_backend_sdk::BackendError;
/// use serde::Deserialize;
///
/// #[derive(Deserialize)]
/// struct Action { state: String }
///
/// fn wait(api: &Rest, id: &str) -> Result<Action, BackendError> {
///     wait_until("the action to end", Duration::from_secs(1), Duration::from_secs(60), || {
///         let action: Action = api.get(format!("/actions/{id}")).fetch()?;
///         Ok((action.state == "done").then_some(action))
///     })
/// }
/// # let _ = wait;
/// ```
///
/// # Errors
/// `timeout` that names `what` after `limit`; `cancelled` if the call is told to end; those of `look`, at once.
pub fn wait_until<T>(
    what: &str,
    pause: Duration,
    limit: Duration,
    mut look: impl FnMut() -> Result<Option<T>, BackendError>,
) -> Result<T, BackendError> {
    let begun = host::now();
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        let waited = host::now().duration_since(begun).unsigned_abs();
        if waited >= limit {
            return Err(BackendError::new(
                ErrorKind::Timeout,
                format!("waited {} s for {what}", limit.as_secs()),
            ));
        }
        host::sleep(pause.min(limit.saturating_sub(waited)))?;
    }
}
