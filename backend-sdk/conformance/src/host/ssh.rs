//! The SSH service: every command goes to the author's script, through those of a check's faults that can happen to one.

use dstack_backend_types::services as wire;
use dstack_backend_types::{BackendError, ErrorKind};

use super::{Call, Event};
use crate::http::{Exchange, Fault, HANG_LIMIT};

/// The method of such an exchange. Nobody knows whether a command changes something, so each counts as one that may.
pub(crate) const SSH: &str = "SSH";

type Output = (wire::SshReply, Vec<u8>, Vec<u8>);

fn bad(error: serde_json::Error) -> BackendError {
    BackendError::invalid(format!(
        "a request to the host that is not understood: {error}"
    ))
}

/// Answers one message of the service.
pub(super) fn answer(call: &Call, request: &[u8]) -> Result<Vec<u8>, BackendError> {
    let (head, stdin): (wire::SshRequest, _) = wire::unframe(request).map_err(bad)?;
    let script = call.session.settings.ssh.as_ref().ok_or_else(|| {
        BackendError::new(
            ErrorKind::Transport,
            "the suite has no SSH server: use `.ssh(script)`",
        )
    })?;
    let run = || script(&head, stdin);
    let fault = call.session.faults.next_of(SSH, can_be);
    let outcome = match &fault {
        None => run(),
        Some(fault) => befall(call, fault, head.timeout_ms, run),
    };
    let command = head.command.as_deref().unwrap_or_default().as_bytes();
    call.session.note(Event::Http(Exchange {
        method: SSH.to_owned(),
        url: format!("ssh://{}@{}", head.target.user, head.target.host),
        body: [command, stdin].concat(),
        reply: match &outcome {
            Ok((reply, stdout, stderr)) => {
                let status = reply.status.and_then(|status| u16::try_from(status).ok());
                let said = [stdout.as_slice(), stderr.as_slice()].concat();
                Ok((status.unwrap_or(u16::MAX), said))
            }
            Err(error) => Err(error.message.clone()),
        },
        is_fault: fault.is_some(),
        added: Vec::new(),
    }));
    call.check()?;
    let (mut reply, stdout, stderr) = outcome?;
    reply.stdout_bytes = u64::try_from(stdout.len()).unwrap_or_default();
    wire::frame(&reply, &[stdout, stderr].concat()).map_err(bad)
}

fn can_be(fault: &Fault) -> bool {
    match fault {
        Fault::Slow(_) | Fault::Hang | Fault::Cut | Fault::LostAnswer => true,
        // The login is refused; the server is in trouble.
        Fault::Status(status, _) => *status == 401 || *status >= 500,
        Fault::Echo(_) | Fault::Garbage | Fault::Truncated | Fault::Padded => false,
    }
}

fn befall(
    call: &Call,
    fault: &Fault,
    timeout_ms: Option<u64>,
    run: impl FnOnce() -> Result<Output, BackendError>,
) -> Result<Output, BackendError> {
    let lost = |what: &str| Err(BackendError::new(ErrorKind::Transport, what));
    match fault {
        Fault::Slow(time) => {
            let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            if timeout_ms.is_some_and(|limit| limit < ms) {
                return Err(BackendError::new(
                    ErrorKind::Timeout,
                    "the command did not end in time",
                ));
            }
            call.wait_virtually(ms)?;
            run()
        }
        Fault::Hang => {
            call.wait_for_cancel(HANG_LIMIT)?;
            lost("the command never ended")
        }
        Fault::LostAnswer => {
            run()?;
            lost("the connection was lost before the command ended")
        }
        Fault::Status(401, _) => Err(BackendError::new(ErrorKind::Auth, "the login was refused")),
        _ => lost("the connection was cut"),
    }
}
