//! Configuration files: from JSON to the kernels to make.
//!
//! Reading continues after a mistake, within an entry too, so that one run reports all that is wrong with a file.

use super::design::{Asked, Chosen};
use super::document::{Document, Member, Problem, Value, quoted};
use super::nearest::{possible, suggestion};
use super::parameters::parse_parameters;
use super::request::{KernelRequest, KernelSet, check};
use super::tensor_text;
use aie_hal::{Arch, ArchRegistry};
use aie_ops::{DataType, F16Policy, Node, OpParams, Tensor, table};
use std::path::Path;
use std::sync::Arc;

const FILE_KEYS: [&str; 2] = ["kernels", "description"];
/// Keys that every kernel must have, in the order in which the C++ tool asks for them.
pub(super) const REQUIRED: [&str; 5] = ["kernel_name", "kernel_source", "arch", "input_tensors", "output_tensor"];
/// Keys that a kernel may have.
pub(super) const OPTIONAL: [&str; 4] = ["exported_name", "op_params", "operation", "description"];

/// Longest name of a kernel's files in bytes: file systems allow 255, and the endings `_insts.bin` and those of temporary files
/// are added.
const NAME_BYTES: usize = 200;

/// What the answers depend on besides the configuration.
#[derive(Debug, Clone, Copy)]
pub struct Rules<'a> {
    /// The known generations.
    pub arches: &'a ArchRegistry,
    /// How f16 is computed; decides the names of kernels, so it must match the backend's setting.
    pub f16: F16Policy,
    /// Where the designs must be, when they are not those of this build. Then functions may be named that the table does not have.
    pub kernels_dir: Option<&'a Path>,
}

/// Reads the configuration in `document`.
///
/// # Errors
/// Everything that is wrong with it, in the order of the file. Never empty.
pub fn parse(document: &Document, rules: &Rules<'_>) -> Result<KernelSet, Vec<Problem>> {
    let mut reader = Reader { rules, problems: Vec::new(), notes: Vec::new() };
    let mut names = KernelSet::default();
    for kernel in reader.file(document).unwrap_or_default() {
        let added = names.add(kernel);
        reader.keep(added);
    }
    if reader.problems.is_empty() {
        names.notes.extend(reader.notes);
        return Ok(names);
    }
    reader.problems.sort_by_key(|problem| problem.place.position);
    Err(reader.problems)
}

/// Collects problems while reading.
struct Reader<'r> {
    rules: &'r Rules<'r>,
    problems: Vec<Problem>,
    notes: Vec<Problem>,
}

impl Reader<'_> {
    fn keep<T>(&mut self, result: Result<T, Problem>) -> Option<T> {
        result.map_err(|problem| self.problems.push(problem)).ok()
    }

    fn report(&mut self, value: &Value<'_>, message: impl Into<String>) {
        self.problems.push(value.problem(message));
    }

    /// Whether `value` is of a kind; what is expected is reported otherwise.
    fn require(&mut self, value: &Value<'_>, kind: &str, expected: &str) -> Option<()> {
        if value.kind() != kind {
            self.report(value, format!("{expected}; this is {}", value.kind()));
            return None;
        }
        Some(())
    }

    fn file(&mut self, document: &Document) -> Option<Vec<KernelRequest>> {
        let root = self.keep(document.root())?;
        self.require(&root, "an object", "Configuration must contain 'kernels' key")?;
        let members = self.members(&root, &FILE_KEYS)?;
        let Some(kernels) = member(&members, "kernels") else {
            let example = r#"{"kernels": [{"kernel_name": "ggml_op_add", ...}]}"#;
            self.report(&root, format!("Configuration must contain 'kernels' key; for example {example}"));
            return None;
        };
        self.require(kernels, "a list", "'kernels' must be a list")?;
        let kernels = self.keep(kernels.elements())?;
        Some(kernels.iter().enumerate().filter_map(|(index, kernel)| self.kernel(index, kernel)).collect())
    }

    /// The members of an object; keys that are unknown or repeated are reported.
    fn members<'d>(&mut self, object: &Value<'d>, known: &[&str]) -> Option<Vec<Member<'d>>> {
        let members = self.keep(object.members())?;
        for (index, Member { key, key_place, .. }) in members.iter().enumerate() {
            if !known.contains(&key.as_str()) {
                self.problems
                    .push(Problem::new(key_place, format!("unknown key '{}'{}", quoted(key), possible(key, known))));
            }
            if members[..index].iter().any(|earlier| earlier.key == *key) {
                self.problems
                    .push(Problem::new(key_place, format!("the key '{}' is given twice; remove one", quoted(key))));
            }
        }
        Some(members)
    }

    /// The kernel of an entry; `None` when anything is wrong with it, which has been reported.
    fn kernel(&mut self, index: usize, entry: &Value<'_>) -> Option<KernelRequest> {
        let before = self.problems.len();
        self.require(entry, "an object", &format!("kernel {index} must be an object"))?;
        let known: Vec<&str> = REQUIRED.into_iter().chain(OPTIONAL).collect();
        let members = self.members(entry, &known)?;
        let get = |key| member(&members, key);
        for key in REQUIRED.into_iter().filter(|key| get(key).is_none()) {
            self.report(entry, format!("Kernel {index} missing '{key}'; required: {}", REQUIRED.join(", ")));
        }
        let exported_name = get("exported_name").and_then(|value| self.exported_name(value));
        let params = get("op_params").map_or_else(|| Ok(OpParams::default()), parse_parameters);
        let params = params.map_err(|problems| self.problems.extend(problems)).ok();
        let chosen = self.design(get("kernel_name"), get("kernel_source"), get("operation"));
        let arch = get("arch").and_then(|value| self.arch(value));
        let inputs = get("input_tensors").and_then(|value| self.inputs(value));
        let output = get("output_tensor").and_then(|value| self.output(value));

        let (Chosen { op, source, note }, mut sources) = (chosen?, inputs?);
        while matches!(sources.last(), Some(None)) {
            sources.pop();
        }
        let node = check(op, &Node::new(op.name(), params?, output?, sources), self.rules.f16);
        let node = self.keep(node.map_err(|error| entry.problem(error.to_string())))?;
        let arch = arch?;
        if self.problems.len() > before {
            return None;
        }
        self.notes.extend(note.map(|note| entry.problem(note)));
        let kernel = KernelRequest { source, ..KernelRequest::new(entry.place(), op, node, arch) };
        let Some(exported_name) = exported_name else { return Some(kernel) };
        if is_looked_for(&exported_name) && ![&kernel.name, &kernel.stem].contains(&&exported_name) {
            let message = format!(
                "the 'exported_name' `{exported_name}` is the name under which the backend looks for another kernel, and this one is \
                 {}; choose another one, or leave 'exported_name' out",
                kernel.name
            );
            self.report(entry, message);
            return None;
        }
        Some(KernelRequest { exported_name, ..kernel })
    }

    fn string(&mut self, key: &str, value: &Value<'_>) -> Option<String> {
        self.require(value, "a string", &format!("'{key}' must be a string"))?;
        self.keep(value.read())
    }

    fn exported_name(&mut self, value: &Value<'_>) -> Option<String> {
        let name = self.string("exported_name", value)?;
        let checked = check_exported_name(&name);
        self.keep(checked.map_err(|error| value.problem(format!("'exported_name' cannot name files: {error}"))))?;
        Some(name)
    }

    /// The design of an entry; `None` when anything is wrong with it.
    fn design(
        &mut self,
        function: Option<&Value<'_>>,
        file: Option<&Value<'_>>,
        operation: Option<&Value<'_>>,
    ) -> Option<Chosen> {
        let operation = operation.map(|value| self.operation(value));
        let name = function.and_then(|value| self.string("kernel_name", value));
        let source = file.and_then(|value| self.string("kernel_source", value));
        let (name, source, operation) = (name?, source?, operation.map_or(Some(None), |name| name.map(Some))?);
        let asked = Asked { function: &name, file: &source, operation, folder: self.rules.kernels_dir };
        asked
            .choose()
            .map_err(|wrong| {
                for (value, reason) in [(function, wrong.function), (file, wrong.file)] {
                    self.problems.extend(value.zip(reason).map(|(value, reason)| value.problem(reason)));
                }
            })
            .ok()
    }

    fn operation(&mut self, value: &Value<'_>) -> Option<&'static str> {
        let name = self.string("operation", value)?;
        let op = table::lookup(&name);
        if op.is_none() {
            let near = suggestion(&name, table::all().map(|op| op.name()));
            let message = format!("unknown operation '{}'{near}; possible: ggml's names, such as ADD", quoted(&name));
            self.report(value, message);
        }
        op.map(|op| op.name())
    }

    fn arch(&mut self, value: &Value<'_>) -> Option<Arc<Arch>> {
        let (name, known) = (self.string("arch", value)?, self.rules.arches);
        let found = known.get(&name);
        if found.is_none() {
            let names: Vec<&str> = known.names().collect();
            let (shown, possible) = (quoted(&name), possible(&name, &names));
            let more = "further generations are files in the folders of AIE_HAL_ARCH_PATH";
            self.report(value, format!("unknown arch '{shown}'{possible}; {more}"));
        }
        found
    }

    /// `None` when any of the tensors is invalid, after all have been checked.
    fn inputs(&mut self, value: &Value<'_>) -> Option<Vec<Option<Tensor>>> {
        self.require(value, "a list", "'input_tensors' must be a list")?;
        let elements = self.keep(value.elements())?;
        let read: Vec<Option<Option<Tensor>>> = elements
            .iter()
            .map(|element| if element.is_null() { Some(None) } else { self.tensor(element).map(Some) })
            .collect();
        read.into_iter().collect()
    }

    /// A tensor whose elements have memory of their own: results in shared memory would depend on the order in which they are written.
    fn output(&mut self, value: &Value<'_>) -> Option<Tensor> {
        let tensor = self.tensor(value)?;
        if overlaps(&tensor) {
            self.report(
                value,
                "the rows of 'output_tensor' overlap; leave its strides out, or give each at least the size of what is below it",
            );
            return None;
        }
        Some(tensor)
    }

    fn tensor(&mut self, value: &Value<'_>) -> Option<Tensor> {
        self.require(value, "a string", "a tensor must be a string such as \"(1024,1,1,1)/f32\"")?;
        let text: String = self.keep(value.read())?;
        self.keep(tensor_text::parse(&text).map_err(|error| value.problem(error)))
    }
}

/// Whether `name` has the form of the names under which backends look for kernels of ggml's operations ([`aie_ops::name`]).
fn is_looked_for(name: &str) -> bool {
    let mut parts = name.split('-');
    let op = parts.next().unwrap_or_default();
    let is_op = table::all().any(|known| known.name().eq_ignore_ascii_case(op)) && !op.contains(char::is_uppercase);
    let is_tensor = |part: &str| {
        let after = part.trim_start_matches(|c: char| c.is_ascii_digit() || c == 'x');
        let dtype = DataType::ALL.iter().map(|dtype| dtype.name()).filter(|dtype| after.starts_with(dtype));
        after.len() < part.len() && dtype.max_by_key(|dtype| dtype.len()).is_some()
    };
    is_op && parts.next().is_some_and(is_tensor)
}

/// Whether elements share memory, extents of 1 left out: from the smallest stride on, each has to be as large as what is below it.
fn overlaps(tensor: &Tensor) -> bool {
    let mut dimensions: Vec<(usize, usize)> = tensor.nb.into_iter().zip(tensor.ne).collect();
    dimensions[0].1 /= tensor.dtype.block_elements();
    dimensions.retain(|(_, extent)| *extent > 1);
    dimensions.sort_unstable();
    let mut below = tensor.dtype.block_bytes();
    dimensions.into_iter().any(|(stride, extent)| {
        let free = stride >= below;
        below = stride.saturating_mul(extent);
        !free
    })
}

fn member<'m, 'd>(members: &'m [Member<'d>], key: &str) -> Option<&'m Value<'d>> {
    members.iter().find(|member| member.key == key).map(|member| &member.value)
}

/// Whether a kernel's files may have this name. It comes from a file that may come from someone else, so only names are accepted
/// that cannot leave their folder, hide in it, or exceed what file systems allow.
fn check_exported_name(name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let shown = quoted(name);
    if name.is_empty() {
        return Err("the name is empty; leave 'exported_name' out to use the name that the backend looks for".into());
    }
    if let Some(character) = name.chars().find(|character| !plain(*character)) {
        let possible = "letters a-z and A-Z, digits, and the characters . _ -";
        return Err(format!("`{shown}` contains {character:?}; possible: {possible}"));
    }
    for (first, what) in [('.', "a dot"), ('-', "a hyphen, as options do")] {
        if name.starts_with(first) {
            return Err(format!("`{shown}` begins with {what}; begin with a letter or a digit"));
        }
    }
    if name.len() > NAME_BYTES {
        let length = name.len();
        return Err(format!("`{shown}` has {length} bytes, at most {NAME_BYTES} are possible; choose a shorter one"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn read(text: &str) -> Result<KernelSet, Vec<String>> {
        let arches = ArchRegistry::builtin();
        let rules = Rules { arches: &arches, f16: F16Policy::F32, kernels_dir: None };
        let read = parse(&Document::new("c.json", text), &rules);
        read.map_err(|problems| problems.iter().map(ToString::to_string).collect())
    }

    fn problems(text: &str) -> Vec<String> {
        read(text).unwrap_err()
    }

    const KERNEL: &str = r#"{"kernel_name": "ggml_op_soft_max", "kernel_source": "soft_max.py", "arch": "aie2",
        "input_tensors": ["(8,4,2,1)/f32", null, "(2,1,1,1)/f32"], "output_tensor": "(8,4,2,1)/f32", "op_params": [1.0]}"#;

    #[test]
    fn an_entry_is_read_whole() {
        let text = format!(r#"{{"description": "d", "kernels": [{KERNEL}]}}"#);
        let found = read(&text).unwrap();
        let kernel = &found.kernels[0];
        let (x, sinks) = ([8, 4, 2, 1], [2, 1, 1, 1]);
        let tensor = |ne| Tensor::contiguous(DataType::F32, ne);
        assert_eq!((kernel.op.name(), kernel.arch.name.as_str()), ("SOFT_MAX", "aie2"));
        assert_eq!(kernel.node.sources, [Some(tensor(x)), None, Some(tensor(sinks))]);
        assert_eq!((kernel.node.params.float(0), &kernel.exported_name), (1.0, &kernel.stem));
        let message = problems(&text.replace("aie2", "aie9")).remove(0);
        assert!(message.starts_with("c.json:1:110: kernels[0].arch: unknown arch 'aie9'"), "{message}");
    }

    #[rstest]
    #[case("{}", "c.json:1:1: Configuration must contain 'kernels' key; for example")]
    #[case("[]", "c.json:1:1: Configuration must contain 'kernels' key; this is a list")]
    #[case(r#"{"kernels": {}}"#, "c.json:1:13: kernels: 'kernels' must be a list; this is an object")]
    #[case(r#"{"kernels": [7]}"#, "c.json:1:14: kernels[0]: kernel 0 must be an object; this is a number")]
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
            "kernels[0]: Kernel 0 missing 'arch'",
            "kernels[0].kernel_name: 'kernel_name' must be a string; this is a number",
            "kernels[0].kernel_source: 'kernel_source' must be a string; this is null",
            "kernels[0].arhc: unknown key 'arhc'; did you mean arch?",
            "kernels[0].input_tensors[0]: Shape must have exactly 4 dimensions, got 3 in (1,1,1)/f32",
            "kernels[0].input_tensors[1]: a tensor must be a string such as",
            "kernels[0].output_tensor: Invalid tensor descriptor: (1,1,1,1) (expected format",
            "kernels[0].exported_name: 'exported_name' must be a string; this is a list",
            "kernels[0].op_params: 'op_params' is an object",
        ];
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "{found} lacks {expected}");
        }
    }

    #[rstest]
    #[case("", "is empty")]
    #[case("..", "begins with a dot")]
    #[case(".hidden", "begins with a dot")]
    #[case("-rf", "begins with a hyphen")]
    #[case("-", "begins with a hyphen")]
    #[case("../up", "contains '/'")]
    #[case("/etc/passwd", "contains '/'")]
    #[case("a\\b", "contains '\\\\'")]
    #[case("a\0b", "contains '\\0'")]
    #[case("a b", "contains ' '")]
    #[case("\u{e4}", "contains '\u{e4}'")]
    fn names_that_could_escape_are_rejected(#[case] name: &str, #[case] expected: &str) {
        let message = check_exported_name(name).unwrap_err();
        assert!(message.contains(expected), "{message}");
        assert!(!message.contains('\0'), "{message:?}");
    }

    #[rstest]
    #[case("add-1024f32-1024f32-1024f32", true)]
    #[case("leaky_relu-8x4bf16", true)]
    #[case("mul_mat-8x8f32-8x8q8_0-8x8f32", true)]
    #[case("get_rows-64x3f32-64x96q8_0-3i32", true)]
    #[case("add_f32_1024", false)]
    #[case("Add-8f32", false)]
    #[case("add-fast", false)]
    #[case("add-8", false)]
    #[case("mine-8f32", false)]
    fn names_that_backends_look_for(#[case] name: &str, #[case] expected: bool) {
        assert_eq!(is_looked_for(name), expected);
    }

    #[rstest]
    #[case("(8,4,1,1)/f32", false)]
    #[case("(8,4,1,1)/f32/(1,16,64,64)", false)]
    #[case("(8,4,1,1)/f32/(4,1,32,32)", false)]
    #[case("(8,1,1,1)/f32/(1,4,4,4)", false)]
    #[case("(8,4,1,1)/f32/(1,4,16,16)", true)]
    #[case("(8,4,2,1)/f32/(1,8,16,64)", true)]
    #[case("(64,4,1,1)/q8_0", false)]
    fn rows_that_overlap(#[case] text: &str, #[case] expected: bool) {
        assert_eq!(overlaps(&tensor_text::parse(text).unwrap()), expected);
    }

    #[test]
    fn plain_names_of_some_length_pass() {
        for name in ["add_f32_1024", "add-1024f32-1024f32-1024f32", "A.b..c-", &"a".repeat(200)] {
            assert_eq!(check_exported_name(name), Ok(()));
        }
        let message = check_exported_name(&"a".repeat(201)).unwrap_err();
        assert!(message.contains("has 201 bytes, at most 200 are possible"), "{message}");
    }
}
