//! The file of `GGML_HSA_TRACE`: a timeline of the process for Perfetto (<https://ui.perfetto.dev>).
//!
//! It has the Trace Event Format, one event a line: slices with begin and duration in microseconds, on tracks with names. It is
//! complete after every graph, but for the bracket at its end, which readers of the format do not need. Slices come from
//! [`aie_hal::timeline`].

use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::OnceLock;

/// The one of this process.
static TRACE: OnceLock<TraceFile> = OnceLock::new();

/// A slice of a track, in nanoseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Slice {
    /// What it is shown on.
    pub track: String,
    /// What it is.
    pub name: String,
    /// When it began.
    pub begin: u64,
    /// When it ended.
    pub end: u64,
    /// More about it; may be empty.
    pub detail: String,
}

/// A timeline that is being written.
#[derive(Debug)]
pub struct TraceFile {
    writer: Mutex<Writer>,
}

#[derive(Debug)]
struct Writer {
    file: BufWriter<File>,
    /// Numbers of the tracks that have been named.
    tracks: BTreeMap<String, usize>,
    /// Whether the file cannot be written any more.
    broken: bool,
}

impl TraceFile {
    /// Makes the file.
    ///
    /// # Errors
    /// What the file system says.
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut file = BufWriter::new(File::create(path)?);
        file.write_all(b"[\n")?;
        file.flush()?;
        Ok(Self { writer: Mutex::new(Writer { file, tracks: BTreeMap::new(), broken: false }) })
    }

    /// Adds a slice. Errors end the timeline, not the program.
    pub fn add(&self, slice: &Slice) {
        let mut writer = self.writer.lock();
        if !writer.broken && writer.add(slice).is_err() {
            writer.broken = true;
        }
    }

    /// Writes what is buffered.
    pub fn flush(&self) {
        let mut writer = self.writer.lock();
        if !writer.broken && writer.file.flush().is_err() {
            writer.broken = true;
        }
    }
}

impl Writer {
    fn add(&mut self, slice: &Slice) -> io::Result<()> {
        let process = std::process::id();
        let thread = match self.tracks.get(&slice.track) {
            Some(number) => *number,
            None => {
                // A viewer merges thread 0 with the process.
                let number = self.tracks.len() + 1;
                let event = |kind: &str, name: &str| json!({"ph": "M", "name": kind, "pid": process, "tid": number, "args": {"name": name}});
                if number == 1 {
                    self.line(&event("process_name", "ggml-hsa"))?;
                }
                self.line(&event("thread_name", &slice.track))?;
                self.line(&json!({
                    "ph": "M", "name": "thread_sort_index", "pid": process, "tid": number, "args": {"sort_index": number}
                }))?;
                self.tracks.insert(slice.track.clone(), number);
                number
            }
        };
        let microseconds = |nanoseconds: u64| nanoseconds as f64 / 1000.0;
        let mut event = json!({
            "ph": "X", "name": slice.name, "pid": process, "tid": thread,
            "ts": microseconds(slice.begin), "dur": microseconds(slice.end.saturating_sub(slice.begin)),
        });
        if !slice.detail.is_empty() {
            event["args"] = json!({"detail": slice.detail});
        }
        self.line(&event)
    }

    fn line(&mut self, event: &Value) -> io::Result<()> {
        writeln!(self.file, "{event},")
    }
}

/// Starts the timeline of this process in the file `path`; the first one stays.
///
/// # Errors
/// What the file system says.
pub fn start(path: &Path) -> io::Result<()> {
    if TRACE.get().is_none() {
        let file = TraceFile::create(path)?;
        // Another thread's is as good.
        let _ = TRACE.set(file);
    }
    Ok(())
}

/// The timeline of this process, if there is one.
pub fn trace() -> Option<&'static TraceFile> {
    TRACE.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_track_has_a_name_and_every_slice_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.json");
        let file = TraceFile::create(&path).unwrap();
        let slice = |track: &str, begin, end, detail: &str| Slice {
            track: track.into(),
            name: "a \"kernel\"".into(),
            begin,
            end,
            detail: detail.into(),
        };
        for slice in [slice("array", 1500, 4000, ""), slice("queue", 0, 10, "host"), slice("array", 5000, 5000, "")] {
            file.add(&slice);
        }
        file.flush();
        let text = std::fs::read_to_string(&path).unwrap();
        let closed = format!("{}]", text.trim_end().trim_end_matches(','));
        let events: Vec<Value> = serde_json::from_str(&closed).unwrap();
        let named: Vec<&Value> =
            events.iter().filter(|event| event["name"] == "thread_name").map(|event| &event["args"]["name"]).collect();
        assert_eq!(named, ["array", "queue"]);
        let slices: Vec<&Value> = events.iter().filter(|event| event["ph"] == "X").collect();
        assert_eq!((slices[0]["ts"].as_f64(), slices[0]["dur"].as_f64()), (Some(1.5), Some(2.5)));
        assert_eq!((&slices[0]["tid"], &slices[2]["tid"]), (&json!(1), &json!(1)));
        assert_eq!(slices[1]["args"]["detail"], "host");
        assert_eq!(slices.len(), 3);
    }

    #[test]
    fn a_file_that_cannot_be_made_is_an_error() {
        assert!(TraceFile::create(Path::new("/no/such/folder/trace.json")).is_err());
    }
}
