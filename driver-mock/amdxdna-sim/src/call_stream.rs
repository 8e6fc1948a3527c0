//! The stream of calls: one line each, without addresses, to be written to a file or compared with one.
//!
//! Calls of KFD are left out, as ROCR makes them in a thread of its own at any time. Other threads that make calls at the same time
//! make them in no fixed order, so a comparison is of use for a run whose calls come from one thread at a time.

use parking_lot::Mutex;
use std::fs;
use std::path::Path;

#[derive(Debug, Default)]
struct State {
    /// Lines of this run, when they are to be written.
    recorded: String,
    /// Lines of this run so far.
    position: usize,
    /// The first difference.
    difference: Option<String>,
}

/// The stream of a process.
#[derive(Debug)]
pub struct Stream {
    record: Option<std::path::PathBuf>,
    /// Lines of the run to compare with.
    expected: Option<Vec<String>>,
    state: Mutex<State>,
}

impl Stream {
    /// A stream, if there is a file to write or one to compare with.
    pub fn open(record: Option<&Path>, replay: Option<&Path>) -> Result<Option<Self>, String> {
        if record.is_none() && replay.is_none() {
            return Ok(None);
        }
        if let Some(path) = record {
            fs::write(path, "")
                .map_err(|e| format!("AMDXDNA_SIM_RECORD: {} cannot be written: {e}", path.display()))?;
        }
        let read = |path: &Path| {
            let text = fs::read_to_string(path);
            let text = text.map_err(|e| format!("AMDXDNA_SIM_REPLAY: {} cannot be read: {e}", path.display()))?;
            Ok::<_, String>(text.lines().map(str::to_owned).collect())
        };
        let expected = replay.map(read).transpose()?;
        Ok(Some(Self { record: record.map(Path::to_owned), expected, state: Mutex::default() }))
    }

    /// Adds a call.
    pub fn line(&self, line: &str) {
        let mut state = self.state.lock();
        let position = state.position;
        state.position += 1;
        if self.record.is_some() {
            state.recorded.push_str(line);
            state.recorded.push('\n');
        }
        if let Some(expected) = &self.expected
            && state.difference.is_none()
        {
            let found = expected.get(position).map(String::as_str);
            if found != Some(line) {
                let before = found.unwrap_or("no further call");
                state.difference =
                    Some(format!("call {}: the recorded run has `{before}`, this run `{line}`", position + 1));
            }
        }
    }

    /// Writes the file and returns the first difference, if there is one. Calls that are missing at the end are one.
    pub fn finish(&self) -> Option<String> {
        let mut state = self.state.lock();
        if let Some(path) = &self.record
            && let Err(error) = fs::write(path, &state.recorded)
        {
            crate::journal::print(&format!("AMDXDNA_SIM_RECORD: {} cannot be written: {error}", path.display()));
        }
        let position = state.position;
        if let Some(missing) = self.expected.as_ref().and_then(|expected| expected.get(position)) {
            let text = || format!("call {}: the recorded run has `{missing}`, this run ends", position + 1);
            state.difference.get_or_insert_with(text);
        }
        state.difference.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replay(recorded: &[&str], lines: &[&str]) -> Option<String> {
        let expected = Some(recorded.iter().map(ToString::to_string).collect());
        let stream = Stream { record: None, expected, state: Mutex::default() };
        lines.iter().for_each(|line| stream.line(line));
        stream.finish()
    }

    #[test]
    fn the_first_difference_is_reported() {
        assert_eq!(replay(&["A = ok", "B = ok"], &["A = ok", "B = ok"]), None);
        let found = replay(&["A = ok", "B = ok"], &["A = ok", "C = ok", "D = ok"]).unwrap();
        assert_eq!(found, "call 2: the recorded run has `B = ok`, this run `C = ok`");
        assert!(replay(&["A = ok"], &[]).unwrap().ends_with("`A = ok`, this run ends"));
        assert!(replay(&[], &["A = ok"]).unwrap().contains("no further call"));
    }
}
