//! The answer to a pull. It may be large, so that its logs are read from the disk piece by piece while it is written.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dstack_agent_protocol::runner::{JobStateEvent, LogEvent};
use serde::ser::{Error, SerializeSeq};
use serde::{Serialize, Serializer};

use crate::history::{Entry, Selection};
use crate::spool::{Piece, Reader};

/// Serializes as [`dstack_agent_protocol::runner::PullResponse`].
#[derive(Debug, Serialize)]
pub(crate) struct Answer<'a> {
    job_states: Vec<JobStateEvent>,
    job_logs: Logs<'a>,
    runner_logs: Logs<'a>,
    last_updated: i64,
    no_connections_secs: i64,
    has_more: bool,
}

impl<'a> Answer<'a> {
    pub(crate) fn new(
        selection: &'a Selection,
        reader: &'a Reader,
        no_connections_secs: i64,
        has_more: bool,
    ) -> Self {
        let logs = |kind| Logs {
            selection,
            reader,
            kind,
        };
        let states = selection.entries.iter().filter_map(|(timestamp, entry)| {
            let Entry::State(change) = entry else {
                return None;
            };
            Some(JobStateEvent {
                state: change.state,
                timestamp: *timestamp,
                termination_reason: change.reason.to_owned(),
                termination_message: change.message.clone(),
                exit_status: change.exit_status,
            })
        });
        Self {
            job_states: states.collect(),
            job_logs: logs(Kind::Job),
            runner_logs: logs(Kind::Runner),
            last_updated: selection.last_updated,
            no_connections_secs,
            has_more,
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Job,
    Runner,
}

/// One of the two logs of a selection.
#[derive(Debug)]
struct Logs<'a> {
    selection: &'a Selection,
    reader: &'a Reader,
    kind: Kind,
}

impl Logs<'_> {
    fn piece<'e>(&self, entry: &'e Entry) -> Option<&'e Piece> {
        match (self.kind, entry) {
            (Kind::Job, Entry::JobLog(piece)) | (Kind::Runner, Entry::RunnerLog(piece)) => {
                Some(piece)
            }
            _ => None,
        }
    }
}

impl Serialize for Logs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        for (timestamp, entry) in &self.selection.entries {
            if let Some(piece) = self.piece(entry) {
                let bytes = self.reader.read(piece).map_err(S::Error::custom)?;
                list.serialize_element(&LogEvent {
                    timestamp: *timestamp,
                    message: STANDARD.encode(bytes),
                })?;
            }
        }
        list.end()
    }
}
