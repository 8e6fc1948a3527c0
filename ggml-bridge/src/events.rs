//! Messages of the layers below, sent where this library's own go.
//!
//! The HAL, its drivers and the kernel store report through `tracing`. Warnings and errors are always passed on, information
//! with `GGML_HSA_ENABLE_LOG`; the rest is for debuggers.

use crate::log;
use std::fmt::{Debug, Write};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Passes events on. Spans are not recorded.
struct ToLog;

/// Installs it, once per process.
pub fn pass_on() {
    // Only a host that links this code can have one already, which then stays.
    let _ = tracing::subscriber::set_global_default(ToLog);
}

impl Subscriber for ToLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN || (*metadata.level() == Level::INFO && log::is_verbose())
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        match *event.metadata().level() {
            Level::ERROR => log::error(&text.0),
            Level::WARN => log::warn(&text.0),
            _ => log::info(|| text.0),
        }
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// The message, and the fields behind it.
#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a string cannot fail.
        let _ = if field.name() == "message" {
            let fields = std::mem::take(&mut self.0);
            write!(self.0, "{value:?}{fields}")
        } else {
            write!(self.0, " {}={value:?}", field.name())
        };
    }
}
