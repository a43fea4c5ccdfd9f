//! This machine: its facts and its shims. Granted to the backend `local` only; others get `unsupported`.

use super::ask;
use dstack_backend_types::{
    BackendError,
    services::{FoundShim, ImageRuntime, MACHINE, MachineFacts, MachineRequest, ShimState},
};

/// What this machine has; the disk is that of `home`.
///
/// # Errors
/// `unsupported`, `cancelled`.
pub fn facts(home: &str) -> Result<MachineFacts, BackendError> {
    ask(
        MACHINE,
        &MachineRequest::Facts {
            home: home.to_owned(),
        },
    )
}

/// Starts the shim of a home, unless it runs already. It outlives the server.
///
/// # Errors
/// `provisioning` if it cannot be started.
pub fn start_shim(home: &str, flags: Vec<String>) -> Result<ShimState, BackendError> {
    ask(
        MACHINE,
        &MachineRequest::StartShim {
            home: home.to_owned(),
            flags,
        },
    )
}

/// How the shim of a home is.
///
/// # Errors
/// `unsupported`, `cancelled`.
pub fn find_shim(home: &str) -> Result<ShimState, BackendError> {
    ask(
        MACHINE,
        &MachineRequest::FindShim {
            home: home.to_owned(),
        },
    )
}

/// Ends the shim of a home with all its tasks. Success if there is none.
///
/// # Errors
/// `not_yet_terminated` if a process does not go away at once.
pub fn stop_shim(home: &str) -> Result<ShimState, BackendError> {
    ask(
        MACHINE,
        &MachineRequest::StopShim {
            home: home.to_owned(),
        },
    )
}

/// All shims of the host's shim folder, and what is left of them.
///
/// # Errors
/// `unsupported`, `cancelled`.
pub fn list_shims() -> Result<Vec<FoundShim>, BackendError> {
    ask(MACHINE, &MachineRequest::ListShims)
}

/// Whether Docker can run an image here. The host remembers the answer for a minute.
///
/// # Errors
/// `unsupported`, `cancelled`.
pub fn image_runtime(image: &str) -> Result<ImageRuntime, BackendError> {
    ask(
        MACHINE,
        &MachineRequest::ImageRuntime {
            image: image.to_owned(),
        },
    )
}
