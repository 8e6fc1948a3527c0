//! What a call has answered, as one line of JSON.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A call and its answer, the same on each run of a kernel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Name of the script.
    pub script: String,
    /// Number of the call in it, from 1 on.
    pub step: usize,
    /// The request, `mmap`, `open`; or what else was looked at.
    pub call: String,
    /// The structure that `out` shows, when that is not the request's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structure: Option<String>,
    /// Fields that are not zero before the call.
    #[serde(rename = "in", default, skip_serializing_if = "Map::is_empty")]
    pub input: Map<String, Value>,
    /// `ok`, or the error's name.
    pub result: String,
    /// Fields that the call has changed.
    #[serde(rename = "out", default, skip_serializing_if = "Map::is_empty")]
    pub output: Map<String, Value>,
}

impl Record {
    /// The name of a script's call in messages.
    pub fn place(&self) -> String {
        format!("{} {}: {}", self.script, self.step, self.call)
    }
}

/// Reads the lines of a run.
///
/// # Errors
/// A line that is none, with its number.
pub fn read(text: &str) -> Result<Vec<Record>, String> {
    let lines = text.lines().enumerate().filter(|(_, line)| line.starts_with('{'));
    lines.map(|(index, line)| serde_json::from_str(line).map_err(|e| format!("line {}: {e}", index + 1))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_survive_their_lines() {
        let line =
            r#"{"script":"a","step":1,"call":"CREATE_BO","in":{"size":4096},"result":"ok","out":{"handle":"bo1"}}"#;
        let records = read(&format!("noise\n{line}\n")).unwrap();
        assert_eq!(records[0].input["size"], 4096);
        assert_eq!(serde_json::to_string(&records[0]).unwrap(), line);
        assert_eq!(records[0].place(), "a 1: CREATE_BO");
        assert!(read("{").unwrap_err().starts_with("line 1: "));
    }
}
