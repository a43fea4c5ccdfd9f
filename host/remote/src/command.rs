//! Commands on a machine, over the connection that is there already.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use russh::client::{Handle, Handler};
use russh::{ChannelMsg, ChannelReadHalf};

use crate::RemoteError;

/// The largest output of a command that is kept; the rest is read and dropped.
const OUTPUT_LIMIT: usize = 1024 * 1024;

/// What a command said and how it ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandOutput {
    /// Exit status; `None` if a signal ended it.
    pub status: Option<u32>,
    /// The first MiB of its standard output.
    pub stdout: Vec<u8>,
    /// The first MiB of its standard error output.
    pub stderr: Vec<u8>,
}

impl CommandOutput {
    /// Whether it ended with 0.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.status == Some(0)
    }

    /// Standard output as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// What it complained about: the last line of its error output, else of its output, else its status.
    #[must_use]
    pub fn complaint(&self) -> String {
        let last = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            let line = text.lines().map(str::trim).rfind(|line| !line.is_empty());
            line.map(|line| line.chars().take(300).collect::<String>())
        };
        last(&self.stderr)
            .or_else(|| last(&self.stdout))
            .unwrap_or_else(|| match self.status {
                Some(status) => format!("status {status}, without a word"),
                None => "it was killed".to_owned(),
            })
    }
}

impl fmt::Display for CommandOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.complaint())
    }
}

/// Runs `command` in the account's login shell, with `input` as its standard input.
pub(crate) async fn run<H: Handler>(
    at: &str,
    handle: &Handle<H>,
    command: &str,
    input: Bytes,
    limit: Duration,
) -> Result<CommandOutput, RemoteError> {
    let work = async {
        let channel = handle.channel_open_session().await?;
        channel.exec(true, command).await?;
        let (read, write) = channel.split();
        let feed = async {
            // A command that ends early closes its input: how it ended says why.
            if let Err(error) = write.data(&*input).await {
                tracing::debug!(%error, "a command did not read all of its input");
                return;
            }
            if let Err(error) = write.eof().await {
                tracing::debug!(%error, "a command ended before its input did");
            }
        };
        let mut collect = std::pin::pin!(collect(read));
        let mut feed = std::pin::pin!(feed);
        let mut is_fed = false;
        loop {
            tokio::select! {
                output = &mut collect => return Ok(output),
                () = &mut feed, if !is_fed => is_fed = true,
            }
        }
    };
    match tokio::time::timeout(limit, work).await {
        Ok(Ok(output)) => output.ok_or_else(|| RemoteError::Unreachable {
            at: at.to_owned(),
            reason: "the ssh connection broke during a command".to_owned(),
        }),
        Ok(Err(error)) => Err(channel_error(at, &error)),
        Err(_) => Err(RemoteError::TimedOut {
            at: format!("a command at {at}"),
            limit,
        }),
    }
}

fn channel_error(at: &str, error: &russh::Error) -> RemoteError {
    match error {
        russh::Error::ChannelOpenFailure(failure) => RemoteError::Refused {
            at: at.to_owned(),
            reason: format!("its ssh server opens no session: {failure:?}"),
        },
        other => RemoteError::Unreachable {
            at: at.to_owned(),
            reason: format!("the ssh connection broke: {other}"),
        },
    }
}

/// Reads until the command is over; `None` if the connection ended before.
async fn collect(mut read: ChannelReadHalf) -> Option<CommandOutput> {
    let mut output = CommandOutput::default();
    let mut is_over = false;
    let keep = |kept: &mut Vec<u8>, data: &[u8]| {
        let room = OUTPUT_LIMIT.saturating_sub(kept.len()).min(data.len());
        kept.extend_from_slice(data.get(..room).unwrap_or_default());
    };
    while let Some(message) = read.wait().await {
        match message {
            ChannelMsg::Data { data } => keep(&mut output.stdout, &data),
            ChannelMsg::ExtendedData { data, ext: 1 } => keep(&mut output.stderr, &data),
            ChannelMsg::ExitStatus { exit_status } => {
                output.status = Some(exit_status);
                is_over = true;
            }
            ChannelMsg::ExitSignal { .. } => is_over = true,
            ChannelMsg::Failure => {
                output.stderr = b"the ssh server runs no commands for this account".to_vec();
                return Some(output);
            }
            ChannelMsg::Close => break,
            _ => {}
        }
    }
    is_over.then_some(output)
}

#[cfg(test)]
mod tests {
    use super::CommandOutput;

    #[test]
    fn a_complaint_is_one_line() {
        let output = CommandOutput {
            status: Some(1),
            stdout: b"working\n".to_vec(),
            stderr: b"first\nlast words \n\n".to_vec(),
        };
        assert_eq!(output.complaint(), "last words");
        let silent = CommandOutput {
            status: Some(7),
            ..CommandOutput::default()
        };
        assert_eq!(silent.to_string(), "status 7, without a word");
    }
}
