//! Which design an entry asks for, and which operation that computes.
//!
//! The table has a design for each operation ([`KernelSource::of`]); entries that name it are checked without the designs at hand.
//! Any other function is somebody's own and has to be in the folder that `--kernels-dir` names. It computes the operation that
//! its name or the entry's `operation` says, and otherwise one that only the configuration knows.

use super::document::quoted;
use super::nearest::{nearest, possible, suggestion};
use super::unlisted::unlisted;
use crate::kernel_source::KernelSource;
use aie_ops::{Operation, table};
use std::fs;
use std::path::Path;

/// What an entry asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Asked<'a> {
    /// `kernel_name`.
    pub function: &'a str,
    /// `kernel_source`.
    pub file: &'a str,
    /// `operation`, if it is given and there is one of the name.
    pub operation: Option<&'static str>,
    /// `--kernels-dir`.
    pub folder: Option<&'a Path>,
}

/// What it gets.
#[derive(Debug)]
pub(super) struct Chosen {
    pub op: &'static dyn Operation,
    /// The design, where it is not the operation's own.
    pub source: Option<KernelSource>,
    /// What is worth knowing about it.
    pub note: Option<String>,
}

/// Why there is no such design, by key of the entry.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Wrong {
    pub function: Option<String>,
    pub file: Option<String>,
}

impl Wrong {
    fn function(reason: String) -> Self {
        Self { function: Some(reason), file: None }
    }

    fn file(reason: String) -> Self {
        Self { function: None, file: Some(format!("Kernel source not found: {reason}")) }
    }
}

impl Asked<'_> {
    /// The design and its operation.
    pub fn choose(&self) -> Result<Chosen, Wrong> {
        let listed = KernelSource::operation(self.function);
        let named = self.operation.and_then(table::lookup);
        if let (Some(listed), Some(named)) = (listed, named)
            && listed.name() != named.name()
        {
            let reason = format!("{} is the design of {}, not of {}", self.function, listed.name(), named.name());
            return Err(Wrong::function(format!("{reason}; leave 'operation' out, or name another function")));
        }
        let own = listed.filter(|op| KernelSource::of(*op).file == self.file);
        match (own, self.folder) {
            (Some(op), None) => Ok(Chosen { op, source: None, note: None }),
            (Some(op), Some(folder)) => {
                self.text(folder)?;
                Ok(Chosen { op, source: None, note: None })
            }
            (None, Some(folder)) => self.of_folder(folder, listed.or(named)),
            (None, None) => Err(self.unknown(listed)),
        }
    }

    /// A design in `folder` that the table does not have.
    fn of_folder(&self, folder: &Path, op: Option<&'static dyn Operation>) -> Result<Chosen, Wrong> {
        let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if self.function.is_empty() || !self.function.chars().all(is_letter) {
            let reason = format!("'{}' is not the name of a function", quoted(self.function));
            return Err(Wrong::function(format!("{reason}; possible: letters a-z and A-Z, digits, and _")));
        }
        let text = self.text(folder)?;
        let source = KernelSource { file: self.file.to_owned(), function: self.function.to_owned() };
        // It may have it from another file, so that only the worker can tell.
        let note = (!text.split(|c| !is_letter(c)).any(|word| word == self.function)).then(|| {
            let functions = text.lines().filter_map(|line| line.strip_prefix("def ")?.split('(').next());
            format!("{} does not mention {}{}", self.file, self.function, suggestion(self.function, functions))
        });
        if let Some(op) = op {
            return Ok(Chosen { op, source: Some(source), note });
        }
        let stem = self.file.trim_end_matches(".py");
        let op = unlisted(&format!("{stem}.{}", self.function));
        let unknown =
            format!("{} is no design of ggml's operations, so that no backend looks for its kernel", self.function);
        let more = note.map(|note| format!("; {note}")).unwrap_or_default();
        let note = format!("{unknown}; if it computes one of them, say which with 'operation'{more}");
        Ok(Chosen { op, source: Some(source), note: Some(note) })
    }

    /// The file's text.
    fn text(&self, folder: &Path) -> Result<String, Wrong> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let is_name = |name: &str| !name.is_empty() && !name.starts_with(['.', '-']) && name.chars().all(plain);
        if !self.file.split('/').all(is_name) || !self.file.ends_with(".py") {
            let reason = format!("'{}' is not the name of a Python file", quoted(self.file));
            return Err(Wrong::file(format!(
                "{reason}; name one in {} or a folder below, such as binary_ops.py or mine/binary_ops.py",
                folder.display()
            )));
        }
        let path = folder.join(self.file);
        fs::read(&path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).map_err(|error| {
            let mut there = python_files(folder, "");
            there.sort();
            let has = if there.is_empty() { "no .py file".into() } else { there.join(", ") };
            let same = there.iter().find(|name| name.ends_with(&format!("/{}", self.file)));
            let near = same.or_else(|| nearest(self.file, &there, 1).first().copied());
            let near = near.map(|name| format!("; did you mean {name}?"));
            let reason = match error.kind() {
                std::io::ErrorKind::NotFound => String::new(),
                _ => format!(": {error}"),
            };
            let near = near.unwrap_or_else(|| "; correct --kernels-dir".into());
            Wrong::file(format!("{}{reason}; the folder has {has}{near}", path.display()))
        })
    }

    /// What is wrong when the designs are those of the table.
    fn unknown(&self, listed: Option<&'static dyn Operation>) -> Wrong {
        const OTHERS: &str = "designs of others are read from the folder that --kernels-dir names";
        if let Some(op) = listed {
            let own = KernelSource::of(op).file;
            let shown = quoted(self.file);
            return Wrong::file(format!("{shown} has no {}; it is in {own}; {OTHERS}", self.function));
        }
        let near = match table::lookup(self.function) {
            Some(op) => format!("; did you mean {}?", KernelSource::of(op).function),
            None => suggestion(self.function, table::all().map(|op| KernelSource::of(op).function)),
        };
        let separator = if near.is_empty() { ";" } else { "" };
        let forms = "kernels are named ggml_op_add, ggml_unary_op_relu, ggml_glu_op_swiglu, after ggml's operations";
        let mut wrong =
            Wrong::function(format!("unknown kernel '{}'{near}{separator} {forms}; {OTHERS}", quoted(self.function)));
        let mut files: Vec<String> = table::all().map(|op| KernelSource::of(op).file).collect();
        files.sort();
        files.dedup();
        if !files.iter().any(|file| file == self.file) {
            let reason = format!("{}{}", quoted(self.file), possible(self.file, &files));
            wrong.file = Wrong::file(reason).file;
        }
        wrong
    }
}

/// The Python files in `folder` and one level below, behind `prefix`.
fn python_files(folder: &Path, prefix: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        if name.ends_with(".py") {
            found.push(format!("{prefix}{name}"));
        } else if prefix.is_empty() && entry.path().is_dir() {
            found.extend(python_files(&entry.path(), &format!("{name}/")));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const TEXT: &str = "from .more import *\n\ndef my_add(arch, inputs, output, params):\n    pass\n";

    fn chosen(function: &str, file: &str, operation: Option<&'static str>) -> Result<Chosen, Wrong> {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("fast.py"), TEXT).unwrap();
        Asked { function, file, operation, folder: Some(folder.path()) }.choose()
    }

    #[rstest]
    #[case::function_of_the_table("ggml_op_add", None, "ADD", Some("fast.py does not mention ggml_op_add"))]
    #[case::operation("my_add", Some("ADD"), "ADD", None)]
    #[case::neither("my_add", None, "fast.my_add", Some("no backend looks for its kernel; if it computes"))]
    #[case::mistyped("my_ad", None, "fast.my_ad", Some("fast.py does not mention my_ad; did you mean my_add?"))]
    fn designs_of_others_are_taken(
        #[case] function: &str,
        #[case] operation: Option<&'static str>,
        #[case] op: &str,
        #[case] note: Option<&str>,
    ) {
        let Chosen { op: found, source, note: said } = chosen(function, "fast.py", operation).unwrap();
        assert_eq!(found.name(), op);
        assert_eq!(source, Some(KernelSource { file: "fast.py".into(), function: function.into() }));
        assert_eq!(said.is_some(), note.is_some(), "{said:?}");
        assert!(said.unwrap_or_default().contains(note.unwrap_or_default()));
    }

    #[test]
    fn files_in_folders_below_are_found() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("mine")).unwrap();
        fs::write(folder.path().join("mine/fast.py"), TEXT).unwrap();
        let choose = |file: &str| {
            let asked = Asked { function: "my_add", file, operation: Some("ADD"), folder: Some(folder.path()) };
            asked.choose().map_err(|wrong| wrong.file.unwrap_or_default())
        };
        let source = choose("mine/fast.py").unwrap().source.unwrap();
        assert_eq!((source.file.as_str(), source.function.as_str()), ("mine/fast.py", "my_add"));
        for outside in ["mine/../../fast.py", "/mine/fast.py", "mine//fast.py", "mine/-fast.py", ".mine/fast.py"] {
            let reason = choose(outside).unwrap_err();
            assert!(reason.contains("is not the name of a Python file"), "{reason}");
        }
        let reason = choose("fast.py").unwrap_err();
        assert!(reason.contains("the folder has mine/fast.py; did you mean mine/fast.py?"), "{reason}");
    }

    #[rstest]
    #[case("my-add", "fast.py", None, "'my-add' is not the name of a function")]
    #[case("ggml_op_add", "fast.py", Some("MUL"), "ggml_op_add is the design of ADD, not of MUL")]
    #[case("my_add", "../fast.py", None, "Kernel source not found: '../fast.py' is not the name of a Python file")]
    #[case("my_add", "-fast.py", None, "is not the name of a Python file")]
    #[case("my_add", "fast", None, "is not the name of a Python file")]
    #[case("my_add", "fest.py", None, "fest.py; the folder has fast.py; did you mean fast.py?")]
    fn what_is_wrong_is_said(
        #[case] function: &str,
        #[case] file: &str,
        #[case] operation: Option<&'static str>,
        #[case] expected: &str,
    ) {
        let Wrong { function, file } = chosen(function, file, operation).unwrap_err();
        let said = function.or(file).unwrap();
        assert!(said.contains(expected), "{said}");
    }
}
