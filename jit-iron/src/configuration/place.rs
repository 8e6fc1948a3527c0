//! Where something is in a file, and what is wrong there.

use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

/// A place in a JSON file. Displayed as `file:line:column: path`, which editors turn into a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file, as the user named it.
    pub file: Arc<str>,
    /// Line and column, counted from 1, columns in characters; `None` for the file as a whole.
    pub position: Option<(usize, usize)>,
    /// The value, such as `kernels[2].input_tensors[0]`; empty for the whole document.
    pub path: String,
}

impl Place {
    /// The file as a whole.
    pub fn file(file: impl Into<Arc<str>>) -> Self {
        Self { file: file.into(), position: None, path: String::new() }
    }
}

impl Display for Place {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some((line, column)) = self.position {
            write!(f, ":{line}:{column}")?;
        }
        if self.path.is_empty() { Ok(()) } else { write!(f, ": {}", self.path) }
    }
}

/// As an object with `file`, `line`, `column` and `path`; without a position, line and column are left out.
impl Serialize for Place {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut place = serializer.serialize_struct("Place", 4)?;
        place.serialize_field("file", &*self.file)?;
        match self.position {
            Some((line, column)) => {
                place.serialize_field("line", &line)?;
                place.serialize_field("column", &column)?;
            }
            None => {
                place.skip_field("line")?;
                place.skip_field("column")?;
            }
        }
        place.serialize_field("path", &self.path)?;
        place.end()
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

/// A value and where it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located<T> {
    /// The value.
    pub value: T,
    /// Where.
    pub place: Place,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_name_what_is_known() {
        let mut place = Place::file("a.json");
        assert_eq!(place.to_string(), "a.json");
        place.position = Some((3, 14));
        assert_eq!(place.to_string(), "a.json:3:14");
        place.path = "kernels[1].arch".into();
        let problem = Problem::new(&place, "no");
        assert_eq!(problem.to_string(), "a.json:3:14: kernels[1].arch: no");
        let json = serde_json::to_string(&problem).unwrap();
        let expected = r#"{"place":{"file":"a.json","line":3,"column":14,"path":"kernels[1].arch"},"message":"no"}"#;
        assert_eq!(json, expected);
    }
}
