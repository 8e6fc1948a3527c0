//! A file with the timeline of the emulated array, for Perfetto (<https://ui.perfetto.dev>).
//!
//! It has the Trace Event Format, one event a line: a track for each core and each DMA channel, and one for the dispatches, whose
//! arguments are the cycles and what bound them. The file is complete after every dispatch, but for the bracket at its
//! end, which readers of the format do not need. Dispatches follow each other; what the host does between them takes no time.

use aie_emulator::{Interval, Occupation, Resource, Timing, Use};
use aie_hal::format::dma_channel::Direction;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// The tracks of dispatches.
const DISPATCHES: u32 = 0;

/// A trace that is being written.
#[derive(Debug)]
pub struct Trace {
    file: BufWriter<File>,
    clock_mhz: u64,
    /// Tracks that have a name.
    named: BTreeSet<(u32, u32)>,
    /// Cycles of the dispatches so far.
    cycles: u64,
}

impl Trace {
    /// Makes the file, for an array with this clock.
    ///
    /// # Errors
    /// What the file system says.
    pub fn create(path: &Path, clock_mhz: u64) -> io::Result<Self> {
        let mut file = BufWriter::new(File::create(path)?);
        file.write_all(b"[\n")?;
        file.flush()?;
        Ok(Self { file, clock_mhz: clock_mhz.max(1), named: BTreeSet::new(), cycles: 0 })
    }

    /// Adds a dispatch of `kernel`: its cycles, and the intervals that began when it did or later, at `begin` of the array's clock.
    ///
    /// # Errors
    /// What the file system says.
    pub fn add(&mut self, kernel: &str, timing: &Timing, begin: u64, intervals: &[Interval]) -> io::Result<()> {
        let first = self.cycles;
        self.name((DISPATCHES, DISPATCHES), "NPU", "dispatches")?;
        let arguments = json!({
            "cycles": timing.cycles,
            "bound": timing.bound().map(ToString::to_string),
            "core": timing.core().map(ToString::to_string),
            "channel": timing.channel().map(ToString::to_string),
            "stream": timing.stream().map(ToString::to_string),
            "stalled": timing.core().map(|core: &Use| core.stalled),
        });
        self.event((DISPATCHES, DISPATCHES), kernel, first, first + timing.cycles, Some(arguments))?;
        let mut last = first + timing.cycles;
        for interval in intervals {
            let (process, process_name) = (1 + u32::from(interval.column), format!("column {}", interval.column));
            let (thread, thread_name) = match interval.resource {
                Resource::Core => (0, format!("core ({}, {})", interval.column, interval.row)),
                Resource::Channel { direction, channel } => {
                    let (side, name) = match direction {
                        Direction::StreamToMemory => (1, "S2MM"),
                        Direction::MemoryToStream => (8, "MM2S"),
                    };
                    (side + channel as u32, format!("{name} {channel} of ({}, {})", interval.column, interval.row))
                }
                _ => continue,
            };
            let track = (process, 16 * u32::from(interval.row) + thread);
            self.name(track, &process_name, &thread_name)?;
            let name = match interval.occupation {
                Occupation::Runs => "runs".to_owned(),
                Occupation::Stalled => "stalled".to_owned(),
                Occupation::Descriptor(number) => format!("BD {number}"),
                _ => continue,
            };
            // What began before the dispatch is shown from its beginning on.
            let [from, to] = [interval.begin, interval.end].map(|at| first + at.saturating_sub(begin));
            if to > from {
                self.event(track, &name, from, to, None)?;
            }
            last = last.max(to);
        }
        self.cycles = last;
        self.file.flush()
    }

    /// Names a track once.
    fn name(&mut self, (process, thread): (u32, u32), process_name: &str, thread_name: &str) -> io::Result<()> {
        if !self.named.insert((process, thread)) {
            return Ok(());
        }
        for (kind, name) in [("process_name", process_name), ("thread_name", thread_name)] {
            self.line(&json!({"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}))?;
        }
        Ok(())
    }

    fn event(
        &mut self,
        (process, thread): (u32, u32),
        name: &str,
        from: u64,
        to: u64,
        arguments: Option<Value>,
    ) -> io::Result<()> {
        let microseconds = |cycles: u64| cycles as f64 / self.clock_mhz as f64;
        let (at, duration) = (microseconds(from), microseconds(to - from));
        let mut event = json!({"ph": "X", "name": name, "pid": process, "tid": thread, "ts": at, "dur": duration});
        if let Some(arguments) = arguments {
            event["args"] = arguments;
        }
        self.line(&event)
    }

    fn line(&mut self, event: &Value) -> io::Result<()> {
        writeln!(self.file, "{event},")
    }
}
