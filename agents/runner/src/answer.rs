//! The answer to a pull. It may be large, so that its logs are read from the disk piece by piece while it is written.

use std::io::{self, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dstack_agent_protocol::runner::JobStateEvent;

use crate::history::{Entry, Selection};
use crate::spool::Reader;

/// A [`PullResponse`](dstack_agent_protocol::runner::PullResponse), to be written as JSON.
///
/// Written by hand: a log in base64 has nothing to escape, and all of a job's output passes here.
#[derive(Debug)]
pub(crate) struct Answer<'a> {
    pub(crate) selection: &'a Selection,
    pub(crate) reader: &'a Reader,
    pub(crate) no_connections_secs: i64,
    pub(crate) has_more: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Job,
    Runner,
}

impl Answer<'_> {
    /// The JSON and a newline.
    pub(crate) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(b"{\"job_states\":")?;
        serde_json::to_writer(&mut *out, &self.states())?;
        out.write_all(b",\"job_logs\":")?;
        self.write_logs(Kind::Job, out)?;
        out.write_all(b",\"runner_logs\":")?;
        self.write_logs(Kind::Runner, out)?;
        writeln!(
            out,
            ",\"last_updated\":{},\"no_connections_secs\":{},\"has_more\":{}}}",
            self.selection.last_updated, self.no_connections_secs, self.has_more
        )
    }

    fn states(&self) -> Vec<JobStateEvent> {
        let states = self.selection.entries.iter().filter_map(|(at, entry)| {
            let Entry::State(change) = entry else {
                return None;
            };
            Some(JobStateEvent {
                state: change.state,
                timestamp: *at,
                termination_reason: change.reason.to_owned(),
                termination_message: change.message.clone(),
                exit_status: change.exit_status,
            })
        });
        states.collect()
    }

    fn write_logs(&self, wanted: Kind, out: &mut dyn Write) -> io::Result<()> {
        let (mut bytes, mut text) = (Vec::new(), String::new());
        let mut before = "[";
        for (at, entry) in &self.selection.entries {
            let piece = match (wanted, entry) {
                (Kind::Job, Entry::JobLog(piece)) | (Kind::Runner, Entry::RunnerLog(piece)) => {
                    piece
                }
                _ => continue,
            };
            self.reader.read(piece, &mut bytes)?;
            text.clear();
            STANDARD.encode_string(&bytes, &mut text);
            write!(out, "{before}{{\"timestamp\":{at},\"message\":\"")?;
            out.write_all(text.as_bytes())?;
            out.write_all(b"\"}")?;
            before = ",";
        }
        out.write_all(if before == "[" { b"[]" } else { b"]" })
    }
}
