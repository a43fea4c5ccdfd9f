//! Logging: one subscriber that writes to a terminal stream and to any number of further places.

use std::io::{self, Write};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;

/// How much is logged. Given as a name in any case or as a digit from 1 (`fatal`) to 6 (`trace`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Only what ends the program; logged as errors here.
    Fatal,
    /// A person should act.
    Error,
    /// Odd, but we went on.
    Warn,
    /// Life cycle and state changes.
    Info,
    /// Everything else of use.
    Debug,
    /// Everything.
    Trace,
}

impl FromStr for Level {
    type Err = ParseLevelError;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        match word.trim().to_ascii_lowercase().as_str() {
            "fatal" | "1" => Ok(Self::Fatal),
            "error" | "2" => Ok(Self::Error),
            "warn" | "warning" | "3" => Ok(Self::Warn),
            "info" | "4" => Ok(Self::Info),
            "debug" | "5" => Ok(Self::Debug),
            "trace" | "6" => Ok(Self::Trace),
            _ => Err(ParseLevelError(word.to_owned())),
        }
    }
}

/// A log level that is neither a name nor a digit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid log level \"{0}\": use fatal, error, warn, info, debug, trace or a digit from 1 to 6"
)]
pub struct ParseLevelError(String);

impl Level {
    fn filter(self) -> LevelFilter {
        match self {
            Self::Fatal | Self::Error => LevelFilter::ERROR,
            Self::Warn => LevelFilter::WARN,
            Self::Info => LevelFilter::INFO,
            Self::Debug => LevelFilter::DEBUG,
            Self::Trace => LevelFilter::TRACE,
        }
    }
}

/// The places log lines go to. Cheap to clone; all clones are one.
#[derive(Clone, Default)]
pub struct Tee(Arc<Mutex<Vec<Box<dyn Write + Send>>>>);

impl Tee {
    /// No place yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sends all later lines to `sink` too. It is called once a line, under a lock: it must not log.
    pub fn add(&self, sink: impl Write + Send + 'static) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Box::new(sink));
    }
}

impl std::fmt::Debug for Tee {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tee")
    }
}

impl Write for Tee {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        // A full disk must not stop the agent, so a place that fails is passed over.
        for sink in self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter_mut()
        {
            drop(sink.write_all(line));
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        for sink in self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter_mut()
        {
            drop(sink.flush());
        }
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Tee {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// Sends all tracing events of at least `level` to `tee`, one line each, for the rest of the program.
///
/// A second call in one program does nothing.
pub fn init(level: Level, tee: &Tee) {
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_target(false)
        .with_max_level(level.filter())
        .with_writer(tee.clone())
        .finish();
    // The error means that there is a subscriber already, which a second call accepts.
    drop(tracing::subscriber::set_global_default(subscriber));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_names_or_digits() {
        for (word, level) in [
            ("FATAL", Level::Fatal),
            ("2", Level::Error),
            ("Warning", Level::Warn),
            ("warn", Level::Warn),
            ("info", Level::Info),
            ("5", Level::Debug),
            ("6", Level::Trace),
        ] {
            assert_eq!(word.parse(), Ok(level), "{word}");
        }
        for word in ["", "0", "7", "loud"] {
            assert!(word.parse::<Level>().is_err(), "{word}");
        }
    }
}
