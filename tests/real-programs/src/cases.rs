//! Small programs for one core, with the registers and memory that another model of the instruction set expects after them.
//!
//! A case is a line of JSON: `name`; `end`, `done` or `fault`; `regs`, registers to hexadecimal numbers; `mem`, addresses to bytes;
//! `words`, the bundles as hexadecimal bytes, or absent: then the program is `cases/NAME.s` beside the file, in the syntax of our
//! assembler. What other fields say is for people.

use aie_emulator::core::{Core, Fault, Layout, Stop, Surroundings};
use aie_isa::Isa;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// Memory that a case has.
const MEMORY: usize = 1 << 20;
const PROGRAM: usize = 16 << 10;
/// No case needs more bundles.
const MOST_BUNDLES: u64 = 100_000;

#[derive(Debug, Deserialize)]
struct Case {
    name: String,
    end: String,
    #[serde(default)]
    words: Option<Vec<String>>,
    #[serde(default)]
    regs: BTreeMap<String, String>,
    #[serde(default)]
    mem: BTreeMap<String, String>,
}

/// What became of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Ended as expected, with the expected values.
    Agrees,
    /// Both models stop.
    BothStop,
    /// The other model stops at something that this one computes.
    GoesOn,
    /// There is no program beside the file.
    NoProgram,
    /// Ended differently, or with other values.
    Differs,
}

/// One case.
#[derive(Debug, Serialize)]
pub struct Judged {
    pub name: String,
    pub verdict: Verdict,
    /// How the core stopped, or what differs.
    pub detail: String,
    /// Rows of the instruction table that were executed.
    #[serde(skip)]
    pub rows: BTreeSet<&'static str>,
}

/// One megabyte of memory, and nothing else.
struct Memory(Vec<u8>);

impl Memory {
    fn part(&mut self, address: u32, bytes: usize) -> Result<&mut [u8], Fault> {
        let at = address as usize;
        self.0.get_mut(at..at + bytes).ok_or(Fault::Memory { address, bytes })
    }
}

impl Surroundings for Memory {
    fn load(&mut self, address: u32, bytes: &mut [u8]) -> Result<(), Fault> {
        let length = bytes.len();
        self.part(address, length).map(|part| bytes.copy_from_slice(part))
    }

    fn store(&mut self, address: u32, bytes: &[u8]) -> Result<(), Fault> {
        self.part(address, bytes.len()).map(|part| part.copy_from_slice(bytes))
    }
}

/// Runs the cases of a file, for AIE2P.
pub fn run(text: &str, folder: &Path) -> Result<Vec<Judged>, String> {
    let isa = Isa::aie2p();
    let layout = Arc::new(Layout::new(isa));
    let case = |line| serde_json::from_str::<Case>(line).map_err(|error| format!("{error}: {line}"));
    text.lines().map(|line| judge(isa, &layout, case(line)?, folder)).collect()
}

fn judge(isa: &'static Isa, layout: &Arc<Layout>, case: Case, folder: &Path) -> Result<Judged, String> {
    let name = case.name.clone();
    let Some(code) = program(isa, &case, folder)? else {
        return Ok(Judged { name, verdict: Verdict::NoProgram, detail: String::new(), rows: BTreeSet::new() });
    };
    let mut core = Core::new(isa, Arc::clone(layout), PROGRAM, 0);
    if !core.write_program(0, &code) {
        return Err(format!("{name}: {} bytes are more than program memory has", code.len()));
    }
    let mut memory = Memory(vec![0; MEMORY]);
    let stop = core.run(MOST_BUNDLES, &mut memory);
    let (verdict, detail) = match (case.end.as_str(), &stop) {
        ("done", Stop::Done) => match difference(isa, &case, &core, &memory.0)? {
            None => (Verdict::Agrees, String::new()),
            Some(difference) => (Verdict::Differs, difference),
        },
        ("fault", Stop::Fault { pc, fault }) => (Verdict::BothStop, format!("at {pc:#x}: {fault}")),
        ("fault", Stop::Done) => (Verdict::GoesOn, "ends in done".to_owned()),
        (_, stop) => (Verdict::Differs, format!("{stop:?}")),
    };
    Ok(Judged { name, verdict, detail, rows: core.executed().map(|row| row.key).collect() })
}

/// The program of a case, if there is one.
fn program(isa: &Isa, case: &Case, folder: &Path) -> Result<Option<Vec<u8>>, String> {
    if let Some(words) = &case.words {
        return words
            .iter()
            .map(|word| bytes(word))
            .collect::<Option<Vec<_>>>()
            .map(|words| Some(words.concat()))
            .ok_or_else(|| format!("{}: words that are not hexadecimal", case.name));
    }
    let path = folder.join("cases").join(format!("{}.s", case.name));
    match std::fs::read_to_string(&path) {
        Ok(text) => isa.assemble(&text).map(Some).map_err(|error| format!("{}: {error}", path.display())),
        Err(_) => Ok(None),
    }
}

/// The first value that is not as expected.
fn difference(isa: &'static Isa, case: &Case, core: &Core, memory: &[u8]) -> Result<Option<String>, String> {
    for (name, value) in &case.regs {
        let register = isa.register_named(name).ok_or_else(|| format!("{}: no register {name}", case.name))?;
        let found: String = core.register(register).iter().rev().map(|byte| format!("{byte:02x}")).collect();
        let expected = value.trim_start_matches("0x").to_lowercase();
        if found.trim_start_matches('0') != expected.trim_start_matches('0') {
            return Ok(Some(format!("{name} is {found} and has to be {expected}")));
        }
    }
    for (address, value) in &case.mem {
        let wrong = || format!("{}: {address} to {value} is no memory", case.name);
        let at = usize::from_str_radix(address.trim_start_matches("0x"), 16).map_err(|_| wrong())?;
        let expected = bytes(value).ok_or_else(wrong)?;
        let found = memory.get(at..at + expected.len()).ok_or_else(wrong)?;
        if found != expected {
            return Ok(Some(format!("memory at {address} is {found:02x?} and has to be {expected:02x?}")));
        }
    }
    Ok(None)
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = hex.bytes().filter(|digit| !digit.is_ascii_whitespace()).collect();
    digits
        .chunks(2)
        .map(|pair| std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(end: &str, program: &str, value: &str) -> Verdict {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("cases")).unwrap();
        std::fs::write(folder.path().join("cases/a.s"), program).unwrap();
        let line = format!(r#"{{"name": "a", "end": "{end}", "regs": {{"r0": "{value}"}}}}"#);
        run(&line, folder.path()).unwrap()[0].verdict
    }

    #[test]
    fn cases_are_judged_by_their_end_and_values() {
        assert_eq!(verdict("done", "movx r0, #7\ndone", "0x7"), Verdict::Agrees);
        assert_eq!(verdict("done", "movx r0, #8\ndone", "0x7"), Verdict::Differs);
        assert_eq!(verdict("done", "divs r0, r31, r1, r2\ndone", "0x7"), Verdict::Differs);
        assert_eq!(verdict("fault", "acq #3, r0\ndone", "0x7"), Verdict::BothStop);
        assert_eq!(verdict("fault", "done", "0x7"), Verdict::GoesOn);
    }
}
