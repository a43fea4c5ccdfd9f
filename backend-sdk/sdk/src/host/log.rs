//! Hands `tracing` events and panics of this library to the host's log.
//!
//! Every shared library has its own copy of `tracing`, so this is set up once in each.

use super::{describe, services};
use crate::call::Call;
use dstack_backend_abi::RStr;
use serde_json::{Map, Value};
use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};
use tracing_core::{
    Event, Level, LevelFilter, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

/// Sends one line. Does nothing outside of a host.
fn write(level: u32, target: &str, message: &str, fields: &str) {
    if let Some(host) = services() {
        let call = Call::current().id();
        (host.log)(
            host.context,
            call,
            level,
            RStr::from(target),
            RStr::from(message),
            RStr::from(fields),
        );
    }
}

/// Sets up `tracing` and the panic hook.
pub(crate) fn install() {
    let level = match describe().map_or(3, |described| described.log_level) {
        0 => LevelFilter::OFF,
        1 => LevelFilter::ERROR,
        2 => LevelFilter::WARN,
        3 => LevelFilter::INFO,
        4 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let bridge = Bridge {
        level,
        spans: AtomicU64::new(0),
    };
    // Fails only if the backend has a subscriber of its own, which is then what it wants.
    if tracing::subscriber::set_global_default(bridge).is_err() {
        write(
            2,
            module_path!(),
            "the backend has set a tracing subscriber of its own",
            "",
        );
    }
    // The default hook would write to the host's standard error.
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        let payload = info.payload();
        let text = payload
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("a payload that is no text");
        let fields = Value::Object(Map::from_iter([(
            "location".to_owned(),
            Value::from(place),
        )]))
        .to_string();
        write(1, "panic", text, &fields);
    }));
}

struct Bridge {
    level: LevelFilter,
    spans: AtomicU64,
}

impl Subscriber for Bridge {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.level
    }
    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level)
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        // Spans stay here: only events cross.
        span::Id::from_u64(self.spans.fetch_add(1, Ordering::Relaxed).saturating_add(1))
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        let metadata = event.metadata();
        let level = match *metadata.level() {
            Level::ERROR => 1,
            Level::WARN => 2,
            Level::INFO => 3,
            Level::DEBUG => 4,
            Level::TRACE => 5,
        };
        let fields = if line.fields.is_empty() {
            String::new()
        } else {
            Value::Object(line.fields).to_string()
        };
        write(level, metadata.target(), &line.message, &fields);
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[derive(Default)]
struct Line {
    message: String,
    fields: Map<String, Value>,
}

impl Line {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        self.fields.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        } else {
            self.put(field, format!("{value:?}"));
        }
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            value.clone_into(&mut self.message);
        } else {
            self.put(field, value);
        }
    }
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }
}
