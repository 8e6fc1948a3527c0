//! What `amdxdna-sys` declares, against the headers of several kernel versions.
//!
//! For each version a C program is built against its headers and prints what the compiler makes of them: sizes, offsets, values,
//! request codes. `amdxdna-sys` says which kernel brought what; a version that lacks something it should have, or has
//! something it should not, is a difference, and what it rightly lacks is named. The other direction is checked too: everything
//! that the newest header of the driver declares is declared by the crate, or left out for a reason given here.
//!
//! Kernels move on without us. A structure may grow at its end, as kernels copy as much as both sides have; and what a kernel newer than
//! [`NEWEST`] declares is new. Both are listed, and no difference.

use crate::compiler::{Compiler, Question, differences, kinds, without_comments};
use amdxdna_sys::layout::{HEADERS, Header, Ioctl, Struct};
use anyhow::{Result, ensure};
use regex::Regex;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const CRATE: &str = "amdxdna-sys";
/// The header of the driver itself.
const DRIVER: &str = "drm/amdxdna_accel.h";

/// The newest kernel whose header has been read for this crate. With a newer one, look through what is listed, declare what is needed or add a
/// reason to [`LEFT_OUT`], and raise this.
const NEWEST: &str = "7.3";

/// What the driver's header declares and the crate does not: the start of a name, and why.
const LEFT_OUT: [(&str, &str); 9] = [
    ("AMDXDNA_DEV_TYPE_", "only one way to submit is used"),
    ("AMDXDNA_QOS_", "only the normal priority is requested"),
    ("AMDXDNA_SENSOR_TYPE_", "sensors are not read"),
    ("AMDXDNA_HWCTX_STATE_", "states of contexts are not read"),
    ("POWER_MODE_", "the power mode is not set"),
    ("AMDXDNA_BO_INVALID", "it is never requested"),
    ("AMDXDNA_BO_SHARE", "it is another name of AMDXDNA_BO_SHMEM"),
    ("AMDXDNA_INVALID_CMD_HANDLE", "it is never passed"),
    ("AMDXDNA_INVALID_DOORBELL_OFFSET", "only aie4 has user mode queues"),
];

/// Why `DRM_AMDXDNA_CREATE_BO` and its like are not declared.
const REQUEST_NUMBER: &str = "the number of a request is compared as a part of its code";

/// The headers of one kernel.
#[derive(Debug, Clone)]
pub struct Headers {
    /// The kernel's version, as in `7.2.13`.
    version: String,
    /// The folder with `drm/drm.h` and its like.
    include: PathBuf,
}

impl Headers {
    /// Reads `VERSION=DIR`.
    pub fn read(text: &str) -> Result<Self, String> {
        let (version, include) = text.split_once('=').ok_or("expected a value like `7.2=/usr/include`")?;
        Ok(Self { version: version.to_owned(), include: include.into() })
    }

    fn have_driver(&self) -> bool {
        self.include.join(DRIVER).exists()
    }
}

#[derive(Serialize)]
pub struct Report {
    /// In the order in which the headers were given.
    kernels: Vec<Compared>,
    /// What the driver's newest header declares and the crate does not, and why.
    left_out: BTreeMap<String, &'static str>,
    /// The newest kernel whose header has been read for the crate.
    newest: &'static str,
}

#[derive(Serialize)]
struct Compared {
    kernel: String,
    compared: BTreeMap<&'static str, usize>,
    /// What it does not have yet, by the version that brought it.
    later: BTreeMap<String, Vec<String>>,
    /// Structures that are longer than the crate knows them.
    grown: Vec<String>,
    /// Names that no kernel up to [`NEWEST`] has.
    newer: Vec<String>,
    problems: Vec<String>,
}

pub fn compare(headers: &[Headers], compiler: &Compiler) -> Result<Report> {
    let mut kernels = headers.iter().map(|headers| compared(headers, compiler)).collect::<Result<Vec<_>>>()?;
    let mut left_out = BTreeMap::new();
    if let Some(newest) = headers.iter().rposition(Headers::have_driver) {
        let (headers, compared) = (&headers[newest], &mut kernels[newest]);
        let (reasons, undeclared) = undeclared(&Text::read(&headers.include, DRIVER)?)?;
        left_out = reasons;
        if is_newer(&headers.version)? {
            compared.newer = undeclared;
        } else {
            let problem = |name| format!("{DRIVER} has {name}, {CRATE} does not");
            compared.problems.extend(undeclared.into_iter().map(problem));
        }
    }
    Ok(Report { kernels, left_out, newest: NEWEST })
}

/// The numbers of a version such as `6.12.107`.
fn release(version: &str) -> Result<Vec<u32>> {
    let parts = version.split(|character: char| !character.is_ascii_digit());
    let release: Vec<u32> = parts.filter_map(|part| part.parse().ok()).collect();
    ensure!(release.len() > 1, "`{version}` is not a kernel version such as 6.18");
    Ok(release)
}

/// Whether a kernel of this version may declare what [`NEWEST`] does not. Updates of one do not.
fn is_newer(version: &str) -> Result<bool> {
    let (version, newest) = (release(version)?, release(NEWEST)?);
    Ok(version[..2] > newest[..2])
}

/// A header's text without comments.
struct Text(String);

impl Text {
    fn read(include: &Path, header: &str) -> Result<Self> {
        let path = include.join(header);
        let text = crate::read(&path)?;
        Ok(Self(without_comments(&text)?))
    }

    fn has(&self, name: &str) -> Result<bool> {
        Ok(Regex::new(&format!(r"\b{name}\b"))?.is_match(&self.0))
    }

    /// What stands between the braces of a structure; `None` if it is not defined here.
    fn body(&self, structure: &str) -> Result<Option<&str>> {
        let found = Regex::new(&format!(r"(?s)\bstruct\s+{structure}\s*\{{(.*?)\n\}}"))?.captures(&self.0);
        Ok(found.and_then(|found| found.get(1)).map(|body| body.as_str()))
    }
}

/// What is compared with one kernel's headers.
struct Inquiry {
    release: Vec<u32>,
    questions: Vec<Question>,
    later: BTreeMap<String, Vec<String>>,
    /// Members of structures that the crate does not declare.
    members: BTreeMap<&'static str, Vec<String>>,
    problems: Vec<String>,
}

impl Inquiry {
    fn ask(&mut self, kind: &'static str, name: impl Into<String>, code: String, expected: u64) {
        self.questions.push(Question { kind, name: name.into(), code, expected });
    }

    /// Whether a kernel of this version should have what came with `since`.
    fn expects(&self, since: Option<&str>) -> Result<bool> {
        Ok(since.map(release).transpose()?.is_none_or(|since| since <= self.release))
    }

    /// Notes what this version does not have; whether it should not have it.
    fn lacks(&mut self, name: &str, since: Option<&str>) -> Result<bool> {
        match since {
            Some(since) if !self.expects(Some(since))? => {
                self.later.entry(since.to_owned()).or_default().push(name.to_owned());
                Ok(true)
            }
            _ => {
                let since = since.unwrap_or("the driver's first header");
                self.problems.push(format!("the headers lack {name}, which {CRATE} says is there since {since}"));
                Ok(false)
            }
        }
    }

    fn early(&mut self, name: &str, since: Option<&str>) {
        let since = since.unwrap_or_default();
        self.problems.push(format!("the headers have {name}, which {CRATE} says came with Linux {since}"));
    }

    fn structure(&mut self, text: &Text, entry: &Struct) -> Result<()> {
        let name = entry.name;
        let Some(body) = text.body(name)? else { return self.lacks(name, entry.since).map(drop) };
        let mut whole = true;
        for field in entry.fields {
            let member = field.c_name();
            let path = format!("{name}.{member}");
            if Regex::new(&format!(r"\b{member}\b"))?.is_match(body) {
                let offset = format!("value = offsetof(struct {name}, {member});");
                self.ask("offsets", path.clone(), offset, field.offset as u64);
                self.ask(
                    "field sizes",
                    path,
                    format!("value = sizeof(((struct {name} *)0)->{member});"),
                    field.size as u64,
                );
            } else if member != "pad" {
                // Padding need not be named in C: the fields behind it say whether it is there.
                whole = false;
                self.lacks(&path, entry.since)?;
            }
        }
        let declared: BTreeSet<&str> = entry.fields.iter().map(|field| field.c_name()).collect();
        let member = Regex::new(r"(\w+)\s*(\[[^\]]*\]\s*)?;")?;
        let others = member.captures_iter(body).filter(|member| !declared.contains(&member[1]));
        self.members.insert(
            name,
            others.map(|member| format!("{}{}", &member[1], member.get(2).map_or("", |list| list.as_str()))).collect(),
        );
        let expected = self.expects(entry.since)?;
        if whole && !expected {
            self.early(&format!("all of {name}"), entry.since);
        }
        if whole {
            self.ask("sizes", name, format!("value = sizeof(struct {name});"), entry.size as u64);
        }
        // A list at the end, which the crate declares as a structure of its own, may raise the alignment in C.
        if whole && !body.contains("[]") {
            self.ask("alignments", name, format!("value = _Alignof(struct {name});"), entry.align as u64);
        }
        Ok(())
    }

    fn request(&mut self, text: &Text, entry: &Ioctl) -> Result<()> {
        let (name, code) = (entry.c_name, u64::from(entry.code.0));
        if !text.has(name)? {
            return self.lacks(name, entry.since).map(drop);
        }
        if self.expects(entry.since)? {
            self.ask("requests", name, format!("value = (uint32_t){name};"), code);
        } else {
            // The request with a shorter structure: everything but the size is the same.
            let but_size = !(0x3fff_u64 << 16);
            self.ask(
                "requests",
                name,
                format!("value = (uint32_t){name} & {but_size:#x}u;"),
                code & but_size & 0xffff_ffff,
            );
        }
        Ok(())
    }

    fn header(&mut self, include: &Path, header: &Header) -> Result<bool> {
        if !include.join(header.name).exists() {
            if self.lacks(header.name, header.since)? {
                let names = header.structs.iter().map(|entry| (entry.name, entry.since));
                let names = names.chain(header.constants.iter().map(|entry| (entry.name, entry.since)));
                for (name, since) in names.chain(header.ioctls().map(|entry| (entry.c_name, entry.since))) {
                    self.lacks(name, since.or(header.since))?;
                }
            }
            return Ok(false);
        }
        let text = Text::read(include, header.name)?;
        for entry in header.structs {
            self.structure(&text, entry)?;
        }
        for entry in header.ioctls() {
            self.request(&text, entry)?;
        }
        for entry in header.constants {
            let name = entry.name;
            match (text.has(name)?, self.expects(entry.since)?) {
                (false, _) => self.lacks(name, entry.since).map(drop)?,
                (true, false) => self.early(name, entry.since),
                (true, true) => {
                    self.ask("constants", name, format!("value = (unsigned long long){name};"), entry.value)
                }
            }
        }
        Ok(true)
    }
}

fn compared(headers: &Headers, compiler: &Compiler) -> Result<Compared> {
    let mut inquiry = Inquiry {
        release: release(&headers.version)?,
        questions: Vec::new(),
        later: BTreeMap::new(),
        members: BTreeMap::new(),
        problems: Vec::new(),
    };
    let mut included = Vec::new();
    for header in HEADERS {
        if inquiry.header(&headers.include, header)? {
            included.push(header.name);
        }
    }
    let Inquiry { questions, later, members, mut problems, .. } = inquiry;
    let mut answers = compiler.ask(&questions, &included, &headers.include)?;
    let grown = accept_growth(&questions, &members, &mut answers);
    problems.extend(differences(&questions, &answers, CRATE));
    let compared = kinds(&questions);
    Ok(Compared { kernel: headers.version.clone(), compared, later, grown, newer: Vec::new(), problems })
}

/// Replaces answers that only say that a structure has grown by the expected ones: its size, its alignment, and the size in the code of its
/// request. Gives the structures with the members that the crate does not declare.
fn accept_growth(questions: &[Question], members: &BTreeMap<&str, Vec<String>>, answers: &mut [u64]) -> Vec<String> {
    const SIZE: u64 = 0x3fff << 16;
    let size = |code: u64| (code & SIZE) >> 16;
    // Sizes before and now.
    let mut grown: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for (question, answer) in questions.iter().zip(&*answers) {
        if question.kind == "sizes" && *answer > question.expected {
            grown.insert(&question.name, (question.expected, *answer));
        }
    }
    for (question, answer) in questions.iter().zip(answers) {
        let expected = question.expected;
        let only_longer = match question.kind {
            "sizes" => *answer > expected,
            "alignments" => *answer > expected && grown.contains_key(question.name.as_str()),
            "requests" => {
                *answer & !SIZE == expected & !SIZE
                    && grown.values().any(|sizes| *sizes == (size(expected), size(*answer)))
            }
            _ => false,
        };
        if only_longer {
            *answer = expected;
        }
    }
    let describe = |(name, (before, now)): (&str, (u64, u64))| {
        let members = members.get(name).map(|members| members.join(", ")).unwrap_or_default();
        format!("{name} ({before} to {now} bytes: {members})")
    };
    grown.into_iter().map(describe).collect()
}

/// What the driver's header has and the crate does not: with a reason, and without one.
fn undeclared(text: &Text) -> Result<(BTreeMap<String, &'static str>, Vec<String>)> {
    let mut found: BTreeSet<String> = BTreeSet::new();
    let names = |pattern: &str| -> Result<Vec<String>> {
        let pattern = Regex::new(pattern)?;
        Ok(pattern.captures_iter(&text.0).filter_map(|found| Some(found.get(1)?.as_str().to_owned())).collect())
    };
    found.extend(names(r"(?m)^struct\s+(\w+)\s*\{")?);
    // With a value: the guard of the header has none.
    found.extend(names(r"(?m)^#define[ \t]+(\w+)[ \t]+\S")?);
    for body in names(r"(?s)\benum\s+\w+\s*\{(.*?)\}")? {
        let values =
            body.split(',').filter_map(|entry| entry.split(['=', ' ', '\t', '\n']).find(|word| !word.is_empty()));
        found.extend(values.map(str::to_owned));
    }
    let declared: BTreeSet<&str> = HEADERS
        .iter()
        .flat_map(|header| {
            let structs = header.structs.iter().map(|entry| entry.name);
            structs
                .chain(header.constants.iter().map(|entry| entry.name))
                .chain(header.ioctls().map(|entry| entry.c_name))
        })
        .collect();
    let requests: BTreeSet<String> = HEADERS
        .iter()
        .flat_map(Header::ioctls)
        .filter_map(|entry| entry.c_name.strip_prefix("DRM_IOCTL_").map(|name| format!("DRM_{name}")))
        .collect();
    let (mut left_out, mut undeclared) = (BTreeMap::new(), Vec::new());
    for name in found.into_iter().filter(|name| !declared.contains(name.as_str())) {
        let reason = if requests.contains(&name) {
            Some(REQUEST_NUMBER)
        } else {
            LEFT_OUT.iter().find(|(start, _)| name.starts_with(start)).map(|(_, reason)| *reason)
        };
        match reason {
            Some(reason) => drop(left_out.insert(name, reason)),
            None => undeclared.push(name),
        }
    }
    Ok((left_out, undeclared))
}

#[cfg(test)]
mod tests {
    use super::*;
    use amdxdna_sys::layout::Field;

    fn inquiry(version: &str) -> Inquiry {
        Inquiry {
            release: release(version).unwrap(),
            questions: Vec::new(),
            later: BTreeMap::new(),
            members: BTreeMap::new(),
            problems: Vec::new(),
        }
    }

    const FIELDS: &[Field] = &[
        Field { rust_name: "fd", offset: 0, size: 4 },
        Field { rust_name: "pad", offset: 4, size: 4 },
        Field { rust_name: "type_", offset: 8, size: 8 },
    ];

    fn grown(since: Option<&'static str>) -> Struct {
        Struct { name: "x", size: 16, align: 8, fields: FIELDS, since }
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(release("6.12.107").unwrap() < release("6.14").unwrap());
        assert!(release("7.3").unwrap() > release("6.18").unwrap());
        assert!(release("new").is_err());
    }

    #[test]
    fn a_structure_is_compared_as_far_as_a_version_has_it() {
        let text = Text("struct x {\n\t__s32 fd;\n};".to_owned());
        let mut old = inquiry("6.12");
        old.structure(&text, &grown(Some("7.0"))).unwrap();
        assert_eq!(old.later["7.0"], ["x.type"]);
        assert!(old.problems.is_empty() && old.questions.iter().all(|question| question.kind != "sizes"));
        let mut new = inquiry("7.2");
        new.structure(&text, &grown(Some("7.0"))).unwrap();
        assert!(new.problems[0].contains("lack x.type"), "{:?}", new.problems);
        new.structure(&Text(String::new()), &grown(None)).unwrap();
        assert!(new.problems[1].contains("lack x,"), "{:?}", new.problems);
    }

    #[test]
    fn something_that_is_there_too_early_is_a_difference() {
        let text = Text("struct x {\n\t__s32 fd;\n\t__u64 type;\n};".to_owned());
        let mut old = inquiry("6.12");
        old.structure(&text, &grown(Some("7.0"))).unwrap();
        assert!(old.problems[0].contains("came with Linux 7.0"), "{:?}", old.problems);
    }

    /// As the list of contexts has grown: `name[16]` at the end.
    #[test]
    fn a_structure_that_has_grown_at_its_end_is_no_difference() {
        let judge = |text: &str| {
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(dir.path().join("x.h"), format!("#include <linux/types.h>\n{text}")).unwrap();
            let mut inquiry = inquiry("7.4");
            inquiry.structure(&Text(text.to_owned()), &grown(None)).unwrap();
            let Inquiry { questions, members, .. } = inquiry;
            let mut answers = Compiler("cc".into()).ask(&questions, &["x.h"], dir.path()).unwrap();
            let longer = accept_growth(&questions, &members, &mut answers);
            (longer, differences(&questions, &answers, CRATE))
        };
        let (longer, problems) = judge("struct x {\n\t__s32 fd;\n\t__u64 type;\n\t__u8 name[16];\n};");
        assert_eq!((longer, problems), (vec!["x (16 to 32 bytes: name[16])".to_owned()], vec![]));
        let (longer, problems) = judge("struct x {\n\t__s32 fd;\n\t__u8 name[16];\n\t__u64 type;\n};");
        assert!(longer.len() == 1 && problems.iter().any(|problem| problem.contains("x.type is 24")), "{problems:?}");
        let (longer, problems) = judge("struct x {\n\t__s32 fd;\n\t__s32 type;\n};");
        assert!(longer.is_empty() && problems.iter().any(|problem| problem.contains("sizes")), "{problems:?}");
    }

    #[test]
    fn a_request_is_longer_only_with_its_structure() {
        let question = |kind, expected| Question { kind, name: "x".into(), code: String::new(), expected };
        let code = 0xc020_6447;
        let questions = [
            question("sizes", 0x20),
            question("requests", code),
            question("requests", code),
            question("requests", code),
        ];
        let mut answers = [0x30, 0xc030_6447, 0xc028_6447, 0xc030_6448];
        accept_growth(&questions, &BTreeMap::new(), &mut answers);
        assert_eq!(answers, [0x20, code, 0xc028_6447, 0xc030_6448]);
        let mut answers = [0x20, 0xc030_6447, code, code];
        assert!(accept_growth(&questions, &BTreeMap::new(), &mut answers).is_empty());
        assert_eq!(differences(&questions, &answers, CRATE).len(), 1);
    }

    #[test]
    fn updates_of_a_known_kernel_declare_nothing_new() {
        let newer = |version| is_newer(version).unwrap();
        assert_eq!(["7.2.13", "7.3", "7.3.5", "7.4", "8.0"].map(newer), [false, false, false, true, true]);
    }

    #[test]
    fn what_the_crate_does_not_declare_needs_a_reason() {
        let text = "struct amdxdna_brand_new {\n\tint a;\n};\n#define GUARD\n#define AMDXDNA_QOS_HIGH_PRIORITY 0x180\n\
                    enum amdxdna_drm_ioctl_id {\n\tDRM_AMDXDNA_CREATE_BO,\n\tDRM_AMDXDNA_FLY = 99,\n};\n";
        let (left_out, undeclared) = undeclared(&Text(text.to_owned())).unwrap();
        assert_eq!(left_out.keys().collect::<Vec<_>>(), ["AMDXDNA_QOS_HIGH_PRIORITY", "DRM_AMDXDNA_CREATE_BO"]);
        assert_eq!(undeclared, ["DRM_AMDXDNA_FLY", "amdxdna_brand_new"]);
    }
}
