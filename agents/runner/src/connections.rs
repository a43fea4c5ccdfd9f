//! Tracks logins, to tell how long nobody has been connected.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

/// Pause between looks.
const PERIOD: Duration = Duration::from_millis(2500);
/// A connection counts once it is older: the server's own calls are shorter.
const COUNTS_AFTER: Duration = Duration::from_secs(10);
const TABLES: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];
/// State ESTABLISHED in the kernel's tables.
const ESTABLISHED: &str = "01";

#[derive(Debug, Default)]
pub(crate) struct Tracker(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    /// When each connection was seen first, by its remote end.
    since: HashMap<String, Instant>,
    last_check: Option<Instant>,
    last_activity: Option<Instant>,
}

impl Seen {
    fn check(&mut self, now: Instant, remotes: Vec<String>) {
        let mut since = std::mem::take(&mut self.since);
        self.since = remotes
            .into_iter()
            .map(|remote| {
                let first = since.remove(&remote).unwrap_or(now);
                (remote, first)
            })
            .collect();
        let is_active = self
            .since
            .values()
            .any(|first| now.duration_since(*first) > COUNTS_AFTER);
        // The first look counts as activity: the job has just begun.
        if is_active || self.last_activity.is_none() {
            self.last_activity = Some(now);
        }
        self.last_check = Some(now);
    }

    fn idle_secs(&self) -> i64 {
        match (self.last_check, self.last_activity) {
            (Some(check), Some(activity)) => {
                i64::try_from(check.duration_since(activity).as_secs()).unwrap_or(i64::MAX)
            }
            _ => 0,
        }
    }
}

impl Tracker {
    /// Seconds without a connection; 0 before tracking has started.
    pub(crate) fn idle_secs(&self) -> i64 {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .idle_secs()
    }

    /// Looks every few seconds until `until`.
    pub(crate) async fn run(&self, port: u16, until: CancellationToken) {
        loop {
            let tables = TABLES
                .iter()
                .map(|path| std::fs::read_to_string(path).unwrap_or_default());
            let remotes = tables.flat_map(|table| remotes(&table, port)).collect();
            self.0
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .check(Instant::now(), remotes);
            tokio::select! {
                () = tokio::time::sleep(PERIOD) => {}
                () = until.cancelled() => return,
            }
        }
    }
}

/// Remote ends of the established connections to a local port, as the kernel writes them.
fn remotes(table: &str, port: u16) -> Vec<String> {
    let suffix = format!(":{port:04X}");
    let lines = table.lines().skip(1).filter_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let (local, remote, state) = (fields.nth(1)?, fields.next()?, fields.next()?);
        (local.ends_with(&suffix) && state == ESTABLISHED).then(|| remote.to_owned())
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn established_connections_to_the_port_are_found() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n   \
            0: 00000000:2726 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0\n   \
            1: 0100007F:2726 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0\n   \
            2: 0100007F:2726 0100007F:C351 06 00000000:00000000 00:00000000 00000000     0\n   \
            3: 0100007F:C350 0100007F:2726 01 00000000:00000000 00:00000000 00000000     0\n";
        assert_eq!(remotes(table, 10022), ["0100007F:C350"]);
        assert_eq!(remotes("", 10022), Vec::<String>::new());
    }

    #[test]
    fn short_connections_are_no_activity() {
        let start = Instant::now();
        let at = |secs| start + Duration::from_secs(secs);
        let mut seen = Seen::default();
        assert_eq!(seen.idle_secs(), 0);
        seen.check(at(0), vec![]);
        seen.check(at(30), vec!["a".into()]);
        assert_eq!(seen.idle_secs(), 30);
        seen.check(at(40), vec!["a".into()]);
        assert_eq!(seen.idle_secs(), 40);
        seen.check(at(41), vec!["a".into(), "b".into()]);
        assert_eq!(seen.idle_secs(), 0);
        seen.check(at(50), vec!["b".into()]);
        assert_eq!(seen.idle_secs(), 9);
        // It came back as a new connection.
        seen.check(at(60), vec!["a".into()]);
        assert_eq!(seen.idle_secs(), 19);
    }
}
