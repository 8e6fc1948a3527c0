//! What happened: a line for every access and message in a file, when there is one, and counts for the report.

use crate::message::Kind;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt::Arguments;
use std::fs::File;
use std::io::{BufWriter, Error, Write};
use std::path::Path;
use std::time::Instant;

/// Messages that the report keeps.
const KEPT: usize = 200;

#[derive(Debug, Default)]
struct Counts {
    messages: BTreeMap<&'static str, u64>,
    reads: u64,
    writes: u64,
    interrupts: u64,
    commands: u64,
    notes: Vec<String>,
}

/// The journal of a device. Thread-safe.
#[derive(Debug)]
pub struct Journal {
    start: Instant,
    file: Option<Mutex<BufWriter<File>>>,
    counts: Mutex<Counts>,
}

impl Journal {
    /// A journal that writes to a file, if one is given.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn new(path: Option<&Path>) -> Result<Self, Error> {
        let file = path.map(File::create).transpose()?.map(|file| Mutex::new(BufWriter::new(file)));
        Ok(Self { start: Instant::now(), file, counts: Mutex::default() })
    }

    fn line(&self, text: Arguments<'_>) {
        if let Some(file) = &self.file {
            // A journal that cannot be written must not stop the guest.
            let _ = writeln!(file.lock(), "{:10.6} {text}", self.start.elapsed().as_secs_f64());
        }
    }

    /// The guest has read from a BAR.
    pub fn read(&self, bar: u32, offset: u64, data: &[u8]) {
        self.counts.lock().reads += 1;
        self.line(format_args!("read   bar {bar} +{offset:#07x} {}", Hex(data)));
    }

    /// The guest has written to a BAR.
    pub fn write(&self, bar: u32, offset: u64, data: &[u8]) {
        self.counts.lock().writes += 1;
        self.line(format_args!("write  bar {bar} +{offset:#07x} {}", Hex(data)));
    }

    /// A message has come; returns which of its kind it is, counted from 1.
    pub fn message(&self, channel: usize, kind: &'static Kind, id: u32, payload: &[u8]) -> u64 {
        self.line(format_args!("asked  channel {channel} {} id {id:#x} {}", kind.name, Hex(payload)));
        let mut counts = self.counts.lock();
        let count = counts.messages.entry(kind.name).or_default();
        *count += 1;
        *count
    }

    /// A message was answered.
    pub fn answer(&self, channel: usize, opcode: u32, id: u32, payload: &[u8]) {
        let name = Kind::of(opcode).map_or("?", |kind| kind.name);
        self.line(format_args!("answer channel {channel} {name} id {id:#x} {}", Hex(payload)));
    }

    /// An interrupt was raised.
    pub fn interrupt(&self, vector: usize) {
        self.counts.lock().interrupts += 1;
        self.line(format_args!("raised vector {vector}"));
    }

    /// A command begins; returns which it is, counted from 1.
    pub fn command(&self) -> u64 {
        let mut counts = self.counts.lock();
        counts.commands += 1;
        counts.commands
    }

    /// Something worth knowing when looking for an error. It is in the report, too.
    pub fn note(&self, text: String) {
        self.line(format_args!("note   {text}"));
        let mut counts = self.counts.lock();
        if counts.notes.len() < KEPT {
            counts.notes.push(text);
        }
    }

    /// Something that happens often: to the file only.
    pub fn detail(&self, text: Arguments<'_>) {
        self.line(text);
    }

    /// Puts the counts into a report.
    pub fn report(&self, report: &mut serde_json::Value) {
        let counts = self.counts.lock();
        report["messages"] = serde_json::json!(counts.messages);
        report["register_reads"] = counts.reads.into();
        report["register_writes"] = counts.writes.into();
        report["interrupts"] = counts.interrupts.into();
        report["commands"] = counts.commands.into();
        report["notes"] = counts.notes.clone().into();
    }

    /// Writes what is not yet in the file.
    pub fn flush(&self) {
        if let Some(file) = &self.file {
            let _ = file.lock().flush();
        }
    }
}

/// Bytes as words.
struct Hex<'a>(&'a [u8]);

impl std::fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, chunk) in self.0.chunks(4).enumerate() {
            let mut word = [0; 4];
            word[..chunk.len()].copy_from_slice(chunk);
            write!(
                f,
                "{}{:0width$x}",
                if index > 0 { " " } else { "" },
                u32::from_le_bytes(word),
                width = 2 * chunk.len()
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::SUSPEND;

    #[test]
    fn lines_and_counts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let journal = Journal::new(Some(&path)).unwrap();
        journal.write(0, 0x10, &[1, 0, 0, 0]);
        assert_eq!((journal.message(0, &SUSPEND, 7, &[0; 4]), journal.message(0, &SUSPEND, 8, &[0; 4])), (1, 2));
        journal.note("odd".into());
        journal.flush();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("write  bar 0 +0x00010 00000001\n") && text.contains("SUSPEND id 0x7"), "{text}");
        let mut report = serde_json::Value::Null;
        journal.report(&mut report);
        assert_eq!((&report["messages"]["SUSPEND"], &report["notes"][0]), (&2.into(), &"odd".into()));
    }
}
