//! What is checked of a ledger entry before it goes to the one who keeps the ledger.

use dstack_backend_types::{BackendError, Manifest, capability, services::LedgerRequest};

const MAX_WORD: usize = 64;
const MAX_NAME: usize = 512;
const MAX_ATTRIBUTES: usize = 16 << 10;

/// Refuses an entry that could not be stored, found or deleted later.
pub(super) fn check(
    manifest: Option<&Manifest>,
    request: &LedgerRequest,
) -> Result<(), BackendError> {
    let (provider_ref, kind, name) = match request {
        LedgerRequest::Declare { resource } => {
            if !manifest.is_some_and(|it| it.has(capability::RESOURCE_LISTING)) {
                return Err(BackendError::unsupported(format!(
                    "the ledger is for backends with the capability {}, by which the host deletes what is left",
                    capability::RESOURCE_LISTING
                )));
            }
            let attributes = serde_json::to_vec(&resource.attributes)
                .map_err(|e| BackendError::invalid(e.to_string()))?;
            if attributes.len() > MAX_ATTRIBUTES || resource.region.len() > MAX_NAME {
                return Err(BackendError::invalid(format!(
                    "the attributes of {} {} have {} bytes, at most {MAX_ATTRIBUTES}",
                    resource.kind,
                    resource.name,
                    attributes.len()
                )));
            }
            (&resource.provider_ref, &resource.kind, &resource.name)
        }
        LedgerRequest::Settle {
            provider_ref,
            kind,
            name,
        } => (provider_ref, kind, name),
    };
    for (what, value, most) in [
        ("provider_ref", provider_ref, MAX_WORD),
        ("kind", kind, MAX_WORD),
        ("name", name, MAX_NAME),
    ] {
        if value.trim().is_empty() || value.len() > most {
            return Err(BackendError::invalid(format!(
                "a ledger entry needs a {what} of 1 to {most} characters"
            )));
        }
    }
    Ok(())
}
