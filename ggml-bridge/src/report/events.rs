//! Messages of the layers below, sent where this library's own go.
//!
//! The HAL, its drivers and the kernel store report through `tracing`. Warnings and errors are always passed on, information
//! with `GGML_HSA_ENABLE_LOG`; slices of a timeline go to the file of `GGML_HSA_TRACE`; the rest is for debuggers.

use crate::config::log;
use crate::report::trace_file::{self, Slice};
use aie_hal::timeline::TARGET;
use std::fmt::{Debug, Write};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};

/// Passes events on. Spans are not recorded.
struct ToLog;

/// Installs it, once per process.
pub fn pass_on() {
    // Only a host that links this code can have one already, which then stays.
    let _ = tracing::subscriber::set_global_default(ToLog);
}

impl Subscriber for ToLog {
    /// What is enabled depends on settings that are read later than the first event may come.
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        if metadata.target() == TARGET {
            return trace_file::trace().is_some();
        }
        *metadata.level() <= Level::WARN || (*metadata.level() == Level::INFO && log::is_verbose())
    }

    fn event(&self, event: &Event<'_>) {
        if event.metadata().target() == TARGET {
            if let Some(file) = trace_file::trace() {
                let mut slice = Slice::default();
                event.record(&mut slice);
                file.add(&slice);
            }
            return;
        }
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

impl Visit for Slice {
    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            "begin" => self.begin = value,
            "end" => self.end = value,
            _ => {}
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "track" => self.track = value.to_owned(),
            "name" => self.name = value.to_owned(),
            "detail" => self.detail = value.to_owned(),
            _ => {}
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn Debug) {}
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
