//! The stream of calls: one line each, without addresses, to be written to a file or compared with one.
//!
//! Calls of KFD are left out, as ROCR makes them in a thread of its own at any time. Other threads that make calls at the same time
//! make them in no fixed order, so a comparison is of use for a run whose calls come from one thread at a time.

use crate::settings::SettingsError;
use crate::standard_error::print;
use parking_lot::Mutex;
use std::fs;
use std::path::Path;

#[derive(Debug)]
pub struct Stream {
    record: Option<std::path::PathBuf>,
    /// Lines of the run to compare with.
    expected: Option<Vec<String>>,
    lines: Mutex<Vec<String>>,
}

impl Stream {
    /// A stream, if there is a file to write or one to compare with.
    pub fn open(record: Option<&Path>, replay: Option<&Path>) -> Result<Option<Self>, SettingsError> {
        if record.is_none() && replay.is_none() {
            return Ok(None);
        }
        let failed = |name, path: &Path, verb| {
            let path = path.to_owned();
            move |source| SettingsError::File { name, path, verb, source }
        };
        if let Some(path) = record {
            fs::write(path, "").map_err(failed("RECORD", path, "written"))?;
        }
        let read = |path: &Path| fs::read_to_string(path).map_err(failed("REPLAY", path, "read"));
        let expected = replay.map(read).transpose()?.map(|text| text.lines().map(str::to_owned).collect());
        Ok(Some(Self { record: record.map(Path::to_owned), expected, lines: Mutex::default() }))
    }

    pub fn line(&self, line: String) {
        self.lines.lock().push(line);
    }

    /// Writes the file and returns the first difference, if there is one. Calls that are missing at the end are one.
    pub fn finish(&self) -> Option<String> {
        let lines = self.lines.lock();
        if let Some(path) = &self.record
            && let Err(error) = fs::write(path, lines.iter().map(|line| format!("{line}\n")).collect::<String>())
        {
            print(&format!("AMDXDNA_SIM_RECORD: {} cannot be written: {error}", path.display()));
        }
        let expected = self.expected.as_ref()?;
        let differs = |at: &usize| expected.get(*at) != lines.get(*at);
        let at = (0..expected.len().max(lines.len())).find(differs)?;
        let before = expected.get(at).map_or("no further call".into(), |line| format!("`{line}`"));
        let now = lines.get(at).map_or("this run ends".into(), |line| format!("this run `{line}`"));
        Some(format!("call {}: the recorded run has {before}, {now}", at + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replay(recorded: &[&str], lines: &[&str]) -> Option<String> {
        let expected = Some(recorded.iter().map(ToString::to_string).collect());
        let stream = Stream { record: None, expected, lines: Mutex::default() };
        lines.iter().for_each(|line| stream.line((*line).into()));
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
