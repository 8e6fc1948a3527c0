//! The checker has nothing against compiled programs of others. They are no part of the project: `REAL_PROGRAMS` names a folder
//! with PDIs, xclbins and ELF files of cores, and the test is ignored without being asked for:
//!
//! ```text
//! REAL_PROGRAMS=DIR cargo test -p aie-jit-native --test real_programs -- --ignored --nocapture
//! ```
//!
//! It prints how many programs, bundles and reads were checked, how many findings of which rule there were, and the first of
//! each; `REAL_PROGRAMS_RULE=RULE` prints all of one rule.

use aie_hal::format::cdo::CdoCommand;
use aie_hal::format::pdi::Pdi;
use aie_hal::format::{tile_location, xclbin};
use aie_isa::Isa;
use aie_jit_native::check::{Finding, Program, Severity, Stack, check};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Pieces of program memory.
type Pieces = Vec<(u32, Vec<u8>)>;

/// Offset of program memory in a core tile, and its size.
const PROGRAM: std::ops::Range<u32> = 0x2_0000..0x2_4000;
/// Rows below this have no cores.
const FIRST_CORE_ROW: u8 = 2;

/// What a CDO writes to program memory, core by core.
fn of_pdi(bytes: &[u8]) -> Vec<Pieces> {
    let Ok(pdi) = Pdi::parse(bytes) else { return Vec::new() };
    let mut cores: BTreeMap<(u8, u8), BTreeMap<u32, [u8; 4]>> = BTreeMap::new();
    let mut write = |address: u64, index: usize, value: u32| {
        let (column, row, offset) = tile_location(address as u32 + 4 * index as u32);
        if row >= FIRST_CORE_ROW && PROGRAM.contains(&offset) {
            cores.entry((column, row)).or_default().insert(offset - PROGRAM.start, value.to_le_bytes());
        }
    };
    for command in pdi.cdo().commands() {
        match command {
            CdoCommand::Write { address, value } => write(address, 0, value),
            CdoCommand::DmaWrite { address, data } => {
                data.iter().enumerate().for_each(|(index, value)| write(address, index, value));
            }
            _ => {}
        }
    }
    let joined = |words: BTreeMap<u32, [u8; 4]>| {
        let mut pieces = Pieces::new();
        for (address, word) in words {
            match pieces.last_mut() {
                Some((start, bytes)) if *start + bytes.len() as u32 == address => bytes.extend(word),
                _ => pieces.push((address, word.to_vec())),
            }
        }
        pieces
    };
    cores.into_values().map(joined).collect()
}

/// The executable segments of a 32-bit little-endian ELF file for AI Engines (machine 264).
fn of_elf(bytes: &[u8]) -> Option<Pieces> {
    let half = |at: usize| Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    if !bytes.starts_with(b"\x7fELF\x01\x01") || half(18)? != 264 {
        return None;
    }
    let (table, size, count) = (word(28)? as usize, usize::from(half(42)?), usize::from(half(44)?));
    let mut pieces = Pieces::new();
    for header in (0..count).map(|index| table + index * size) {
        const LOADED: u32 = 1;
        const EXECUTABLE: u32 = 1;
        if word(header)? == LOADED && word(header + 24)? & EXECUTABLE != 0 {
            let (offset, bytes_there) = (word(header + 4)? as usize, word(header + 16)? as usize);
            pieces.push((word(header + 8)?, bytes.get(offset..offset + bytes_there)?.to_vec()));
        }
    }
    Some(pieces).filter(|pieces| !pieces.is_empty())
}

fn programs(bytes: &[u8]) -> Vec<Pieces> {
    if let Some(program) = of_elf(bytes) {
        return vec![program];
    }
    if xclbin::is_xclbin(bytes) {
        return xclbin::pdis(bytes).unwrap_or_default().into_iter().flat_map(of_pdi).collect();
    }
    of_pdi(bytes)
}

fn files_below(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() { files_below(&path, found) } else { found.push(path) }
    }
}

/// The generation as which most of a program decodes.
fn isa_of(program: &Pieces) -> &'static Isa {
    let wrong = |isa: &&'static Isa| {
        let count = |bytes: &[u8]| isa.listing(bytes).filter(|line| line.bundle.is_err()).count();
        program.iter().map(|(_, bytes)| count(bytes)).sum::<usize>()
    };
    [Isa::aie2(), Isa::aie2p()].into_iter().min_by_key(wrong).unwrap()
}

#[derive(Default)]
struct Totals {
    programs: usize,
    bundles: usize,
    reached: usize,
    reads: usize,
    /// Programs with a stack of known depth, and of unknown depth.
    stacks: (usize, usize),
}

#[test]
#[ignore = "needs REAL_PROGRAMS, a folder with compiled programs of others"]
fn programs_of_others_have_no_errors() {
    let folder = std::env::var("REAL_PROGRAMS").expect("REAL_PROGRAMS is a folder with PDIs, xclbins or ELF files");
    let wanted = std::env::var("REAL_PROGRAMS_RULE").ok();
    let mut files = Vec::new();
    files_below(Path::new(&folder), &mut files);
    files.sort();
    let mut seen = BTreeSet::new();
    let mut totals: BTreeMap<&str, Totals> = BTreeMap::new();
    type Found = (usize, BTreeSet<usize>, Option<String>);
    let mut rules: BTreeMap<(&str, Severity, &str), Found> = BTreeMap::new();
    for file in files {
        for program in programs(&std::fs::read(&file).unwrap()) {
            if !seen.insert(program.clone()) {
                continue;
            }
            let isa = isa_of(&program);
            let pieces = program.iter().map(|(address, bytes)| (*address, bytes.as_slice())).collect();
            let report = check(&Program::from_pieces(isa, pieces));
            let total = totals.entry(isa.name()).or_default();
            total.programs += 1;
            total.bundles += program.iter().map(|(_, bytes)| isa.listing(bytes).count()).sum::<usize>();
            total.reached += report.bundles;
            total.reads += report.reads;
            total.stacks.0 += usize::from(matches!(report.stack, Some(Stack::Bytes(_))));
            total.stacks.1 += usize::from(matches!(report.stack, Some(Stack::Unknown(_))));
            for finding in &report.findings {
                let rule = finding.problem.rule();
                let text = |finding: &Finding| format!("{}: {finding}", file.display());
                let (count, in_programs, first) =
                    rules.entry((isa.name(), finding.problem.severity(), rule)).or_default();
                *count += 1;
                in_programs.insert(seen.len());
                first.get_or_insert_with(|| text(finding));
                if wanted.as_deref() == Some(rule) {
                    println!("{}", text(finding));
                }
            }
        }
    }
    for (isa, Totals { programs, bundles, reached, reads, stacks: (known, unknown) }) in &totals {
        println!(
            "{isa}: {programs} distinct programs of {bundles} bundles; {reached} bundles on paths, {reads} reads followed; \
             {known} stacks of known depth, {unknown} of unknown depth"
        );
    }
    for ((isa, severity, rule), (count, programs, first)) in &rules {
        println!(
            "{isa} {severity:?}: {rule}: {count} in {} programs; {}",
            programs.len(),
            first.as_deref().unwrap_or("")
        );
    }
    assert!(!seen.is_empty(), "no programs in {folder}");
    let errors: Vec<_> = rules.keys().filter(|(_, severity, _)| *severity == Severity::Error).collect();
    assert!(errors.is_empty(), "{errors:?}");
}
