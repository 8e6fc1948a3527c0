//! Every bundle of every program, decoded and encoded again.

use crate::containers::{self, CoreProgram};
use aie_isa::Isa;
use anyhow::Context;
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The generations a program can be of.
const ARCHS: [&str; 2] = ["aie2", "aie2p"];

/// What was found of one generation.
#[derive(Debug, Default, Serialize)]
pub struct Encoding {
    pub arch: &'static str,
    /// Files with programs.
    pub files: usize,
    /// Programs of cores.
    pub programs: usize,
    /// Programs whose bytes no other has.
    pub distinct: usize,
    pub bundles: usize,
    /// Bundles that were re-encoded to their own bytes.
    pub identical: usize,
    /// Instructions of the table that occur.
    pub instructions: usize,
    /// Formats of the table that occur.
    pub formats: usize,
}

/// One program read as of one generation.
#[derive(Default)]
struct Reading {
    bundles: usize,
    identical: usize,
    instructions: BTreeSet<&'static str>,
    formats: BTreeSet<&'static str>,
    /// The first bundle that is not re-encoded to its own bytes.
    problem: Option<String>,
}

impl Encoding {
    /// Reads all files of a folder; problems get a line each.
    pub fn of(folder: &Path, files: &[PathBuf], problems: &mut Vec<String>) -> Vec<Self> {
        let mut rows = ARCHS.map(|arch| Self { arch, ..Self::default() });
        let (mut seen, mut used) = (BTreeSet::new(), [(); 2].map(|()| Reading::default()));
        for file in files.iter().filter(|file| folder.join(file).is_file()) {
            let bytes = std::fs::read(folder.join(file)).with_context(|| format!("cannot read {}", file.display()));
            let programs = match bytes.and_then(|bytes| containers::programs(&bytes)) {
                Ok(programs) => programs,
                // One unreadable file says nothing about the others.
                Err(cause) => {
                    problems.push(format!("{}: {cause:#}", file.display()));
                    continue;
                }
            };
            let mut archs = BTreeSet::new();
            for program in programs.into_iter().flatten() {
                let (arch, reading) = best(&program);
                if let Some(problem) = &reading.problem {
                    problems.push(format!("{}: {problem}", file.display()));
                }
                let (row, used) = (&mut rows[arch], &mut used[arch]);
                row.programs += 1;
                row.bundles += reading.bundles;
                row.identical += reading.identical;
                row.distinct += usize::from(seen.insert(program));
                used.instructions.extend(reading.instructions);
                used.formats.extend(reading.formats);
                archs.insert(arch);
            }
            for arch in archs {
                rows[arch].files += 1;
            }
        }
        for (row, used) in rows.iter_mut().zip(used) {
            (row.instructions, row.formats) = (used.instructions.len(), used.formats.len());
        }
        rows.into()
    }
}

/// Files do not say the generation of their programs: it is the one as which all bundles decode, else the one with fewer
/// problems.
fn best(program: &CoreProgram) -> (usize, Reading) {
    let readings = ARCHS.iter().filter_map(|arch| Isa::for_arch(arch)).map(|isa| read(isa, program)).enumerate();
    let wrong = |reading: &Reading| (reading.bundles - reading.identical, reading.bundles);
    readings.min_by_key(|(_, reading)| wrong(reading)).unwrap_or_default()
}

fn read(isa: &'static Isa, program: &CoreProgram) -> Reading {
    let mut reading = Reading::default();
    for code in program {
        for line in isa.listing(&code.bytes) {
            reading.bundles += 1;
            let address = code.address as usize + line.address;
            let bytes = &code.bytes[line.address..line.address + line.bytes];
            let problem = match line.bundle {
                Ok(bundle) => {
                    reading.formats.insert(bundle.format.name);
                    reading.instructions.extend(bundle.instructions().map(|decoded| decoded.instruction.key));
                    match isa.encode(&bundle) {
                        Ok(again) if again.as_slice() == bytes => {
                            reading.identical += 1;
                            continue;
                        }
                        Ok(again) => format!("{bytes:02x?} is encoded as {again:02x?}"),
                        Err(error) => error.to_string(),
                    }
                }
                Err(error) => error.to_string(),
            };
            reading.problem.get_or_insert(format!("{}, {address:#x}: {problem}", isa.name()));
        }
    }
    reading
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::containers::Code;

    #[test]
    fn files_behind_an_unreadable_container_are_read() {
        use aie_hal::format::cdo::CdoBuilder;
        use aie_hal::format::pdi;
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.xclbin"), b"xclbin2\0 and no more").unwrap();
        let words: Vec<u32> = Isa::for_arch("aie2")
            .unwrap()
            .assemble("done")
            .unwrap()
            .chunks(4)
            .map(|word| u32::from_le_bytes([word[0], word[1], *word.get(2).unwrap_or(&0), *word.get(3).unwrap_or(&0)]))
            .collect();
        let mut cdo = CdoBuilder::new();
        cdo.dma_write(0x0022_0000, &words);
        std::fs::write(folder.path().join("b.pdi"), pdi::write(&cdo).unwrap()).unwrap();
        let mut problems = Vec::new();
        let rows = Encoding::of(folder.path(), &["a.xclbin".into(), "b.pdi".into()], &mut problems);
        assert!(problems[0].starts_with("a.xclbin: "), "{problems:?}");
        assert_eq!(rows.iter().map(|row| row.files).sum::<usize>(), 1);
    }

    #[test]
    fn a_program_is_of_the_generation_it_decodes_as() {
        for (index, arch) in ARCHS.iter().enumerate() {
            let isa = Isa::for_arch(arch).unwrap();
            let bytes = isa.assemble("add r0, r1, r2; mova r3, #7\nmul r0, r1, r2\ndone").unwrap();
            let (found, reading) = best(&vec![Code { address: 0, bytes }]);
            assert_eq!((found, reading.bundles, reading.identical), (index, 3, 3));
            assert!(reading.problem.is_none());
        }
    }

    #[test]
    fn what_does_not_decode_is_a_problem() {
        let (_, reading) = best(&vec![Code { address: 0x40, bytes: vec![0xff; 6] }]);
        assert!(reading.identical < reading.bundles && reading.problem.unwrap().contains("0x4"));
    }
}
