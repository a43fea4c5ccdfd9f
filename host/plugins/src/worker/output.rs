//! What a plugin prints goes into the log with its name: short lines, and never so many that the log is of no use.

use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Longer lines are cut into pieces of this size.
const LINE_BYTES: usize = 2048;
/// Lines that may come at once.
const BURST: u32 = 50;
/// Then so many in a second.
const LINES_PER_SECOND: f64 = 10.0;

/// How many lines may still be written.
struct Allowance {
    lines: f64,
    at: Instant,
    dropped: u64,
}

impl Allowance {
    fn new(now: Instant) -> Self {
        Self {
            lines: f64::from(BURST),
            at: now,
            dropped: 0,
        }
    }

    /// Whether one more may be written, and how many were dropped before it.
    fn take(&mut self, now: Instant) -> Option<u64> {
        let passed = now.saturating_duration_since(self.at);
        self.at = now;
        self.lines = (self.lines + passed.as_secs_f64() * LINES_PER_SECOND).min(BURST.into());
        if self.lines < 1.0 {
            self.dropped += 1;
            return None;
        }
        self.lines -= 1.0;
        Some(std::mem::take(&mut self.dropped))
    }
}

/// Reads until the end.
pub(super) async fn capture(
    backend: String,
    stream: &'static str,
    mut from: impl AsyncRead + Unpin,
) {
    let mut allowance = Allowance::new(Instant::now());
    let mut left = Vec::with_capacity(LINE_BYTES);
    loop {
        match from.read_buf(&mut left).await {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
        while let Some(end) = end_of_line(&left) {
            let line: Vec<u8> = left.drain(..end).collect();
            write(&backend, stream, &line, &mut allowance);
        }
    }
    write(&backend, stream, &left, &mut allowance);
    if allowance.dropped > 0 {
        let dropped = allowance.dropped;
        tracing::warn!(target: "dstack::backend", backend, stream, dropped, "lines that the backend printed were dropped");
    }
}

fn end_of_line(bytes: &[u8]) -> Option<usize> {
    let newline = bytes
        .iter()
        .position(|byte| *byte == b'\n')
        .map(|at| at + 1);
    newline.or_else(|| (bytes.len() >= LINE_BYTES).then_some(LINE_BYTES))
}

fn write(backend: &str, stream: &'static str, line: &[u8], allowance: &mut Allowance) {
    let text = String::from_utf8_lossy(line);
    let text = text.trim_end();
    if text.is_empty() {
        return;
    }
    let Some(dropped) = allowance.take(Instant::now()) else {
        return;
    };
    if dropped > 0 {
        tracing::warn!(target: "dstack::backend", backend, stream, dropped, "lines that the backend printed were dropped");
    }
    tracing::info!(target: "dstack::backend", backend, stream, "{text}");
}

/// How long the last lines of a dead worker are waited for.
pub(super) const LAST_LINES: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::{Allowance, BURST, LINE_BYTES, end_of_line};
    use std::time::{Duration, Instant};

    #[test]
    fn a_flood_is_thinned_out_and_counted() {
        let now = Instant::now();
        let mut allowance = Allowance::new(now);
        let written = (0..1000).filter(|_| allowance.take(now).is_some()).count();
        assert_eq!(written, usize::try_from(BURST).unwrap());
        let later = now + Duration::from_secs(1);
        assert_eq!(allowance.take(later), Some(950));
        assert_eq!(allowance.take(later), Some(0));
    }

    #[test]
    fn a_line_without_an_end_is_cut() {
        assert_eq!(end_of_line(b"ab\ncd"), Some(3));
        assert_eq!(end_of_line(b"ab"), None);
        assert_eq!(end_of_line(&[b'x'; LINE_BYTES]), Some(LINE_BYTES));
    }
}
