//! Which modelled instructions have been seen to compute right values, and which have not: the page `docs/emulator-evidence.md`.
//!
//! `data/evidence.tsv` says what programs of others executed whose results were right, and small programs that agree with AMD's
//! public executor. `cargo xtask real-programs --evidence` writes it, from programs that are not part of the project. The page
//! follows from it and from the tables; with `AIE_WRITE_EVIDENCE=1` the test writes the page.

use aie_emulator::core::{computes_the_same, unmodelled};
use aie_isa::{Instruction, Isa, Slot};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write;

/// Rows that `silicon.rs` executes beside values that an NPU1 gave.
const SILICON: [&str; 4] = [
    "vconv.bf16.fp32 wl0, bml0",
    "vconv.fp32.bf16 bml0, wl0",
    "vfloor.s32.bf16 x0, wl2, s0",
    "vmul.f bml0, x0, x2, r0",
];
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/emulator-evidence.md");
const SLOTS: [(Slot, &str, &str); 7] = [
    (Slot::Alu, "alu", "scalar arithmetic, branches, locks"),
    (Slot::Lda, "lda", "loads, first address"),
    (Slot::Ldb, "ldb", "loads, second address"),
    (Slot::St, "st", "stores"),
    (Slot::Mv, "mv", "moves, shuffles, lanes of integers"),
    (Slot::Vec, "vec", "multiplications, accumulators"),
    (Slot::Lng, "lng", "long immediates"),
];

/// What there is for a row, the strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Evidence {
    Silicon,
    Program,
    Case,
    /// The row of the other generation, which has the same model.
    OtherGeneration,
    Nothing,
}

/// The evidence of the modelled rows of a generation: those of the file, those of the silicon cases, and those of `SILICON`.
fn direct(isa: &'static Isa) -> HashMap<&'static str, Evidence> {
    let mut found = HashMap::new();
    for line in include_str!("data/evidence.tsv").lines().skip(1) {
        let mut cells = line.split('\t');
        let [arch, key, kinds] = [(); 3].map(|()| cells.next().unwrap_or_else(|| panic!("{line}")));
        if arch == isa.name() {
            let evidence = if kinds.contains("program") { Evidence::Program } else { Evidence::Case };
            assert!(isa.instructions().iter().any(|row| row.key == key), "{arch} has no row {key}");
            found.insert(key, evidence);
        }
    }
    let cases = if isa.name() == "aie2" {
        include_str!("data/silicon-cases/aie2.tsv")
    } else {
        include_str!("data/silicon-cases/aie2p.tsv")
    };
    let keys = cases.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split('\t').next());
    // Of cases with unset registers these are judged.
    let is_judged =
        |key: &str| !key.contains(' ') || ["DIVS ", "SELEQZ ", "SELNEZ "].iter().any(|row| key.starts_with(row));
    for key in keys.filter(|key| is_judged(key)).filter_map(|key| key.split(' ').next()).filter(|key| !key.is_empty()) {
        assert!(isa.instructions().iter().any(|row| row.key == key), "{} has no row {key}", isa.name());
        found.insert(key, Evidence::Silicon);
    }
    if isa.name() == "aie2" {
        for text in SILICON {
            let code = isa.assemble(text).unwrap();
            for decoded in isa.decode(&code).unwrap().instructions().filter(|row| !row.instruction.is_nop()) {
                found.insert(decoded.instruction.key, Evidence::Silicon);
            }
        }
    }
    found
}

/// The rows of a generation that do something and have a model, with their evidence.
fn judged(isa: &'static Isa, other: &'static Isa) -> Vec<(&'static Instruction, Evidence)> {
    let (own, others) = (direct(isa), direct(other));
    let of = |row: &'static Instruction| {
        let same = |twin: &&Instruction| others.contains_key(twin.key) && computes_the_same((isa, row), (other, twin));
        let twin = || other.instructions().iter().find(same).map(|_| Evidence::OtherGeneration);
        own.get(row.key).copied().or_else(twin).unwrap_or(Evidence::Nothing)
    };
    let rows = isa.instructions().iter().filter(|row| !row.is_nop() && unmodelled(row).is_none());
    rows.map(|row| (row, of(row))).collect()
}

fn page() -> String {
    let mut page = String::from(
        "# Evidence for what instructions compute\n\n\
         Every row of the instruction tables that the [emulated array](emulator.md) has a model of, by what has shown that the model is \
         right:\n\n\
         - **silicon**: beside values that an NPU1 or a Strix Halo gave (`driver-mock/emulator/tests/silicon.rs`, `silicon_cases.rs`);\n\
         - **program**: executed in a [program of others](emulator.md#programs-of-others) whose results were right;\n\
         - **case**: executed in a small program that agrees with AMD's public executor, and in nothing above;\n\
         - **other generation**: the row of the other generation with the same text, operation and operand sizes has one of these;\n\
         - **none**: from public descriptions alone (LLVM's tables and headers, aie_api); our own tests execute most of them, but \
         what they expect is our reading, too.\n\n\
         A row has many operands and modes, of which a program uses some: evidence is for the row, not for each of them. \
         No-operations are left out. The page is checked, and written, by `driver-mock/emulator/tests/evidence.rs`.\n\n\
         | generation | slot | what | rows | silicon | program | case | other generation | none |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    let mut lists = String::new();
    for (isa, other) in [(Isa::aie2(), Isa::aie2p()), (Isa::aie2p(), Isa::aie2())] {
        let rows = judged(isa, other);
        let line = |name: &str, what: &str, rows: &[Evidence]| {
            let count = |evidence| rows.iter().filter(|found| **found == evidence).count();
            let counts = [
                count(Evidence::Silicon),
                count(Evidence::Program),
                count(Evidence::Case),
                count(Evidence::OtherGeneration),
                count(Evidence::Nothing),
            ]
            .map(|count| count.to_string());
            format!("| {} | {name} | {what} | {} | {} |\n", isa.name(), rows.len(), counts.join(" | "))
        };
        for (slot, name, what) in SLOTS {
            let of_slot = rows.iter().filter(|(row, _)| row.slot == slot);
            page += &line(name, what, &of_slot.map(|(_, evidence)| *evidence).collect::<Vec<_>>());
        }
        page += &line("all", "", &rows.iter().map(|(_, evidence)| *evidence).collect::<Vec<_>>());
        writeln!(lists, "\n## {}: rows without evidence\n", isa.name()).unwrap();
        for (slot, name, _) in SLOTS {
            let mut by_mnemonic = BTreeMap::<_, BTreeSet<_>>::new();
            for (row, _) in rows.iter().filter(|(row, evidence)| row.slot == slot && *evidence == Evidence::Nothing) {
                by_mnemonic.entry(row.mnemonic).or_default().insert(row.key);
            }
            if !by_mnemonic.is_empty() {
                writeln!(lists, "**{name}**\n\n| mnemonic | rows |\n|---|---|").unwrap();
                for (mnemonic, keys) in by_mnemonic {
                    let keys: Vec<_> = keys.into_iter().map(|key| format!("`{key}`")).collect();
                    writeln!(lists, "| `{mnemonic}` | {} |", keys.join(" ")).unwrap();
                }
                lists.push('\n');
            }
        }
    }
    (page + &lists).trim_end().to_owned() + "\n"
}

#[test]
fn the_page_lists_what_has_no_evidence() {
    let page = page();
    if std::env::var_os("AIE_WRITE_EVIDENCE").is_some() {
        std::fs::write(PAGE, &page).unwrap();
    }
    let found = std::fs::read_to_string(PAGE).unwrap_or_default();
    let different = found.lines().zip(page.lines()).find(|(found, expected)| found != expected);
    assert!(
        found == page,
        "docs/emulator-evidence.md is out of date, run this test with AIE_WRITE_EVIDENCE=1: {different:?}"
    );
}
