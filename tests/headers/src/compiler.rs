//! Asking a C compiler what headers declare: sizes, offsets, values. A program of one line for each question is built
//! against the headers and run; a name they do not have is an error of the compiler.

use anyhow::{Context, Result, bail};
use regex::Regex;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The C compiler.
pub struct Compiler(pub PathBuf);

/// One value the C compiler is asked for.
pub struct Question {
    /// What kind of value it is, in the plural, for the table.
    pub kind: &'static str,
    pub name: String,
    /// Statements of C that leave the answer in `value`.
    pub code: String,
    /// What we believe.
    pub expected: u64,
}

/// The C program: one line with a number for each question, in their order.
fn program(questions: &[Question], headers: &[&str]) -> String {
    let mut text = String::from("#include <stddef.h>\n#include <stdint.h>\n#include <stdio.h>\n#include <string.h>\n");
    for header in headers {
        let _ = writeln!(text, "#include <{header}>");
    }
    text += "int main(void) {\n  volatile uint32_t ones = UINT32_MAX; (void)ones;\n  unsigned long long value;\n";
    for question in questions {
        let _ = writeln!(text, "  {{ {} printf(\"%llu\\n\", value); }}", question.code);
    }
    text += "  return 0;\n}\n";
    text
}

impl Compiler {
    /// The answers, in the order of the questions.
    pub fn ask(&self, questions: &[Question], headers: &[&str], include: &Path) -> Result<Vec<u64>> {
        let work = tempfile::Builder::new().prefix("c-headers-").tempdir()?;
        let (source, binary) = (work.path().join("headers.c"), work.path().join("headers"));
        std::fs::write(&source, program(questions, headers))?;
        let mut compile = Command::new(&self.0);
        compile.args(["-std=gnu11", "-O0", "-Wall", "-Werror", "-I"]).arg(include).arg("-o").arg(&binary).arg(&source);
        printed(&mut compile).with_context(|| {
            format!(
                "the C compiler `{}` cannot build the comparison: either it is missing (Debian: apt-get install gcc \
                 libc6-dev), or the headers in {} lack a name it lists",
                self.0.display(),
                include.display()
            )
        })?;
        printed(&mut Command::new(&binary))?
            .lines()
            .map(|line| line.parse().with_context(|| format!("unexpected output of the comparison: {line:?}")))
            .collect()
    }
}

/// What a program prints that has to succeed.
fn printed(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_owned();
    let output = command.output().with_context(|| format!("cannot start {}", name.display()))?;
    if !output.status.success() {
        bail!("{}: {}: {}", name.display(), output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// How many values of each kind are requested.
pub fn kinds(questions: &[Question]) -> BTreeMap<&'static str, usize> {
    let mut kinds = BTreeMap::new();
    for question in questions {
        *kinds.entry(question.kind).or_default() += 1;
    }
    kinds
}

/// A header's text without its comments.
pub fn without_comments(text: &str) -> Result<String> {
    Ok(Regex::new(r"(?s)/\*.*?\*/|//[^\n]*")?.replace_all(text, "").into_owned())
}

/// A line for each answer that is not the expected one. `declared` is the crate that believes otherwise.
pub fn differences(questions: &[Question], answers: &[u64], declared: &str) -> Vec<String> {
    if answers.len() != questions.len() {
        return vec![format!("{} values were requested and {} printed", questions.len(), answers.len())];
    }
    questions
        .iter()
        .zip(answers)
        .filter(|(question, answer)| question.expected != **answer)
        .map(|(question, answer)| match question.kind {
            "function types" => format!("{}: the headers declare another type than {declared}", question.name),
            kind => {
                format!("{kind}: {} is {answer} in the headers and {} in {declared}", question.name, question.expected)
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(kind: &'static str, code: &str, expected: u64) -> Question {
        Question { kind, name: "x".to_owned(), code: code.to_owned(), expected }
    }

    #[test]
    fn a_difference_names_both_values() {
        let questions = [question("sizes", "", 8), question("function types", "", 1), question("offsets", "", 4)];
        let problems = differences(&questions, &[16, 0, 4], "some-sys");
        assert_eq!(problems.len(), 2);
        assert!(problems[0].contains("16") && problems[0].contains("8 in some-sys"), "{problems:?}");
        assert!(problems[1].contains("another type"), "{problems:?}");
        assert!(differences(&questions, &[8], "some-sys")[0].contains("1 printed"));
    }

    #[test]
    fn the_compiler_answers_and_rejects_unknown_names() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("x.h"), "struct x { char a; int b; };").unwrap();
        let known = question("offsets", "value = offsetof(struct x, b);", 4);
        let compiler = Compiler("cc".into());
        assert_eq!(compiler.ask(&[known], &["x.h"], dir.path()).unwrap(), [4]);
        let unknown = question("offsets", "value = offsetof(struct x, c);", 8);
        let error = format!("{:#}", compiler.ask(&[unknown], &["x.h"], dir.path()).unwrap_err());
        assert!(error.contains("lack a name"), "{error}");
    }
}
