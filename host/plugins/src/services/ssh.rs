//! What is checked of an SSH command before it goes to the one who carries it.

use dstack_backend_types::{
    BackendError,
    services::{SshHop, SshRequest},
};

const MAX_STDIN_BYTES: usize = 8 << 20;
const MAX_JUMPS: usize = 8;

/// Refuses what makes no sense.
pub(super) fn check(request: &SshRequest, stdin: &[u8]) -> Result<(), BackendError> {
    if stdin.len() > MAX_STDIN_BYTES {
        return Err(BackendError::invalid(format!(
            "standard input has {} bytes, at most {MAX_STDIN_BYTES}",
            stdin.len()
        )));
    }
    if request.jumps.len() > MAX_JUMPS {
        return Err(BackendError::invalid(format!(
            "{} servers to go through, at most {MAX_JUMPS}",
            request.jumps.len()
        )));
    }
    for SshHop {
        host,
        user,
        private_key,
        password,
        ..
    } in request.jumps.iter().chain([&request.target])
    {
        if host.is_empty() || user.is_empty() {
            return Err(BackendError::invalid(
                "an SSH server needs a host and a user",
            ));
        }
        if private_key.is_none() && password.is_none() {
            return Err(BackendError::invalid(format!(
                "neither key nor password for {user}@{host}"
            )));
        }
    }
    Ok(())
}
