//! Records for people to read.

use crate::record::Record;
use serde_json::{Map, Value};

fn fields(fields: &Map<String, Value>) -> String {
    let fields = fields.iter().map(|(name, value)| match value {
        Value::String(text) => format!("{name}={text}"),
        other => format!("{name}={other}"),
    });
    fields.collect::<Vec<_>>().join(" ")
}

/// One call as a line, without its script.
pub fn line(record: &Record) -> String {
    let (input, output) = (fields(&record.input), fields(&record.output));
    let arrow = if output.is_empty() { "" } else { " -> " };
    format!("{:4}  {:<24} {:<10} {input}{arrow}{output}", record.step, record.call, record.result)
}

/// All calls, each script with its name above.
pub fn table(records: &[Record]) -> String {
    let mut text = String::new();
    let mut script = "";
    for record in records {
        if record.script != script {
            text.push_str(&format!("\n{}\n", record.script));
            script = &record.script;
        }
        text.push_str(line(record).trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_lines_below_their_script() {
        let text =
            r#"{"script":"a","step":1,"call":"CREATE_BO","in":{"size":4096},"result":"ok","out":{"handle":"bo1"}}"#;
        let records = crate::record::read(text).unwrap();
        let table = table(&records);
        let words: Vec<&str> = table.split_whitespace().collect();
        assert_eq!(words, ["a", "1", "CREATE_BO", "ok", "size=4096", "->", "handle=bo1"]);
    }
}
