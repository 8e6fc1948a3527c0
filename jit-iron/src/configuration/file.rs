//! The structure of a configuration file: from JSON to entries.
//!
//! Knows keys and kinds of values, not operations. An entry keeps what could be read of it, so that the rest of it can
//! still be judged.

use super::document::{Document, Member, Value, quoted};
use super::nearest::possible;
use super::parameters::parse_parameters;
use super::place::{Located, Place, Problem};
use super::tensor_text;
use aie_ops::{OpParams, Tensor};

/// Keys of the whole file.
const FILE_KEYS: [&str; 2] = ["kernels", "description"];
/// Keys that every kernel must have, in the order in which the C++ tool asks for them.
const REQUIRED: [&str; 5] = ["kernel_name", "kernel_source", "arch", "input_tensors", "output_tensor"];
/// Keys that a kernel may have.
const OPTIONAL: [&str; 3] = ["exported_name", "op_params", "description"];

/// One kernel of a configuration, as far as it could be read. What is missing has been reported.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Where it is.
    pub place: Place,
    /// The design's function, such as `ggml_op_add`.
    pub kernel_name: Option<Located<String>>,
    /// The design's file, such as `binary_ops.py`.
    pub kernel_source: Option<Located<String>>,
    /// The generation.
    pub arch: Option<Located<String>>,
    /// Sources by slot, holes included.
    pub inputs: Option<Vec<Option<Located<Tensor>>>>,
    /// The result.
    pub output: Option<Located<Tensor>>,
    /// The name of the files; `Ok(None)` when the file does not say.
    pub exported_name: Result<Option<Located<String>>, Reported>,
    /// Parameters; zeros when the file does not say.
    pub params: Result<OpParams, Reported>,
}

/// A value was not usable, which has been reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reported;

/// The kernels of a configuration, and everything that is wrong with its structure.
pub fn parse(document: &Document) -> (Vec<Entry>, Vec<Problem>) {
    let mut reader = Reader { problems: Vec::new() };
    let entries = reader.file(document).unwrap_or_default();
    (entries, reader.problems)
}

/// Collects problems while reading.
struct Reader {
    problems: Vec<Problem>,
}

impl Reader {
    fn keep<T>(&mut self, result: Result<T, Problem>) -> Option<T> {
        result.map_err(|problem| self.problems.push(problem)).ok()
    }

    fn report(&mut self, place: &Place, message: impl Into<String>) {
        self.problems.push(Problem::new(place, message));
    }

    fn file(&mut self, document: &Document) -> Option<Vec<Entry>> {
        let root = self.keep(document.root())?;
        if root.kind() != "an object" {
            let message = format!("Configuration must contain 'kernels' key; this is {}", root.kind());
            self.report(&root.place(), message);
            return None;
        }
        let members = self.members(&root, &FILE_KEYS)?;
        let Some(kernels) = member(&members, "kernels") else {
            let example = r#"{"kernels": [{"kernel_name": "ggml_op_add", ...}]}"#;
            self.report(&root.place(), format!("Configuration must contain 'kernels' key; for example {example}"));
            return None;
        };
        if kernels.kind() != "a list" {
            self.report(&kernels.place(), format!("'kernels' must be a list; this is {}", kernels.kind()));
            return None;
        }
        let kernels = self.keep(kernels.elements())?;
        Some(kernels.iter().enumerate().filter_map(|(index, kernel)| self.entry(index, kernel)).collect())
    }

    /// The members of an object; keys that are unknown or repeated are reported.
    fn members<'d>(&mut self, object: &Value<'d>, known: &[&str]) -> Option<Vec<Member<'d>>> {
        let members = self.keep(object.members())?;
        for (index, Member { key, key_place, .. }) in members.iter().enumerate() {
            if !known.contains(&key.as_str()) {
                self.report(key_place, format!("unknown key '{}'{}", quoted(key), possible(key, known)));
            }
            if members[..index].iter().any(|earlier| earlier.key == *key) {
                self.report(key_place, format!("the key '{}' is given twice; remove one", quoted(key)));
            }
        }
        Some(members)
    }

    fn entry(&mut self, index: usize, kernel: &Value<'_>) -> Option<Entry> {
        let place = kernel.place();
        if kernel.kind() != "an object" {
            self.report(&place, format!("kernel {index} is {}; it must be an object", kernel.kind()));
            return None;
        }
        let known: Vec<&str> = REQUIRED.into_iter().chain(OPTIONAL).collect();
        let members = self.members(kernel, &known)?;
        for key in REQUIRED {
            if member(&members, key).is_none() {
                self.report(&place, format!("Kernel {index} missing '{key}'; required: {}", REQUIRED.join(", ")));
            }
        }
        let exported_name = match member(&members, "exported_name") {
            Some(value) => self.string("exported_name", value).map(Some).ok_or(Reported),
            None => Ok(None),
        };
        let params = match member(&members, "op_params").map(parse_parameters) {
            None => Ok(OpParams::default()),
            Some(Ok(params)) => Ok(params),
            Some(Err(problems)) => {
                self.problems.extend(problems);
                Err(Reported)
            }
        };
        Some(Entry {
            place,
            kernel_name: member(&members, "kernel_name").and_then(|value| self.string("kernel_name", value)),
            kernel_source: member(&members, "kernel_source").and_then(|value| self.string("kernel_source", value)),
            arch: member(&members, "arch").and_then(|value| self.string("arch", value)),
            inputs: member(&members, "input_tensors").and_then(|value| self.inputs(value)),
            output: member(&members, "output_tensor").and_then(|value| self.tensor(value)),
            exported_name,
            params,
        })
    }

    fn string(&mut self, key: &str, value: &Value<'_>) -> Option<Located<String>> {
        if value.kind() != "a string" {
            self.report(&value.place(), format!("'{key}' must be a string; this is {}", value.kind()));
            return None;
        }
        Some(Located { value: self.keep(value.read())?, place: value.place() })
    }

    /// `None` when any of the tensors is not one, after all have been looked at.
    fn inputs(&mut self, value: &Value<'_>) -> Option<Vec<Option<Located<Tensor>>>> {
        if value.kind() != "a list" {
            let message = format!("'input_tensors' must be a list; this is {}", value.kind());
            self.report(&value.place(), message);
            return None;
        }
        let elements = self.keep(value.elements())?;
        let read: Vec<Option<Option<Located<Tensor>>>> = elements
            .iter()
            .map(|element| if element.is_null() { Some(None) } else { self.tensor(element).map(Some) })
            .collect();
        read.into_iter().collect()
    }

    fn tensor(&mut self, value: &Value<'_>) -> Option<Located<Tensor>> {
        if value.kind() != "a string" {
            let message = format!("a tensor must be a string such as \"(1024,1,1,1)/f32\"; this is {}", value.kind());
            self.report(&value.place(), message);
            return None;
        }
        let text: String = self.keep(value.read())?;
        let tensor = self.keep(tensor_text::parse(&text).map_err(|error| value.problem(error.to_string())))?;
        Some(Located { value: tensor, place: value.place() })
    }
}

fn member<'m, 'd>(members: &'m [Member<'d>], key: &str) -> Option<&'m Value<'d>> {
    members.iter().find(|member| member.key == key).map(|member| &member.value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use aie_ops::DataType;
    use rstest::rstest;

    fn problems(text: &str) -> Vec<String> {
        let document = Document::new("c.json", text);
        parse(&document).1.iter().map(ToString::to_string).collect()
    }

    const KERNEL: &str = r#"{"kernel_name": "ggml_op_add", "kernel_source": "binary_ops.py", "arch": "aie2",
        "input_tensors": ["(8,1,1,1)/f32", null, "(8,1,1,1)/f32"], "output_tensor": "(8,1,1,1)/f32"}"#;

    #[test]
    fn an_entry_is_read_whole() {
        let document = Document::new("c.json", format!(r#"{{"description": "d", "kernels": [{KERNEL}]}}"#));
        let (entries, problems) = parse(&document);
        assert_eq!(problems, []);
        let entry = &entries[0];
        assert_eq!(entry.kernel_name.as_ref().unwrap().value, "ggml_op_add");
        assert_eq!(entry.arch.as_ref().unwrap().place.to_string(), "c.json:1:107: kernels[0].arch");
        let inputs = entry.inputs.as_ref().unwrap();
        let tensor = Tensor::contiguous(DataType::F32, [8, 1, 1, 1]);
        let values: Vec<_> = inputs.iter().map(|input| input.as_ref().map(|input| input.value)).collect();
        assert_eq!(values, [Some(tensor), None, Some(tensor)]);
        assert_eq!((&entry.exported_name, entry.params), (&Ok(None), Ok(OpParams::default())));
    }

    #[rstest]
    #[case("{}", "c.json:1:1: Configuration must contain 'kernels' key; for example")]
    #[case("[]", "c.json:1:1: Configuration must contain 'kernels' key; this is a list")]
    #[case(r#"{"kernels": {}}"#, "c.json:1:13: kernels: 'kernels' must be a list; this is an object")]
    #[case(r#"{"kernels": [7]}"#, "c.json:1:14: kernels[0]: kernel 0 is a number; it must be an object")]
    #[case(r#"{"kernels": [], "kernels": []}"#, "c.json:1:17: kernels: the key 'kernels' is given twice; remove one")]
    #[case(
        r#"{"kernels": [], "descripton": 1}"#,
        "unknown key 'descripton'; did you mean description? possible: kernels, description"
    )]
    #[case(r#"{"kernels": [], "zzz": 1}"#, "c.json:1:17: zzz: unknown key 'zzz'; possible: kernels, description")]
    #[case("{", "Failed to load configuration: EOF while parsing an object")]
    fn the_structure_is_checked(#[case] text: &str, #[case] expected: &str) {
        let found = problems(text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains(expected), "{found:?}");
    }

    #[rstest]
    #[case("kernel_name")]
    #[case("kernel_source")]
    #[case("arch")]
    #[case("input_tensors")]
    #[case("output_tensor")]
    fn what_is_missing_is_named_with_its_index(#[case] key: &str) {
        let text =
            format!(r#"{{"kernels": [{KERNEL}, {}]}}"#, KERNEL.replace(&format!("\"{key}\""), "\"description\""));
        let found = problems(&text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains(&format!("kernels[1]: Kernel 1 missing '{key}'")), "{found:?}");
    }

    #[test]
    fn every_mistake_of_an_entry_is_reported() {
        let text = r#"{"kernels": [{"kernel_name": 1, "kernel_source": null, "arhc": "aie2", "input_tensors": ["(1,1,1)/f32", 3],
            "output_tensor": "(1,1,1,1)", "exported_name": [], "op_params": {}}]}"#;
        let found = problems(text);
        let expected = [
            "kernels[0].arhc: unknown key 'arhc'; did you mean arch?",
            "kernels[0]: Kernel 0 missing 'arch'",
            "kernels[0].exported_name: 'exported_name' must be a string; this is a list",
            "kernels[0].op_params: 'op_params' is an object",
            "kernels[0].kernel_name: 'kernel_name' must be a string; this is a number",
            "kernels[0].kernel_source: 'kernel_source' must be a string; this is null",
            "kernels[0].input_tensors[0]: Shape must have exactly 4 dimensions, got 3 in (1,1,1)/f32",
            "kernels[0].input_tensors[1]: a tensor must be a string such as",
            "kernels[0].output_tensor: Invalid tensor descriptor: (1,1,1,1) (expected format",
        ];
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "{found} lacks {expected}");
        }
    }
}
