//! Progress of a run, for people.

use super::report::{KernelReport, Status};
use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;
use std::time::Duration;

/// A progress bar on standard error, invisible where that is not a terminal, and one line per kernel on request.
/// Thread-safe.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    /// Kernels in progress.
    current: Mutex<Vec<String>>,
    verbose: bool,
}

impl Progress {
    /// A bar for `kernels` kernels; with `verbose`, a line for each of them.
    pub fn new(kernels: usize, verbose: bool) -> Self {
        let bar = ProgressBar::new(kernels as u64);
        // The template is a constant that indicatif understands; without it the bar has another look.
        if let Ok(style) = ProgressStyle::with_template("{bar:32} {pos}/{len} {elapsed_precise} {wide_msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(250));
        Self { bar, current: Mutex::default(), verbose }
    }

    /// No bar and no lines.
    pub fn silent() -> Self {
        Self { bar: ProgressBar::hidden(), current: Mutex::default(), verbose: false }
    }

    pub(super) fn started(&self, name: &str) {
        let mut current = self.current.lock();
        current.push(name.to_owned());
        self.bar.set_message(current.join(", "));
    }

    pub(super) fn passed_over(&self) {
        self.bar.inc(1);
    }

    pub(super) fn finished(&self, kernel: &KernelReport) {
        {
            let mut current = self.current.lock();
            if let Some(index) = current.iter().position(|name| *name == kernel.name) {
                current.swap_remove(index);
            }
            self.bar.set_message(current.join(", "));
        }
        self.bar.inc(1);
        let KernelReport { name, arch, milliseconds, bytes, .. } = kernel;
        let cause = kernel.cause.as_deref().unwrap_or_default();
        match kernel.status {
            Status::Failed => {
                let output = if self.verbose { kernel.output.as_str() } else { "" };
                self.line(&format!("error: Failed to generate kernel {name} ({arch}): {cause}"));
                if !output.is_empty() {
                    self.line(output.trim_end());
                }
            }
            Status::Made if self.verbose => {
                let again = if cause.is_empty() { String::new() } else { format!(" ({cause})") };
                self.line(&format!("generated {arch}/{name}: {bytes} bytes in {milliseconds} ms{again}"));
            }
            Status::Kept if self.verbose => self.line(&format!("up to date: {arch}/{name}, {bytes} bytes")),
            _ => {}
        }
    }

    fn line(&self, text: &str) {
        self.bar.suspend(|| eprintln!("{text}"));
    }

    /// Takes the bar away.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}
