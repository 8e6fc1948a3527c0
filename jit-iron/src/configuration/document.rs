//! JSON whose values know where they are.
//!
//! serde_json reports the place of a syntax error, but not of a value that is well formed and wrong. It can hand out a value as
//! the slice of the text that it was read from, though, and where a slice is in its text is a subtraction. Values are taken
//! apart one level at a time, so that one bad value does not hide the next.

use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::fmt::{self, Display, Formatter};
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

/// Largest file that is read, in bytes. A kernel takes some 300 bytes of a configuration.
const MAX_BYTES: u64 = 64 << 20;
/// Bytes between two places whose number of characters is known.
const BLOCK: usize = 128;
/// Longest piece of a file that a message repeats, in characters.
const MAX_QUOTED: usize = 160;

/// A place in a JSON file. Displayed as `file:line:column: path`, which editors turn into a link.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The file, as the user named it.
    pub file: Arc<str>,
    /// `None` for the file as a whole.
    #[serde(flatten)]
    pub position: Option<Position>,
    /// The value, such as `kernels[2].input_tensors[0]`; empty for the whole document.
    pub path: String,
}

/// A line and a column, counted from 1, columns in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

impl Place {
    /// The file as a whole.
    pub fn file(file: impl Into<Arc<str>>) -> Self {
        Self { file: file.into(), ..Self::default() }
    }
}

impl Display for Place {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(Position { line, column }) = self.position {
            write!(f, ":{line}:{column}")?;
        }
        if self.path.is_empty() { Ok(()) } else { write!(f, ": {}", self.path) }
    }
}

/// What is wrong, or worth knowing, at a place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Where.
    pub place: Place,
    /// What was found, what is possible, and the next step.
    pub message: String,
}

impl Problem {
    /// `message` about `place`.
    pub fn new(place: &Place, message: impl Into<String>) -> Self {
        Self { place: place.clone(), message: message.into() }
    }
}

impl Display for Problem {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

/// A JSON text and its name.
#[derive(Debug)]
pub struct Document {
    file: Arc<str>,
    text: String,
    /// Byte offsets of the beginnings of lines.
    lines: Vec<usize>,
    /// Characters in front of each block of [`BLOCK`] bytes: files that programs write have one line.
    characters: Vec<usize>,
}

impl Document {
    /// A text, and the name of its file for messages.
    pub fn new(file: impl Into<Arc<str>>, text: impl Into<String>) -> Self {
        let text = text.into();
        let lines = std::iter::once(0).chain(text.match_indices('\n').map(|(index, _)| index + 1)).collect();
        let blocks = text.as_bytes().chunks(BLOCK);
        let before = blocks.scan(0, |sum, block| Some(std::mem::replace(sum, *sum + characters(block))));
        let characters = before.collect();
        Self { file: file.into(), text, lines, characters }
    }

    /// Reads `path`.
    ///
    /// # Errors
    /// When it cannot be read, is larger than 64 MiB, or is not UTF-8. The message begins as the C++ tool's does.
    pub fn read(path: &Path) -> Result<Self, Problem> {
        let name = path.display().to_string();
        let problem = |reason: String| {
            Problem::new(&Place::file(name.as_str()), format!("Failed to load configuration: {reason}"))
        };
        let mut bytes = Vec::new();
        File::open(path)
            .and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes))
            .map_err(|error| problem(format!("{error}; check the path and its permissions")))?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(problem(format!("it is larger than {} MiB; is it a configuration?", MAX_BYTES >> 20)));
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            let offset = error.utf8_error().valid_up_to();
            problem(format!("the byte at offset {offset} is not UTF-8; save the file as UTF-8"))
        })?;
        Ok(Self::new(name.as_str(), text))
    }

    /// The file as a whole.
    pub fn place(&self) -> Place {
        Place::file(Arc::clone(&self.file))
    }

    /// The outermost value.
    ///
    /// # Errors
    /// When the text is not JSON.
    pub fn root(&self) -> Result<Value<'_>, Problem> {
        if self.text.starts_with('\u{feff}') {
            let message =
                "Failed to load configuration: it begins with a byte order mark; save it as UTF-8 without one";
            return Err(Problem::new(&self.place(), message));
        }
        let raw: &RawValue = serde_json::from_str(&self.text).map_err(|error| {
            let position = Some(Position { line: error.line(), column: error.column() });
            let place = Place { position, ..self.place() };
            Problem::new(&place, format!("Failed to load configuration: {}; correct the JSON", reason(&error)))
        })?;
        Ok(Value { document: self, text: raw.get(), path: String::new() })
    }

    /// Line and column of a slice of the text.
    fn position(&self, slice: &str) -> Option<Position> {
        let offset = slice.as_ptr().addr().checked_sub(self.text.as_ptr().addr())?;
        let line = self.lines.partition_point(|start| *start <= offset);
        let start = *self.lines.get(line.checked_sub(1)?)?;
        Some(Position { line, column: self.characters_before(offset)? - self.characters_before(start)? + 1 })
    }

    /// Characters in front of the byte at `offset`.
    fn characters_before(&self, offset: usize) -> Option<usize> {
        let block = offset / BLOCK;
        let rest = self.text.as_bytes().get(block * BLOCK..offset)?;
        // Behind the last byte a block may begin that there is not.
        let before = self.characters.get(block).copied();
        Some(before.unwrap_or_else(|| characters(self.text.as_bytes())) + characters(rest))
    }
}

/// Characters that begin in `bytes`, a part of a text.
fn characters(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte & 0xc0 != 0x80).count()
}

/// serde_json's message without the place, which is reported separately.
fn reason(error: &serde_json::Error) -> String {
    let message = error.to_string();
    match message.rfind(" at line ") {
        Some(end) => message[..end].to_owned(),
        None => message,
    }
}

/// Text of a file for a message: control characters escaped, because messages go to terminals, and not endlessly long.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::new();
    for (index, character) in text.chars().enumerate() {
        if index == MAX_QUOTED {
            quoted.push_str("...");
            break;
        }
        if character.is_control() {
            quoted.extend(character.escape_default());
        } else {
            quoted.push(character);
        }
    }
    quoted
}

/// A value of a document: a slice of its text.
#[derive(Debug, Clone)]
pub struct Value<'d> {
    document: &'d Document,
    text: &'d str,
    path: String,
}

/// One member of an object.
#[derive(Debug)]
pub struct Member<'d> {
    /// Its key.
    pub key: String,
    /// The place of the key.
    pub key_place: Place,
    /// Its value.
    pub value: Value<'d>,
}

impl<'d> Value<'d> {
    /// Where it is.
    pub fn place(&self) -> Place {
        Place { path: self.path.clone(), position: self.document.position(self.text), ..self.document.place() }
    }

    /// A message about this value.
    pub fn problem(&self, message: impl Into<String>) -> Problem {
        Problem::new(&self.place(), message)
    }

    /// The text as the file has it.
    pub fn json(&self) -> &'d str {
        self.text
    }

    /// Whether it is `null`.
    pub fn is_null(&self) -> bool {
        self.text == "null"
    }

    /// What kind of value it is, in words.
    pub fn kind(&self) -> &'static str {
        match self.text.as_bytes().first() {
            Some(b'{') => "an object",
            Some(b'[') => "a list",
            Some(b'"') => "a string",
            Some(b't' | b'f') => "a boolean",
            Some(b'n') => "null",
            _ => "a number",
        }
    }

    /// As a type of serde's.
    ///
    /// # Errors
    /// serde's message, with the place inside the value.
    pub fn read<T: Deserialize<'d>>(&self) -> Result<T, Problem> {
        serde_json::from_str(self.text).map_err(|error| self.problem(reason(&error)))
    }

    /// The members of an object, in order, repeated keys included.
    ///
    /// # Errors
    /// When it is not an object.
    pub fn members(&self) -> Result<Vec<Member<'d>>, Problem> {
        let RawMembers(members) = self.read()?;
        let member = |(key, value): (&'d RawValue, &'d RawValue)| {
            let name: String = serde_json::from_str(key.get()).map_err(|error| self.problem(reason(&error)))?;
            let separator = if self.path.is_empty() { "" } else { "." };
            let path = format!("{}{separator}{}", self.path, quoted(&name));
            let value = Value { document: self.document, text: value.get(), path };
            let key_place = Place { position: self.document.position(key.get()), ..value.place() };
            Ok(Member { key: name, key_place, value })
        };
        members.into_iter().map(member).collect()
    }

    /// The elements of a list.
    ///
    /// # Errors
    /// When it is not a list.
    pub fn elements(&self) -> Result<Vec<Value<'d>>, Problem> {
        let elements: Vec<&RawValue> = self.read()?;
        let element = |(index, value): (usize, &'d RawValue)| Value {
            document: self.document,
            text: value.get(),
            path: format!("{}[{index}]", self.path),
        };
        Ok(elements.into_iter().enumerate().map(element).collect())
    }
}

/// The members of an object as slices. A map type would drop repeated keys.
struct RawMembers<'d>(Vec<(&'d RawValue, &'d RawValue)>);

impl<'de> Deserialize<'de> for RawMembers<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = RawMembers<'de>;
            fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(RawMembers(members))
            }
        }
        deserializer.deserialize_map(Members)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use std::time::{Duration, Instant};

    const TEXT: &str = "{\n  \"a\": [1, \"\u{e4}\", {\"b\": null}],\n  \"a\": 2\n}";

    #[test]
    fn values_know_where_they_are() {
        let document = Document::new("f.json", TEXT);
        let members = document.root().unwrap().members().unwrap();
        let keys: Vec<_> = members.iter().map(|member| (member.key.as_str(), member.key_place.to_string())).collect();
        assert_eq!(keys, [("a", "f.json:2:3: a".to_owned()), ("a", "f.json:3:3: a".to_owned())]);
        let elements = members[0].value.elements().unwrap();
        let found: Vec<_> = elements.iter().map(|value| (value.place().to_string(), value.kind())).collect();
        let expected = [("2:9: a[0]", "a number"), ("2:12: a[1]", "a string"), ("2:17: a[2]", "an object")];
        assert_eq!(found, expected.map(|(place, kind)| (format!("f.json:{place}"), kind)));
        let inner = elements[2].members().unwrap();
        assert_eq!(inner[0].value.place().to_string(), "f.json:2:23: a[2].b");
        assert!(inner[0].value.is_null());
    }

    /// Places of as many kernels as a file may have, on one line, as programs write it. Seconds at most where each place costs the
    /// same; minutes where each reads the line up to it.
    #[test]
    fn places_on_one_line_take_linear_time() {
        let (count, limit) = (100_000, Duration::from_secs(60));
        let kernel = format!("{{\"name\":\"{}\",\"arch\":\"aie2\"}}", "\u{e4}".repeat(270));
        let document = Document::new("f.json", format!("[{}]", vec![kernel.as_str(); count].join(",")));
        let begun = Instant::now();
        let characters = kernel.chars().count() + 1;
        for (index, value) in document.root().unwrap().elements().unwrap().iter().enumerate() {
            let column = index * characters + 2;
            assert_eq!(value.place().position, Some(Position { line: 1, column }));
            let members = value.members().unwrap();
            assert_eq!(members[0].key_place.position, Some(Position { line: 1, column: column + 1 }));
            assert!(begun.elapsed() < limit, "{index} of {count} kernels in {limit:?}");
        }
    }

    #[test]
    fn columns_of_long_lines_count_characters() {
        let element = "\"\u{e4}\u{1f980}x\"";
        for count in [1, 500, 5000] {
            let text = format!("[\n{}\n]", vec![element; count].join(","));
            let document = Document::new("f.json", text);
            for (index, value) in document.root().unwrap().elements().unwrap().iter().enumerate() {
                let position = value.place().position.unwrap();
                assert_eq!(position, Position { line: 2, column: index * 6 + 1 });
            }
        }
        let document = Document::new("f.json", "x".repeat(BLOCK));
        assert_eq!(document.characters_before(BLOCK), Some(BLOCK));
    }

    #[rstest]
    #[case("", "f.json:1:0: Failed to load configuration: EOF while parsing a value; correct the JSON")]
    #[case("{\n\"a\": 1,\n}", "f.json:3:1: Failed to load configuration: key must be a string; correct the JSON")]
    #[case("{} x", "f.json:1:4: Failed to load configuration: trailing characters; correct the JSON")]
    #[case(
        "\u{feff}{}",
        "f.json: Failed to load configuration: it begins with a byte order mark; save it as UTF-8 without one"
    )]
    fn what_is_not_json_is_reported_with_its_place(#[case] text: &str, #[case] expected: &str) {
        let document = Document::new("f.json", text);
        assert_eq!(document.root().unwrap_err().to_string(), expected);
    }

    #[test]
    fn deep_nesting_is_read_without_a_stack_overflow() {
        let document = Document::new("f.json", "[".repeat(200_000) + &"]".repeat(200_000));
        let mut value = document.root().unwrap();
        for _ in 0..300 {
            value = value.elements().unwrap().remove(0);
        }
        assert_eq!(value.kind(), "a list");
    }

    #[test]
    fn files_that_cannot_be_read_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.json");
        let message = Document::read(&path).unwrap_err().to_string();
        let expected = format!("{}: Failed to load configuration: No such file", path.display());
        assert!(message.starts_with(&expected), "{message}");
        std::fs::write(&path, b"{\xff").unwrap();
        let message = Document::read(&path).unwrap_err().to_string();
        assert!(message.ends_with("the byte at offset 1 is not UTF-8; save the file as UTF-8"), "{message}");
        let message = Document::read(folder.path()).unwrap_err().to_string();
        assert!(message.contains("Failed to load configuration: Is a directory"), "{message}");
        let message = Document::read(Path::new("/dev/zero")).unwrap_err().to_string();
        assert!(message.contains("it is larger than 64 MiB"), "{message}");
    }

    #[test]
    fn quoted_text_is_harmless() {
        assert_eq!(quoted("a\u{1b}[31m\n\u{e4}"), "a\\u{1b}[31m\\n\u{e4}");
        assert_eq!(quoted(&"x".repeat(1000)).len(), MAX_QUOTED + 3);
    }

    #[test]
    fn places_name_what_is_known() {
        let mut place = Place::file("a.json");
        assert_eq!(place.to_string(), "a.json");
        place.position = Some(Position { line: 3, column: 14 });
        assert_eq!(place.to_string(), "a.json:3:14");
        place.path = "kernels[1].arch".into();
        let problem = Problem::new(&place, "no");
        assert_eq!(problem.to_string(), "a.json:3:14: kernels[1].arch: no");
        let json = serde_json::to_string(&problem).unwrap();
        let expected = r#"{"place":{"file":"a.json","line":3,"column":14,"path":"kernels[1].arch"},"message":"no"}"#;
        assert_eq!(json, expected);
    }
}
